//! A sender opens the path of its flow.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::packet::router_alert;
use signalbox_core::pinhole::PinholeError;
use signalbox_gist::wire::MessageType;
use signalbox_node::natfw::Middlebox::{Firewall, Nat, TwiceNat};
use signalbox_node::natfw::{self, Mapping, NatfwEvent, Options};
use signalbox_node::resources::config::{Action, Opening, RuleConfig};
use signalbox_sim::{Family, Packet};

use super::net::{FROM, Kind, LIFETIME, Net, REFRESH, SECOND, TO, open, sessions};
use crate::net::{FAMILIES, header, message};

/// Two firewalls open exactly the flow, and close it at its end.
#[test]
fn exactly_the_flow_passes_while_it_is_open() {
    for family in FAMILIES {
        let mut net = Net::row(1, &[Kind::Host, Kind::Left(Firewall), Kind::Right(Firewall), Kind::Host]);
        let src = SocketAddr::new(net.address(0, family), FROM);
        let dst = SocketAddr::new(net.address(3, family), TO);
        assert!(!net.passes(0, src, dst), "closed before");
        net.open(0, 1, dst);
        assert_eq!(net.granted(0, 1).lifetime, LIFETIME);
        assert_eq!(net.holes(), [0, 1, 1, 0]);
        assert!(net.passes(0, src, dst));
        assert!(net.passes(3, dst, src), "answers pass");
        let other = |end: SocketAddr| SocketAddr::new(end.ip(), end.port() + 1);
        assert!(!net.passes(0, other(src), dst) && !net.passes(0, src, other(dst)), "other ports");
        let right = SocketAddr::new(net.right(1, family), FROM);
        assert!(!net.passes(1, right, dst), "another sender");
        let protocol = Packet { protocol: 132, ..Packet::new(src, dst, []) };
        assert_eq!(net.sends(0, protocol), None, "another protocol");
        net.close(0, 1);
        net.expect_holes(SECOND * 5, &[0; 4]);
        assert!(!net.passes(0, src, dst), "closed again");
        assert!(matches!(net.events(0, 1).last(), Some(NatfwEvent::Closed)));
    }
}

/// NATFW-7-01: NSLPID 33, and a Router Alert of 65 with IPv4 and 68 with IPv6 in front of Queries.
#[test]
fn queries_have_the_values_of_the_application() {
    for (family, alert) in [(Family::V4, 65), (Family::V6, 68)] {
        let mut net = Net::row(2, &[Kind::Host, Kind::Left(Firewall), Kind::Host]);
        let dst = SocketAddr::new(net.address(2, family), TO);
        net.open(0, 1, dst);
        net.granted(0, 1);
        let gist = net.sim.captured().filter(|seen| seen.packet.dst.port() == 270);
        let queries: Vec<_> = gist.filter(|seen| header(seen).kind == MessageType::QUERY).collect();
        assert!(queries.len() >= 2, "one on each link");
        for query in queries {
            assert_eq!(header(query).nslp.0, 33);
            assert_eq!(router_alert(&query.packet.options, family == Family::V6), Some(alert));
        }
    }
}

/// The pinholes of a sender that has crashed end with their lifetime, in the kernel and in the engines.
#[test]
fn a_dead_senders_path_closes_by_itself() {
    let mut net = Net::row(3, &[Kind::Host, Kind::Left(Firewall), Kind::Right(Firewall), Kind::Host]);
    let dst = SocketAddr::new(net.address(3, Family::V4), TO);
    net.open(0, 1, dst);
    net.granted(0, 1);
    // Refreshes keep it open for longer than one lifetime.
    net.sim.run_for(LIFETIME * 2);
    assert_eq!(net.holes(), [0, 1, 1, 0]);
    assert!(net.counter(1, "refreshed") > 5);
    let node = net.nodes[0];
    net.sim.crash(node);
    net.sim.run_for(LIFETIME / 2);
    assert_eq!(net.holes(), [0, 1, 1, 0], "a lifetime is not over");
    net.expect_holes(LIFETIME, &[0; 4]);
    // If GIST's state ends first, the session counts as one whose route changed: it stays for the hold time of 30 s.
    net.run(35);
    assert_eq!((net.counter(1, "expired"), net.counter(2, "expired")), (1, 1));
}

/// A firewall whose daemon crashes keeps its pinholes until their time. One refresh after it is back, they are its own again,
/// and they end when the sender says so.
#[test]
fn a_firewall_that_starts_anew_serves_who_refreshes() {
    let mut net = Net::row(4, &[Kind::Host, Kind::Left(Firewall), Kind::Host]);
    let src = SocketAddr::new(net.address(0, Family::V4), FROM);
    let dst = SocketAddr::new(net.address(2, Family::V4), TO);
    net.open(0, 1, dst);
    net.granted(0, 1);
    let wall = net.nodes[1];
    net.sim.crash(wall);
    assert!(net.passes(0, src, dst), "the kernel goes on");
    net.sim.restart(wall);
    assert!(net.sim.pinholes(wall).all(|(id, _)| id.is_none()), "of the former process");
    net.sim.run_for(REFRESH * 4);
    let own: Vec<_> = net.sim.pinholes(wall).map(|(id, _)| id.is_some()).collect();
    assert_eq!(own, [true], "taken over, not doubled");
    net.sim.lose_pinholes(wall);
    net.sim.run_for(REFRESH * 2);
    assert!(net.passes(0, src, dst), "also a kernel that lost it has it again");
    net.close(0, 1);
    net.expect_holes(SECOND * 5, &[0; 3]);
}

