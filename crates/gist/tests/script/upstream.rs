//! Queries that travel upstream (RFC 5971 §5.8.1.3): the node sends them towards the flow's source.

use core::time::Duration;

use signalbox_core::node::{Prefix, Route};
use signalbox_core::packet::{router_alert_v4, router_alert_v6};
use signalbox_core::service::{MessageHandle, NetworkEvent, SendError, TransferAttributes};
use signalbox_core::{Direction, IfIndex, Mri, PathCoupled, SessionId};
use signalbox_gist::engine::{Config, IngressFilter, Input, Installation, Role, RoutingState, Transport};
use signalbox_gist::wire::{
    GistError, List, MaOptions, MaProtocolId, Message, MessageType, Profile, StackConfiguration,
    StackProposal,
};

use crate::rig::*;

const UPSTREAM: Direction = Direction::Upstream;
/// Another node upstream.
const UP2: &str = "10.1.0.3";

fn back() -> Mri {
    through().inverted()
}

fn config() -> Config {
    Config { upstream_queries: true, ..Config::default() }
}

/// A node that may send upstream Queries, with the route there.
fn asking() -> Rig {
    with(config())
}

fn with(config: Config) -> Rig {
    let mut rig = Rig::with(config);
    rig.route = Some(Ok(TOWARDS_SOURCE));
    rig
}

const TOWARDS_SOURCE: Route =
    Route { ifindex: IfIndex(1), src: core::net::IpAddr::V4(core::net::Ipv4Addr::new(10, 1, 0, 1)), ..ROUTE };

/// Answers `query` of the node from `UP`.
fn answer(rig: &mut Rig, query: &Packet) {
    answer_with(rig, query, |_| {});
}

fn answer_with<'a>(rig: &mut Rig, query: &'a Packet, tweak: impl FnOnce(&mut Message<'a>)) {
    let mut message = peer(b"up", UP).response_with(&query.message(), b"upstream peer...");
    tweak(&mut message);
    rig.inject(&Via::direct(UP, LEFT).ttl(62), &message);
}

/// A Querying-SM for the direction upstream, Established with `UP`.
fn established(rig: &mut Rig) {
    rig.send(b"data", back());
    let query = rig.sent().is(MessageType::QUERY);
    answer(rig, &query);
    let confirm = rig.sent().is(MessageType::CONFIRM);
    assert_eq!((confirm.dst, confirm.message().mri.unwrap().mri), (at_port(UP), back()));
    let data = rig.sent().is(MessageType::DATA);
    assert_eq!((data.dst, data.message().mri.unwrap().mri), (at_port(UP), back()));
    rig.status();
    assert!(matches!(rig.notified(), (UPSTREAM, NetworkEvent::Good(_))));
    rig.quiet();
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
}

/// GIST-5.8.1.3-01: upstream Queries need the configuration; Q-mode Data is never sent upstream.
#[test]
fn upstream_queries_are_a_matter_of_configuration() {
    let mut rig = Rig::new();
    rig.send(b"data", back());
    assert_eq!(rig.failed(), SendError::NoStateUpstream);
    let mut rig = asking();
    rig.send(b"data", back());
    rig.sent().is(MessageType::QUERY);
    let stateless = TransferAttributes { stateless: true, ..TransferAttributes::default() };
    rig.send_with(b"data", back(), |m| m.attributes = stateless);
    assert_eq!(rig.failed(), SendError::NoStateUpstream);
    // The flow begins here.
    rig.send(b"data", own().inverted());
    assert_eq!(rig.failed(), SendError::FlowEndsHere);
}

