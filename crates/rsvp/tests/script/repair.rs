//! Links that go down, and routes that return (RFC 2205 §3.6).

use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_rsvp::engine::{Command, Config, FlowRequest, Input, ReserveRequest};
use signalbox_rsvp::wire::{MessageType, RsvpHop, Style};

use crate::rig::{
    B, Path, R, Resv, Rig, Sent, addr, all, at, compose, group, kinds, load, one, sender, session, tspec,
};

/// Octets a second that the kernel passes at interface `n`, of each reservation.
fn rates(rig: &Rig, n: u32) -> Vec<u64> {
    rig.installed.values().filter(|one| one.ifindex.0 == n).map(|one| one.traffic.rate).collect()
}

/// A reservation at the interface to which data return is for the present Tspec, not for the one when they left.
#[test]
fn a_reservation_that_data_meet_again_is_for_what_they_are_now() {
    let mut rig = Rig::new();
    rig.path(&Path { tspec: tspec(2.0 * B), ..Path::new() });
    rig.resv(&Resv::ff(&[(load(8.0 * B), 1)]));
    assert_eq!(rates(&rig, 2), [20_000]);
    rig.route("10.9.0.0", 24, 3);
    rig.path(&Path { tspec: tspec(5.0 * B), ..Path::new() });
    rig.route("10.9.0.0", 24, 2);
    assert_eq!(rates(&rig, 2), [50_000]);
    // With each refresh that follows as well.
    rig.resv(&Resv::ff(&[(load(8.0 * B), 1)]));
    assert_eq!(rates(&rig, 2), [50_000]);
}

/// Data that left by another interface need no reservation at the former one: it is released at once, and not when its state
/// expires. A shared reservation stays while the data of another sender meet it.
#[test]
fn what_data_have_left_is_released_at_once() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(rates(&rig, 2).len(), 1);
    rig.route("10.9.0.0", 24, 3);
    assert_eq!(rates(&rig, 2).len(), 0);
    rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, session()));
    assert_eq!((rates(&rig, 2).len(), rates(&rig, 3).len()), (0, 1));
    // Without a route nothing is known about the data.
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    rig.routes.clear();
    rig.input(Input::RouteChanged(Prefix { addr: addr("10.9.0.0"), len: 24 }));
    assert_eq!(rates(&rig, 2).len(), 1);
    // Two senders of a group, whose trees change one after the other.
    for wf in [false, true] {
        let mut rig = Rig::new();
        for n in [1, 2] {
            rig.tree(group(), n, 1, &[2]);
            rig.path(&Path::of(group(), n, 1));
        }
        let resv = if wf { Resv::wf(load(B)) } else { Resv::se(load(B), &[1, 2]) };
        rig.resv(&resv.from(2, 9, group()));
        for (n, left) in [(1, 1), (2, 0)] {
            rig.tree(group(), n, 1, &[3]);
            assert_eq!(rates(&rig, 2).len(), left);
        }
    }
}

