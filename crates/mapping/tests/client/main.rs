//! A client and what servers answer it.

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_mapping::client::{Client, Config, Event, Output, Wanted};
use signalbox_mapping::wire::{
    Body, Filter, NatPmpRequest, NatPmpResponse, NatPmpResult, Options, Request, Response, ResultCode,
    Transport, refusal,
};
use signalbox_wire::Writer;

const NONCE: [u8; 12] = [5; 12];
const NAME: (u8, u16) = (6, 22_000);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Sent(Vec<u8>),
    Event(Event),
}

struct Rig {
    client: Client,
    now: Time,
}

fn place(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn server() -> SocketAddr {
    place("198.51.100.1:5351")
}

fn composed(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = Vec::new();
    write(&mut Writer::new(&mut octets));
    octets
}

fn wanted() -> Wanted {
    Wanted {
        protocol: 6,
        port: 22_000,
        nonce: NONCE,
        wish: place("0.0.0.0:0"),
        exactly: false,
        filters: Vec::new(),
        lifetime: Duration::from_secs(7_200),
    }
}

impl Rig {
    fn new() -> Self {
        let config = Config { server: server(), local: "198.51.100.2".parse().unwrap(), max_mappings: 8 };
        Self { client: Client::new(config, [4; 32]), now: Time::from_secs(1) }
    }

    fn seen(&mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        while let Some(output) = self.client.poll() {
            all.push(match output {
                Output::Send(octets) => Seen::Sent(octets.to_vec()),
                Output::Event(event) => Seen::Event(event),
            });
        }
        all
    }

    fn want(&mut self, wanted: Wanted) -> Vec<Seen> {
        self.client.want(self.now, wanted);
        self.seen()
    }

    /// A mapping is wanted; its request.
    fn asked(&mut self, wanted: Wanted) -> Vec<u8> {
        let mut seen = self.want(wanted);
        assert_eq!(seen.len(), 1, "{seen:?}");
        let Seen::Sent(octets) = seen.remove(0) else { panic!("{seen:?}") };
        octets
    }

    fn packet(&mut self, octets: &[u8]) -> Vec<Seen> {
        self.client.packet(self.now, server(), octets);
        self.seen()
    }

    /// Lets time pass; what left, with the time.
    fn wait(&mut self, time: Duration) -> Vec<(Duration, Seen)> {
        let (start, until) = (self.now, self.now + time);
        let mut all = Vec::new();
        while let Some(due) = self.client.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.client.timer(self.now);
            all.extend(self.seen().into_iter().map(|one| (self.now.since(start), one)));
        }
        self.now = until;
        all
    }

    /// The server grants what a request asks for, at this place.
    fn granted(&mut self, request: &[u8], at: &str, lifetime: u32) -> Vec<Seen> {
        let epoch = u32::try_from(self.now.as_micros() / 1_000_000).unwrap();
        let answer = answer(request, ResultCode::SUCCESS, at, lifetime, epoch);
        self.packet(&answer)
    }
}

/// A response of PCP to a request.
fn answer(request: &[u8], result: ResultCode, at: &str, lifetime: u32, epoch: u32) -> Vec<u8> {
    let request = Request::parse(request).unwrap();
    let Body::Map(mut map) = request.body else { panic!("{request:?}") };
    map.external = place(at);
    let response = Response { result, lifetime, epoch, body: Body::Map(map), options: Options::default() };
    composed(|w| response.encode(w))
}

fn map_of(octets: &[u8]) -> signalbox_mapping::wire::Map {
    let Body::Map(map) = Request::parse(octets).unwrap().body else { panic!("no MAP") };
    map
}

/// PCP-8.1-03, PCP-11.1-04, PCP-11.2-01, PCPPROXY-3-06, PCPPROXY-3-07, PCPPROXY-3-09: the request has the client's own address and nonce; any place that the
/// server gives is taken.
#[test]
fn a_mapping_is_asked_for_and_granted() {
    let mut rig = Rig::new();
    let octets = rig.asked(wanted());
    let request = Request::parse(&octets).unwrap();
    assert_eq!((request.client, request.lifetime), ("198.51.100.2".parse().unwrap(), 7_200));
    let map = map_of(&octets);
    assert_eq!(
        (map.nonce, map.protocol, map.internal_port, map.external),
        (NONCE, 6, 22_000, place("0.0.0.0:0"))
    );
    let seen = rig.granted(&octets, "203.0.113.9:4444", 7_200);
    let lifetime = Duration::from_secs(7_200);
    assert_eq!(
        seen,
        [Seen::Event(Event::Granted { name: NAME, place: place("203.0.113.9:4444"), lifetime })]
    );
}

