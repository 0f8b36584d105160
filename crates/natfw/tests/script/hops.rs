//! The list of the nodes that granted a request.

use signalbox_core::service::{RecvMessage, SendError};
use signalbox_natfw::engine::{Command, Granted, NatfwEvent, OpenRequest, Options};
use signalbox_natfw::wire::{Forwarded, Hop, Hops, Info, Message, Part, sequence_number};
use signalbox_wire::parse_hex;

use crate::rig::{
    BEFORE, EDGE, FAR, HOST, INSIDE, OUTSIDE, Rig, Sent, addr, create, external, flow, inward, loose, octets,
    only, success,
};

/// The list of nodes that are further on, as the RESPONSE brings it: the end of the flow is the first.
fn list(hops: &[Hop]) -> Vec<u8> {
    let mut octets = Vec::new();
    hops.iter().for_each(|hop| hop.append(&mut octets));
    octets
}

fn end() -> Hop {
    Hop { answered: true, ..Hop::new(addr(FAR), Part::End) }
}

/// A request that asks for the list.
fn asking(msn: u32) -> Message<'static> {
    Message { hops: Some(Hops::EMPTY), neighbor: true, ..create(msn, 100) }
}

/// The node receives a request that passed this number of routers after the peer before it.
fn by_inside(rig: &mut Rig, message: &Message<'_>, routers: u8) -> Sent {
    let octets = octets(message);
    let received = rig.received(BEFORE, INSIDE, flow(), &octets);
    only(rig.indicate(RecvMessage { ip_distance: routers, ..received }))
}

fn hops(sent: &Sent) -> Vec<Hop> {
    sent.whole().hops.unwrap().iter().collect()
}

/// The user of a host asks, and these octets are the list of the RESPONSE.
fn granted(options: Options, list: &[u8]) -> Granted {
    let mut rig = Rig::host();
    let (src_port, dst_port) = (Some(5000), Some(6000));
    let open = OpenRequest {
        src: Some(addr(HOST)),
        dst: addr(FAR),
        protocol: Some(17),
        src_port,
        dst_port,
        options,
    };
    let sent = only(rig.command(Command::Open(open)));
    assert!(sent.whole().neighbor && sent.whole().hops == Some(Hops::EMPTY));
    let msn = sequence_number(&sent.octets).unwrap();
    rig.answer(&sent, &Message { hops: Hops::from_octets(list), ..success(msn, 600) });
    match rig.events.pop() {
        Some(NatfwEvent::Granted(granted)) => granted,
        other => panic!("{other:?}"),
    }
}

/// Issue 30: `granted` names each node, what it did, and what is unknown before it.
#[test]
fn each_node_adds_itself_to_the_response() {
    let nodes: [(fn() -> Rig, Part); 3] =
        [(Rig::firewall, Part::Opened), (Rig::nat, Part::Translated), (Rig::host, Part::Passed)];
    for (node, part) in nodes {
        for routers in [0, 2] {
            let mut rig = node();
            let sent = by_inside(&mut rig, &asking(1), routers);
            assert!(sent.whole().neighbor && sent.whole().hops == Some(Hops::EMPTY), "the request asks on");
            let beyond = list(&[end()]);
            let response = Message { hops: Hops::from_octets(&beyond), ..success(1, 100) };
            let answer = only(rig.answer(&sent, &response));
            let own = Hop { after_gap: routers > 0, routers, ..Hop::new(addr("10.0.1.1"), part) };
            assert_eq!(hops(&answer), [end(), own]);
            assert_eq!(answer.info(), Info::PROCESSED);
        }
    }
}

#[test]
fn the_end_of_the_flow_begins_the_list() {
    let mut rig = Rig::host();
    rig.end = true;
    let received = octets(&asking(1));
    let received = rig.received(BEFORE, OUTSIDE, flow(), &received);
    let answer = only(rig.indicate(RecvMessage { ip_distance: 0, ..received }));
    assert_eq!(hops(&answer), [Hop { answered: true, ..Hop::new(addr(EDGE), Part::End) }]);
}

/// The last node that runs the application answers in proxy mode; an edge keeps a place for a receiver.
#[test]
fn who_answers_in_the_place_of_the_end_says_so() {
    let mut rig = Rig::firewall();
    let request = Message { proxy: true, nonce: Some(1), ..asking(1) };
    let sent = by_inside(&mut rig, &request, 0);
    let answer = only(rig.failed(&sent, SendError::NoNextNode));
    let opened = Hop { answered: true, ..Hop::new(addr("10.0.1.1"), Part::Opened) };
    assert_eq!(hops(&answer), [opened]);

    let mut rig = Rig::edge_nat();
    let request = Message { hops: Some(Hops::EMPTY), neighbor: true, ..external(1, 100, 5000) };
    let answer = only(rig.by_inside(loose(HOST, FAR), &request));
    let [hop] = hops(&answer)[..] else { panic!("{answer:?}") };
    assert_eq!((hop.part, hop.answered), (Part::Reserved, true));
}