/// RSVP-2.3-04: the previous hop keeps the request while the data move to another route. It gets no Resv for the same
/// reservation there, one for another reservation, and the same refreshes as before.
#[test]
fn a_previous_hop_gets_no_resv_for_a_repair_that_changes_nothing_there() {
    let there = |load_there| Resv::ff(&[(load(load_there), 1)]).from(3, 9, session());
    let start = || {
        let mut rig = Rig::new();
        rig.path(&Path::new());
        rig.resv(&Resv::ff(&[(load(B), 1)]));
        assert_eq!(kinds(&rig.route("10.9.0.0", 24, 3)), []);
        rig
    };
    let mut rig = start();
    assert_eq!((kinds(&rig.resv(&there(B))), rates(&rig, 3)), (vec![], vec![10_000]));
    one(&rig.resv(&there(B / 2.0)), MessageType::RESV);
    let mut rig = start();
    one(&rig.resv(&there(B / 2.0)), MessageType::RESV);
    // The data return before the next hop of the other route has sent anything.
    let mut rig = start();
    assert_eq!(kinds(&rig.route("10.9.0.0", 24, 2)), []);
    assert_eq!((kinds(&rig.resv(&Resv::ff(&[(load(B), 1)]))), rates(&rig, 2)), (vec![], vec![10_000]));
    // Refreshes go on.
    let mut rig = start();
    assert_eq!(kinds(&rig.resv(&there(B))), []);
    let mut refreshes = 0;
    for _ in 0..4 {
        rig.path(&Path::new());
        rig.resv(&there(B));
        refreshes += all(&rig.wait(Duration::from_secs(15)), MessageType::RESV).len();
    }
    assert!(refreshes > 0);
    // A refresh was due while nothing was reserved: then the previous hop needs a message.
    let mut rig = start();
    assert_eq!(all(&rig.wait(Duration::from_secs(46)), MessageType::RESV).len(), 0);
    rig.path(&Path::new());
    one(&rig.resv(&there(B)), MessageType::RESV);
    // It needs one as well if it is another previous hop than before.
    let mut rig = start();
    rig.path(&Path { hop: RsvpHop { addr: at(4, 9), lih: 5 }, iif: 4, ..Path::new() });
    assert_eq!(one(&rig.resv(&there(B)), MessageType::RESV).dst, at(4, 9));
}

/// The link at eth1 goes up or down, and the node gets the change.
fn link(rig: &mut Rig, up: bool) -> Vec<Sent> {
    rig.interfaces[0].up = up;
    let list = rig.interfaces.clone();
    rig.resources.interfaces(&list);
    rig.input(Input::Interfaces(&list))
}

/// While the incoming link is down no Path is sent: the next hop, whose data come by another route, would have two
/// previous hops. The state expires.
#[test]
fn what_came_by_a_lost_link_is_not_announced() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let mut sent = link(&mut rig, false);
    // Not even by a new route.
    rig.route("10.9.0.0", 24, 3);
    sent.extend(rig.wait(Duration::from_secs(150)));
    assert!(all(&sent, MessageType::PATH).is_empty(), "{:?}", kinds(&sent));
    // No Path went along the new route, so that nothing is to be torn down there.
    sent = rig.wait(Duration::from_secs(10));
    assert!(all(&sent, MessageType::PATH_TEAR).is_empty(), "{:?}", kinds(&sent));
    assert_eq!((rig.rsvp.senders(), rig.reservations()), (0, 0));
}

/// RSVP-3.1.5-08: the next hop of a route that stays has had a Path. It gets a PathTear when the state ends, also where the last Paths were held back.
#[test]
fn the_end_of_what_came_by_a_lost_link_is_announced_along_the_same_route() {
    for (to, comes_back) in [(session(), false), (group(), true)] {
        let mut rig = Rig::new();
        if to == group() {
            rig.tree(group(), 1, 1, &[2]);
        }
        rig.path(&Path::of(to, 1, 1));
        let mut sent = link(&mut rig, false);
        sent.extend(rig.wait(Duration::from_secs(46)));
        assert!(all(&sent, MessageType::PATH).is_empty(), "{:?}", kinds(&sent));
        if comes_back {
            link(&mut rig, true);
        }
        sent = rig.wait(Duration::from_secs(120));
        assert_eq!(all(&sent, MessageType::PATH).is_empty(), !comes_back, "{:?}", kinds(&sent));
        assert_eq!(
            (all(&sent, MessageType::PATH_TEAR).len(), rig.rsvp.senders()),
            (1, 0),
            "{:?}",
            kinds(&sent)
        );
    }
}