/// PCP-8.1.1-01: a retransmission is the same request, as long as the server does not answer.
#[test]
fn a_request_is_sent_again() {
    let mut rig = Rig::new();
    let first = rig.asked(wanted());
    let again = rig.wait(Duration::from_secs(60));
    assert!((4..=5).contains(&again.len()), "{again:?}");
    assert!(again.iter().all(|(_, one)| *one == Seen::Sent(first.clone())));
    assert_eq!(rig.granted(&first, "203.0.113.9:1", 120).len(), 1);
}

/// PCP-11.2.1-01, PCP-11.2.1-02: a renewal wishes the place that it has; without an answer the mapping ends with its lifetime.
#[test]
fn a_mapping_is_renewed() {
    let mut rig = Rig::new();
    let first = rig.asked(wanted());
    rig.granted(&first, "203.0.113.9:4444", 1_000);
    let seen = rig.wait(Duration::from_secs(626));
    let (at, Seen::Sent(renewal)) = &seen[0] else { panic!("{seen:?}") };
    assert!(*at >= Duration::from_secs(500) && *at <= Duration::from_secs(626), "{at:?}");
    assert_eq!(map_of(renewal).external, place("203.0.113.9:4444"));
    let renewal = renewal.clone();
    assert_eq!(rig.granted(&renewal, "203.0.113.9:4444", 1_000).len(), 1);
    let seen = rig.wait(Duration::from_secs(1_000));
    // PCP-11.2.1-03: single packets at a half, three quarters, seven eighths and so on.
    let times: Vec<_> = seen.iter().map(|(at, _)| at.as_secs()).collect();
    assert!((500..=626).contains(&times[0]) && (750..=813).contains(&times[1]), "{times:?}");
    assert!(times[..times.len() - 1].windows(2).all(|pair| pair[1] - pair[0] >= 4), "{times:?}");
    assert_eq!(seen.last().unwrap(), &(Duration::from_secs(1_000), Seen::Event(Event::Ended { name: NAME })));
    assert_eq!(rig.client.len(), 0);
}

/// PCP-8.3-01, PCP-8.3-02, PCP-8.3-04, PCP-8.3-05, PCP-11.4-01: what is no response of the server to a request of this client.
#[test]
fn responses_that_are_dropped() {
    let mut rig = Rig::new();
    let octets = rig.asked(wanted());
    let right = answer(&octets, ResultCode::SUCCESS, "203.0.113.9:1", 600, 1);
    for from in ["198.51.100.1:5352", "198.51.100.3:5351"] {
        rig.client.packet(rig.now, place(from), &right);
    }
    let mut others =
        vec![right[..20].to_vec(), [right.clone(), vec![0]].concat(), right[..56].to_vec(), octets.clone()];
    for at in [1, 24, 36, 41] {
        let mut changed = right.clone();
        changed[at] ^= 3;
        others.push(changed);
    }
    others.push(vec![]);
    for other in &others {
        rig.client.packet(rig.now, server(), other);
    }
    assert_eq!(rig.seen(), []);
    let counts = rig.client.counts();
    assert_eq!(usize::try_from(counts.stray + counts.malformed).unwrap(), others.len() + 2);
    assert_eq!(rig.packet(&right).len(), 1);
}

/// PCP-8-01, PCP-7.3-13: a later and different response is accepted; unknown options are ignored.
#[test]
fn a_later_response_counts() {
    let mut rig = Rig::new();
    let octets = rig.asked(wanted());
    rig.granted(&octets, "203.0.113.9:1", 600);
    let update = [answer(&octets, ResultCode::SUCCESS, "203.0.113.9:2", 600, 1), vec![60, 0, 0, 0]].concat();
    let lifetime = Duration::from_secs(600);
    assert_eq!(
        rig.packet(&update),
        [Seen::Event(Event::Granted { name: NAME, place: place("203.0.113.9:2"), lifetime })]
    );
}