/// GIST-5.8.1.3-05, GIST-5.8.1.3-07, GIST-5.8.1.3-08, GIST-5.8.1.3-09, GIST-B.1-05: to the flow's source, from the
/// signaling address in every retransmission (S=1), TTL 255 for any request, Router Alert, DSCP and ports as
/// downstream.
#[test]
fn an_upstream_query_in_its_packet() {
    let mut rig = asking();
    let mut p = PathCoupled::between(ip(SRC), ip(DST));
    (p.dscp, p.direction) = (Some(46), UPSTREAM);
    rig.send_with(b"data", Mri::PathCoupled(p), |m| m.ip_ttl = Some(9));
    rig.until(5_000);
    for _ in 0..4 {
        let query = rig.sent().is(MessageType::QUERY);
        assert_eq!((query.src, query.dst), (at_port(LEFT), at_port(SRC)));
        assert_eq!((query.ttl, query.tos, query.dont_fragment), (255, 46 << 2, true));
        assert_eq!(
            (query.ifindex, query.options.as_slice()),
            (Some(IfIndex(1)), &router_alert_v4(ALERT)[..])
        );
        let said = query.message();
        assert!(said.header.s && said.header.c && said.header.r);
        assert_eq!(said.mri.unwrap().mri, Mri::PathCoupled(p));
        // The distance to the peer is not measured yet.
        assert_eq!((said.nli.unwrap().interface, said.nli.unwrap().ip_ttl), (ip(LEFT), 0));
    }
    rig.quiet();
}

/// GIST-5.8.1.3-05, GIST-5.8.1.3-08: over IPv6, with the flow label.
#[test]
fn an_upstream_query_over_ipv6() {
    let mut rig = asking();
    rig.route = Some(Ok(Route { src: ip("2001:db8:1::1"), ..TOWARDS_SOURCE }));
    let (src, dst) = ("2001:db8:8::8", "2001:db8:9::9");
    let mut p = PathCoupled::between(ip(src), ip(dst));
    (p.flow_label, p.direction) = (Some(0x12345), UPSTREAM);
    rig.send(b"data", Mri::PathCoupled(p));
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!((query.src, query.dst), (at_port("2001:db8:1::1"), at_port(src)));
    assert_eq!((query.ttl, query.flow_label), (255, 0x12345));
    assert_eq!(query.options, router_alert_v6(ALERT));
}

/// GIST-5.8.1.3-01: a complete session that is set up upstream: handshake, Data both ways, refresh, end. The distance
/// is measured by downstream messages, and is in the NLI of upstream messages.
#[test]
fn a_session_upstream() {
    let mut rig = asking();
    established(&mut rig);
    // The NLI of the Response has 64, and its packet arrived with 62.
    assert_eq!(rig.session().upstream.unwrap().ip_distance, Some(2));
    rig.inject(&Via::direct(UP, LEFT).ttl(62), &data(through(), nli(b"up", UP), b"down"));
    let delivered = rig.delivered();
    assert_eq!((delivered.data.as_slice(), delivered.mri), (&b"down"[..], through()));
    assert_eq!(delivered.ip_distance, 2);
    assert!(delivered.state.is_some());
    while rig.out.is_empty() {
        let next = rig.ms() + 100;
        rig.until(next);
    }
    let refresh = rig.sent().is(MessageType::QUERY);
    assert_eq!((refresh.ttl, refresh.nli().ip_ttl), (255, 2));
    assert_eq!(rig.states(), (None, Some(RoutingState::AwaitingRefresh)));
    rig.send(b"more", back());
    rig.sent().is(MessageType::DATA);
    rig.status();
    answer(&mut rig, &refresh);
    rig.sent().is(MessageType::CONFIRM);
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
    rig.quiet();
    rig.lifetime(back(), Some(SESSION), Duration::ZERO);
    rig.no_state();
}

