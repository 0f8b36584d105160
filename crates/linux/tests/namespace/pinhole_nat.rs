//! NAT bindings beside the operator's own translation: packets through them, in both directions.

use std::net::{IpAddr, SocketAddr};

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, OpenerId, Pinhole, PinholeError, Sender};
use signalbox_core::traffic::FlowFilter;
use signalbox_linux::pinhole::{PinholeConfig, Pinholes};
use signalbox_linux::topology;

use crate::network::{Addresses, Network, PATIENCE, bind, families, footprint, ip, tool};
use crate::pinhole::{
    CONTROL, DEFAULT_DROP, LONG, UDP, at, close, connect, enforcer, flow, open, received, tracked,
};

/// The ruleset of a NAT: `a` is inside, `b` outside, and the operator translates what leaves.
const NAT: &str = "table inet nat {
    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        oifname \"rb\" masquerade
    }
}
";

/// The router's outer addresses.
pub(crate) fn outer(b: IpAddr) -> IpAddr {
    if b.is_ipv4() { ip("10.2.0.2") } else { ip("fd02::2") }
}

pub(crate) fn nat(label: &str) -> Option<(Network, Pinholes)> {
    let net = Network::new(label);
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    topology::nft(&net.r, NAT).unwrap();
    let pinholes = enforcer(&net, &PinholeConfig::default())?;
    Some((net, pinholes))
}

pub(crate) fn endpoint(end: SocketAddr) -> Option<Endpoint> {
    Some(Endpoint { address: end.ip(), port: Some(end.port()) })
}

pub(crate) fn to_any_sender(dst: SocketAddr) -> FlowFilter {
    FlowFilter {
        protocol: Some(UDP),
        dst_port: Some(dst.port()),
        ..FlowFilter::between(Prefix::all_like(dst.ip()), Prefix::host(dst.ip()))
    }
}

/// NATFW-3.1-01, NATFW-3.7.1-08, NATFW-D.3-01, NATFW-4.2.4-05: a host outside reaches a host inside at the external address and port of the
/// binding, with the next port beside it, and at no other port. The answer comes from the external address. At the end
/// nothing passes, and the kernel removes the flow.
#[test]
fn a_binding_leads_inside() {
    let Some((net, mut pinholes)) = nat("dnat") else { return };
    for (id, Addresses { a, b }) in families().into_iter().enumerate() {
        let (external, inside) = (at(outer(b), 45000), at(a, 20230));
        let server = bind(&net.a, inside);
        let next = bind(&net.a, at(a, 20231));
        let client = bind(&net.b, at(b, 6000));
        let pinhole = Pinhole {
            second_port: true,
            destination: endpoint(inside),
            ..Pinhole::allow(to_any_sender(external))
        };
        open(&mut pinholes, id as u64, pinhole, LONG);
        client.send_to(b"question", external).unwrap();
        assert_eq!(received(&server, PATIENCE), Some(at(b, 6000)));
        server.send_to(b"answer", at(b, 6000)).unwrap();
        assert_eq!(received(&client, PATIENCE), Some(external));
        client.send_to(b"other port", at(outer(b), 45002)).unwrap();
        client.send_to(b"second port", at(outer(b), 45001)).unwrap();
        assert_eq!(received(&next, PATIENCE), Some(at(b, 6000)));
        assert_eq!(received(&server, std::time::Duration::from_millis(20)), None);
        assert!(tracked(&net).contains("mark=268435456"));
        close(&mut pinholes, id as u64);
        assert!(!tracked(&net).contains("mark=268435456"), "{}", tracked(&net));
        // Without the binding the packet is for the router itself, which has no such port.
        client.send_to(b"closed", external).unwrap();
        assert_eq!(received(&server, std::time::Duration::from_millis(200)), None);
    }
}