/// Paths from another previous hop are forwarded, and those from the old one when its link is up again: a Path that was
/// held back is sent with the first refresh.
#[test]
fn a_path_that_was_held_back_goes_out_when_paths_come_in_again() {
    for iif in [4, 1] {
        let mut rig = Rig::new();
        rig.path(&Path::new());
        link(&mut rig, false);
        let sent = rig.wait(Duration::from_secs(50));
        assert!(all(&sent, MessageType::PATH).is_empty());
        if iif == 1 {
            assert_eq!(kinds(&link(&mut rig, true)), []);
        }
        let path = Path { hop: RsvpHop { addr: at(iif, 9), lih: 77 }, iif, ..Path::new() };
        assert_eq!(kinds(&rig.path(&path)), [(MessageType::PATH, session().dest)]);
        assert_eq!(kinds(&rig.path(&path)), []);
        let sent = rig.wait(Duration::from_secs(45));
        assert!(!all(&sent, MessageType::PATH).is_empty());
    }
}

/// RSVP-3.6-01: a router that had lost its route has one again, and has received no Paths meanwhile. The data may come to the next hop by
/// another way, where its Path would make it the previous hop, and its PathTear would end the reservation. So it waits for the next Path.
/// State that was refreshed lately follows the route after W.
#[test]
fn path_state_without_refreshes_follows_no_new_route() {
    let away = |rig: &mut Rig| {
        rig.routes.clear();
        rig.input(Input::RouteChanged(Prefix { addr: addr("10.9.0.0"), len: 24 }))
    };
    for seconds in [50, 80, 150] {
        let silent = seconds > 60;
        let mut rig = Rig::new();
        rig.path(&Path::new());
        assert_eq!(kinds(&away(&mut rig)), []);
        rig.wait(Duration::from_secs(seconds));
        let mut sent = rig.route("10.9.0.0", 24, 2);
        sent.extend(rig.wait(Duration::from_secs(2)));
        assert_eq!(all(&sent, MessageType::PATH).len(), usize::from(!silent), "{seconds}");
        let next = kinds(&rig.path(&Path::new()));
        assert_eq!(next, if silent { vec![(MessageType::PATH, session().dest)] } else { vec![] });
        let sent = rig.wait(Duration::from_secs(45));
        assert!(!all(&sent, MessageType::PATH).is_empty(), "refreshes go on");
    }
    // Another interface, and no Path any more: nothing goes there, and no PathTear when the state expires.
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.wait(Duration::from_secs(80));
    assert_eq!(kinds(&rig.route("10.9.0.0", 24, 3)), []);
    assert_eq!(kinds(&rig.wait(Duration::from_secs(90))), []);
    assert_eq!(rig.rsvp.senders(), 0);
    // Along a route that stays refreshes go on as long as the state lives.
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.wait(Duration::from_secs(100));
    let sent = rig.wait(Duration::from_secs(50));
    assert!(!all(&sent, MessageType::PATH).is_empty());
}

/// A short failure of a link, before any Path is due, changes nothing.
#[test]
fn a_link_that_comes_back_in_time_makes_no_noise() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    assert_eq!(kinds(&link(&mut rig, false)), []);
    assert_eq!(kinds(&link(&mut rig, true)), []);
    assert_eq!(kinds(&rig.path(&Path::new())), []);
    let sent = rig.wait(Duration::from_secs(45));
    assert!(!all(&sent, MessageType::PATH).is_empty());
    assert_eq!(rig.rsvp.counters().hop_changes, 0);
}

