//! Single packets that a node in the middle intercepts: those that it forwards, refuses, or processes.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::Input;
use signalbox_gist::wire::{GistError, MessageType};
use signalbox_node::Config;
use signalbox_sim::{Captured, Family, LinkConfig, Packet};

use crate::net::Role::{Full, WithoutPing};
use crate::net::{Net, all_sessions, config, gist, header, make, message};

/// Offsets in the payload of a datagram.
const HOPS: usize = 5;
const NSLP: usize = 8;
const TYPE: usize = 10;

/// Three nodes, and a genuine Query of the first node that passed the middle one.
struct Stage {
    net: Net,
    query: Packet,
}

impl Stage {
    /// A row whose middle node has these settings.
    fn new(seed: u64, middle: Config) -> Self {
        let mut net = Net::row(seed, &[Full, WithoutPing, Full], &LinkConfig::default());
        net.sim.capture(net.links[0]);
        net.ping(1, Family::V4, Some(1));
        net.done(1, Duration::from_secs(10));
        let query = net.sim.captured().find(|c| header(c).kind == MessageType::QUERY).unwrap().packet.clone();

        let mut sim = signalbox_sim::Sim::new(seed);
        let nodes = vec![
            sim.add_engine("first", crate::net::full),
            sim.add_engine("middle", move |boot| make(boot, middle.clone())),
            sim.add_engine("last", crate::net::full),
        ];
        let links = signalbox_sim::topology::chain(&mut sim, &nodes, &LinkConfig::default());
        sim.capture_all();
        Self { net: Net { sim, nodes, links }, query }
    }

    /// A row whose middle node lacks the application.
    fn without_ping(seed: u64) -> Self {
        Self::new(seed, Config { ping: None, ..config() })
    }

    /// The Query with some octets of its payload changed.
    fn query_with(&self, changes: &[(usize, &[u8])]) -> Packet {
        let mut packet = self.query.clone();
        for (at, octets) in changes {
            packet.payload[*at..*at + octets.len()].copy_from_slice(octets);
        }
        packet
    }

    /// Where the value of the MRI begins: after 8 octets of header and 4 of the object's.
    fn mri(&self) -> usize {
        4 + 8 + 4
    }

    /// Gives the middle node a packet of the first node, and returns the packets that it sent as a result: to the first
    /// node, and to the last.
    fn offer(&mut self, packet: &Packet) -> (Vec<Captured>, Vec<Captured>) {
        let before = self.net.sim.captured().count();
        let (link, middle) = (self.net.links[0], self.net.nodes[1]);
        let received = packet.received(self.net.sim.ifindex(middle, link));
        self.net.sim.input(middle, Input::Packet(received));
        self.net.sim.run_for(Duration::from_micros(900));
        let sent = self.net.sim.captured().skip(before).filter(|c| c.from == middle).cloned();
        sent.partition(|c| c.link == link)
    }

    /// Offers a packet that must be forwarded unchanged with one less TTL.
    fn assert_passes(&mut self, packet: &Packet) {
        let (back, on) = self.offer(packet);
        assert!(back.is_empty(), "{back:?}");
        assert_eq!(on.len(), 1, "{packet:?}");
        let on = &on[0].packet;
        assert_eq!(on.ttl, packet.ttl - 1);
        assert_eq!((on.src, on.dst, on.tos), (packet.src, packet.dst, packet.tos));
        assert_eq!((&on.options, &on.payload), (&packet.options, &packet.payload));
    }

    /// Offers a packet that must be refused with this error and not forwarded.
    fn assert_refused(&mut self, packet: &Packet, expected: GistError) {
        let (back, on) = self.offer(packet);
        assert!(on.is_empty(), "{on:?}");
        assert_eq!(back.len(), 1, "{expected}");
        assert_eq!(message(&back[0]).error.unwrap().error, expected);
        assert!(back[0].packet.options.is_empty() && !header(&back[0]).c);
        assert_eq!(all_sessions(&self.net.sim), 0);
    }
}

/// GIST-3.6-01, GIST-4.3.1-03, GIST-4.3.4-01, GIST-5.3.2.3-06, GIST-5.3.2.3-07: a packet that is not of GIST is
/// forwarded unchanged.
#[test]
fn what_is_not_gist_is_passed_on() {
    let mut stage = Stage::new(1, config());
    let other_magic = stage.query_with(&[(3, &[0xa4])]).payload;
    for payload in [&b""[..], b"\x4e\x04\xbd", b"something else altogether", &other_magic] {
        stage.assert_passes(&Packet { payload: payload.to_vec(), ..stage.query.clone() });
    }
    // A genuine message, but no Q-mode packet: there is no Router Alert.
    stage.assert_passes(&Packet { options: Vec::new(), ..stage.query.clone() });
    let worn = Packet { ttl: 1, payload: Vec::new(), ..stage.query.clone() };
    assert_eq!(stage.offer(&worn), (Vec::new(), Vec::new()));
    assert_eq!(all_sessions(&stage.net.sim), 0);
}

/// GIST-4.3.1-04, GIST-4.3.4-16: of a message for another application the node reads only the common header and the
/// MRI. GIST-5.3.2.4-02: the message is forwarded with its IP options.
#[test]
fn a_message_of_another_application_may_be_anything() {
    let mut stage = Stage::new(2, config());
    let garbage = stage.mri() + 24;
    let mut packet = stage.query_with(&[(NSLP, &[0x7f, 0xd0])]);
    packet.payload[garbage..].fill(0xee);
    packet.options = vec![1, 1, 1, 1, 0x94, 4, 0, 9];
    let (back, on) = stage.offer(&packet);
    assert!(back.is_empty());
    let mut expected = packet.payload.clone();
    expected[HOPS] -= 1;
    assert_eq!((&on[0].packet.payload, &on[0].packet.options), (&expected, &packet.options));
}

