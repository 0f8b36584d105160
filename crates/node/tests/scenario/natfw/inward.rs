//! A receiver inside lets others reach it, or stops them.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::node::Prefix;
use signalbox_node::natfw::Middlebox::{Firewall, Nat};
use signalbox_node::natfw::Options;
use signalbox_sim::{Family, Packet};

use super::net::{FROM, Kind, Net, SECOND, TO};

/// A receiver behind a NAT gets an external address; a sender that knows it opens the way.
#[test]
fn a_receiver_behind_a_nat_is_reached_by_its_external_address() {
    for inner in [None, Some(Kind::Right(Nat))] {
        let kinds = [Some(Kind::Host), Some(Kind::Edge(Nat)), inner, Some(Kind::Host)];
        let kinds: Vec<_> = kinds.into_iter().flatten().collect();
        let mut net = Net::row(1, &kinds);
        net.expose(1, |_| {});
        let (last, external) = (net.last(), net.granted(net.last(), 1).external.unwrap());
        let external = SocketAddr::new(IpAddr::V4(external.0), external.1.unwrap());
        assert_eq!(external.ip(), net.left(1, Family::V4));
        let src = SocketAddr::new(net.address(0, Family::V4), FROM);
        let arrives = |net: &mut Net| {
            let seen = net.sends(0, Packet::new(src, external, []));
            seen.filter(|(at, ..)| *at == net.last()).map(|(_, from, to)| (from, to))
        };
        assert_eq!(arrives(&mut net), None, "a reservation opens nothing");
        net.open(0, 2, external);
        net.granted(0, 2);
        let receiver = SocketAddr::new(net.address(last, Family::V4), TO);
        assert_eq!(arrives(&mut net), Some((src, receiver)));
        net.close(last, 1);
        net.run(5);
        net.close(0, 2);
        net.expect_holes(SECOND * 5, &vec![0; kinds.len()]);
        assert_eq!(arrives(&mut net), None);
    }
}

/// Behind a NAT no host is reached without a reservation.
#[test]
fn a_receiver_that_did_not_ask_is_not_reached() {
    let mut net = Net::row(2, &[Kind::Host, Kind::Edge(Nat), Kind::Host]);
    let external = SocketAddr::new(net.left(1, Family::V4), 40_000);
    net.open(0, 1, external);
    net.ended(0, 1);
    let inside = SocketAddr::new(net.address(2, Family::V4), TO);
    net.open(0, 2, inside);
    net.ended(0, 2);
    assert_eq!(net.holes(), [0; 3]);
}

/// A host inside blocks a sender at the edge: even an open path closes for it.
#[test]
fn a_host_inside_blocks_a_sender() {
    let mut net = Net::row(3, &[Kind::Host, Kind::Edge(Firewall), Kind::Host]);
    let src = SocketAddr::new(net.address(0, Family::V4), FROM);
    let dst = SocketAddr::new(net.address(2, Family::V4), TO);
    net.open(0, 1, dst);
    net.granted(0, 1);
    assert!(net.passes(0, src, dst));
    net.expose(2, |request| {
        request.block = true;
        request.from = Some(Prefix::host(src.ip()));
    });
    net.granted(2, 2);
    assert!(!net.passes(0, src, dst), "blocked");
    net.close(0, 1);
    net.run(2);
    net.open(0, 3, dst);
    let end = net.ended(0, 3);
    assert!(!net.passes(0, src, dst), "{end}");
    net.close(2, 2);
    net.run(2);
    net.open(0, 4, dst);
    net.granted(0, 4);
    assert!(net.passes(0, src, dst));
}

/// NATFW-3.7.6.1-02: the sender does not run the application; the edge opens for it, as the receiver asked.
#[test]
fn a_sender_without_the_application_reaches_the_receiver_in_proxy_mode() {
    let mut net = Net::row(4, &[Kind::Plain, Kind::Edge(Firewall), Kind::Host]);
    let src = SocketAddr::new(net.address(0, Family::V4), FROM);
    let dst = SocketAddr::new(net.address(2, Family::V4), TO);
    assert!(!net.passes(0, src, dst));
    net.expose(1, |request| {
        request.from = Some(Prefix::host(src.ip()));
        request.from_port = Some(FROM);
        request.options = Options { proxy: true, ..Options::default() };
    });
    net.granted(2, 1);
    net.run(5);
    assert!(net.passes(0, src, dst), "{:?} {:?}", net.holes(), net.sim.events());
    net.close(2, 1);
    net.expect_holes(SECOND * 5, &[0; 3]);
}
