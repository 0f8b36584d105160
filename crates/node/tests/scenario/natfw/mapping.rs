//! Programs that do not signal ask their router by NAT-PMP (RFC 6886) and PCP (RFC 6887). The octets are written here by hand.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use signalbox_node::natfw::Middlebox::{Firewall, Nat};
use signalbox_node::resources::config::{Action, Opening, RuleConfig};
use signalbox_node::{Command, Config, Event, MappingConfig, mapping};
use signalbox_resources::Proof;
use signalbox_sim::{Family, Packet};

use super::net::{FROM, Kind, Net, SECOND, TO};

const PORT: u16 = 5351;
const WISH: u16 = 22_000;
const UDP: u8 = 17;

/// Result codes of PCP.
const SUCCESS: u8 = 0;
const NOT_AUTHORIZED: u8 = 2;
const MALFORMED_REQUEST: u8 = 3;
const NETWORK_FAILURE: u8 = 7;
const CANNOT_PROVIDE_EXTERNAL: u8 = 11;
const ADDRESS_MISMATCH: u8 = 12;

/// What a router is to its hosts.
#[derive(Clone, Copy)]
struct Router {
    kind: Kind,
    /// Hosts inside may publish.
    allows: bool,
    /// It answers programs.
    serves: bool,
}

impl Router {
    const fn new(kind: Kind) -> Self {
        Self { kind, allows: true, serves: true }
    }
}

/// A host outside with the address towards which requests travel, routers, and a host inside whose programs do not signal.
fn net(seed: u64, routers: &[Router]) -> Net {
    let kinds = routers.iter().map(|router| router.kind);
    let kinds: Vec<Kind> = [Kind::Plain].into_iter().chain(kinds).chain([Kind::Plain]).collect();
    let mut net = Net::with(seed, &kinds, |n, config| {
        if let Some(router) = n.checked_sub(1).and_then(|n| routers.get(n)) {
            serve(config, *router);
        }
    });
    let towards = MappingConfig::default().towards;
    net.sim.add_address(net.nodes[0], towards.into());
    net.run(1);
    net
}

fn serve(config: &mut Config, router: Router) {
    let rule = RuleConfig {
        opens: vec![Opening::Publish, Opening::Reserve],
        from: vec!["10.0.0.0/8".parse().unwrap()],
        // The packets of a host that does not signal prove no more.
        proof: Some(Proof::Link),
        ..RuleConfig::new("programs", Action::Allow)
    };
    config.resources.trusted = Vec::new();
    config.resources.rules = if router.allows { vec![rule] } else { Vec::new() };
    let translates = config.natfw.as_ref().is_some_and(|natfw| natfw.middlebox == Nat);
    let engine = mapping::Config { interfaces: vec!["eth1".to_owned()], translates, ..Default::default() };
    config.mapping = router.serves.then(|| MappingConfig { engine, ..MappingConfig::default() });
}

impl Net {
    /// The address of the host inside, and that of its router.
    fn home(&self) -> (IpAddr, IpAddr) {
        let last = self.last();
        (self.address(last, Family::V4), self.right(last - 1, Family::V4))
    }

    /// The answers to the host inside, in order.
    fn answers(&self) -> Vec<Vec<u8>> {
        let (host, router) = self.home();
        let to_host = self
            .sim
            .captured()
            .filter(|seen| seen.packet.src == SocketAddr::new(router, PORT) && seen.packet.dst.ip() == host);
        to_host.map(|seen| seen.packet.payload.clone()).collect()
    }

    /// Sends a request of the host inside, and waits. Its one answer.
    fn asks(&mut self, payload: &[u8]) -> Vec<u8> {
        let (host, router) = self.home();
        let before = self.answers().len();
        let packet = Packet::new(SocketAddr::new(host, 40_000), SocketAddr::new(router, PORT), payload);
        self.sim.send(self.nodes[self.last()], packet).unwrap();
        self.run(12);
        let mut answers = self.answers().split_off(before);
        assert_eq!(answers.len(), 1, "{answers:?} {:?}", self.sim.events());
        answers.remove(0)
    }

    /// The result of a MAP request.
    fn maps(&mut self, lifetime: u32) -> u8 {
        let (host, _) = self.home();
        let answer = self.asks(&map(host, lifetime));
        assert_eq!((answer[0], answer[1]), (2, 0x81), "{answer:?}");
        answer[3]
    }

