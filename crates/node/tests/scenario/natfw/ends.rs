//! Sessions that end at one node of the path, and what the others learn of it.

use std::net::SocketAddr;

use signalbox_node::Command;
use signalbox_node::natfw::Middlebox::Firewall;
use signalbox_node::natfw::{self, NatfwEvent};
use signalbox_sim::Family;

use super::net::{Kind, Net, REFRESH, SECOND, TO, open, sessions};
use crate::net::gist;

const ROW: [Kind; 4] = [Kind::Host, Kind::Left(Firewall), Kind::Right(Firewall), Kind::Host];

/// NATFW-3.7.4-09: without messaging associations no node learns that a session ended at one of them. The deletion of the host
/// passes that node, and closes what is behind it.
#[test]
fn a_deletion_closes_what_is_behind_a_node_whose_session_ended() {
    let mut net = Net::with(1, &ROW, |_, config| {
        if let Some(natfw) = &mut config.natfw {
            natfw.reliable = false;
        }
        let associations = &mut gist(config).associations;
        (associations.tcp_port, associations.always) = (None, false);
    });
    let dst = SocketAddr::new(net.address(3, Family::V4), TO);
    net.open(0, 1, dst);
    net.granted(0, 1);
    assert_eq!(net.holes(), [0, 1, 1, 0]);
    let session = sessions(&net.sim, net.nodes[1])[0].session;
    net.command(1, 9, natfw::Command::Delete(session));
    net.run(1);
    assert_eq!((net.holes(), net.events(0, 1).len()), (vec![0, 0, 1, 0], 2));
    net.close(0, 1);
    net.expect_holes(SECOND * 3, &[0; 4]);
}

/// NATFW-3.7.5-19, NATFW-3.7.5-16: a firewall stops and leaves nothing: the host learns of it at once, and the other firewall closes.
#[test]
fn a_firewall_that_stops_reports_what_ends() {
    for count in [1_u16, 3] {
        let mut net = Net::row(2, &ROW);
        for n in 0..count {
            let dst = SocketAddr::new(net.address(3, Family::V4), TO + n);
            net.command(0, n.into(), natfw::Command::Open(open(dst, natfw::Options::default())));
            net.granted(0, n.into());
        }
        net.sim.command(net.nodes[1], Command::Stop { handed_over: false });
        net.run(1);
        for n in 0..count {
            assert!(matches!(net.events(0, n.into()).last(), Some(NatfwEvent::Failed(_))), "{n} of {count}");
        }
        assert_eq!(net.holes(), [0, usize::from(count), 0, 0], "the stopping node's kernel is the driver's");
    }
}

/// NATFW-3.7.5-19: of what the next daemon takes over nothing is said.
#[test]
fn a_firewall_that_hands_over_is_silent() {
    let mut net = Net::row(3, &ROW);
    let dst = SocketAddr::new(net.address(3, Family::V4), TO);
    net.open(0, 1, dst);
    net.granted(0, 1);
    net.sim.command(net.nodes[1], Command::Stop { handed_over: true });
    net.sim.run_for(REFRESH * 2);
    assert_eq!((net.events(0, 1).len(), net.holes()), (2, vec![0, 1, 1, 0]));
}
