//! Passages through firewalls by CASP.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_casp::wire::ClientType;
use signalbox_casp::wire::natfw::{NatfwFilter, NatfwMessage, NatfwType, NatfwValue};
use signalbox_core::SessionId;
use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Endpoint;
use signalbox_core::traffic::FlowFilter;
use signalbox_node::casp::{
    self, Command as CaspCommand, Event as CaspEvent, FlowId, NatfwConfig, NatfwPackets, NatfwRole as Role,
    NatfwScope, NatfwTerms, OpenRequest, PassageEnd, PassageEvent, PassageFailure, PassageRefusal, RequestOf,
    SendRequestOf,
};
use signalbox_node::resources::Config as Resources;
use signalbox_node::resources::config::{Action, Opening, RuleConfig};
use signalbox_node::{Config, Event, Node};
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Sim, topology};

use super::reserve::{SECOND, casp};
use crate::net::{WALL_US, make};

pub(super) fn add(sim: &mut Sim<Node>, name: &str, natfw: Option<NatfwConfig>) -> NodeId {
    sim.add_engine(name, move |boot| {
        let casp = casp::Config { natfw: natfw.clone(), ..casp::Config::default() };
        make(boot, Config { wall_clock_us: WALL_US, casp: Some(casp), ..Config::empty() })
    })
}

fn wall(inside: &str) -> Option<NatfwConfig> {
    Some(NatfwConfig { role: Role::Firewall, inside: vec![inside.to_owned()], ..NatfwConfig::default() })
}

/// Two hosts, each behind a firewall of its own.
fn net(seed: u64) -> (Sim<Node>, [NodeId; 4]) {
    let mut sim = Sim::new(seed);
    let host = || Some(NatfwConfig::default());
    let nodes = [("s", host()), ("w1", wall("eth0")), ("w2", wall("eth1")), ("d", host())]
        .map(|(name, natfw)| add(&mut sim, name, natfw));
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    (sim, nodes)
}

pub(super) fn events(sim: &Sim<Node>, id: u64) -> Vec<&PassageEvent> {
    let event = |event| match event {
        &Event::Casp { id: own, event: CaspEvent::Passage(ref event) } if own == id => Some(event),
        _ => None,
    };
    sim.events().iter().filter_map(|one| event(&one.event)).collect()
}

pub(super) fn open(sim: &mut Sim<Node>, nodes: &[NodeId; 4], id: u64, receiver_initiated: bool) {
    let request = OpenRequest {
        dst: sim.address(nodes[3], Family::V4),
        src: None,
        protocol: Some(17),
        src_port: Some(4000),
        dst_port: Some(5004),
        receiver_initiated,
        lifetime: None,
        terms: NatfwTerms::default(),
        session: None,
    };
    casp(sim, nodes[0], id, CaspCommand::Open(Box::new(request)));
}

fn open_at(sim: &Sim<Node>, nodes: &[NodeId; 4]) -> [usize; 4] {
    nodes.map(|node| sim.pinholes(node).count())
}

/// The receiver accepts, PATH and CREATE open both firewalls without a rule of their policies, refreshes keep them, and they
/// close when the user ends it. The same again ends by itself when the requester has crashed.
#[test]
fn a_receiver_opens_two_firewalls() {
    let (mut sim, nodes) = net(5);
    let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
    let own = Prefix::host(sim.address(nodes[3], Family::V4));
    casp(&mut sim, nodes[3], 9, CaspCommand::Accept(FlowFilter::between(any, own)));
    let granted = |sim: &Sim<Node>, id| {
        events(sim, id).iter().filter(|event| matches!(event, PassageEvent::Granted { .. })).count()
    };
    open(&mut sim, &nodes, 1, true);
    sim.expect("the path grants it", SECOND * 30, |sim| granted(sim, 1) == 1);
    assert_eq!(open_at(&sim, &nodes), [0, 1, 1, 0]);
    assert!(matches!(events(&sim, 9)[..], [PassageEvent::Accepting(_), PassageEvent::Accepted { .. }]));
    sim.run_for(SECOND * 300);
    assert_eq!(open_at(&sim, &nodes), [0, 1, 1, 0], "refreshes keep it");
    casp(&mut sim, nodes[0], 1, CaspCommand::Close);
    sim.expect("it is closed", SECOND * 100, |sim| events(sim, 1).last() == Some(&&PassageEvent::Closed));
    assert_eq!(open_at(&sim, &nodes), [0; 4]);

    open(&mut sim, &nodes, 2, true);
    sim.expect("the path grants it", SECOND * 30, |sim| granted(sim, 2) == 1);
    sim.crash(nodes[0]);
    sim.run_for(SECOND * 100);
    assert_eq!(open_at(&sim, &nodes), [0; 4], "nothing is left of a requester that has crashed");
}

