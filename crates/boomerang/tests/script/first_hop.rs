//! Requests of this node on the link to the first node of the path.

use signalbox_boomerang::engine::{BoomerangEvent as Event, Command, Input, Rejected, Request};
use signalbox_core::node::Prefix;

use crate::rig::*;

/// Octets of a request for one pair of rates in IPv4, with the header and its Router Alert.
const SHORT: u32 = 96;
/// Octets of the list of nodes.
const LIST: u32 = 40;

fn open(rig: &mut Rig, request: Request) -> Option<Sent> {
    rig.command(1, Command::Open(request)).pop()
}

/// BOOM-G31-03: a request that the link does not carry is rejected, and reserves nothing. The limit is that of the route, if it is lower.
#[test]
fn a_request_that_exceeds_the_first_hop_is_rejected() {
    for (link, route, fits) in
        [(SHORT, 1500, true), (SHORT - 1, 1500, false), (1500, SHORT, true), (1500, SHORT - 1, false)]
    {
        let mut rig = Rig::new();
        rig.mtu(2, link);
        rig.route_mtu = route;
        assert_eq!(open(&mut rig, wish()).is_some(), fits, "{link} {route}");
        if !fits {
            assert_eq!(rig.events, [(1, Event::Rejected(Rejected::TooLong))]);
            assert_eq!((rig.node.session_count(), rig.node.flow_count(), rig.resources.len()), (0, 0, 0));
            assert_eq!(rig.node.counters().too_large, 1);
        }
    }
}

/// BOOM-G31-03: the list of nodes is not worth a rejection.
#[test]
fn a_list_of_nodes_that_does_not_fit_is_left_out() {
    for (mtu, listed) in [(SHORT + LIST, true), (SHORT + LIST - 1, false)] {
        let mut rig = Rig::new();
        rig.mtu(2, mtu);
        let sent = open(&mut rig, Request { name_nodes: true, ..wish() }).unwrap();
        assert_eq!(sent.message().body.unwrap().options.nodes().is_some(), listed, "{mtu}");
    }
}

/// BOOM-G31-03: a refresh that the first hop does not carry any more counts as lost. It is sent again, and the session ends after the last one.
#[test]
fn a_refresh_that_exceeds_the_first_hop_is_lost() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish()).unwrap();
    rig.echo(&first, |_| {});
    shrink(&mut rig, SHORT - 1);
    while rig.node.counters().too_large == 0 {
        assert_eq!(rig.wait(seconds(0.5)), []);
    }
    assert_eq!((rig.events.len(), rig.node.session_count()), (1, 1));
    shrink(&mut rig, SHORT);
    let again = rig.wait(seconds(1.1)).remove(0);
    rig.echo(&again, |_| {});
    assert_eq!(rig.events.len(), 1);
    shrink(&mut rig, SHORT - 1);
    rig.wait(seconds(45.0));
    assert_eq!(rig.last_event(), &Event::Unanswered);
}

/// Routes carry packets of this length from now on.
fn shrink(rig: &mut Rig, mtu: u32) {
    rig.route_mtu = mtu;
    rig.input(Input::RouteChanged(Prefix::all_like(ip(FEN))));
}
