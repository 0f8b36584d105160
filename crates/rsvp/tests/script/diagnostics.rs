//! Diagnostics (RFC 2745) at one node: its response, and where requests and replies go on.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_rsvp::engine::{Config, InterfaceConfig};
use signalbox_rsvp::wire::{
    Class, DiagErrors, DiagResponse, Diagnostic, Message, MessageType, ObjectType, RsvpHop, ntp_middle,
};

use super::dreq::{Asked, Dreq, drep, only_reply};
use super::rig::{B, Path, Resv, Rig, addr, at, compose, group, handle, load, one, sender, session};

/// The last DIAG_RESPONSE of a message: this node's.
fn last<'a>(message: &Message<'a>) -> DiagResponse<'a> {
    message.responses().last().unwrap()
}

fn classes(found: &DiagResponse<'_>) -> Vec<Class> {
    found.objects().map(|object| object.kind.class).collect()
}

/// A router with a sender behind eth1 and a reservation at eth2.
fn reserved() -> Rig {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]));
    rig
}

/// Proves RSVPX-2745-4.1-02 and RSVPX-2745-3-07: each field of the response against the topology.
#[test]
fn a_response_has_the_data_of_the_router() {
    let eth2 = InterfaceConfig { refresh: Duration::from_secs(45), cleanup: 5, ..InterfaceConfig::default() };
    let interfaces = [("eth2".to_owned(), eth2)].into();
    let wall_clock_us = 1_790_000_000_250_000;
    let mut rig = Rig::with(Config { interfaces, wall_clock_us, ..Config::default() });
    rig.interfaces[0].mtu = 1400;
    let list = rig.interfaces.clone();
    rig.input(signalbox_rsvp::engine::Input::Interfaces(&list));
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]));

    // Three IP hops from the previous RSVP node of the DREQ.
    let dreq = Dreq { ttl: [255, 252], ..Dreq::further() };
    let sent = rig.ask(&dreq);
    let on = one(&sent, MessageType::DREQ);
    let message = on.message();
    let asked = message.diagnostic().unwrap();
    assert_eq!((asked.hops, asked.path_mtu), (2, 1400), "one hop more, the MTU of eth1");
    assert_eq!((asked.request_id, asked.last_hop, asked.more), (0x1234_5678, at(2, 9), false));
    let found = last(&message);
    assert_eq!(found.d_ttl, 3);
    assert_eq!(found.arrival, ntp_middle(wall_clock_us + rig.now.as_micros()));
    assert_eq!((found.incoming, found.outgoing, found.previous), (at(1, 1), at(2, 1), at(1, 9)));
    assert_eq!((found.cleanup, found.refresh), (5, 45));
    assert_eq!((found.errors, found.merged), (DiagErrors::default(), false));
    assert!(rig.replies().is_empty());
    assert_eq!(rig.rsvp.counters().dreqs_taken, 1);

    // A smaller Path MTU stays; so does one that would suit a larger link.
    let mut small = dreq.clone();
    small.asked.path_mtu = 600;
    let sent = rig.ask(&small);
    assert_eq!(one(&sent, MessageType::DREQ).message().diagnostic().unwrap().path_mtu, 600);
    // Without path state: the error, zero addresses, and the reply from this node.
    let mut unknown = dreq.clone();
    unknown.asked.sender = sender(9);
    let sent = rig.ask(&unknown);
    let reply = only_reply(&mut rig, &sent);
    let message = drep(&reply.octets);
    let found = last(&message);
    assert_eq!((found.errors, found.d_ttl), (DiagErrors::NO_PATH, 3));
    assert_eq!((found.incoming, found.previous), (addr("0.0.0.0"), addr("0.0.0.0")));
    assert_eq!(message.diagnostic().unwrap().hops, 2);
    assert_eq!(found.objects().count(), 0);
    // A TTL that increased counts as no hop.
    let sent = rig.ask(&Dreq { ttl: [200, 255], ..dreq });
    assert_eq!(last(&one(&sent, MessageType::DREQ).message()).d_ttl, 0);
}