/// A sender that does not wait for the binding: the kernel has its flow already, as one to the router itself. The binding
/// translates its next packet all the same.
#[test]
fn a_flow_that_stood_before_its_binding_is_translated() {
    let Some((net, mut pinholes)) = nat("early") else { return };
    for (id, Addresses { a, b }) in families().into_iter().enumerate() {
        let (external, inside, outside) = (at(outer(b), 45000), at(a, 20230), at(b, 6000));
        let (server, client) = (bind(&net.a, inside), bind(&net.b, outside));
        client.send_to(b"early", external).unwrap();
        let seen = || tracked(&net).lines().filter(|line| line.contains("dport=45000")).count();
        crate::network::until("the kernel has the flow", || seen() > id);
        let pinhole =
            Pinhole { destination: endpoint(inside), ..Pinhole::allow(flow(UDP, outside, external)) };
        open(&mut pinholes, id as u64, pinhole.clone(), LONG);
        client.send_to(b"question", external).unwrap();
        assert_eq!(received(&server, PATIENCE), Some(outside), "{}", tracked(&net));
        server.send_to(b"answer", outside).unwrap();
        assert_eq!(received(&client, PATIENCE), Some(external));
        // A binding that is prolonged does not begin its flows anew.
        let flows = tracked(&net);
        open(&mut pinholes, id as u64, pinhole, LONG);
        assert_eq!(tracked(&net).lines().count(), flows.lines().count());
    }
}

/// NATFW-3.1-01, NATFW-3.7.1-08: the binding of a flow that leaves has the external address and port that were reserved, before the
/// operator's own translation; source and destination together are translated too, also with TCP.
#[test]
fn a_binding_leads_outside() {
    let Some((net, mut pinholes)) = nat("snat") else { return };
    for (id, Addresses { a, b }) in families().into_iter().enumerate() {
        let (inside, external) = (at(a, 4000), at(outer(b), 50000));
        let (client, server) = (bind(&net.a, inside), bind(&net.b, at(b, 5004)));
        let leaving =
            Pinhole { source: endpoint(external), ..Pinhole::allow(flow(UDP, inside, at(b, 5004))) };
        open(&mut pinholes, id as u64, leaving, LONG);
        client.send_to(b"question", at(b, 5004)).unwrap();
        assert_eq!(received(&server, PATIENCE), Some(external));
        server.send_to(b"answer", external).unwrap();
        assert_eq!(received(&client, PATIENCE), Some(at(b, 5004)));
        close(&mut pinholes, id as u64);
        // A name for the server that exists at the NAT only.
        let name = at(if b.is_ipv4() { ip("10.1.0.2") } else { ip("fd01::2") }, 80);
        let twice = Pinhole {
            source: endpoint(at(outer(b), 50001)),
            destination: endpoint(at(b, 8080)),
            ..Pinhole::allow(flow(6, at(a, 4001), name))
        };
        open(&mut pinholes, id as u64, twice, LONG);
        let listener = net.b.run(|| std::net::TcpListener::bind(at(b, 8080))).unwrap().unwrap();
        let stream = connect(&net.a, at(a, 4001), name).expect("connected");
        assert_eq!(listener.accept().unwrap().1, at(outer(b), 50001));
        drop(stream);
        close(&mut pinholes, id as u64);
    }
}

/// GISTNAT-D6.1-03, GISTNAT-D6.2-03: the translation of a flow that the kernel tracks is found, by packets of both directions, and whether a
/// pinhole let the flow in. A flow that is not translated, or not tracked, has no translation.
#[test]
fn the_translation_of_a_flow_is_found() {
    let Some((net, mut pinholes)) = nat("found") else { return };
    for (id, Addresses { a, b }) in families().into_iter().enumerate() {
        let (inside, far, external) = (at(a, 4000), at(b, CONTROL), at(outer(b), 4000));
        let find = |pinholes: &mut Pinholes, src, dst| {
            let found = pinholes.find(&flow(UDP, src, dst))?;
            Some((found.source, found.destination, found.by_pinhole))
        };
        assert_eq!(find(&mut pinholes, inside, far), None);
        let (client, server) = (bind(&net.a, inside), bind(&net.b, far));
        client.send_to(b"data", far).unwrap();
        assert_eq!(received(&server, PATIENCE), Some(external), "the operator translates it");
        assert_eq!(find(&mut pinholes, inside, far), Some((external, far, false)));
        assert_eq!(find(&mut pinholes, far, external), Some((far, inside, false)));
        assert_eq!(find(&mut pinholes, far, inside), None);
        // From outside, without a translation.
        let (from, to) = (bind(&net.b, at(b, 6000)), bind(&net.a, at(a, CONTROL)));
        from.send_to(b"data", at(a, CONTROL)).unwrap();
        assert_eq!(received(&to, PATIENCE), Some(at(b, 6000)));
        assert_eq!(find(&mut pinholes, at(b, 6000), at(a, CONTROL)), None);
        // A flow of a binding.
        let (bound, source) = (at(a, 4001), at(outer(b), 50000));
        let leaving = Pinhole { source: endpoint(source), ..Pinhole::allow(flow(UDP, bound, far)) };
        open(&mut pinholes, id as u64, leaving, LONG);
        bind(&net.a, bound).send_to(b"data", far).unwrap();
        assert_eq!(received(&server, PATIENCE), Some(source));
        assert_eq!(find(&mut pinholes, bound, far), Some((source, far, true)));
        close(&mut pinholes, id as u64);
        assert_eq!(pinholes.find(&to_any_sender(external)), None, "no exact packets");
    }
}