/// Another router at the same interface gets whole messages, after W, and no Bundle or Srefresh of the former router.
#[test]
fn a_path_follows_its_route_to_another_router_of_the_same_link() {
    for reliable in [false, true] {
        let mut config = Config::default();
        config.neighbors.interface.reduction.reliable = reliable;
        let mut rig = Rig::with_neighbors(config, "10mbit");
        let sent = rig.path(&Path::new());
        if reliable {
            acknowledge_all(&mut rig, &sent);
            let sent = rig.wait(Duration::from_secs(50));
            assert!(
                all(&sent, MessageType::PATH).is_empty() && !all(&sent, MessageType::SREFRESH).is_empty()
            );
        }
        rig.path(&Path::new());
        rig.gateway = 8;
        assert_eq!(kinds(&rig.route("10.9.0.0", 24, 2)), []);
        let changed = rig.now;
        let sent = rig.wait(Duration::from_millis(2100));
        let path = one(&sent, MessageType::PATH);
        assert_eq!((path.dst, path.oif, sent.len()), (session().dest, 2, 1));
        // A refresh may have been due before.
        assert!(reliable || path.at >= changed + Duration::from_secs(2));
        // A route that is announced again without a difference is no change.
        rig.path(&Path::new());
        rig.route("10.9.0.0", 24, 2);
        assert_eq!(rig.rsvp.counters().repairs, 1);
        let sent = rig.wait(Duration::from_millis(2100));
        assert!(
            sent.iter().all(|one| one.kind() == MessageType::PATH) && sent.len() <= usize::from(reliable) * 3
        );
    }
}

/// While routes change, two routers may each have the other one as the way to a destination: no Path goes back to its previous hop.
#[test]
fn no_path_goes_back_to_its_previous_hop() {
    let mut rig = Rig::new();
    let path = Path::new();
    rig.path(&path);
    // The link is cut, and the other way is by the previous hop.
    rig.gateway = 9;
    assert_eq!(path.hop.addr, at(1, 9));
    rig.route("10.9.0.0", 24, 1);
    let sent = rig.wait(Duration::from_secs(5));
    assert!(all(&sent, MessageType::PATH).is_empty(), "{sent:?}");
    // Another router at this interface is a way, and so is the former one for a Path that comes from elsewhere.
    rig.gateway = 8;
    let sent = rig.route("10.9.0.0", 24, 1);
    assert_eq!(one(&sent, MessageType::PATH).oif, 1);
    rig.gateway = 9;
    rig.route("10.9.0.0", 24, 1);
    assert!(all(&rig.wait(Duration::from_secs(5)), MessageType::PATH).is_empty());
    let elsewhere = RsvpHop { addr: at(3, 9), ..path.hop };
    let sent = rig.path(&Path { hop: elsewhere, iif: 3, ..Path::new() });
    assert_eq!(one(&sent, MessageType::PATH).oif, 1);
}

/// Neighbor 9 at eth2 supports refresh reduction and acknowledges all messages.
fn acknowledge_all(rig: &mut Rig, sent: &[Sent]) {
    let names: Vec<_> = sent.iter().filter_map(|one| one.message().message_id).collect();
    assert!(!names.is_empty());
    let mut ack = compose(MessageType::ACK, 255, |w| {
        for name in &names {
            w.ack(name, false);
        }
    });
    // Refresh reduction capable.
    ack[0] |= 1;
    ack[2..4].fill(0);
    rig.neighborly(2, at(2, 9), &ack);
}

/// RSVP-2.9-04: across hops without RSVP a message to the previous hop is routed as any packet. Between neighbors it
/// leaves by their common interface.
#[test]
fn what_goes_back_across_a_cloud_goes_where_routing_says() {
    for (ttl, oif) in [(60, 1), (57, 0)] {
        let mut rig = Rig::distant();
        let path = Path { hop: RsvpHop { addr: addr("10.8.77.1"), lih: 77 }, ttl, ..Path::new() };
        rig.path(&path);
        let back = |sent: &[Sent], kind| {
            let one = one(sent, kind);
            assert_eq!((one.dst, one.src, one.oif), (addr("10.8.77.1"), at(1, 1), oif), "{kind}");
        };
        back(&rig.resv(&Resv::ff(&[(load(B), 1)])), MessageType::RESV);
        let refreshed = rig.wait(Duration::from_secs(50));
        let resvs = all(&refreshed, MessageType::RESV);
        assert!(!resvs.is_empty() && resvs.iter().all(|one| one.oif == oif));
        back(&rig.resv_tear(&Resv::ff(&[(load(B), 1)])), MessageType::RESV_TEAR);
        // A Path that is rejected.
        let conflict = signalbox_rsvp::wire::Session { port: 0, ..session() };
        let template = signalbox_rsvp::wire::Selector::Port(0);
        let template = signalbox_rsvp::wire::Filter { selector: template, ..sender(1) };
        back(&rig.path(&Path { session: conflict, sender: template, ..path }), MessageType::PATH_ERR);
    }
    // Link-local addresses are reachable by their link only.
    let mut rig = Rig::distant();
    let hop = RsvpHop { addr: addr("169.254.1.9"), lih: 77 };
    rig.path(&Path { hop, ttl: 57, ..Path::new() });
    assert_eq!(one(&rig.resv(&Resv::ff(&[(load(B), 1)])), MessageType::RESV).oif, 1);
}