/// The peer does not answer, or refuses because the hop count is zero, or the flow ends without the application.
#[test]
fn upstream_handshakes_that_fail() {
    let mut rig = asking();
    rig.send(b"data", back());
    rig.until(100_000);
    let queries = (0..7).map(|_| rig.sent()).filter(|query| query.ttl == 255).count();
    assert_eq!((queries, rig.failed()), (7, SendError::NoNextNode));
    rig.no_state();
    let mut rig = asking();
    rig.send(b"data", back());
    let query = rig.sent();
    rig.error(UP, GistError::INVALID_IP_TTL, &query);
    assert_eq!(rig.failed(), SendError::Peer { code: 11, subcode: 0 });
    rig.no_state();
    let mut rig = asking();
    rig.send(b"data", back());
    let query = rig.sent();
    rig.error(UP, GistError::ENDPOINT_FOUND, &query);
    assert_eq!(rig.notified(), (UPSTREAM, NetworkEvent::LastNode));
    assert_eq!(rig.failed(), SendError::NoNextNode);
    rig.no_state();
    // State that the peer lost is requested again.
    let mut rig = asking();
    established(&mut rig);
    rig.send(b"more", back());
    let data = rig.sent().is(MessageType::DATA);
    rig.status();
    rig.error(UP, GistError::NO_ROUTING_STATE, &data);
    assert_eq!(rig.notified(), (UPSTREAM, NetworkEvent::Bad));
    rig.sent().is(MessageType::QUERY);
}

/// Both directions of one session send Queries at the same time: no Response counts for the other direction.
#[test]
fn queries_both_ways_at_once() {
    let mut rig = asking();
    rig.send(b"up..", back());
    let up = rig.sent().is(MessageType::QUERY);
    rig.route = Some(Ok(ROUTE));
    rig.send(b"down", through());
    let down = rig.sent().is(MessageType::QUERY);
    answer_with(&mut rig, &up, |m| m.mri = Some(back().into()));
    answer_with(&mut rig, &down, |m| m.mri = Some(through().into()));
    assert_eq!(rig.gist.counters().cookies_invalid, 2);
    rig.quiet();
    rig.respond(&down);
    assert_eq!(rig.sent().is(MessageType::CONFIRM).dst, at_port(DOWN));
    assert_eq!(rig.sent().message().nslp_data, Some(&b"down"[..]));
    rig.out.clear();
    answer(&mut rig, &up);
    assert_eq!(rig.sent().is(MessageType::CONFIRM).dst, at_port(UP));
    assert_eq!(rig.sent().message().nslp_data, Some(&b"up.."[..]));
    assert_eq!(rig.states(), (Some(RoutingState::Established), Some(RoutingState::Established)));
}

/// A Query of an upstream peer for the flow, and the Confirm if it is required.
fn asked_by(rig: &mut Rig, identity: &'static [u8], address: &str, number: u8) {
    let peer = peer(identity, address);
    rig.inject(&Via::intercepted(SRC, DST), &peer.query(through(), SESSION, &[number; 8]));
    // A notification may be output before.
    let at = rig.out.iter().position(|(_, out)| matches!(out, Out::Sent(_))).expect("a Response");
    let Some((_, Out::Sent(response))) = rig.out.remove(at) else { panic!() };
    let response = response.is(MessageType::RESPONSE);
    if response.message().header.r {
        rig.inject(&Via::direct(address, LEFT), &peer.confirm(&response.message()));
    }
}

const POLICIES: [Installation; 3] = [Installation::Immediate, Installation::Confirmed, Installation::Delayed];

/// GIST-5.8.1.3-04: the peer of a downstream exchange replaces that of an upstream exchange of this node; from then on
/// the peer sends the Queries.
#[test]
fn the_downstream_exchange_wins() {
    for installation in POLICIES {
        let mut rig = with(Config { installation, ..config() });
        established(&mut rig);
        asked_by(&mut rig, b"other", UP2, 2);
        let (UPSTREAM, NetworkEvent::Good(new)) = rig.notified() else { panic!() };
        let (UPSTREAM, NetworkEvent::RouteDeleted(old)) = rig.notified() else { panic!() };
        assert_ne!(new, old);
        let upstream = rig.session().upstream.unwrap();
        assert_eq!((upstream.role, upstream.identity), (Role::Responding, &b"other"[..]));
        rig.send(b"back", back());
        assert_eq!(rig.sent().is(MessageType::DATA).dst, at_port(UP2));
        rig.status();
        rig.until(29_000);
        rig.quiet();
        rig.until(31_000);
        assert_eq!(rig.notified(), (UPSTREAM, NetworkEvent::Bad));
        rig.no_state();
    }
}