/// The receiver ends: both firewalls close at once, and the sender learns why. It ends even if the sender has crashed.
#[test]
fn a_receiver_that_leaves_closes_the_firewalls() {
    for crashed in [false, true] {
        let (mut sim, nodes) = net(11);
        let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
        casp(&mut sim, nodes[3], 9, CaspCommand::Accept(FlowFilter::between(any, any)));
        open(&mut sim, &nodes, 1, true);
        sim.expect("the path grants it", SECOND * 30, |sim| open_at(sim, &nodes) == [0, 1, 1, 0]);
        sim.run_for(SECOND);
        if crashed {
            sim.crash(nodes[0]);
        }
        casp(&mut sim, nodes[3], 9, CaspCommand::Close);
        sim.expect("both firewalls close", SECOND, |sim| open_at(sim, &nodes) == [0; 4]);
        assert_eq!(events(&sim, 9).last(), Some(&&PassageEvent::Closed));
        if !crashed {
            sim.expect(
                "the sender is informed",
                SECOND,
                |sim| matches!(events(sim, 1).last(), Some(PassageEvent::Failed(why)) if why.code == 22),
            );
            let sessions = |sim: &Sim<Node>| {
                nodes
                    .iter()
                    .map(|node| sim.engine(*node).unwrap().casp().unwrap().session_count())
                    .sum::<u32>()
            };
            sim.expect("no session is left", SECOND * 5, |sim| sessions(sim) == 0);
        }
    }
}

/// An administrator ends the session at a firewall: the host that asked and the receiver learn it, and no node keeps anything.
#[test]
fn a_session_ended_at_a_firewall_ends_everywhere() {
    let (mut sim, nodes) = net(9);
    let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
    let own = Prefix::host(sim.address(nodes[3], Family::V4));
    casp(&mut sim, nodes[3], 9, CaspCommand::Accept(FlowFilter::between(any, own)));
    open(&mut sim, &nodes, 1, true);
    let granted = |sim: &Sim<Node>| matches!(events(sim, 1).last(), Some(PassageEvent::Granted { .. }));
    sim.expect("the path grants it", SECOND * 30, granted);
    let &PassageEvent::Started { session, .. } = events(&sim, 1)[0] else { panic!("{:?}", events(&sim, 1)) };
    casp(&mut sim, nodes[2], 0, CaspCommand::Delete(session));
    sim.expect(
        "the host is informed",
        SECOND * 5,
        |sim| matches!(events(sim, 1).last(), Some(PassageEvent::Failed(why)) if why.code == 21 && why.node.is_some()),
    );
    sim.expect("all firewalls close", SECOND * 5, |sim| open_at(sim, &nodes) == [0; 4]);
    let [_, _, PassageEvent::Ended { why: PassageEnd::Removed(why), .. }] = events(&sim, 9)[..] else {
        panic!("{:?}", events(&sim, 9))
    };
    assert!(matches!(why, PassageFailure { code: 21, node: Some(_), note: None }), "{why:?}");
}

/// The rules of the far firewall decide what a host outside may open, and what was opened before is closed.
#[test]
fn a_sender_outside_is_refused() {
    let (mut sim, nodes) = net(6);
    open(&mut sim, &nodes, 1, false);
    sim.expect(
        "it fails",
        SECOND * 30,
        |sim| matches!(events(sim, 1).last(), Some(PassageEvent::Failed(why)) if why.code == 2),
    );
    sim.run_for(SECOND * 100);
    assert_eq!(open_at(&sim, &nodes), [0; 4]);
}