/// Proves RSVPX-2745-3-09: SENDER_TSPEC, STYLE, FLOWSPEC and FILTER_SPEC by default; nothing of a reservation where
/// there is none.
#[test]
fn default_and_selected_objects() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let sent = rig.ask(&Dreq::further());
    let on = one(&sent, MessageType::DREQ);
    assert_eq!(classes(&last(&on.message())), [Class::SENDER_TSPEC]);

    rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]));
    let sent = rig.ask(&Dreq::further());
    let on = one(&sent, MessageType::DREQ);
    let message = on.message();
    let found = last(&message);
    let (tspec, style, flowspec, filter) =
        (Class::SENDER_TSPEC, Class::STYLE, Class::FLOWSPEC, Class::FILTER_SPEC);
    assert_eq!(classes(&found), [tspec, style, flowspec, filter]);
    let expected = compose(MessageType::DREP, 1, |w| {
        let path = Path::new();
        w.sender_tspec(&path.tspec).style(signalbox_rsvp::wire::Style::Ff);
        w.flowspec(&load(2.0 * B)).filter_spec(&sender(1));
    });
    assert_eq!(found.objects, &expected[8..]);

    let kind = ObjectType::new;
    let all: Vec<ObjectType> = (1..=64).map(|class| kind(Class(class), 0)).collect();
    for (select, expected) in [
        (
            vec![kind(Class::RSVP_HOP, 1), kind(Class::SENDER_TEMPLATE, 0)],
            vec![Class::RSVP_HOP, Class::SENDER_TEMPLATE],
        ),
        (vec![kind(Class::RSVP_HOP, 2), kind(Class::FLOWSPEC, 1), kind(Class::STYLE, 1)], vec![Class::STYLE]),
        (vec![], vec![]),
        (all, vec![Class::RSVP_HOP, Class::SENDER_TEMPLATE, tspec, style, flowspec, filter]),
    ] {
        let sent = rig.ask(&Dreq { select: Some(select.clone()), ..Dreq::further() });
        let on = one(&sent, MessageType::DREQ);
        let message = on.message();
        assert_eq!(classes(&last(&message)), expected, "{select:?}");
        assert!(message.select().unwrap().kinds().eq(select), "it goes on");
    }
}

/// The reservation is that of the interface named by the handle; M shows reservations at other interfaces, and the
/// other senders of an SE reservation are listed.
#[test]
fn reservations_by_interface_and_style() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.tree(group(), n, 1, &[2, 3]);
        rig.path(&Path::of(group(), n, 1));
    }
    let ask = |rig: &mut Rig, lih: u32| {
        let mut dreq = Dreq { session: group(), ..Dreq::further() };
        dreq.hop.lih = handle(lih);
        let sent = rig.ask(&dreq);
        one(&sent, MessageType::DREQ)
    };
    let resv = Resv { session: group(), ..Resv::se(load(2.0 * B), &[1, 2]) };
    rig.resv(&resv);
    let on = ask(&mut rig, 2);
    let message = on.message();
    let found = last(&message);
    assert!(!found.merged);
    let filters: Vec<_> = found.objects().filter(|object| object.kind.class == Class::FILTER_SPEC).collect();
    assert_eq!(filters.len(), 2);
    // There is no reservation at eth3.
    let on = ask(&mut rig, 3);
    assert_eq!(classes(&last(&on.message())), [Class::SENDER_TSPEC]);
    assert_eq!(last(&on.message()).outgoing, at(3, 1));
    let other = Resv {
        hop: RsvpHop { addr: at(3, 9), lih: handle(3) },
        iif: 3,
        session: group(),
        ..Resv::se(load(3.0 * B), &[2])
    };
    rig.resv(&other);
    assert!(!last(&ask(&mut rig, 2).message()).merged, "eth3 does not select sender 1");
    rig.resv(&Resv { flows: resv.flows.clone(), ..other });
    for lih in [2, 3] {
        assert!(last(&ask(&mut rig, lih).message()).merged, "eth{lih}");
    }
    // An unknown handle: the incoming interface counts.
    assert_eq!(last(&ask(&mut rig, 4).message()).outgoing, at(2, 1));
}