/// RSVP-3.9-02: where an application named the interface by which it receives a group, its Resvs leave by that, in any
/// case.
#[test]
fn a_receiver_that_names_its_interface_is_obeyed_across_a_cloud() {
    for (named, oif) in [(true, 1), (false, 0)] {
        let mut rig = Rig::distant();
        rig.command(1, Command::Session(group()));
        if named {
            rig.command(1, Command::ReceiveAt(at(1, 1)));
        }
        rig.path(&Path { ttl: 57, ..Path::of(group(), 1, 1) });
        let flows = vec![FlowRequest { flowspec: load(B), senders: vec![sender(1)] }];
        let request = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
        let sent = rig.command(1, Command::Reserve(request));
        assert_eq!(one(&sent, MessageType::RESV).oif, oif);
    }
}

/// One call handles a bounded number of due records, and reports that the rest is due.
#[test]
fn what_is_due_at_once_is_done_in_parts() {
    let mut rig = Rig::new();
    let mut octets = 0;
    for port in 0..9000 {
        let session = signalbox_rsvp::wire::Session { port: port + 1, ..session() };
        octets += rig.path(&Path { session, period: R / 30, ..Path::new() }).len();
    }
    assert_eq!((octets, rig.rsvp.senders()), (9000, 9000));
    rig.now = rig.now + Duration::from_secs(20);
    let (mut calls, mut before) = (0, 9000);
    while rig.rsvp.senders() > 0 {
        rig.input(Input::Timer);
        let left = rig.rsvp.senders();
        assert!(left < before && before - left <= 4096);
        assert!(left == 0 || rig.rsvp.next_deadline().is_some_and(|next| next <= rig.now));
        (calls, before) = (calls + 1, left);
    }
    assert!(calls >= 3);
}

/// A link that changes concerns all senders whose data leave by it. Their routes are looked up in parts, and other messages are
/// handled between them: here the tear of the sender that is next.
#[test]
fn the_senders_of_a_changed_link_are_checked_in_parts() {
    let port =
        |port: u16| Path { session: signalbox_rsvp::wire::Session { port, ..session() }, ..Path::new() };
    let mut rig = Rig::new();
    for number in 1..=5000 {
        rig.path(&port(number));
    }
    let start = rig.lookups;
    let mut list = rig.interfaces.clone();
    list.iter_mut().filter(|one| one.ifindex.0 == 2).for_each(|one| one.up = false);
    rig.input(Input::Interfaces(&list));
    let first = rig.lookups - start;
    assert!((100..=1100).contains(&first), "{first}");
    // The last sender that was announced is the first in the list.
    rig.path_tear(&port(5000 - u16::try_from(first).unwrap()));
    let mut before = rig.lookups;
    let mut parts = 1;
    while rig.rsvp.next_deadline().is_some_and(|next| next <= rig.now) {
        rig.input(Input::Timer);
        assert!(rig.lookups - before <= 1100, "{}", rig.lookups - before);
        (before, parts) = (rig.lookups, parts + 1);
        assert!(parts < 100);
    }
    assert_eq!(rig.lookups - start, 4999);
}