/// A node of another make deletes the object that says who sent the request, and adds nothing to the list.
#[test]
fn nodes_of_other_makes_are_unknown() {
    let mut rig = Rig::firewall();
    let sent = by_inside(&mut rig, &Message { neighbor: false, ..asking(1) }, 0);
    let answer = only(rig.answer(&sent, &success(1, 100)));
    let own = Hop { after_gap: true, ..Hop::new(addr("10.0.1.1"), Part::Opened) };
    assert_eq!(hops(&answer), [own], "who answered is unknown");
}

/// RFC 5973 §4.2: the message of a peer that does not ask gets no list, and objects with AB=10 go on.
#[test]
fn a_response_has_the_list_only_if_it_was_asked_for() {
    let mut rig = Rig::firewall();
    let sent = by_inside(&mut rig, &create(1, 100), 0);
    assert!(sent.whole().hops.is_none() && !sent.whole().neighbor);
    let (beyond, foreign) = (list(&[end()]), parse_hex("87ff0001 01234567").unwrap());
    let forwarded = Forwarded::among(&foreign);
    let answer =
        only(rig.answer(&sent, &Message { hops: Hops::from_octets(&beyond), forwarded, ..success(1, 100) }));
    assert_eq!(answer.whole(), Message { forwarded, ..success(1, 100) });
}

/// What is no list is left out alone, and counted.
#[test]
fn a_foreign_object_is_left_out_alone() {
    let mut rig = Rig::firewall();
    let sent = by_inside(&mut rig, &asking(1), 0);
    let mut response = octets(&success(1, 100));
    response.extend(parse_hex("87d00001 01234567").unwrap());
    let answer = only(rig.receive_octets(crate::rig::BEHIND, OUTSIDE, sent.mri.inverted(), &response));
    assert_eq!((answer.info(), hops(&answer).len()), (Info::PROCESSED, 1));
    assert_eq!(rig.natfw.counters().foreign_objects, 1);
    let mut request = octets(&create(1, 100));
    request.extend(parse_hex("87d00001 01234567").unwrap());
    let mut rig = Rig::firewall();
    let sent = only(rig.receive_octets(BEFORE, INSIDE, flow(), &request));
    assert_eq!((sent.whole(), rig.natfw.counters().foreign_objects), (create(1, 100), 1));
}

/// The list does not grow without bound: a node that finds no room leaves it as it is.
#[test]
fn a_full_list_stays_as_it_is() {
    let full = list(&[end(); 100]);
    let mut rig = Rig::firewall();
    let sent = by_inside(&mut rig, &asking(1), 0);
    let answer = only(rig.answer(&sent, &Message { hops: Hops::from_octets(&full), ..success(1, 100) }));
    assert_eq!(answer.whole().hops.unwrap().octets(), full);
    assert!(granted(Options::default(), &full).gaps);
}

#[test]
fn the_user_is_told_of_each_node_and_of_what_is_unknown() {
    let firewall = Hop::new(addr("192.0.2.1"), Part::Opened);
    let after = Hop { after_gap: true, routers: 1, ..firewall };
    let stands_in = Hop { answered: true, ..firewall };
    let proxy = Options { proxy: true, ..Options::default() };
    for (list_of, proxied, gaps, far_end) in [
        (vec![end(), firewall], false, false, Some(true)),
        (vec![end(), after], false, true, Some(true)),
        (vec![firewall], false, true, Some(true)),
        (vec![], false, true, Some(true)),
        (vec![end(), firewall], true, false, Some(true)),
        (vec![stands_in], true, false, Some(false)),
        (vec![firewall], true, true, None),
    ] {
        let options = if proxied { proxy.clone() } else { Options::default() };
        let granted = granted(options, &list(&list_of));
        let in_order: Vec<Hop> = list_of.iter().rev().copied().collect();
        assert_eq!((granted.hops, granted.gaps, granted.far_end), (in_order, gaps, far_end));
    }
}

/// The edge that sends a CREATE by itself has no user to inform.
#[test]
fn a_node_asks_for_the_list_for_its_users_only() {
    let mut rig = Rig::edge_nat();
    let request = Message { proxy: true, nonce: Some(1), ..external(1, 1000, 5000) };
    let sent = rig.by_inside(loose(HOST, FAR), &request);
    assert!(sent.len() == 2 && sent.iter().all(|sent| sent.whole().hops.is_none()));
    let mut rig = Rig::host();
    rig.end = true;
    assert!(only(rig.by_outside(inward(), &create(1, 100))).whole().hops.is_none());
}