/// GIST-5.8.1.3-04: the same peer in both exchanges: only the node that sends Queries changes.
#[test]
fn the_same_peer_by_both_exchanges() {
    for installation in POLICIES {
        let mut rig = with(Config { installation, ..config() });
        established(&mut rig);
        asked_by(&mut rig, b"up", UP, 2);
        rig.quiet();
        assert_eq!(rig.session().upstream.unwrap().role, Role::Responding);
        assert_eq!(rig.gist.counters().peer_changed, 0);
    }
}

/// GIST-5.8.1.3-04: a downstream exchange completes before that of this node: queued messages use it.
#[test]
fn the_downstream_exchange_is_faster() {
    for (installation, piggyback) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)])
    {
        let mut rig = with(Config { installation, piggyback, ..config() });
        rig.send(b"wait", back());
        let late = rig.sent().is(MessageType::QUERY);
        asked_by(&mut rig, b"other", UP2, 2);
        assert!(matches!(rig.notified(), (UPSTREAM, NetworkEvent::Good(_))));
        let data = rig.sent().is(MessageType::DATA);
        assert_eq!((data.dst, data.message().nslp_data), (at_port(UP2), Some(&b"wait"[..])));
        assert_eq!(rig.status().1, MessageHandle(1));
        answer(&mut rig, &late);
        rig.until(20_000);
        rig.quiet();
        assert_eq!(rig.session().upstream.unwrap().role, Role::Responding);
        assert_eq!(rig.gist.counters().responses_stray, 1);
    }
}

/// GIST-5.8.1.3-04: a Query alone, which can be forged, removes no state.
#[test]
fn an_unconfirmed_query_takes_nothing() {
    for installation in [Installation::Confirmed, Installation::Delayed] {
        let mut rig = with(Config { installation, ..config() });
        established(&mut rig);
        let query = peer(b"other", UP2).query(through(), SESSION, &[2; 8]);
        rig.inject(&Via::intercepted(SRC, DST), &query);
        let response = rig.sent().is(MessageType::RESPONSE);
        let confirm = peer(b"other", "10.1.0.4").confirm(&response.message());
        rig.inject(&Via::direct("10.1.0.4", LEFT), &confirm);
        rig.quiet();
        let upstream = rig.session().upstream.unwrap();
        assert_eq!((upstream.role, upstream.identity), (Role::Querying, &b"up"[..]));
    }
}

/// GIST-5.8.1.3-04: the table of peers is full: existing state stays, and waiting messages still wait.
#[test]
fn no_room_to_give_way() {
    for installation in POLICIES {
        let mut rig = with(Config { installation, max_peers: 1, ..config() });
        established(&mut rig);
        let other = peer(b"other", UP2);
        rig.inject(&Via::intercepted(SRC, DST), &other.query(through(), SESSION, &[2; 8]));
        while let Some((_, out)) = rig.out.pop_front() {
            let Out::Sent(response) = out else { panic!("{out:?}") };
            rig.inject(&Via::direct(UP2, LEFT), &other.confirm(&response.message()));
        }
        assert_eq!(rig.gist.counters().peers_full, 1);
        let upstream = rig.session().upstream.unwrap();
        assert_eq!((upstream.role, upstream.state), (Role::Querying, RoutingState::Established));
        rig.send(b"data", back());
        assert_eq!(rig.sent().is(MessageType::DATA).dst, at_port(UP));
    }
}

/// GIST-5.8.1.3-10: the flow arrives on another interface than that of the route to its source: the Query is sent on
/// the interface where the flow arrives, by the ingress filters.
#[test]
fn the_query_leaves_where_the_flow_comes_in() {
    let filter = |number, addr: &str| IngressFilter {
        interface: format!("eth{number}"),
        prefix: Prefix { addr: ip(addr), len: 16 },
    };
    for (filters, expected) in [
        (vec![filter(1, "10.8.0.0")], 1),
        (vec![filter(1, "10.8.0.0"), filter(2, "10.8.0.0")], 2),
        (vec![filter(1, "10.7.0.0")], 2),
        (vec![], 2),
    ] {
        let mut rig = Rig::with(Config { ingress_filters: filters, ..config() });
        rig.send(b"data", back());
        let query = rig.sent().is(MessageType::QUERY);
        assert_eq!(query.ifindex, Some(IfIndex(expected)));
        assert_eq!(query.nli().interface, ip(if expected == 1 { LEFT } else { RIGHT }));
        assert_eq!(query.src.ip(), query.nli().interface);
    }
}