/// Proves RSVPX-2745-4.1-04: RSVP_HOP, ROUTE, R-pointer, length and checksum of what goes on.
#[test]
fn a_request_goes_on_with_hop_route_and_checksum() {
    let mut rig = reserved();
    let dreq = Dreq { route: Some(vec![at(2, 9)]), ..Dreq::further() };
    let before = dreq.octets();
    let sent = rig.ask(&dreq);
    let on = one(&sent, MessageType::DREQ);
    assert_eq!((on.src, on.dst, on.oif, on.ttl), (at(1, 1), at(1, 9), 1, 255));
    assert!(!on.router_alert);
    let message = on.message();
    assert!(signalbox_rsvp::wire::checksum_is_valid(&on.octets));
    assert_eq!(message.hop, Some(RsvpHop { addr: at(1, 1), lih: 77 }), "the handle of the previous hop");
    let route = message.route().unwrap();
    assert_eq!((route.pointer, route.nodes().collect::<Vec<_>>()), (2, vec![at(2, 9), at(1, 1)]));
    assert_eq!(message.responses().count(), 2);
    assert_eq!(on.octets.len(), before.len() + 4 + 24 + 36 + 8 + 36 + 12);
    assert_eq!(usize::from(u16::from_be_bytes([on.octets[6], on.octets[7]])), on.octets.len());
    // Objects of unknown classes that are to be forwarded.
    let strange = [0, 8, 0xfa, 1, 1, 2, 3, 4];
    let with = Dreq { responses: [&strange[..], &dreq.responses].concat(), ..dreq };
    let sent = rig.ask(&with);
    let kept: Vec<_> =
        one(&sent, MessageType::DREQ).message().kept().map(|one| one.octets.to_vec()).collect();
    assert_eq!(kept, [strange.to_vec()]);
}

/// Proves RSVPX-2745-4.1-05: it ends at the hop limit, without path state and at the sender's node, with MF off; the
/// DREP goes to the last address of the ROUTE, or without one to the requester.
#[test]
fn a_request_ends_at_the_limit_without_state_and_at_the_sender() {
    let mut rig = reserved();
    let mut limited = Dreq::further();
    limited.asked.max_hops = 2;
    let mut unknown = Dreq::further();
    unknown.asked.sender = sender(3);
    let mut own = Rig::new();
    let ours = signalbox_rsvp::wire::Filter { src: at(4, 1), ..sender(1) };
    own.command(1, signalbox_rsvp::engine::Command::Session(session()));
    own.command(
        1,
        signalbox_rsvp::engine::Command::Sender(signalbox_rsvp::engine::SenderRequest {
            adspec: false,
            ttl: 64,
            ..signalbox_rsvp::engine::SenderRequest::new(ours, Path::new().tspec)
        }),
    );
    let mut at_sender = Dreq::further();
    at_sender.asked.sender = ours;
    let none = DiagErrors::default();
    for (router, dreq, errors) in
        [(true, &limited, none), (false, &unknown, DiagErrors::NO_PATH), (false, &at_sender, none)]
    {
        let rig = if router { &mut rig } else { &mut own };
        let sent = rig.ask(dreq);
        let reply = only_reply(rig, &sent);
        assert_eq!(reply.dst, dreq.asked.requester);
        assert_eq!(reply.src.ip(), at(2, 1));
        let message = drep(&reply.octets);
        let asked = message.diagnostic().unwrap();
        assert_eq!((asked.more, asked.hops, asked.offset, asked.path_mtu), (false, 2, 0, 1500));
        assert_eq!(message.responses().count(), 2);
        assert_eq!(last(&message).errors, errors);

        let sent = rig.ask(&Dreq { route: Some(vec![at(3, 8), at(2, 9)]), ..dreq.clone() });
        assert!(rig.replies().is_empty());
        let back = one(&sent, MessageType::DREP);
        assert_eq!((back.dst, back.oif), (at(2, 9), 2));
        let message = drep(&back.octets);
        assert_eq!((message.route().unwrap().pointer, message.route().unwrap().len()), (1, 2));
        assert!(!message.diagnostic().unwrap().more);
    }
    // If nodes without RSVP lie between, routing decides.
    let far = Dreq { route: Some(vec![at(2, 9)]), ttl: [255, 254], ..at_sender.clone() };
    assert_eq!(one(&own.ask(&far), MessageType::DREP).oif, 0);
    // The response of the sender's node.
    let sent = own.ask(&at_sender);
    let reply = only_reply(&mut own, &sent);
    let zero = addr("0.0.0.0");
    let found = last(&drep(&reply.octets));
    assert_eq!((found.incoming, found.previous, found.outgoing), (zero, zero, at(2, 1)));
    // Without path state the response has only the error.
    own.wait(Duration::from_secs(1));
    let sent = own.ask(&unknown);
    let reply = only_reply(&mut own, &sent);
    let found = last(&drep(&reply.octets));
    assert_eq!((found.cleanup, found.refresh, found.objects.len()), (0, 0, 0));
}

