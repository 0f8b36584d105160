//! Nodes that run a part of the protocols: RSVP without GIST, and GIST without an internal application.

use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::service::{IndicationOf, RequestOf, SendMessageOf, TransferAttributes};
use signalbox_core::{Mri, NslpId, SessionId};
use signalbox_node::gist::{PeeringPolicy, Registration};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::qos::{self, QosEvent};
use signalbox_node::resources::intserv::TSpec;
use signalbox_node::resources::{Config as Resources, config::LinkConfig as Capacity};
use signalbox_node::rsvp::{
    self, Filter, FlowRequest, FlowSpec, ReserveRequest, RsvpEvent, Selector, SenderRequest, Session,
    SessionKind, Style,
};
use signalbox_node::{
    ApplicationCommand, ApplicationEvent, Command, Config, Event, Node, ProtocolId, RegisterError,
};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim, topology};

use crate::net::{FAMILIES, config, make, total};

const NSLP: NslpId = NslpId(32_710);
const SOON: Duration = Duration::from_secs(5);

/// Nodes in a row with the same settings. Their packets are captured.
fn row(length: usize, config: &Config) -> (Sim<Node>, Vec<NodeId>) {
    let mut sim = Sim::new(11);
    let engine = || {
        let config = config.clone();
        move |boot: Boot| make(boot, config.clone())
    };
    let nodes: Vec<_> = (0..length).map(|n| sim.add_engine(format!("n{n}"), engine())).collect();
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    sim.capture_all();
    sim.run_for(Duration::ZERO);
    (sim, nodes)
}

fn protocols(sim: &Sim<Node>, node: NodeId) -> Vec<ProtocolId> {
    sim.engine(node).unwrap().protocols().collect()
}

/// The next event of the network.
fn event(sim: &mut Sim<Node>) -> Event {
    sim.expect("an event", SOON, |sim| !sim.events().is_empty());
    sim.take_events().swap_remove(0).event
}

fn register() -> ApplicationCommand {
    let registration = Registration { policy: PeeringPolicy::Always, ..Registration::default() };
    ApplicationCommand::Register { nslp: NSLP, registration }
}

#[test]
fn rsvp_reserves_on_nodes_without_gist() {
    for family in FAMILIES {
        let resources = Resources {
            links: (0..2).map(|n| Capacity::new(&format!("eth{n}"), "10mbit".parse().ok())).collect(),
            ..Resources::default()
        };
        let config = Config { rsvp: Some(rsvp::Config::default()), resources, ..Config::empty() };
        let (mut sim, nodes) = row(3, &config);
        let (s, d) = (nodes[0], nodes[2]);
        assert_eq!(protocols(&sim, s), [ProtocolId::Rsvp]);
        let dest = sim.address(d, family);
        let session = Session { dest, protocol: 17, kind: SessionKind::Ports, port: 5004 };
        let template = Filter { src: sim.address(s, family), selector: Selector::Port(4000) };
        let tspec = TSpec::new(10_000.0, 3000.0, f32::INFINITY, 64, 1000).unwrap();
        let sender = SenderRequest::new(template, tspec);
        let flows = vec![FlowRequest { flowspec: FlowSpec { tspec, rspec: None }, senders: vec![template] }];
        let receiver = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
        for (node, command) in [
            (s, rsvp::Command::Session(session)),
            (s, rsvp::Command::Sender(sender)),
            (d, rsvp::Command::Session(session)),
            (d, rsvp::Command::Reserve(receiver)),
        ] {
            sim.command(node, Command::Rsvp { id: 1, command });
        }
        sim.run_for(SOON);
        let held = nodes.iter().map(|node| sim.reservations(*node).count());
        assert_eq!(held.collect::<Vec<_>>(), [1, 1, 0]);
        assert!(sim.captured().all(|captured| captured.packet.protocol == 46), "only RSVP is on the wire");
        assert!(sim.captured().count() > 3);
        assert!(
            sim.engine(s)
                .unwrap()
                .counters()
                .all(|c| !["gist", "channels", "ping"].contains(&c.subsystem.name))
        );
    }
}

#[test]
fn what_a_node_does_not_run_it_refuses() {
    let config = Config { rsvp: Some(rsvp::Config::default()), ..Config::empty() };
    let (mut sim, nodes) = row(2, &config);
    let at = nodes[0];
    let request = PingRequest::to(sim.address(nodes[1], Family::V4));
    sim.command(at, Command::Ping { id: 1, command: ping::Command::Start(request) });
    let no = PingEvent::Refused(ping::Refusal::NoApplication);
    assert_eq!(event(&mut sim), Event::Ping { id: 1, event: no });
    sim.command(at, Command::Qos { id: 2, command: qos::Command::Release });
    let no = Box::new(QosEvent::Refused(qos::Refusal::NoApplication));
    assert_eq!(event(&mut sim), Event::Qos { id: 2, event: no });
    sim.command(at, Command::Gist { id: 3, command: register() });
    let no = ApplicationEvent::Refused(RegisterError::NotRunning);
    assert_eq!(event(&mut sim), Event::Gist { id: 3, event: no });

    let (mut sim, nodes) = row(1, &config_of_gist());
    sim.command(nodes[0], Command::Rsvp { id: 4, command: rsvp::Command::Close });
    let no = Box::new(RsvpEvent::Refused(rsvp::Refused::NotRunning));
    assert_eq!(event(&mut sim), Event::Rsvp { id: 4, event: no });
}

fn config_of_gist() -> Config {
    Config { ping: None, ..config() }
}

/// Applications in other processes communicate over nodes that run GIST only.
#[test]
fn gist_alone_serves_applications_of_other_processes() {
    let (mut sim, nodes) = row(3, &config_of_gist());
    assert_eq!(protocols(&sim, nodes[1]), [ProtocolId::Gist]);
    for node in [nodes[0], nodes[2]] {
        sim.command(node, Command::Gist { id: 1, command: register() });
        assert_eq!(event(&mut sim), Event::Gist { id: 1, event: ApplicationEvent::Registered });
    }
    let flow = PathCoupled::between(sim.address(nodes[0], Family::V6), sim.address(nodes[2], Family::V6));
    let message = SendMessageOf {
        data: b"good day".as_slice().into(),
        handle: None,
        nslp: NSLP,
        session: SessionId([7; 16]),
        mri: Mri::PathCoupled(flow),
        state: None,
        sii: None,
        attributes: TransferAttributes::default(),
        timeout: None,
        ip_ttl: None,
        hops: None,
    };
    let command = ApplicationCommand::Request(RequestOf::SendMessage(message));
    sim.command(nodes[0], Command::Gist { id: 1, command });
    sim.run_for(SOON);
    let received = sim.events().iter().any(|happened| match &happened.event {
        Event::Gist { event: ApplicationEvent::Indication(IndicationOf::RecvMessage(message)), .. } => {
            happened.node == nodes[2] && message.data.as_slice() == b"good day"
        }
        _ => false,
    });
    assert!(received, "{:?}", sim.events());
    assert!(sim.captured().all(|captured| captured.packet.dst.port() == 270));
    assert_eq!(total(&sim, "gist", "queries_sent"), 1);
}