/// A change of the route towards the flow's source affects sessions with upstream Queries, one towards its destination
/// does not.
#[test]
fn routes_upstream_change() {
    let mut rig = asking();
    established(&mut rig);
    rig.route = Some(Ok(Route { gateway: Some(ip("10.1.0.9")), ..TOWARDS_SOURCE }));
    rig.handle(Input::RouteChanged(Prefix { addr: ip("10.9.0.0"), len: 16 }));
    rig.quiet();
    rig.handle(Input::RouteChanged(Prefix { addr: ip("10.8.0.0"), len: 16 }));
    assert_eq!(rig.notified(), (UPSTREAM, NetworkEvent::Tentative));
    rig.sent().is(MessageType::QUERY);
}

/// GIST-5.8.1.3-02, GIST-5.8.1.3-01: two nodes of this program, one hop apart: the one downstream sends the Query, the
/// other answers and reaches it from then on.
#[test]
fn two_nodes() {
    let mut rig = asking();
    rig.send(b"data", back());
    let asked = rig.sent().is(MessageType::QUERY);
    let mut other = Rig::seeded(Config::default(), signalbox_gist::engine::PeeringPolicy::Always, 2);
    let options = asked.options.clone();
    let via = Via { ttl: 255, options, ..Via::normal(IfIndex(2), asked.src, asked.dst) };
    let far = [interface(1, &["10.3.0.1"]), interface(2, &[UP])];
    other.handle(Input::Interfaces(&far));
    other.packet(&via, &asked.payload);
    let response = other.sent().is(MessageType::RESPONSE);
    assert_eq!((response.src, response.dst), (at_port(UP), at_port(LEFT)));
    rig.packet(&Via::direct(UP, LEFT), &response.payload);
    let confirm = rig.sent().is(MessageType::CONFIRM);
    let data = rig.sent().is(MessageType::DATA);
    for packet in [&confirm, &data] {
        let via = Via { ifindex: IfIndex(2), ..Via::direct(LEFT, UP) };
        other.packet(&via, &packet.payload);
    }
    assert!(matches!(other.notified(), (Direction::Downstream, NetworkEvent::Good(_))));
    assert_eq!(other.delivered().data, b"data");
    other.send(b"down", through());
    let down = other.sent().is(MessageType::DATA);
    assert_eq!(down.dst, at_port(LEFT));
    rig.out.clear();
    rig.packet(&Via::direct(UP, LEFT), &down.payload);
    assert_eq!(rig.delivered().mri, through());
}

/// GIST-5.8.1.3-01: a reliable message upstream: the Querying node opens the association.
#[test]
fn an_association_upstream() {
    let mut associated = config();
    associated.associations.tcp_port = Some(4000);
    let mut rig = with(associated);
    let reliable = TransferAttributes { reliable: true, ..TransferAttributes::default() };
    let session = SessionId([3; 16]);
    rig.send_with(b"data", back(), |m| (m.attributes, m.session) = (reliable, session));
    let query = rig.sent().is(MessageType::QUERY);
    assert!(query.message().stack_proposal.is_some());
    answer_with(&mut rig, &query, |m| {
        m.stack_proposal = Some(StackProposal { profiles: List::of(&PROFILES) });
        m.stack_configuration =
            Some(StackConfiguration { hold_time_ms: 20_000, options: List::of(&OPTIONS) });
    });
    let (_, Out::Opened(channel, Transport::Tcp, local, peer)) = rig.next() else { panic!() };
    assert_eq!((local, peer), (ip(LEFT), (ip(UP), 5000).into()));
    assert!(matches!(rig.notified(), (UPSTREAM, NetworkEvent::Good(_))));
    rig.handle(Input::ChannelConnected { channel, identity: None });
    for kind in [MessageType::CONFIRM, MessageType::DATA] {
        let (_, Out::Over(over)) = rig.next() else { panic!() };
        assert_eq!(over.is(kind).message().mri.unwrap().mri, back());
    }
}