/// Proves RSVPX-2745-3-03: with a limit of 1 it ends at the LAST-HOP, with a hop count of 1; 0 is no limit.
#[test]
fn a_limit_of_one_ends_at_the_last_hop() {
    let mut rig = reserved();
    let mut dreq = Dreq::begin();
    dreq.asked.max_hops = 1;
    let sent = rig.ask(&dreq);
    let reply = only_reply(&mut rig, &sent);
    assert_eq!(drep(&reply.octets).diagnostic().unwrap().hops, 1);
    assert_eq!(reply.src.ip(), at(2, 1), "the LAST-HOP's address as it was called");
    for max_hops in [0, 2, 255] {
        dreq.asked.max_hops = max_hops;
        let sent = rig.ask(&dreq);
        assert_eq!(one(&sent, MessageType::DREQ).message().diagnostic().unwrap().hops, 1);
    }
    // The largest hop count is a limit too.
    let mut far = Dreq::further();
    far.asked.hops = 254;
    let sent = rig.ask(&far);
    assert_eq!(drep(&only_reply(&mut rig, &sent).octets).diagnostic().unwrap().hops, 255);
}

/// The outgoing interface in a LAST-HOP's response: where data to the receiver leave, whatever interface the DREQ came
/// by.
#[test]
fn outgoing_interface_of_the_last_hop() {
    let mut rig = reserved();
    let mut dreq = Dreq::begin();
    (dreq.asked.max_hops, dreq.iif, dreq.asked.last_hop) = (1, 3, at(3, 1));
    let ask = |rig: &mut Rig, dreq: &Dreq| {
        rig.wait(Duration::from_secs(1));
        let sent = rig.ask(dreq);
        let reply = only_reply(rig, &sent);
        last(&drep(&reply.octets)).outgoing
    };
    assert_eq!(ask(&mut rig, &dreq), at(2, 1));
    // For a group: an interface with a receiver, or none.
    rig.tree(group(), 1, 1, &[4, 3]);
    rig.path(&Path::of(group(), 1, 1));
    let group = Dreq { session: group(), ..dreq.clone() };
    assert_eq!(ask(&mut rig, &group), at(4, 1));
    let hop = RsvpHop { addr: at(3, 9), lih: handle(3) };
    rig.resv(&Resv { session: group.session, hop, iif: 3, ..Resv::wf(load(B)) });
    assert_eq!(ask(&mut rig, &group), at(3, 1), "the one with a reservation");
    rig.tree(group.session, 1, 1, &[]);
    assert_eq!(ask(&mut rig, &group), addr("0.0.0.0"));
    // The receiver itself.
    let mut here = Dreq { session: super::rig::to("10.0.4.1"), ..dreq };
    rig.path(&Path::of(here.session, 1, 1));
    assert_eq!(ask(&mut rig, &here), at(4, 1));
    here.asked.sender = sender(2);
    assert_eq!(ask(&mut rig, &here), at(4, 1), "that is known without path state");
}

/// Proves RSVPX-2745-4.1-01: below the LAST-HOP a DREQ is passed on unchanged.
#[test]
fn below_the_last_hop_a_request_is_passed_on_unchanged() {
    let mut rig = reserved();
    let mut dreq = Dreq::begin();
    dreq.asked.last_hop = at(1, 9);
    let octets = dreq.octets();
    // Addressed to the LAST-HOP and intercepted, or addressed to this node.
    for dst in [at(1, 9), at(2, 1)] {
        let sent = rig.packet(2, at(2, 7), dst, 60, &octets);
        assert!(rig.replies().is_empty());
        let on = one(&sent, MessageType::DREQ);
        assert_eq!((on.src, on.dst, on.ttl, &on.octets), (at(2, 7), at(1, 9), 59, &octets));
    }
    assert_eq!(rig.rsvp.counters().dreqs_taken, 0);
    assert_eq!(rig.packet(2, at(2, 7), at(2, 1), 1, &octets), [], "its TTL ends here");
    // With an offset another node collected already: fragments were returned.
    dreq.asked.offset = 100;
    let sent = rig.packet(2, at(2, 7), at(2, 1), 60, &dreq.octets());
    assert_eq!(one(&sent, MessageType::DREQ).message().responses().count(), 1);
}