/// A NAT gives the flow an address and port of its own, and takes them back.
#[test]
fn a_nat_translates_the_flow_and_its_answers() {
    let mut net = Net::row(5, &[Kind::Host, Kind::Left(Nat), Kind::Left(Nat), Kind::Host]);
    let src = SocketAddr::new(net.address(0, Family::V4), FROM);
    let dst = SocketAddr::new(net.address(3, Family::V4), TO);
    assert!(!net.passes(0, src, dst));
    net.open(0, 1, dst);
    net.granted(0, 1);
    let (at, seen, to) = net.sends(0, Packet::new(src, dst, [])).unwrap();
    assert_eq!((at, seen.ip(), to), (3, net.right(2, Family::V4), dst));
    let (at, from, back) = net.sends(3, Packet::new(dst, seen, [])).unwrap();
    assert_eq!((at, from, back), (0, dst, src), "the answer finds its way back");
    net.close(0, 1);
    net.expect_holes(SECOND * 5, &[0; 4]);
    assert_eq!(net.sends(3, Packet::new(dst, seen, [])).map(|(at, ..)| at), Some(2), "it ends at the NAT");
}

/// NATFW-3.7.6.2-02: the receiver does not run the application; in proxy mode the last node that does answers in its place.
#[test]
fn a_receiver_without_the_application_is_reached_in_proxy_mode() {
    let mut net = Net::row(6, &[Kind::Host, Kind::Left(Firewall), Kind::Right(Firewall), Kind::Plain]);
    let src = SocketAddr::new(net.address(0, Family::V4), FROM);
    let dst = SocketAddr::new(net.address(3, Family::V4), TO);
    net.open(0, 1, dst);
    let end = net.ended(0, 1);
    assert!(!net.passes(0, src, dst), "{end}");
    let options = Options { proxy: true, ..Options::default() };
    net.command(0, 2, natfw::Command::Open(open(dst, options)));
    net.granted(0, 2);
    assert!(net.passes(0, src, dst));
}

/// A rule decides at the firewall of the receiver's network: what it does not allow does not open anything anywhere.
#[test]
fn a_refusal_of_one_firewall_closes_the_others() {
    let strict = |n: usize, config: &mut signalbox_node::Config| {
        if n == 2 {
            config.resources.trusted = Vec::new();
            config.resources.rules = vec![RuleConfig {
                opens: vec![Opening::Inward],
                ports: vec!["6000-6001".parse().unwrap()],
                protocol: vec![17],
                ..RuleConfig::new("media", Action::Allow)
            }];
        }
    };
    let kinds = [Kind::Host, Kind::Left(Firewall), Kind::Right(Firewall), Kind::Host];
    let mut net = Net::with(7, &kinds, strict);
    let dst = SocketAddr::new(net.address(3, Family::V4), TO);
    net.open(0, 1, SocketAddr::new(dst.ip(), 22));
    assert_eq!(net.ended(0, 1), "Permanent failure: Authorization failed");
    assert_eq!((net.holes(), net.counter(2, "refused")), (vec![0; 4], 1));
    net.open(0, 2, dst);
    net.granted(0, 2);
    assert_eq!(net.holes(), [0, 1, 1, 0]);
}

/// The kernel of one firewall refuses: the others close, and the sender is informed.
#[test]
fn a_kernel_that_refuses_ends_the_request() {
    let mut net = Net::row(8, &[Kind::Host, Kind::Left(Firewall), Kind::Right(Firewall), Kind::Host]);
    let dst = SocketAddr::new(net.address(3, Family::V4), TO);
    let wall = net.nodes[1];
    net.sim.set_open_refusal(wall, Some(PinholeError::Failed));
    net.open(0, 1, dst);
    net.ended(0, 1);
    net.expect_holes(SECOND * 5, &[0; 4]);
    assert_eq!(net.counter(1, "kernel_refused"), 1);
}

/// NATFW-D.4-01: a twice-NAT intercepts a Query for the alias of a host outside, is the peer of both hosts, and signals on to the
/// host for the flow as it is there.
#[test]
fn a_twice_nat_is_a_node_of_the_path() {
    let [host, far, alias, known_as]: [IpAddr; 4] =
        ["10.0.0.1", "10.0.0.6", "10.200.0.2", "10.201.0.1"].map(|address| address.parse().unwrap());
    let mut net = Net::with(11, &[Kind::Host, Kind::Left(TwiceNat), Kind::Host], |n, config| {
        if let Some(natfw) = config.natfw.as_mut().filter(|_| n == 1) {
            natfw.mappings =
                vec![Mapping { inside: host, outside: known_as }, Mapping { inside: alias, outside: far }];
        }
    });
    assert_eq!((net.right(0, Family::V4), net.left(2, Family::V4)), (host, far));
    // Packets for the alias take the way of those for the host.
    net.sim.add_address(net.nodes[2], alias);
    net.open(0, 1, SocketAddr::new(alias, TO));
    net.granted(0, 1);
    let flows = |link: usize| -> Vec<_> {
        let queries = net.sim.captured().filter(|seen| {
            seen.link == net.links[link]
                && seen.packet.dst.port() == 270
                && header(seen).kind == MessageType::QUERY
        });
        queries.map(|seen| message(seen).mri.unwrap().mri).map(|mri| (mri.src(), mri.dst())).collect()
    };
    assert_eq!(flows(0), [(host, alias)]);
    assert_eq!(flows(1), [(known_as, far)]);
    assert!(net.nodes.iter().all(|node| sessions(&net.sim, *node).len() == 1));
}