/// PCP-8.3-07: no lifetime is longer than a day.
#[test]
fn a_lifetime_without_sense_is_limited() {
    let mut rig = Rig::new();
    let octets = rig.asked(wanted());
    let seen = rig.granted(&octets, "203.0.113.9:1", u32::MAX);
    let [Seen::Event(Event::Granted { lifetime, .. })] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(*lifetime, Duration::from_secs(86_400));
}

/// PCP-8.3-08, PCP-11.4-02, PCPPROXY-3-16: an error ends the request, and goes to the caller with its code and lifetime; after NO_RESOURCES no new
/// mapping is asked for within its lifetime.
#[test]
fn errors() {
    let mut rig = Rig::new();
    let octets = rig.asked(wanted());
    let error = composed(|w| refusal(&octets, true, ResultCode::NO_RESOURCES, 30, 1, w));
    let code = ResultCode::NO_RESOURCES;
    let refused =
        |seconds| Seen::Event(Event::Refused { name: NAME, code, lifetime: Duration::from_secs(seconds) });
    assert_eq!(rig.packet(&error), [refused(30)]);
    assert!(rig.wait(Duration::from_secs(10)).is_empty(), "it is not sent again");
    assert_eq!(rig.want(wanted()), [refused(20)]);
    rig.wait(Duration::from_secs(20));
    rig.asked(wanted());
}

/// PCP-13.2-07: with PREFER_FAILURE a success is taken only for the place that was suggested.
#[test]
fn an_exact_wish() {
    let mut rig = Rig::new();
    let exact = Wanted { wish: place("203.0.113.9:80"), exactly: true, ..wanted() };
    let octets = rig.asked(exact);
    assert_eq!(octets[60..], [2, 0, 0, 0]);
    assert_eq!(rig.granted(&octets, "203.0.113.9:81", 600), []);
    assert_eq!(rig.granted(&octets, "203.0.113.9:80", 600).len(), 1);
}

