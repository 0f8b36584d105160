//! Discovery by DNS, with answers as a resolver sends them.

use proptest::prelude::*;
use signalbox_core::node::Output;

use super::*;

const DST: &str = "10.9.0.2";
const NEAR: &str = "10.5.0.1";
const FAR: &str = "10.5.0.2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(ms: u64) -> Time {
    Time::from_micros(ms * 1000)
}

/// A record: its name, type, time to live and content.
type Record = (&'static str, u16, u32, Vec<u8>);

fn name(text: &str) -> Vec<u8> {
    let mut octets: Vec<u8> = text
        .split('.')
        .filter(|label| !label.is_empty())
        .flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat())
        .collect();
    octets.push(0);
    octets
}

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> Record {
    let numbers = [priority, weight, port].map(u16::to_be_bytes).concat();
    ("_casp._tcp.example.net", 33, 300, [numbers, name(target)].concat())
}

fn a(owner: &'static str, address: &str) -> Record {
    let IpAddr::V4(address) = ip(address) else { panic!("IPv4") };
    (owner, 1, 300, address.octets().to_vec())
}

/// An alias: the owner's records are those of another name.
fn cname(owner: &'static str, ttl: u32, target: &str) -> Record {
    (owner, 5, ttl, name(target))
}

/// The queries of one write: identifier, and the question as it is.
fn queries(mut octets: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((length, rest)) = octets.split_first_chunk() {
        let (query, rest) = rest.split_at(u16::from_be_bytes(*length).into());
        found.push((message::id(query).unwrap(), query[12..].to_vec()));
        octets = rest;
    }
    found
}