static PROFILES: [Profile<'static>; 1] = [Profile(&[1])];
static OPTIONS: [MaOptions<'static>; 1] =
    [MaOptions { protocol: MaProtocolId::FORWARDS_TCP, profile: 1, disabled: false, data: &[0x13, 0x88] }];

/// Exchanges of both kinds in any order, answered late, twice or never, with route changes and applications that lose
/// interest: no timer runs for ever, and in the end no state is left, neither sessions nor peers nor waiting messages.
#[test]
fn in_any_order() {
    let (mut installed, mut changed) = (0, 0);
    for seed in 0..60 {
        let mut random = signalbox_core::rng::Random::from_number(seed);
        let installation = POLICIES[(seed % 3) as usize];
        let piggyback = seed % 2 == 0;
        let rates = Config { error_rate: 1_000_000, dmode_rate: 0, ..config() };
        let mut rig = with(Config { installation, piggyback, max_peers: 3, ..rates });
        let mut sent: Vec<Packet> = Vec::new();
        let (mut asked, mut reported) = (0, 0);
        for step in 0..120_u8 {
            let number = random.u32();
            match number % 11 {
                0 | 1 => {
                    rig.send(b"up..", back());
                    asked += 1;
                }
                2 => {
                    rig.send(b"down", through());
                    asked += 1;
                }
                3..=5 => {
                    let at = (number as usize >> 8) % sent.len().max(1);
                    let Some(packet) = sent.get(at).cloned() else { continue };
                    match packet.message().header.kind {
                        MessageType::QUERY if packet.ttl == 255 => answer(&mut rig, &packet),
                        MessageType::QUERY => rig.respond(&packet),
                        MessageType::RESPONSE => rig.confirm(&packet),
                        MessageType::DATA => rig.error(UP, GistError::NO_ROUTING_STATE, &packet),
                        _ => {}
                    }
                }
                6 if number & 256 == 0 => asked_by(&mut rig, b"other", UP2, step),
                6 => asked_by(&mut rig, b"up", UP, step),
                7 => {
                    let mut message = query(back(), b"their cookie");
                    message.nli = Some(nli(b"down", DOWN));
                    message.header.s = false;
                    rig.inject(&Via::intercepted(DOWN, SRC).ttl(255), &message);
                }
                8 => rig.handle(Input::RouteChanged(Prefix { addr: ip("10.0.0.0"), len: 8 })),
                9 => rig.lifetime(
                    if number & 256 == 0 { back() } else { through() },
                    Some(SESSION),
                    Duration::ZERO,
                ),
                _ => {
                    let gateway = (number & 256 == 0).then(|| ip("10.1.0.9"));
                    rig.route = Some(Ok(Route { gateway, ..TOWARDS_SOURCE }));
                    let to = rig.ms() + u64::from(number >> 16) % 9_000;
                    rig.until(to);
                }
            }
            while let Some((_, out)) = rig.out.pop_front() {
                match out {
                    Out::Sent(packet) => sent.push(packet),
                    Out::Status(..) => reported += 1,
                    _ => {}
                }
            }
            let excess = sent.len().saturating_sub(8);
            sent.drain(..excess);
        }
        let to = rig.ms() + 400_000;
        rig.until(to);
        reported += rig.out.iter().filter(|(_, out)| matches!(out, Out::Status(..))).count();
        assert_eq!(reported, asked, "seed {seed}: each message has one status");
        rig.no_state();
        assert_eq!(rig.gist.peers().count(), 0, "seed {seed}");
        assert_eq!(rig.gist.next_deadline(), None, "seed {seed}");
        installed += rig.gist.counters().installed;
        changed += rig.gist.counters().peer_changed;
    }
    assert!(installed > 100 && changed > 10, "{installed} {changed}");
}
