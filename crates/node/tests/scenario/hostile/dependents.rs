//! Sessions of the QoS NSLP that depend on each other, over TLS and IPv6. The adversary has a key that the router accepts: its
//! requests are authenticated and granted.

use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::service::{RequestOf, SendMessageOf, TransferAttributes};
use signalbox_core::{Mri, NslpId, SessionId};
use signalbox_gist::engine::Transport;
use signalbox_node::gist::Registration;
use signalbox_node::qos::{self, Flow, QosRequest, ReserveRequest};
use signalbox_node::resources::{Rate, config::LinkConfig as Capacity};
use signalbox_node::{ApplicationCommand, Command, Node};
use signalbox_qos::qspec::Wish;
use signalbox_qos::wire::qspec::{Flags, Procedure, Tmod, Value};
use signalbox_qos::wire::{BindingCode, BoundSession, Carried, Message, MessageFlags, MessageType, Rsn};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim};
use signalbox_wire::Writer;

use super::net::{MS, SECOND};
use crate::cmode::{keyring, over};

/// Sessions of the chain.
const CHAIN: u32 = 1000;
/// Time between two of them.
const PACE: Duration = Duration::from_millis(3);

fn session(number: u32) -> SessionId {
    SessionId((u128::from(number) + 1).to_be_bytes())
}

/// The request of a session, which depends on the one before it.
fn reserve(number: u32) -> Vec<u8> {
    let tmod = Tmod { rate: 1.0, bucket: 3000.0, peak: f32::INFINITY, min_policed: 64, max_packet: 1500 };
    let desired = [(Flags::MANDATORY, Value::Tmod1(tmod))];
    let mut qspec = Vec::new();
    Wish::of(Procedure::DESIRED, &desired).compose(&mut qspec).unwrap();
    let mut bound = Vec::new();
    if let Some(before) = number.checked_sub(1) {
        let binding = BoundSession { code: BindingCode::DEPENDENT, session: session(before) };
        binding.write(&mut Writer::new(&mut bound)).unwrap();
    }
    octets(&Message {
        flags: MessageFlags::REPLACE,
        rsn: Some(Rsn { number: 1, epoch: 7 }),
        qspec: Some(&qspec),
        bound_sessions: Carried::bound_sessions(&bound),
        ..Message::new(MessageType::RESERVE)
    })
}

fn tear() -> Vec<u8> {
    octets(&Message {
        flags: MessageFlags::TEAR,
        rsn: Some(Rsn { number: 2, epoch: 7 }),
        ..Message::new(MessageType::RESERVE)
    })
}

fn octets(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets)).unwrap();
    octets
}

/// The adversary tears down the first session of the chain: all of them end at the router and behind it, and the session of
/// another host stays.
#[test]
fn a_chain_of_dependent_sessions_ends_over_tls_and_ipv6() {
    let mut sim = Sim::new(1);
    let mut channels = keyring(4).into_iter();
    let [adversary, router, receiver, host] = ["adversary", "router", "receiver", "host"].map(|name| {
        let mut config = over(Transport::TlsTcp);
        config.gist.as_mut().unwrap().channels = channels.next().unwrap();
        crate::net::gist(&mut config).inactivity = 300 * SECOND;
        config.qos = (name != "adversary").then(|| qos::Config { secure: true, ..qos::Config::default() });
        let links = (0..3).map(|n| Capacity::new(&format!("eth{n}"), Some(Rate(1_250_000_000))));
        config.resources.links = links.collect();
        sim.add_engine(name, move |boot| Node::new(config.clone(), boot.seed).unwrap())
    });
    for other in [adversary, receiver, host] {
        sim.link(router, other, &LinkConfig::default());
    }
    sim.run_for(Duration::ZERO);
    let [from, to] = [adversary, receiver].map(|node| sim.address(node, Family::V6));
    let flow = Flow { protocol: Some(17), dst_port: Some(9), ..Flow::to(to) };
    let command = qos::Command::Reserve(Box::new(ReserveRequest::new(flow, QosRequest::rate(12_500))));
    sim.command(host, Command::Qos { id: 1, command });
    let registration = Registration::default();
    let register = ApplicationCommand::Register { nslp: NslpId::QOS, registration };
    sim.command(adversary, Command::Gist { id: 1, command: register });
    sim.run_for(SECOND);

    let send = |sim: &mut Sim<Node>, number: u32, data: Vec<u8>| {
        let dst_port = Some(u16::try_from(1000 + number).unwrap());
        let mri = PathCoupled { protocol: Some(17), dst_port, ..PathCoupled::between(from, to) };
        let message = SendMessageOf {
            data: data[..].into(),
            handle: None,
            nslp: NslpId::QOS,
            session: session(number),
            mri: Mri::PathCoupled(mri),
            state: None,
            sii: None,
            attributes: TransferAttributes::default(),
            timeout: None,
            ip_ttl: None,
            hops: None,
        };
        let command = ApplicationCommand::Request(RequestOf::SendMessage(message));
        sim.command(adversary, Command::Gist { id: 1, command });
        sim.run_for(PACE);
    };
    for number in 0..CHAIN {
        send(&mut sim, number, reserve(number));
    }
    sim.run_for(2 * SECOND);
    let held = |sim: &Sim<Node>, node: NodeId| sim.reservations(node).count();
    assert_eq!(held(&sim, router), 1 + CHAIN as usize);
    send(&mut sim, 0, tear());
    sim.run_for(10 * SECOND);
    assert_eq!(held(&sim, router), 1, "the host's own is left");
    sim.run_for(200 * MS);
}