/// Proves RSVPX-2745-4.2-01: along the ROUTE to the node before the R-pointer; to the requester, by UDP at the port of
/// its FILTER_SPEC, at the LAST-HOP and where the pointer is 0.
#[test]
fn replies_go_along_the_route_to_the_requester() {
    let mut rig = Rig::new();
    let drep = |last_hop: IpAddr, pointer: u8, nodes: &[IpAddr]| {
        let dreq = Dreq::further();
        compose(MessageType::DREP, 255, |w| {
            w.session(&dreq.session, false).hop(&dreq.hop);
            w.diagnostic(&Diagnostic { last_hop, more: true, ..dreq.asked });
            w.route(false, pointer, nodes.iter().copied()).body(&dreq.responses);
        })
    };
    let nodes = [at(4, 9), at(3, 9), at(1, 1), at(1, 9)];
    let octets = drep(at(4, 9), 2, &nodes);
    let sent = rig.packet(1, at(1, 9), at(1, 1), 255, &octets);
    let on = one(&sent, MessageType::DREP);
    assert_eq!((on.dst, on.ttl), (at(3, 9), 255));
    let expected = drep(at(4, 9), 1, &nodes);
    assert_eq!(on.octets, expected, "nothing else is changed");

    // The LAST-HOP, and a node where the ROUTE started again.
    for (last_hop, route) in [(at(4, 1), &[at(1, 1), at(1, 9)][..]), (at(4, 9), &[at(1, 1), at(1, 9)])] {
        let octets = drep(last_hop, 0, route);
        let sent = rig.packet(1, at(1, 9), at(1, 1), 255, &octets);
        let reply = only_reply(&mut rig, &sent);
        assert_eq!(reply.dst, "10.0.2.7:40000".parse().unwrap());
        let message = self::drep(&reply.octets);
        assert!(message.diagnostic().unwrap().more, "a part stays one");
        assert_eq!(message.responses().count(), 1);
    }
    assert_eq!(rig.rsvp.counters().dreps_sent, 3);
}

/// Proves RSVPX-2745-4.2-02: a DREP that cannot be forwarded is dropped without an answer; a DREQ that cannot is turned
/// into a DREP.
#[test]
fn a_request_without_a_route_becomes_a_reply() {
    let mut rig = reserved();
    let dreq = Dreq::further();
    let drep = |asked: &Diagnostic, route: Option<&[IpAddr]>, pointer: u8| {
        compose(MessageType::DREP, 255, |w| {
            w.session(&dreq.session, false).hop(&dreq.hop).diagnostic(asked);
            if let Some(nodes) = route {
                w.route(false, pointer, nodes.iter().copied());
            }
        })
    };
    let mut portless = dreq.asked;
    portless.requester.set_port(0);
    let mut dropped = 0;
    for octets in [
        drep(&dreq.asked, None, 0),
        drep(&dreq.asked, Some(&[]), 0),
        drep(&dreq.asked, Some(&[at(1, 9)]), 0),
        drep(&dreq.asked, Some(&[at(1, 9), at(1, 1)]), 7),
        drep(&dreq.asked, Some(&[addr("239.1.1.1"), at(1, 1)]), 1),
        drep(&dreq.asked, Some(&[addr("0.0.0.0"), at(1, 1)]), 1),
        drep(&portless, Some(&[at(1, 1)]), 0),
    ] {
        assert_eq!(rig.packet(1, at(1, 9), at(1, 1), 255, &octets), []);
        dropped += 1;
        assert_eq!((rig.replies(), rig.rsvp.counters().diagnostics_dropped), (vec![], dropped));
    }
    // The interface towards the sender is down.
    rig.interfaces[0].up = false;
    let list = rig.interfaces.clone();
    rig.input(signalbox_rsvp::engine::Input::Interfaces(&list));
    let sent = rig.ask(&dreq);
    let reply = only_reply(&mut rig, &sent);
    let message = self::drep(&reply.octets);
    assert_eq!((last(&message).previous, last(&message).errors), (at(1, 9), DiagErrors::default()));
    assert!(!message.diagnostic().unwrap().more);
}