/// PCPPROXY-3-04: a release goes upstream until it is answered, and no longer than 30 s.
#[test]
fn a_release() {
    let mut rig = Rig::new();
    let octets = rig.asked(wanted());
    rig.granted(&octets, "203.0.113.9:1", 600);
    rig.client.release(rig.now, NAME);
    let seen = rig.seen();
    let [Seen::Sent(deletion)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(Request::parse(deletion).unwrap().lifetime, 0);
    let again = rig.wait(Duration::from_secs(10));
    assert!(
        !again.is_empty() && again.iter().all(|(_, one)| *one == Seen::Sent(deletion.clone())),
        "{again:?}"
    );
    let deletion = deletion.clone();
    assert_eq!(rig.granted(&deletion, "203.0.113.9:1", 0), []);
    assert_eq!((rig.client.len(), rig.wait(Duration::from_secs(700))), (0, vec![]));

    rig.asked(wanted());
    rig.client.release(rig.now, NAME);
    rig.wait(Duration::from_secs(31));
    assert_eq!(rig.client.len(), 0, "a server that does not answer");
}

/// PCP-8.5-08, PCPPROXY-3-14: a response with an invalid epoch renews all mappings at once.
#[test]
fn a_server_that_lost_its_mappings() {
    let mut rig = Rig::new();
    for port in [1, 2] {
        let octets = rig.asked(Wanted { port, ..wanted() });
        rig.granted(&octets, "203.0.113.9:1", 7_200);
    }
    rig.wait(Duration::from_secs(1_000));
    let octets = rig.asked(Wanted { port: 3, ..wanted() });
    rig.packet(&answer(&octets, ResultCode::SUCCESS, "203.0.113.9:3", 7_200, 5));
    let seen = rig.wait(Duration::from_secs(1));
    let ports: Vec<_> = seen
        .iter()
        .map(|(_, one)| match one {
            Seen::Sent(octets) => map_of(octets).internal_port,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(ports.contains(&1) && ports.contains(&2), "{ports:?}");
    assert_eq!(rig.client.counts().lost, 1);
}

/// PCP-14.1.3-06: after an announcement of a loss renewals are spread over five seconds; one from another host says nothing.
#[test]
fn an_announcement() {
    let mut rig = Rig::new();
    for port in 1..=8 {
        let octets = rig.asked(Wanted { port, ..wanted() });
        rig.granted(&octets, "203.0.113.9:1", 7_200);
    }
    rig.wait(Duration::from_secs(100));
    let announce = |epoch| {
        let options = Options::default();
        let response =
            Response { result: ResultCode::SUCCESS, lifetime: 0, epoch, body: Body::Announce, options };
        composed(|w| response.encode(w))
    };
    rig.client.announcement(rig.now, place("198.51.100.3:5351"), &announce(0));
    let now = u32::try_from(rig.now.as_micros() / 1_000_000).unwrap();
    rig.client.announcement(rig.now, server(), &announce(now));
    assert_eq!(rig.wait(Duration::from_secs(6)), []);
    rig.client.announcement(rig.now, server(), &announce(0));
    let times: Vec<_> = rig.wait(Duration::from_millis(5_010)).iter().map(|(at, _)| *at).collect();
    assert!(times.len() >= 8 && times.iter().any(|at| *at > Duration::from_secs(1)), "{times:?}");
}

/// PCP-9-04, PCP-8.3-03, PCP-A-01, NATPMP-3.3-10: a server that knows NAT-PMP only is asked by it, each time anew after PCP.
#[test]
fn a_server_of_nat_pmp() {
    let mut rig = Rig::new();
    rig.asked(wanted());
    let unsupported = composed(|w| NatPmpResponse::UnsupportedVersion { epoch: 9 }.encode(w));
    let seen = rig.packet(&unsupported);
    let [Seen::Sent(request)] = &seen[..] else { panic!("{seen:?}") };
    let expected = NatPmpRequest::Map {
        transport: Transport::Tcp,
        internal_port: 22_000,
        external_port: 0,
        lifetime: 7_200,
    };
    assert_eq!(NatPmpRequest::parse(request), Ok(expected));
    assert!(rig.client.speaks_nat_pmp(NAME));
    let granted = NatPmpResponse::Map {
        transport: Transport::Tcp,
        result: NatPmpResult::SUCCESS,
        epoch: 9,
        internal_port: 22_000,
        external_port: 4_444,
        lifetime: 7_200,
    };
    let lifetime = Duration::from_secs(7_200);
    let event = Event::Granted { name: NAME, place: place("0.0.0.0:4444"), lifetime };
    assert_eq!(rig.packet(&composed(|w| granted.encode(w))), [Seen::Event(event)]);
    let seen = rig.wait(Duration::from_secs(4_501));
    let (_, Seen::Sent(renewal)) = &seen[0] else { panic!("{seen:?}") };
    assert_eq!(map_of(renewal).external.port(), 4_444);
    let seen = rig.packet(&unsupported);
    let [Seen::Sent(request)] = &seen[..] else { panic!("{seen:?}") };
    let Ok(NatPmpRequest::Map { external_port, .. }) = NatPmpRequest::parse(request) else { panic!() };
    assert_eq!(external_port, 4_444);
}

/// NATPMP-3.1-01: nine attempts, then the caller is told.
#[test]
fn a_server_of_nat_pmp_that_is_silent() {
    let mut rig = Rig::new();
    rig.asked(wanted());
    let unsupported = composed(|w| NatPmpResponse::UnsupportedVersion { epoch: 9 }.encode(w));
    rig.packet(&unsupported);
    let seen = rig.wait(Duration::from_secs(200));
    assert_eq!(seen.len(), 9, "{seen:?}");
    let (at, last) = seen.last().unwrap();
    assert_eq!((at.as_millis(), last), (127_750, &Seen::Event(Event::Silent { name: NAME })));
}

/// What NAT-PMP cannot ask for is refused, and not asked for without its filters.
#[test]
fn filters_need_pcp() {
    let mut rig = Rig::new();
    let filter = Filter { prefix: Some(24), port: 0, address: "192.0.2.0".parse().unwrap() };
    rig.asked(Wanted { filters: vec![filter], ..wanted() });
    let unsupported = composed(|w| NatPmpResponse::UnsupportedVersion { epoch: 9 }.encode(w));
    let code = ResultCode::UNSUPP_VERSION;
    let refused = Event::Refused { name: NAME, code, lifetime: Duration::from_secs(1_800) };
    assert_eq!(rig.packet(&unsupported), [Seen::Event(refused)]);
}

/// The table has a limit.
#[test]
fn a_full_table() {
    let mut rig = Rig::new();
    for port in 1..=8 {
        rig.asked(Wanted { port, ..wanted() });
    }
    let seen = rig.want(Wanted { port: 9, ..wanted() });
    assert!(
        matches!(&seen[..], [Seen::Event(Event::Refused { code: ResultCode::NO_RESOURCES, .. })]),
        "{seen:?}"
    );
}

/// A server whose epochs change with each response does not set the pace.
#[test]
fn a_server_with_changing_epochs() {
    let mut rig = Rig::new();
    for port in 1..=8 {
        let octets = rig.asked(Wanted { port, ..wanted() });
        rig.granted(&octets, "203.0.113.9:1", 7_200);
    }
    rig.wait(Duration::from_secs(100));
    let mut waiting = vec![rig.asked(Wanted { port: 1, ..wanted() })];
    let mut sent = 0;
    for round in 0..200_u32 {
        let epoch = if round % 2 == 0 { 0 } else { 1_000_000 };
        for octets in std::mem::take(&mut waiting) {
            let seen = rig.packet(&answer(&octets, ResultCode::SUCCESS, "203.0.113.9:1", 7_200, epoch));
            assert!(seen.iter().all(|one| matches!(one, Seen::Event(_))), "{seen:?}");
        }
        for (_, one) in rig.wait(Duration::from_millis(10)) {
            let Seen::Sent(octets) = one else { panic!("{one:?}") };
            sent += 1;
            waiting.push(octets);
        }
    }
    assert!((7..=16).contains(&sent), "{sent} requests in 2 s");
}

/// A mapping that stands outlives a server that is silent at its renewal; a forged response that answers nothing changes nothing.
#[test]
fn nat_pmp_at_a_renewal() {
    let mut rig = Rig::new();
    rig.asked(wanted());
    let unsupported = composed(|w| NatPmpResponse::UnsupportedVersion { epoch: 9 }.encode(w));
    rig.packet(&unsupported);
    let granted = |external_port| NatPmpResponse::Map {
        transport: Transport::Tcp,
        result: NatPmpResult::SUCCESS,
        epoch: 9,
        internal_port: 22_000,
        external_port,
        lifetime: 7_200,
    };
    assert_eq!(rig.packet(&composed(|w| granted(4_444).encode(w))).len(), 1);
    assert_eq!(rig.packet(&composed(|w| granted(5_555).encode(w))), [], "nothing was asked");
    let seen = rig.wait(Duration::from_secs(4_501));
    assert!(matches!(seen[0].1, Seen::Sent(_)));
    rig.packet(&unsupported);
    let seen = rig.wait(Duration::from_secs(2_690));
    assert!(seen.iter().all(|(_, one)| matches!(one, Seen::Sent(_))), "{seen:?}");
    assert_eq!(rig.client.len(), 1);
    let seen = rig.wait(Duration::from_secs(20));
    assert_eq!(seen.last().map(|(_, one)| one.clone()), Some(Seen::Event(Event::Ended { name: NAME })));
}

/// A server that has answered by PCP is not given up for one packet without a proof.
#[test]
fn a_forged_fallback() {
    let mut rig = Rig::new();
    let octets = rig.asked(wanted());
    rig.granted(&octets, "203.0.113.9:1", 600);
    rig.asked(Wanted { port: 80, ..wanted() });
    let unsupported = composed(|w| NatPmpResponse::UnsupportedVersion { epoch: 9 }.encode(w));
    assert_eq!(rig.packet(&unsupported), []);
    assert!(!rig.client.speaks_nat_pmp((6, 80)));
}

/// A mapping that is wanted again while it is released does not end with the release.
#[test]
fn a_release_that_is_taken_back() {
    let mut rig = Rig::new();
    rig.asked(wanted());
    rig.client.release(rig.now, NAME);
    rig.seen();
    rig.asked(wanted());
    let seen = rig.wait(Duration::from_secs(40));
    assert!(seen.iter().all(|(_, one)| matches!(one, Seen::Sent(_))), "{seen:?}");
    assert_eq!(rig.client.len(), 1);
}
