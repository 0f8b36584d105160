//! A NAT that is a GIST-aware gateway and runs the NATFW application too.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::{Direction, Mri, NslpId};
use signalbox_gist::wire::MessageType;
use signalbox_node::gist_nat;
use signalbox_node::natfw::Middlebox;
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::{Command, Config};
use signalbox_sim::{Captured, Family, Packet};

use crate::natfw::net::{FROM, Kind, Net, TO};
use crate::net::{header, message, replies};

const UDP: u8 = 17;

/// A host, a NAT, a host. The hosts run NATFW and Ping, and the NAT only what `change` adds to GIST.
fn row(kind: Kind, change: impl Fn(&mut Config)) -> Net {
    Net::with(3, &[Kind::Host, kind, Kind::Host], |n, config| match n {
        1 => {
            let side = |name: &str| vec![name.to_owned()];
            let (inside, outside) = (side("eth0"), side("eth1"));
            config.gist_nat = Some(gist_nat::Config { inside, outside, ..gist_nat::Config::default() });
            change(config);
        }
        _ => config.ping = Some(ping::Config::default()),
    })
}

/// Asks for a passage and pings, both for flows of UDP from the host inside to the host outside.
fn signal(net: &mut Net) {
    let to = net.address(2, Family::V4);
    net.open(0, 1, (to, 6000).into());
    net.granted(0, 1);
    let request = PingRequest {
        protocol: Some(UDP),
        src_port: Some(7000),
        dst_port: Some(7001),
        count: Some(1),
        ..PingRequest::to(to)
    };
    net.sim.command(net.nodes[0], Command::Ping { id: 2, command: ping::Command::Start(request) });
    net.sim.expect("a reply comes", Duration::from_secs(20), |sim| !replies(sim, 2).is_empty());
}

/// For each Query of an application outside of the NAT, whether it has a NAT-Traversal object.
fn objects(net: &Net, nslp: NslpId) -> Vec<bool> {
    let outside = |one: &&Captured| {
        one.link == net.links[1]
            && one.packet.payload.len() > 12
            && one.packet.payload.starts_with(&signalbox_gist::wire::MAGIC)
            && (header(one).kind, header(one).nslp) == (MessageType::QUERY, nslp)
    };
    net.sim.captured().filter(outside).map(|one| message(one).nat_traversal.is_some()).collect()
}

/// GISTNAT-D4-01: NATFW translates the session of NATFW and the gateway that of Ping, and never both the same one.
#[test]
fn no_session_is_translated_by_both() {
    let mut net = row(Kind::Left(Middlebox::Nat), |_| {});
    signal(&mut net);
    let (natfw, ping) = (objects(&net, NslpId::NATFW), objects(&net, NslpId::PING));
    assert!(!natfw.is_empty() && natfw.iter().all(|object| !object), "{natfw:?}");
    assert!(!ping.is_empty() && ping.iter().all(|object| *object), "{ping:?}");
}

/// The Queries of NATFW that the NAT sends on a link downstream: the packet with its flow.
fn queries(net: &Net, link: usize) -> Vec<(&Captured, PathCoupled)> {
    let of_nat = |one: &&Captured| {
        (one.from, one.link) == (net.nodes[1], net.links[link])
            && one.packet.payload.starts_with(&signalbox_gist::wire::MAGIC)
            && (header(one).kind, header(one).nslp) == (MessageType::QUERY, NslpId::NATFW)
    };
    let flow = |one| match message(one).mri?.mri {
        Mri::PathCoupled(flow) if flow.direction == Direction::Downstream => Some((one, flow)),
        Mri::PathCoupled(_) | Mri::LooseEnd(_) => None,
    };
    net.sim.captured().filter(of_nat).filter_map(flow).collect()
}

/// GISTNAT-D5.3-03: a NAT with the application, whose sender is inside, is the source outside: in the MRI, with the port that the data have, in
/// the IP header and in the NLI.
#[test]
fn a_nat_with_the_application_is_the_source_outside() {
    let mut net = row(Kind::Left(Middlebox::Nat), |_| {});
    signal(&mut net);
    let (src, dst) = (net.address(0, Family::V4), (net.address(2, Family::V4), 6000).into());
    let data = net.sends(0, Packet::new((src, FROM).into(), dst, []));
    let (_, external, _) = data.expect("data pass");
    assert_eq!(external.ip(), net.right(1, Family::V4));
    let queries = queries(&net, 1);
    assert!(!queries.is_empty());
    for (one, flow) in queries {
        assert_eq!((flow.src, flow.src_port), (external.ip(), Some(external.port())));
        assert_eq!(
            (one.packet.src.ip(), message(one).nli.unwrap().interface),
            (external.ip(), external.ip())
        );
    }
}

/// GISTNAT-D5.3-04: a NAT with the application, whose receiver is inside, sends downstream to the host inside: in the MRI, with its own port, and
/// in the IP header.
#[test]
fn a_nat_with_the_application_sends_to_the_host_inside() {
    let mut net = Net::row(1, &[Kind::Host, Kind::Edge(Middlebox::Nat), Kind::Host]);
    net.expose(1, |_| {});
    let external = net.granted(2, 1).external.unwrap();
    net.open(0, 2, (IpAddr::V4(external.0), external.1.unwrap()).into());
    net.granted(0, 2);
    let inside = net.address(2, Family::V4);
    let queries = queries(&net, 1);
    assert!(!queries.is_empty());
    for (one, flow) in queries {
        assert_eq!((one.packet.dst.ip(), flow.dst, flow.dst_port), (inside, inside, Some(TO)));
    }
}

/// GISTNAT-D4-02: the configuration decides. A NAT without NATFW translates the sessions of NATFW as those of all others.
#[test]
fn a_gateway_without_natfw_translates_its_sessions_too() {
    let mut net = row(Kind::Left(Middlebox::Nat), |config| config.natfw = None);
    signal(&mut net);
    for nslp in [NslpId::NATFW, NslpId::PING] {
        let objects = objects(&net, nslp);
        assert!(!objects.is_empty() && objects.iter().all(|object| *object), "{nslp:?}: {objects:?}");
    }
}