/// PCP-11-03: any sender reaches a host inside, or those that are named do; flows that the host begins from the same port leave with the
/// external port, by the interfaces outside only, and flows of its other ports do not. Nothing of it is left in the kernel at the end.
#[test]
fn a_mirrored_binding_counts_for_flows_of_its_host() {
    for (label, outside, mirrored) in
        [("mirror", vec!["rb".to_owned()], true), ("mirrno", vec!["ra".to_owned()], false)]
    {
        let net = Network::new(label);
        topology::nft(&net.r, DEFAULT_DROP).unwrap();
        topology::nft(&net.r, NAT).unwrap();
        let Some(mut pinholes) = enforcer(&net, &PinholeConfig { outside, ..PinholeConfig::default() })
        else {
            return;
        };
        for (id, Addresses { a, b }) in families().into_iter().enumerate() {
            let (external, inside, far) = (at(outer(b), 45000), at(a, 20230), at(b, CONTROL));
            let (server, other) = (bind(&net.a, inside), bind(&net.a, at(a, 20231)));
            let peer = bind(&net.b, far);
            let sender = |port| Sender { from: Prefix::host(b), port: Some(port) };
            let packets =
                FlowFilter { src: Prefix::host(b), src_port: Some(6000), ..to_any_sender(external) };
            let few = Pinhole {
                senders: vec![sender(6001), sender(6002)],
                destination: endpoint(inside),
                mirrored: true,
                ..Pinhole::allow(packets)
            };
            open(&mut pinholes, id as u64, few.clone(), LONG);
            for (port, passes) in [(6000, true), (6001, true), (6002, true), (6003, false)] {
                bind(&net.b, at(b, port)).send_to(b"question", external).unwrap();
                let patience = if passes { PATIENCE } else { std::time::Duration::from_millis(50) };
                assert_eq!(received(&server, patience), passes.then_some(at(b, port)), "{port}");
            }
            server.send_to(b"to a new peer", far).unwrap();
            let source = if mirrored { external } else { at(outer(b), 20230) };
            assert_eq!(received(&peer, PATIENCE), Some(source));
            other.send_to(b"of another port", far).unwrap();
            assert_eq!(received(&peer, PATIENCE), Some(at(outer(b), 20231)));
            let any = Pinhole { packets: to_any_sender(external), senders: Vec::new(), ..few };
            open(&mut pinholes, id as u64, any, LONG);
            // The kernel tracks the flow that was refused, so another one is tried.
            bind(&net.b, at(b, 6004)).send_to(b"question", external).unwrap();
            assert_eq!(received(&server, PATIENCE), Some(at(b, 6004)));
            let map = format!(
                "nft list map inet signalbox_pinholes snat{}_beginner",
                if b.is_ipv4() { 4 } else { 6 }
            );
            assert!(tool(&net.r, &map).contains("45000"));
            close(&mut pinholes, id as u64);
            assert!(!tool(&net.r, &map).contains("45000"));
        }
    }
}

/// Without translation there is no chain of NAT, and a binding is refused. Everything is gone at the end.
#[test]
fn a_firewall_has_no_bindings() {
    let net = Network::new("nonat");
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    let before = footprint(&net.r);
    let config = PinholeConfig { translate: false, ..PinholeConfig::default() };
    let Some(mut pinholes) = enforcer(&net, &config) else { return };
    assert!(!footprint(&net.r).contains("type nat"));
    let Addresses { a, b } = families()[0];
    let pinhole = Pinhole {
        source: endpoint(at(outer(b), 50000)),
        ..Pinhole::allow(flow(UDP, at(a, 4000), at(b, 5004)))
    };
    pinholes.request(OpenerId::NATFW.pinhole(1), pinhole, LONG);
    assert_eq!(pinholes.flush(), [(OpenerId::NATFW.pinhole(1), Err(PinholeError::Unsupported))]);
    pinholes.close().unwrap();
    assert_eq!(footprint(&net.r), before);
}