    /// Where a packet of the host outside to this port of the outermost node arrives at the host inside.
    fn arrives(&mut self, at: IpAddr, port: u16) -> Option<SocketAddr> {
        let src = SocketAddr::new(self.address(0, Family::V4), FROM);
        self.arrives_from(src, SocketAddr::new(at, port))
    }

    fn arrives_from(&mut self, src: SocketAddr, dst: SocketAddr) -> Option<SocketAddr> {
        let last = self.last();
        let arrived = self.sends(0, Packet::new(src, dst, []));
        // A NAT gets what it does not send on.
        arrived.filter(|(node, ..)| *node == last).map(|(_, _, dst)| dst)
    }

    fn dropped(&self, router: usize) -> u64 {
        self.sim.engine(self.nodes[router]).map_or(0, |node| node.counter("mapping", "foreign"))
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// MAP of PCP for UDP port [`TO`] of a host, at the external port [`WISH`] if there is one.
fn map(client: IpAddr, lifetime: u32) -> Vec<u8> {
    let mut octets = vec![2, 1, 0, 0];
    octets.extend(lifetime.to_be_bytes());
    octets.extend(mapped(client));
    octets.extend([7; 12]);
    octets.extend([UDP, 0, 0, 0]);
    octets.extend(TO.to_be_bytes());
    octets.extend(WISH.to_be_bytes());
    octets.extend(mapped(if client.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { client }));
    octets
}

/// The NAT-PMP request for UDP port [`TO`].
fn nat_pmp(lifetime: u32) -> Vec<u8> {
    let mut octets = vec![0, 1, 0, 0];
    octets.extend(TO.to_be_bytes());
    octets.extend(WISH.to_be_bytes());
    octets.extend(lifetime.to_be_bytes());
    octets
}

fn word(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

const EDGE: Router = Router::new(Kind::Edge(Nat));
const INNER: Router = Router::new(Kind::Right(Nat));

/// PCP-11.3-13, PCP-11.3-19, PCP-15.1-01, PCP-15-02, NATPMP-3.4-01: a program asks as it always did. It gets the address and port of the outermost NAT, packets arrive there until it deletes the mapping.
#[test]
fn a_program_is_reached_through_all_nats() {
    for routers in [&[EDGE][..], &[EDGE, INNER], &[EDGE, INNER, INNER]] {
        let mut net = net(1, routers);
        let (host, _) = net.home();
        let outermost = net.left(1, Family::V4);
        let receiver = Some(SocketAddr::new(host, TO));

        // Before there is any mapping, the address is known.
        let answer = net.asks(&[0, 0]);
        assert_eq!(
            (&answer[..4], IpAddr::from(<[u8; 4]>::try_from(&answer[8..]).unwrap())),
            (&[0, 128, 0, 0][..], outermost)
        );
        assert_eq!(net.arrives(outermost, WISH), None);

        let answer = net.asks(&nat_pmp(3_600));
        assert_eq!((&answer[..4], word(&answer, 8), word(&answer, 10)), (&[0, 129, 0, 0][..], TO, WISH));
        assert_eq!(net.arrives(outermost, WISH), receiver);
        assert_eq!(net.arrives(outermost, WISH + 1), None, "no other port is open");
        let answer = net.asks(&nat_pmp(0));
        assert_eq!((&answer[..4], word(&answer, 10)), (&[0, 129, 0, 0][..], 0));
        assert_eq!(net.arrives(outermost, WISH), None);

        let answer = net.asks(&nat_pmp(60));
        assert_eq!((&answer[..4], word(&answer, 10)), (&[0, 129, 0, 0][..], WISH));
        net.run(60);
        assert_eq!(net.arrives(outermost, WISH), None, "its lifetime is over");

        let answer = net.asks(&map(host, 3_600));
        assert_eq!((answer[3], word(&answer, 42), &answer[44..60]), (SUCCESS, WISH, &mapped(outermost)[..]));
        assert_eq!(net.arrives(outermost, WISH), receiver);
        // It stays for all of its lifetime, which is that of many refreshes between the routers, and not longer.
        net.run(3_300);
        assert_eq!(net.arrives(outermost, WISH), receiver);
        net.run(300);
        assert_eq!(net.arrives(outermost, WISH), None);
        assert_eq!(net.holes(), vec![0; routers.len() + 2]);
    }
}

/// PCP-11.3-08: a host behind a firewall is reached at its own address. NAT-PMP is for NATs.
#[test]
fn a_firewall_opens_for_the_address_of_the_host() {
    let mut net = net(2, &[Router::new(Kind::Edge(Firewall))]);
    let (host, _) = net.home();
    assert_eq!(net.arrives(host, TO), None);
    let answer = net.asks(&map(host, 3_600));
    assert_eq!((answer[3], word(&answer, 42), &answer[44..60]), (SUCCESS, TO, &mapped(host)[..]));
    assert_eq!(net.arrives(host, TO), Some(SocketAddr::new(host, TO)));
    assert_eq!(net.asks(&[0, 0])[..4], [2, 0x80, 0, 1], "UNSUPP_VERSION of PCP");
}

/// PCP-18-01: what a node of the path refuses, or who is not there, is told; nothing is open at any node.
#[test]
fn a_refusal_is_told_and_opens_nothing() {
    let refusing = Router { allows: false, ..EDGE };
    for (routers, code) in [
        (vec![refusing], NOT_AUTHORIZED),
        (vec![refusing, INNER], NOT_AUTHORIZED),
        (vec![EDGE, Router { allows: false, ..INNER }], NOT_AUTHORIZED),
        // No NAT of the path is the outermost one.
        (vec![INNER], NETWORK_FAILURE),
    ] {
        let mut net = net(3, &routers);
        assert_eq!(net.maps(3_600), code);
        assert_eq!(net.holes(), vec![0; routers.len() + 2]);
        let at = net.left(1, Family::V4);
        assert_eq!(net.arrives(at, WISH), None);
    }
    // Where no probe comes through, no address is told.
    let mut net = net(3, &[INNER]);
    assert_eq!(net.asks(&[0, 0]), [&[0, 128, 0, 3][..], &net.answers()[0][4..8], &[0; 4]].concat());
}

/// PCP-8.2-01: what comes from outside, from a source that is not behind the interface, or from this node is not answered; what names
/// another host or cannot be read is refused. None of it opens anything.
#[test]
fn hostile_requests_open_nothing() {
    let mut net = net(4, &[EDGE, INNER]);
    let (host, router) = net.home();
    let outside = net.address(0, Family::V4);
    let (first, second) = (net.nodes[1], net.nodes[2]);
    let sent = |net: &mut Net, to: usize, link: usize, src: IpAddr, dst: IpAddr| {
        let packet = Packet::new(SocketAddr::new(src, 40_000), SocketAddr::new(dst, PORT), map(src, 3_600));
        let node = if to == 1 { first } else { second };
        net.sim.inject(net.links[link], node, packet);
        net.run(12);
    };
    // From outside to the outside of each NAT, and to its address inside.
    for dst in [net.left(1, Family::V4), net.right(1, Family::V4)] {
        sent(&mut net, 1, 0, outside, dst);
    }
    let dst = net.left(2, Family::V4);
    sent(&mut net, 2, 1, outside, dst);
    assert_eq!((net.dropped(1), net.dropped(2)), (2, 1));
    // By the link inside with a source that is elsewhere, that is the router's own, or that is none.
    for src in [outside, router, Ipv4Addr::BROADCAST.into(), Ipv4Addr::LOCALHOST.into()] {
        sent(&mut net, 2, 2, src, router);
    }
    // From inside to the external address.
    sent(&mut net, 2, 2, host, dst);
    assert_eq!(net.dropped(2), 6);
    let from_us = |packet: &Packet| packet.src.port() == PORT && packet.dst.port() == 40_000;
    assert_eq!(net.sim.captured().filter(|seen| from_us(&seen.packet)).count(), 0, "nothing is answered");

    assert_eq!(net.asks(&map(outside, 3_600))[3], ADDRESS_MISMATCH);
    let malformed = &map(host, 3_600)[..40];
    assert_eq!(net.asks(malformed)[3], MALFORMED_REQUEST);
    assert_eq!(net.holes(), [0; 4]);
    assert_eq!(net.maps(3_600), SUCCESS);
    assert_eq!(net.holes(), [0, 1, 1, 0]);
}

/// An administrator ends the mapping of a host, and no one else's.
#[test]
fn a_command_ends_a_mapping() {
    let mut net = net(5, &[EDGE, INNER]);
    let (host, _) = net.home();
    assert_eq!(net.maps(3_600), SUCCESS);
    let clear = |net: &mut Net, id, port| {
        let command = mapping::Command::Clear(mapping::Inside { client: host, protocol: UDP, port });
        net.sim.command(net.nodes[2], Command::Mapping { id, command });
        net.run(1);
    };
    clear(&mut net, 8, TO + 1);
    assert_eq!(net.holes(), [0, 1, 1, 0]);
    clear(&mut net, 9, TO);
    net.expect_holes(SECOND * 5, &[0; 4]);
    let told: Vec<_> = net
        .sim
        .events()
        .iter()
        .filter_map(|happened| match &happened.event {
            Event::Mapping { id, event } => Some((*id, *event)),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(8, mapping::Event::Unknown), (9, mapping::Event::Cleared)]);
}

/// The outer NAT crashes: what it held comes back at the same place, by the next refresh at the latest, and the host need not ask.
#[test]
fn a_mapping_survives_a_crash_of_the_outer_nat() {
    let mut net = net(6, &[EDGE, INNER]);
    let outermost = net.left(1, Family::V4);
    assert_eq!(net.maps(3_600), SUCCESS);
    let before = net.answers().len();
    net.sim.crash(net.nodes[1]);
    net.sim.lose_pinholes(net.nodes[1]);
    net.sim.restart(net.nodes[1]);
    assert_eq!(net.arrives(outermost, WISH), None);
    net.run(60);
    let (host, _) = net.home();
    assert_eq!(net.arrives(outermost, WISH), Some(SocketAddr::new(host, TO)), "{:?}", net.sim.events());
    assert_eq!(net.answers().len(), before, "the place is the same: nothing is told");
}

/// PCP-13.3-02: with a filter, the packets of others are dropped at the outermost NAT.
#[test]
fn a_filter_keeps_others_out() {
    let mut net = net(7, &[EDGE, INNER]);
    let (host, _) = net.home();
    let (outermost, friend) = (net.left(1, Family::V4), net.right(0, Family::V4));
    let mut request = map(host, 3_600);
    request.extend([3, 0, 0, 20, 0, 128, 0, 0]);
    request.extend(mapped(friend));
    assert_eq!(net.asks(&request)[3], SUCCESS);
    let arrives = |net: &mut Net, src: IpAddr| {
        net.arrives_from(SocketAddr::new(src, FROM), SocketAddr::new(outermost, WISH)).is_some()
    };
    assert!(arrives(&mut net, friend));
    assert!(!arrives(&mut net, MappingConfig::default().towards.into()), "another address of the stranger");
}

/// PCP-11.3-14, PCP-11.3-15: a suggestion that cannot be honored does no harm, unless nothing else would do.
#[test]
fn a_suggestion_that_cannot_be_honored_gives_another_place() {
    let mut net = net(8, &[EDGE, INNER]);
    let (host, _) = net.home();
    let outermost = net.left(1, Family::V4);
    let suggesting = |port: u16, address: [u8; 4]| {
        let mut request = map(host, 3_600);
        request[42..44].copy_from_slice(&port.to_be_bytes());
        request[44..60].copy_from_slice(&mapped(address.into()));
        request
    };
    for (port, address) in [(80, [127, 0, 0, 1]), (1, [224, 0, 0, 1]), (5_351, [0, 0, 0, 0])] {
        let exactly = [&suggesting(port, address)[..], &[2, 0, 0, 0]].concat();
        assert_eq!(net.asks(&exactly)[3], CANNOT_PROVIDE_EXTERNAL, "{port}");
        let answer = net.asks(&suggesting(port, address));
        assert_eq!((answer[3], &answer[44..60]), (SUCCESS, &mapped(outermost)[..]));
        let given = word(&answer, 42);
        assert_ne!(given, port);
        assert_eq!(net.arrives(outermost, given), Some(SocketAddr::new(host, TO)));
        assert_eq!(net.maps(0), SUCCESS);
    }
}