/// Proves RSVPX-2745-2-01: state, timers and neighbors are the same as before.
#[test]
fn diagnostics_change_no_state() {
    let mut config = Config::default();
    config.neighbors.interface.hello = Some(Default::default());
    let mut rig = Rig::with_neighbors(config, "10mbit");
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]));
    let look = |rig: &Rig| {
        // Messages are counted all the same.
        let mut neighbors = rig.rsvp.neighbors().view(rig.now);
        neighbors.iter_mut().for_each(|one| one.traffic = Default::default());
        let state: Vec<_> = rig.rsvp.view().collect();
        (format!("{neighbors:?}"), state, rig.rsvp.next_deadline(), rig.resources.reservations().count())
    };
    let before = look(&rig);
    let mut stranger = Dreq::further();
    stranger.hop.addr = at(2, 77);
    let mut unknown = Dreq::begin();
    unknown.session = super::rig::to("10.9.0.99");
    for dreq in [Dreq::begin(), Dreq::further(), stranger, unknown] {
        rig.ask(&dreq);
        rig.ask(&Dreq { route: Some(vec![at(2, 9)]), ..dreq });
        assert_eq!(look(&rig), before);
    }
    let named = compose(MessageType::DREQ, 255, |w| {
        w.message_id(&signalbox_rsvp::wire::MessageId { ack_desired: true, epoch: 1, id: 1 });
        Dreq::further().write(w);
    });
    let sent = rig.packet(2, at(2, 9), at(2, 1), 255, &named);
    assert_eq!(sent.len(), 1, "no acknowledgment");
    assert_eq!(look(&rig), before);
}

/// Proves RSVPX-2745-2-02 for one node: a DREQ for a group is not handled, and none is sent to a group.
#[test]
fn requests_for_groups_are_not_handled() {
    let mut rig = reserved();
    let octets = Dreq::begin().octets();
    assert_eq!(rig.packet(2, at(2, 7), group().dest, 64, &octets), []);
    assert_eq!((rig.replies(), rig.rsvp.counters().diagnostics_dropped), (vec![], 1));
    rig.tree(group(), 1, 1, &[2, 3]);
    rig.path(&Path::of(group(), 1, 1));
    let sent = rig.ask(&Dreq { session: group(), ..Dreq::further() });
    assert_eq!(
        sent.iter().map(|one| one.dst).collect::<Vec<_>>(),
        [at(1, 9)],
        "one packet, to the previous hop"
    );
}

/// The number of DREQs in a second is limited; 0 switches diagnostics off.
#[test]
fn the_number_of_requests_in_a_second_is_limited() {
    let mut rig = Rig::with(Config { diagnostics: 3, ..Config::default() });
    rig.path(&Path::new());
    let taken = |rig: &mut Rig| (0..20).filter(|_| !rig.ask(&Dreq::further()).is_empty()).count();
    assert_eq!(taken(&mut rig), 3);
    assert_eq!(rig.rsvp.counters().diagnostics_limited, 17);
    rig.wait(Duration::from_secs(1));
    assert_eq!(taken(&mut rig), 3);
    let mut off = Rig::with(Config { diagnostics: 0, ..Config::default() });
    assert_eq!((off.ask(&Dreq::begin()), off.replies()), (vec![], vec![]));
    assert_eq!(off.rsvp.counters().unsupported, 1);
    // A request whose response cannot fit the Path MTU is dropped.
    let mut long = Dreq::further();
    long.select = Some(vec![ObjectType::new(Class::FLOWSPEC, 0); 2000]);
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.ask(&long), []);
    assert_eq!(rig.rsvp.counters().diagnostics_dropped, 1);
}

/// A reply has more octets than its request, whose requester may be forged: one address gets few.
#[test]
fn one_requester_gets_few_replies() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let mut forged = Dreq::begin();
    forged.asked.max_hops = 1;
    for _ in 0..20 {
        rig.ask(&forged);
    }
    let (few, limited) = (rig.replies().len(), rig.rsvp.counters().diagnostics_limited);
    assert_eq!((few, limited), (3, 17));
    // The way back along a ROUTE has the same limit, and others get their replies.
    let mut routed = Dreq { route: Some(vec![at(2, 7)]), ..Dreq::further() };
    routed.asked.max_hops = 2;
    let back = (0..20).filter(|_| rig.ask(&routed).iter().any(|one| one.dst == at(2, 7))).count();
    assert_eq!(back, 0);
    let mut other = forged.clone();
    other.asked.requester = "10.0.2.8:40000".parse().unwrap();
    rig.ask(&other);
    assert_eq!(rig.replies().len(), 1);
    // In the long run a fifth of the rate of all.
    let mut replies = 0;
    for _ in 0..100 {
        rig.wait(Duration::from_millis(100));
        (0..3).for_each(|_| _ = rig.ask(&forged));
        replies += rig.replies().len();
    }
    assert!((95..=105).contains(&replies), "{replies} in ten seconds");
}
