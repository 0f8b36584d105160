//! A NAT that restarts while a passage stands.

use core::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_node::Node;
use signalbox_node::casp::{Command as CaspCommand, NatfwConfig, NatfwRole as Role, PassageEvent};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

use super::passage::{add, events, open};
use super::reserve::{SECOND, casp};

/// Whether one of these nodes has a session whose flow has this source.
fn know(sim: &Sim<Node>, nodes: &[NodeId], source: IpAddr) -> bool {
    let casp = |node: &NodeId| sim.engine(*node).and_then(Node::casp);
    nodes.iter().filter_map(casp).any(|casp| casp.sessions().any(|one| one.flow.src() == source))
}

/// O08: what the NAT gets first are refreshes of the messaging layer. No node behind it learns of the inner source. The NAT answers them, the
/// host asks again within a second, and the passage has its binding again. The user keeps the passage.
#[test]
fn a_nat_that_is_started_anew_sends_no_inner_source() {
    for (seed, receiver_initiated) in [(21, true), (22, false), (23, true), (24, false)] {
        let mut sim = Sim::new(seed);
        let nat = NatfwConfig {
            role: Role::Nat,
            inside: vec!["eth0".to_owned()],
            outside: vec!["eth1".to_owned()],
            ..NatfwConfig::default()
        };
        let host = || Some(NatfwConfig::default());
        let nodes = [("s", host()), ("n", Some(nat)), ("r", None), ("d", host())]
            .map(|(name, natfw)| add(&mut sim, name, natfw));
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        let [s, n, r, d] = nodes;
        let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
        casp(&mut sim, d, 9, CaspCommand::Accept(FlowFilter::between(any, any)));
        open(&mut sim, &nodes, 1, receiver_initiated);
        let granted = |sim: &Sim<Node>| matches!(events(sim, 1).last(), Some(PassageEvent::Granted { .. }));
        sim.expect("the path grants it", SECOND * 30, granted);
        let source = sim.address(s, Family::V4);
        for _ in 0..3 {
            sim.run_for(SECOND * 20);
            sim.restart(n);
            let client = |sim: &Sim<Node>| {
                let client = sim.engine(n).unwrap().casp_firewall().unwrap();
                (client.counters().unknown, client.sessions())
            };
            sim.expect("a refresh or a request comes", SECOND * 60, |sim| {
                assert!(!know(sim, &[r, d], source), "a node behind the NAT knows the inner source");
                client(sim) != (0, 0)
            });
            sim.expect("the binding is there", SECOND, |sim| {
                assert!(!know(sim, &[r, d], source), "a node behind the NAT knows the inner source");
                client(sim).1 == 1
            });
            // A node of the simulator that crashes ends no connection. The node behind the NAT sends its first answer over the one that it
            // had, and the host asks again after a third of the lifetime.
            sim.run_for(SECOND * 40);
        }
        sim.run_for(SECOND * 200);
        assert!(!know(&sim, &[r, d], source));
        let lost = events(&sim, 1).iter().any(|event| matches!(event, PassageEvent::Failed(_)));
        assert!(granted(&sim) && !lost && sim.pinholes(n).count() == 1, "{:?}", events(&sim, 1));
        casp(&mut sim, s, 1, CaspCommand::Close);
        sim.expect("it is closed", SECOND * 30, |sim| events(sim, 1).last() == Some(&&PassageEvent::Closed));
    }
}