/// The answer to a query with a response code.
fn answer((id, question): &(u16, Vec<u8>), code: u8, records: &[Record]) -> Vec<u8> {
    let mut message = [&id.to_be_bytes()[..], &[0x81, 0x80 | code, 0, 1]].concat();
    message.extend(u16::try_from(records.len()).unwrap().to_be_bytes());
    message.extend([0; 4]);
    message.extend_from_slice(question);
    for (owner, kind, ttl, data) in records {
        message.extend(name(owner));
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message.extend(ttl.to_be_bytes());
        message.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        message.extend_from_slice(data);
    }
    [&u16::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
}

struct Rig {
    dns: Dns,
    out: Outbox,
    /// The resolver's records.
    zone: Vec<Record>,
}

impl Rig {
    fn new(resolvers: &[&str], zone: Vec<Record>) -> Self {
        let resolvers = resolvers.iter().map(|one| ip(one)).collect();
        let prefix = Prefix { addr: ip("10.9.0.0"), len: 16 };
        let domains = vec![(prefix, "Example.net".to_owned())];
        let config = DnsConfig { resolvers, domains };
        Self { dns: Dns::new(&config, &engine::Config::default(), [7; 32]), out: Outbox::default(), zone }
    }

    /// Gives the stream that the mechanism wants a source address.
    fn open(&mut self, now: Time) -> Option<(StreamId, IpAddr)> {
        let (stream, peer) = self.dns.opening()?;
        self.dns.open(now, stream, Some(ip("10.0.0.1")), &mut self.out);
        Some((stream, peer))
    }

    fn written(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut found = Vec::new();
        while let Some(down) = self.out.pop() {
            if let Output::StreamWrite { octets, .. } = self.out.output::<()>(down) {
                found.extend(queries(octets));
            }
        }
        found
    }

    /// The resolver answers until the lookup is over, its octets one at a time.
    fn resolve(&mut self, now: Time, stream: StreamId) {
        self.dns.connected(stream, &mut self.out);
        loop {
            let asked = self.written();
            if asked.is_empty() {
                return;
            }
            for query in asked {
                let (mut owner, mut records) = (query.1[..query.1.len() - 4].to_vec(), Vec::new());
                let kind = u16::from_be_bytes(*query.1[owner.len()..].first_chunk().unwrap());
                for _ in 0..20 {
                    let of_kind = |kind| self.zone.iter().filter(move |one| one.1 == kind);
                    let of_owner = |one: &&Record| name(one.0) == owner;
                    records.extend(of_kind(kind).filter(of_owner).cloned());
                    let Some(alias) = of_kind(5).find(of_owner).cloned() else { break };
                    owner.clone_from(&alias.3);
                    records.push(alias);
                }
                for octet in answer(&query, 0, &records) {
                    self.dns.octets(now, stream, &[octet], &mut self.out);
                }
            }
        }
    }

    /// A whole discovery; `None`: no server is found.
    fn discover(&mut self, now: Time) -> Option<IpAddr> {
        self.dns.discover(now, 1, ip(DST));
        while let Some((stream, _)) = self.open(now) {
            self.resolve(now, stream);
        }
        let (id, address) = self.dns.answer().expect("the discovery ends");
        assert_eq!(id, 1);
        address
    }
}

fn zone() -> Vec<Record> {
    vec![
        srv(20, 1, 50003, "far.example.net"),
        srv(10, 1, 50003, "near.example.net"),
        a("near.example.net", NEAR),
        a("far.example.net", FAR),
    ]
}

#[test]
fn the_server_of_lowest_priority_that_can_be_reached_is_the_next_node() {
    let mut rig = Rig::new(&["10.0.0.53"], zone());
    assert_eq!(rig.discover(at(0)), Some(ip(NEAR)));
    rig.dns.unreachable(at(1), ip(NEAR));
    assert_eq!(rig.discover(at(2)), Some(ip(FAR)));
    // If none can be reached, the first one is tried again.
    rig.dns.unreachable(at(3), ip(FAR));
    assert_eq!(rig.discover(at(4)), Some(ip(NEAR)));
    assert_eq!(rig.dns.counters.found, 1, "the result is stored");
    assert_eq!(rig.discover(at(70_000)), Some(ip(NEAR)), "a server is not avoided for ever");
}

#[test]
fn servers_of_one_priority_share_by_weight() {
    let zone = vec![
        srv(10, 30, 50003, "near.example.net"),
        srv(10, 10, 50003, "far.example.net"),
        a("near.example.net", NEAR),
        a("far.example.net", FAR),
    ];
    let mut rig = Rig::new(&["10.0.0.53"], zone);
    let near = (0..400).filter(|_| rig.discover(at(0)) == Some(ip(NEAR))).count();
    assert!((250..350).contains(&near), "{near}");
}

#[test]
fn a_result_lasts_as_long_as_its_records() {
    let mut rig = Rig::new(&["10.0.0.53"], zone());
    assert_eq!(rig.discover(at(0)), Some(ip(NEAR)));
    rig.zone = vec![srv(10, 1, 50003, "far.example.net"), a("far.example.net", FAR)];
    assert_eq!(rig.discover(at(299_999)), Some(ip(NEAR)));
    assert_eq!(rig.discover(at(300_000)), Some(ip(FAR)));
}

/// The name of the service and that of a server may be aliases (RFC 1034 §3.6.2).
#[test]
fn aliases_are_followed() {
    let server =
        |target| ("elsewhere.example", 33, 300, [&[0, 1, 0, 1, 0xc3, 0x53][..], &name(target)].concat());
    let zone = vec![
        cname("_casp._tcp.example.net", 30, "here.example"),
        cname("here.example", 300, "elsewhere.example"),
        server("near.example.net"),
        cname("near.example.net", 300, "one.example"),
        a("one.example", NEAR),
    ];
    let mut rig = Rig::new(&["10.0.0.53"], zone);
    assert_eq!(rig.discover(at(0)), Some(ip(NEAR)));
    rig.zone = self::zone();
    rig.zone.retain(|one| one.0 != "near.example.net");
    assert_eq!(rig.discover(at(29_999)), Some(ip(NEAR)));
    assert_eq!(
        rig.discover(at(30_000)),
        Some(ip(FAR)),
        "the result lasts as long as the shortest of the aliases"
    );
}

/// Aliases that lead in a circle, or too far, are no answer.
#[test]
fn aliases_end() {
    let names = ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"];
    let chain = |length: usize| {
        let mut zone = vec![srv(10, 1, 50003, "a1")];
        zone.extend((1..=length).map(|n| cname(names[n - 1], 300, names[n])));
        zone.push(a(names[length], NEAR));
        zone
    };
    let mut circle = vec![srv(10, 1, 50003, "a1"), cname("a1", 300, "a2"), cname("a2", 300, "a1")];
    assert_eq!(Rig::new(&["10.0.0.53"], circle.clone()).discover(at(0)), None);
    circle.truncate(1);
    circle.push(cname("a1", 300, "a1"));
    assert_eq!(Rig::new(&["10.0.0.53"], circle).discover(at(0)), None);
    assert_eq!(Rig::new(&["10.0.0.53"], chain(8)).discover(at(0)), Some(ip(NEAR)));
    let mut far = chain(8);
    far.pop();
    far.extend([cname("a9", 300, "b"), a("b", NEAR)]);
    assert_eq!(Rig::new(&["10.0.0.53"], far).discover(at(0)), None);
}

#[test]
fn what_is_not_a_server_for_this_node_is_not_used() {
    for (zone, why) in [
        (vec![], "no record"),
        (vec![srv(0, 0, 50003, "")], "the domain has no such service (RFC 2782)"),
        (vec![srv(0, 0, 7, "near.example.net"), a("near.example.net", NEAR)], "another port"),
        (vec![srv(0, 0, 50003, "near.example.net"), a("far.example.net", FAR)], "an address of another host"),
    ] {
        let mut rig = Rig::new(&["10.0.0.53"], zone);
        assert_eq!(rig.discover(at(0)), None, "{why}");
        rig.zone = self::zone();
        assert_eq!(rig.discover(at(9_999)), None, "{why} is stored");
        assert_eq!(rig.discover(at(10_000)), Some(ip(NEAR)), "but not for long");
    }
    let mut rig = Rig::new(&["10.0.0.53"], zone());
    rig.dns.set_own(vec![ip(FAR)]);
    assert_eq!(rig.discover(at(0)), None, "a server of the domain finds no other one");
    rig.dns.discover(at(0), 5, ip("10.8.0.1"));
    assert_eq!(rig.dns.answer(), Some((5, None)), "a destination without a domain");
}

#[test]
fn the_next_resolver_is_asked_when_one_does_not_answer() {
    let mut rig = Rig::new(&["10.0.0.51", "10.0.0.52", "10.0.0.53", "10.0.0.54"], zone());
    rig.dns.discover(at(0), 1, ip(DST));
    rig.dns.discover(at(0), 2, ip(DST));
    // The first one does not exist, the second one says nothing, the third one refuses.
    let (stream, peer) = rig.open(at(0)).unwrap();
    assert_eq!(peer, ip("10.0.0.51"));
    rig.dns.closed(at(100), stream);
    let (second, peer) = rig.open(at(100)).unwrap();
    assert_eq!(peer, ip("10.0.0.52"));
    rig.dns.connected(second, &mut rig.out);
    assert_eq!(rig.dns.next_deadline(), Some(at(2100)));
    rig.dns.timer(at(2100), &mut rig.out);
    let (third, peer) = rig.open(at(2100)).unwrap();
    assert_eq!(peer, ip("10.0.0.53"));
    rig.written();
    rig.dns.connected(third, &mut rig.out);
    let query = rig.written().remove(0);
    rig.dns.octets(at(2200), third, &answer(&query, 5, &[]), &mut rig.out);
    let (fourth, _) = rig.open(at(2200)).unwrap();
    rig.written();
    rig.resolve(at(2300), fourth);
    let answers: Vec<_> = core::iter::from_fn(|| rig.dns.answer()).collect();
    assert_eq!(answers, [(1, Some(ip(NEAR))), (2, Some(ip(NEAR)))], "one lookup serves both");
    assert_eq!(rig.dns.counters.attempts_failed, 3);
}

#[test]
fn without_resolvers_the_discovery_ends() {
    let mut rig = Rig::new(&["10.0.0.53"], zone());
    rig.dns.discover(at(0), 1, ip(DST));
    let (stream, _) = rig.dns.opening().unwrap();
    rig.dns.open(at(0), stream, None, &mut rig.out);
    assert_eq!(rig.dns.answer(), Some((1, None)));
    assert_eq!(rig.dns.next_deadline(), None);
}

#[test]
fn an_answer_to_another_question_is_no_answer() {
    let mut rig = Rig::new(&["10.0.0.53"], zone());
    // The identifier, the flags, the question, or the owner of the record.
    for (changed, now) in [0, 1, 2, 14, 40].into_iter().zip((0..).step_by(20_000).map(at)) {
        rig.dns.discover(now, 1, ip(DST));
        let (stream, _) = rig.open(now).unwrap();
        rig.dns.connected(stream, &mut rig.out);
        let query = rig.written().remove(0);
        let mut octets = answer(&query, 0, &zone()[..2]);
        // The length stands before it.
        octets[2 + changed] ^= 0x80;
        rig.dns.octets(now, stream, &octets, &mut rig.out);
        assert_eq!(rig.dns.answer(), Some((1, None)), "octet {changed}");
    }
}

#[test]
fn names_have_the_lengths_of_the_rfc() {
    let longest = vec!["a".repeat(63); 3].join(".");
    assert!(Name::from_text(&format!("{longest}.{}", "a".repeat(61))).is_some());
    assert!(Name::from_text(&format!("{longest}.{}", "a".repeat(62))).is_none());
    assert!(Name::from_text(&"a".repeat(64)).is_none());
    for wrong in ["", ".", "a..b", ".a", "a b", "a\u{e9}.net"] {
        assert!(Name::from_text(wrong).is_none(), "{wrong}");
    }
    assert_eq!(Name::from_text("Example.NET."), Name::from_text("example.net"));
    assert!(is_domain("example.net") && !is_domain(&format!("{longest}.{}", "a".repeat(61))));
}

/// A compressed name ends, whatever its pointers are (RFC 1035 §4.1.4).
#[test]
fn pointers_of_names_lead_back() {
    let asked = Name::from_text("b.net").unwrap();
    let mut query = Vec::new();
    message::query(&mut query, 1, &asked, Kind::A);
    let question = query[14..].to_vec();
    let message = |owner: &[u8]| {
        let header = [0, 1, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        let record = [0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 0, 0, 1];
        [&header[..], &question, owner, &record].concat()
    };
    let read = |owner: &[u8]| {
        let mut found = Vec::new();
        let result = message::answer(&message(owner), &asked, Kind::A, |ttl, data| found.push((ttl, data)));
        result.map(|()| found)
    };
    let there = Ok(vec![(9, Data::Address(ip("10.0.0.1")))]);
    assert_eq!(read(&[0xc0, 12]), there);
    assert_eq!(read(&[1, b'b', 0xc0, 14]), there);
    // To itself, forwards, and to a pointer to itself.
    for wrong in [&[0xc0, 23][..], &[0xc0, 30], &[0xc0, 23, 0xc0, 23], &[1, b'b', 0xc0, 23]] {
        assert_eq!(read(wrong), Err(Fault::Malformed), "{wrong:?}");
    }
}

proptest! {
    /// Whatever a resolver sends, a discovery ends within its time, and nothing grows.
    #[test]
    fn arbitrary_octets_of_a_resolver_end_in_an_answer(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..80), 0..20),
        cut in 0usize..90,
        change in (0usize..90, any::<u8>()),
    ) {
        let mut rig = Rig::new(&["10.0.0.53"], zone());
        rig.dns.discover(at(0), 1, ip(DST));
        let (stream, _) = rig.open(at(0)).unwrap();
        rig.dns.connected(stream, &mut rig.out);
        // An answer that was damaged, then any octets.
        let query = rig.written().remove(0);
        let mut octets = answer(&query, 0, &zone()[..2]);
        octets.truncate(cut.max(1));
        if let Some(octet) = octets.get_mut(change.0) {
            *octet ^= change.1;
        }
        rig.dns.octets(at(1), stream, &octets, &mut rig.out);
        for piece in &pieces {
            rig.dns.octets(at(2), stream, piece, &mut rig.out);
        }
        rig.dns.timer(at(2000), &mut rig.out);
        prop_assert!(rig.dns.answer().is_some());
        prop_assert!(rig.dns.answer().is_none());
        prop_assert_eq!(rig.dns.next_deadline(), None::<Time>);
        prop_assert!(rig.dns.domains[0].lookup.is_none());
    }
}