/// CASPMID-10.3-06, CASP-G-20: two NATs in a row and a firewall. The sender learns the outermost binding, refreshes keep everything,
/// and nothing stays when it is closed, or when the sender has crashed.
#[test]
fn a_flow_passes_two_nats() {
    let mut sim = Sim::new(9);
    let host = || Some(NatfwConfig::default());
    let nat = || {
        let (inside, outside) = (vec!["eth0".to_owned()], vec!["eth1".to_owned()]);
        Some(NatfwConfig { role: Role::Nat, inside, outside, ..NatfwConfig::default() })
    };
    let nodes = [("s", host()), ("n1", nat()), ("n2", nat()), ("w", wall("eth1")), ("d", host())]
        .map(|(name, natfw)| add(&mut sim, name, natfw));
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let [s, n1, n2, w, d] = nodes;
    let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
    let own = Prefix::host(sim.address(d, Family::V4));
    casp(&mut sim, d, 9, CaspCommand::Accept(FlowFilter::between(any, own)));
    let granted = |sim: &Sim<Node>, id| {
        events(sim, id).into_iter().find_map(|event| match event {
            PassageEvent::Granted { external, .. } => Some(*external),
            _ => None,
        })
    };
    let rule = |sim: &Sim<Node>, node| {
        let all: Vec<_> = sim.pinholes(node).map(|(_, pinhole)| (pinhole.packets, pinhole.source)).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    };
    for (id, fails) in [(1, false), (2, true)] {
        open(&mut sim, &[s, n1, n2, d], id, true);
        sim.expect("the path grants it", SECOND * 30, |sim| granted(sim, id).is_some());
        for _ in 0..2 {
            let (inner, between) = rule(&sim, n1);
            let (outer, outside) = rule(&sim, n2);
            assert_eq!((inner.src.addr, inner.src_port), (sim.address(s, Family::V4), Some(4000)));
            let end = |end: Option<Endpoint>| end.map(|end| (end.address, end.port));
            assert_eq!(end(between), Some((outer.src.addr, outer.src_port)));
            assert_eq!(granted(&sim, id), Some(end(outside)));
            let (seen, source) = rule(&sim, w);
            assert_eq!((end(outside), source), (Some((seen.src.addr, seen.src_port)), None));
            sim.run_for(SECOND * 200);
        }
        let ports =
            |sim: &Sim<Node>| [n1, n2].map(|node| sim.engine(node).unwrap().casp_firewall().unwrap().ports());
        assert_eq!(ports(&sim), [1, 1]);
        if fails {
            sim.crash(s);
        } else {
            casp(&mut sim, s, id, CaspCommand::Close);
        }
        sim.run_for(SECOND * 400);
        assert_eq!([n1, n2, w].map(|node| sim.pinholes(node).count()), [0; 3]);
        assert_eq!(ports(&sim), [0, 0]);
    }
}

/// A sender, and a receiver behind two firewalls of its network. The first one is the border. The link is that of the receiver.
fn receiver_network(seed: u64) -> (Sim<Node>, [NodeId; 4], LinkId) {
    let mut sim = Sim::new(seed);
    let border = || wall("eth1").map(|config| NatfwConfig { border: true, ..config });
    let nodes = [("s", None), ("w1", border()), ("w2", wall("eth1")), ("d", Some(NatfwConfig::default()))]
        .map(|(name, natfw)| {
            // Each firewall has the request from the other one, not from the host.
            let opens = vec![Opening::Inward, Opening::Reserve];
            let rules = vec![RuleConfig { opens, ..RuleConfig::new("firewalls", Action::Allow) }];
            sim.add_engine(name, move |boot| {
                let casp = casp::Config { natfw: natfw.clone(), ..casp::Config::default() };
                let resources = Resources { rules: rules.clone(), ..Resources::default() };
                make(boot, Config { wall_clock_us: WALL_US, casp: Some(casp), resources, ..Config::empty() })
            })
        });
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    (sim, nodes, links[2])
}

/// The receiver asks for the packets of the sender within its own network.
fn trigger(sim: &mut Sim<Node>, nodes: &[NodeId; 4]) {
    let terms = NatfwTerms {
        scope: Some(NatfwScope::Local),
        packets: NatfwPackets::Against,
        ..NatfwTerms::default()
    };
    let request = OpenRequest {
        dst: sim.address(nodes[0], Family::V4),
        src: None,
        protocol: Some(17),
        src_port: Some(5004),
        dst_port: Some(4000),
        receiver_initiated: false,
        lifetime: None,
        terms,
        session: None,
    };
    casp(sim, nodes[3], 1, CaspCommand::Open(Box::new(request)));
    let granted = |sim: &Sim<Node>| matches!(events(sim, 1).last(), Some(PassageEvent::Granted { .. }));
    sim.expect("the border opens", SECOND * 30, granted);
}