/// GIST-4.3.1-05, GIST-4.3.1-07: the NSLPID decides the application of a message, the Router Alert value does not.
#[test]
fn the_alert_value_is_no_address() {
    let mut stage = Stage::new(3, config());
    for value in [0u16, 7, 65_535] {
        let options = signalbox_core::packet::router_alert_v4(value).to_vec();
        let (back, on) = stage.offer(&Packet { options, ..stage.query.clone() });
        assert!(on.is_empty());
        assert_eq!(back.iter().map(|c| header(c).kind).collect::<Vec<_>>(), [MessageType::RESPONSE]);
    }
}

/// GIST-4.3.1-08: hop count 0 is refused for every destination. GIST-4.3.1-09: hop count 1 is enough for the node
/// itself, but not to be forwarded.
#[test]
fn hop_counts_that_have_run_out() {
    let (mut with, mut without) = (Stage::new(4, config()), Stage::without_ping(4));
    let (zero, one) = (with.query_with(&[(HOPS, &[0])]), with.query_with(&[(HOPS, &[1])]));
    with.assert_refused(&zero, GistError::HOP_LIMIT_EXCEEDED);
    without.assert_refused(&zero, GistError::HOP_LIMIT_EXCEEDED);
    without.assert_refused(&one, GistError::HOP_LIMIT_EXCEEDED);
    let (back, _) = with.offer(&one);
    assert_eq!(header(&back[0]).kind, MessageType::RESPONSE);
}

/// GIST-4.3.4-13: a flow to a whole network has no single path. GIST-4.3.4-15: the node cannot judge the flow of an
/// unknown routing method.
#[test]
fn a_flow_too_wild_is_refused() {
    let mut stage = Stage::without_ping(5);
    let prefix = stage.mri() + 4 + 4 + 4 + 1;
    assert_eq!(stage.query.payload[prefix], 32);
    let wild = stage.query_with(&[(prefix, &[24])]);
    stage.assert_refused(&wild, GistError::MRI_TOO_WILD);
    let unknown = stage.query_with(&[(prefix, &[24]), (stage.mri(), &[99])]);
    let (back, on) = stage.offer(&unknown);
    assert_eq!((back.len(), on.len()), (0, 1));
}

/// GIST-4.3.4-09: a message that is too large for the next link is refused with the MTU of the link.
#[test]
fn a_message_larger_than_the_next_link_is_refused() {
    let mut stage = Stage::without_ping(6);
    let small = LinkConfig { mtu: 120, ..LinkConfig::default() };
    let beyond = stage.net.sim.add_router("beyond");
    stage.net.sim.link(stage.net.nodes[1], beyond, &small);
    let dst = stage.net.sim.address(beyond, Family::V4);
    let IpAddr::V4(v4) = dst else { panic!("{dst}") };
    let mut packet = stage.query_with(&[(stage.mri() + 8, &v4.octets())]);
    packet.dst.set_ip(dst);
    stage.assert_refused(&packet, GistError::MESSAGE_TOO_LARGE);
}

/// GIST-5.3.1-04: a datagram to the node itself without the magic number is not answered. GIST-4.3.4-03: Data for a
/// missing application is answered with an Error.
#[test]
fn datagrams_to_the_node_itself() {
    let mut stage = Stage::new(7, config());
    let router = stage.net.towards_first(1, Family::V4);
    let mut packet = Packet { options: Vec::new(), ..stage.query.clone() };
    packet.dst.set_ip(router);
    packet.src.set_ip(stage.net.towards_last(0, Family::V4));
    for payload in [b"no magic".to_vec(), stage.query_with(&[(3, &[0xa4])]).payload] {
        let silent = Packet { payload, ..packet.clone() };
        assert_eq!(stage.offer(&silent), (Vec::new(), Vec::new()));
    }
    // Type Data in normal encapsulation, with S=1 and without R.
    packet.payload[TYPE..TYPE + 2].copy_from_slice(&[MessageType::DATA.0, 0x80]);
    packet.payload[NSLP..NSLP + 2].copy_from_slice(&[0x7f, 0xd0]);
    stage.assert_refused(&packet, GistError::UNKNOWN_NSLPID);
}

/// GIST-5.3.2.3-08, GIST-5.3.2.3-09: candidates beyond the limit are discarded.
#[test]
fn interception_is_limited() {
    let mut middle = config();
    gist(&mut middle).intercept_rate = 20;
    let mut stage = Stage::new(8, middle);
    let query = stage.query.clone();
    let answered = (0..200).filter(|_| !stage.offer(&query).0.is_empty()).count();
    // 200 packets take 180 ms: 5 answers at once, then 20 a second.
    assert!((5..=10).contains(&answered), "{answered}");
}

/// GIST-5.3.3-21: the limit for a node's own messages does not apply to those that it forwards.
#[test]
fn forwarding_is_not_limited_by_the_rate_of_own_messages() {
    let mut middle = Config { ping: None, ..config() };
    gist(&mut middle).dmode_rate = 1;
    gist(&mut middle).dmode_burst = 1;
    let mut stage = Stage::new(9, middle);
    let query = stage.query.clone();
    assert!((0..200).all(|_| stage.offer(&query).1.len() == 1));
}

/// GIST-5.8.1.2-07: a flow whose source is this node cannot come from another node.
#[test]
fn a_flow_that_cannot_enter_is_refused() {
    let mut stage = Stage::new(10, config());
    let IpAddr::V4(own) = stage.net.towards_last(1, Family::V4) else { panic!("IPv4") };
    let query = stage.query_with(&[(stage.mri() + 4, &own.octets())]);
    stage.assert_refused(&query, GistError::INGRESS_FILTER_FAILURE);
}