/// A host makes the firewalls of its network open for a sender that does nothing, keeps that, and ends it: the firewall at the
/// border, and the one inside. The policy of each allows what the other one asks for.
#[test]
fn a_receiver_opens_the_firewalls_of_its_network() {
    let (mut sim, nodes, _) = receiver_network(10);
    trigger(&mut sim, &nodes);
    sim.run_for(SECOND * 400);
    assert_eq!((open_at(&sim, &nodes), events(&sim, 1).len()), ([0, 1, 1, 0], 2));
    casp(&mut sim, nodes[3], 1, CaspCommand::Close);
    sim.expect("it is closed", SECOND * 100, |sim| events(sim, 1).last() == Some(&&PassageEvent::Closed));
    sim.expect("all firewalls are", SECOND, |sim| open_at(sim, &nodes) == [0; 4]);
}

/// What a host asked for by TRIGGER follows it to another address, in the same session. What is open for the former one closes at the
/// end of its lifetime at the latest: the tear-down is lost with the connection from the former address.
#[test]
fn what_trigger_asked_for_follows_the_host() {
    let (mut sim, nodes, link) = receiver_network(12);
    trigger(&mut sim, &nodes);
    let new: IpAddr = "10.99.0.1".parse().unwrap();
    sim.set_address_on(nodes[3], link, new);
    let targets = |sim: &Sim<Node>| {
        [1, 2].map(|n| sim.pinholes(nodes[n]).map(|(_, one)| one.packets.dst.addr).collect::<Vec<_>>())
    };
    sim.expect("it follows", SECOND * 5, |sim| targets(sim).iter().all(|all| all.contains(&new)));
    let started: Vec<_> = events(&sim, 1)
        .into_iter()
        .filter_map(|event| match event {
            PassageEvent::Started { session, flow } => Some((*session, flow.dst())),
            _ => None,
        })
        .collect();
    let [(first, _), (second, to)] = started[..] else { panic!("{started:?}") };
    assert_eq!((first, to), (second, new));
    sim.expect("the former address is closed", SECOND * 100, |sim| targets(sim) == [[new], [new]]);
    sim.run_for(SECOND * 300);
    assert_eq!(targets(&sim), [[new], [new]]);
    casp(&mut sim, nodes[3], 1, CaspCommand::Close);
    sim.expect("all firewalls close", SECOND * 5, |sim| open_at(sim, &nodes) == [0; 4]);
}

/// The source of a passage has another address, by another firewall: the passage follows it in the same session, and the former
/// firewall closes.
#[test]
fn a_passage_follows_its_source() {
    for receiver_initiated in [false, true] {
        let mut sim = Sim::new(15);
        let host = || Some(NatfwConfig::default());
        // The source is behind both of w1 and w2, the router r before the destination.
        let nodes = [("s", host()), ("w1", wall("eth0")), ("w2", wall("eth0")), ("r", None), ("d", host())]
            .map(|(name, natfw)| add(&mut sim, name, natfw));
        let [s, w1, w2, r, d] = nodes;
        let mut link = |a, b| sim.link(a, b, &LinkConfig::default());
        let links = [link(s, w1), link(s, w2), link(w1, r), link(w2, r), link(r, d)];
        sim.set_cost(links[1], 5);
        sim.run_for(Duration::ZERO);
        let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
        casp(&mut sim, d, 9, CaspCommand::Accept(FlowFilter::between(any, any)));
        open(&mut sim, &[s, w1, w2, d], 1, receiver_initiated);
        let granted = |sim: &Sim<Node>| {
            events(sim, 1).iter().filter(|event| matches!(event, PassageEvent::Granted { .. })).count()
        };
        sim.expect("the path grants it", SECOND * 30, |sim| granted(sim) == 1);
        let sources = |sim: &Sim<Node>| {
            [w1, w2].map(|node| sim.pinholes(node).map(|(_, one)| one.packets.src.addr).collect::<Vec<_>>())
        };
        assert_eq!(sources(&sim), [vec![sim.address_on(s, links[0], Family::V4)], vec![]]);
        sim.set_cost(links[0], 20);
        sim.run_for(SECOND * 10);
        sim.set_address_on(s, links[0], "10.99.0.1".parse().unwrap());
        let new = sim.address_on(s, links[1], Family::V4);
        sim.expect("it follows", SECOND * 5, |sim| sources(sim)[1].contains(&new));
        sim.expect("its user learns it", SECOND * 5, |sim| granted(sim) == 2);
        // The other firewall has opened for the former address too, when the route changed. The node where both branches meet tears the old
        // one down at the second message of the new one.
        sim.expect("the former flow ends", SECOND * 100, |sim| sources(sim) == [vec![], vec![new]]);
        sim.expect("the path grants it again", SECOND * 60, |sim| granted(sim) == 2);
        let started: Vec<_> = events(&sim, 1)
            .into_iter()
            .filter_map(|event| match event {
                PassageEvent::Started { session, flow } => Some((*session, flow.src())),
                _ => None,
            })
            .collect();
        let [(first, old), (second, to)] = started[..] else { panic!("{started:?}") };
        assert_eq!((first, to, granted(&sim)), (second, new, 2));
        sim.run_for(SECOND * 300);
        assert_eq!(sources(&sim), [vec![], vec![new]]);
        if receiver_initiated {
            // The tear-down is lost with the connection from the former address: that flow expires.
            let ended = events(&sim, 9).into_iter().filter_map(|event| match event {
                PassageEvent::Ended { flow, .. } => Some(flow.src()),
                _ => None,
            });
            assert_eq!(ended.collect::<Vec<_>>(), [old]);
        }
        casp(&mut sim, s, 1, CaspCommand::Close);
        sim.expect("it is closed", SECOND * 5, |sim| sources(sim).iter().all(Vec::is_empty));
    }
}

/// A node without the client says so.
#[test]
fn a_node_without_the_client_refuses() {
    let mut sim = Sim::new(7);
    let nodes = ["s", "w1", "w2", "d"].map(|name| add(&mut sim, name, None));
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    open(&mut sim, &nodes, 1, false);
    sim.run_for(SECOND);
    assert_eq!(events(&sim, 1), [&PassageEvent::Refused(PassageRefusal::NotRunning)]);
}

/// CASPMID-7-23: nothing refreshes the session of a TRIGGER, nor that of the CREATE for which it asks: a lifetime later no node
/// has state of them.
#[test]
fn a_trigger_leaves_no_session() {
    let mut sim = Sim::new(8);
    let host = || Some(NatfwConfig::default());
    let nodes = [("s", None), ("w1", wall("eth0")), ("w2", wall("eth1")), ("d", host())]
        .map(|(name, natfw)| add(&mut sim, name, natfw));
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let ends = [nodes[0], nodes[3]].map(|node| sim.address(node, Family::V4));
    let [IpAddr::V4(src), IpAddr::V4(dst)] = ends else { panic!("{ends:?}") };
    let flow = FlowId::V4Ports { src, dst, src_port: 4000, dst_port: 5004, protocol: 17 };
    let filter = NatfwFilter {
        src: Prefix::host(ends[1]),
        dst: Prefix::host(ends[0]),
        flow_label: None,
        protocols: vec![17],
        src_ports: vec![(5004, 5004)],
        dst_ports: vec![(4000, 4000)],
        spis: Vec::new(),
    };
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(5), NatfwValue::Filter(filter)];
    NatfwMessage::compose(NatfwType::TRIGGER, &values, &mut data).unwrap();
    let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
    casp(&mut sim, nodes[3], 9, CaspCommand::Accept(FlowFilter::between(any, Prefix::host(ends[1]))));
    casp(&mut sim, nodes[0], 1, CaspCommand::Register { client: ClientType::NATFW.0, stateless: false });
    let send = SendRequestOf::new(Some(SessionId([7; 16])), flow, data[..].into());
    casp(&mut sim, nodes[0], 1, CaspCommand::Request(RequestOf::Send(send)));
    let sessions = |sim: &Sim<Node>| {
        nodes.iter().map(|node| sim.engine(*node).unwrap().casp().unwrap().session_count()).sum::<u32>()
    };
    sim.expect("the host answers", SECOND * 30, |sim| events(sim, 9).len() == 2);
    assert!(sessions(&sim) > 4, "{}", sessions(&sim));
    sim.run_for(SECOND * 600);
    assert_eq!((sessions(&sim), open_at(&sim, &nodes)), (0, [0; 4]));
}
