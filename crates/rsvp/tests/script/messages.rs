//! Messages that leave: order of objects, addresses, TTLs, Router Alert (RFC 2205 §3.1, §3.3).

use std::net::IpAddr;
use std::time::Duration;

use signalbox_rsvp::engine::{Config, InterfaceConfig};
use signalbox_rsvp::wire::{
    Adspec, Class, ErrorCode, ErrorFlags, ErrorSpec, Filter, HEADER_OCTETS, MessageType, RsvpHop, Selector,
    Style,
};

use crate::rig::{
    B, Path, Resv, Rig, Sent, addr, all, at, compose, group, kinds, load, one, sender, session,
};

const POLICY: [u8; 12] = [0, 12, 14, 1, 0, 4, 0, 0, 1, 2, 3, 4];

/// One message of each type that a router sends, with all its objects. Senders 1 and 2 come by eth1 and eth2.
fn one_of_each() -> Vec<Sent> {
    let mut rig = Rig::new();
    let adspec = compose(MessageType::PATH, 1, |w| _ = w.adspec(&Adspec::START))[HEADER_OCTETS..].to_vec();
    let path = |n| Path { extra: POLICY.to_vec(), adspec: adspec.clone(), ..Path::of(group(), n, n) };
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (n, vec![3]));
    }
    let mut sent = rig.path(&path(1));
    rig.path(&path(2));
    let receiver = addr("10.9.0.9");
    let resv = Resv { extra: POLICY.to_vec(), ..Resv::wf(load(B)).from(3, 9, group()) };
    let resvs = rig.resv(&resv.clone().confirmed(receiver));
    sent.extend(resvs.into_iter().filter(|one| one.dst == at(1, 9)));
    let failed = ErrorSpec {
        node: addr("10.7.7.7"),
        flags: ErrorFlags::default(),
        code: ErrorCode::RSVP_SYSTEM,
        value: 0,
    };
    let path_err = compose(MessageType::PATH_ERR, 255, |w| {
        w.session(&group(), false).error_spec(&failed).body(&POLICY);
        w.sender_template(&sender(1)).sender_tspec(&path(1).tspec).body(&adspec);
    });
    sent.extend(rig.neighborly(3, at(3, 9), &path_err));
    let scoped = Resv { scope: vec![sender(1).src], ..resv.clone() };
    sent.extend(rig.neighborly(1, at(1, 9), &scoped.error_octets(1, ErrorCode::POLICY, 0, false)));
    let confirmation = compose(MessageType::RESV_CONF, 60, |w| {
        let node = addr("10.7.7.7");
        let (flags, code) = (ErrorFlags::default(), ErrorCode::CONFIRMATION);
        w.session(&group(), false).error_spec(&ErrorSpec { node, flags, code, value: 0 });
        w.resv_confirm(receiver).style(Style::Wf).flowspec(&load(B));
    });
    sent.extend(rig.packet(1, at(1, 9), receiver, 60, &confirmation));
    let tears = rig.resv_tear(&Resv { extra: Vec::new(), ..resv });
    sent.extend(tears.into_iter().filter(|one| one.dst == at(1, 9)));
    sent.extend(rig.path_tear(&Path { extra: Vec::new(), ..path(1) }));
    sent
}

fn classes(sent: &Sent) -> Vec<Class> {
    sent.message().objects().map(|object| object.kind.class).collect()
}

/// RSVP-3.1-01: the objects are in the order of the BNF.
#[test]
fn objects_are_in_order() {
    use Class as C;
    let sent = one_of_each();
    let expected: [(MessageType, &[Class]); 7] = [
        (
            MessageType::PATH,
            &[
                C::SESSION,
                C::RSVP_HOP,
                C::TIME_VALUES,
                C::POLICY_DATA,
                C::SENDER_TEMPLATE,
                C::SENDER_TSPEC,
                C::ADSPEC,
            ],
        ),
        (
            MessageType::RESV,
            &[
                C::SESSION,
                C::RSVP_HOP,
                C::TIME_VALUES,
                C::RESV_CONFIRM,
                C::SCOPE,
                C::POLICY_DATA,
                C::STYLE,
                C::FLOWSPEC,
            ],
        ),
        (
            MessageType::PATH_ERR,
            &[C::SESSION, C::ERROR_SPEC, C::POLICY_DATA, C::SENDER_TEMPLATE, C::SENDER_TSPEC, C::ADSPEC],
        ),
        (
            MessageType::RESV_ERR,
            &[C::SESSION, C::RSVP_HOP, C::ERROR_SPEC, C::SCOPE, C::POLICY_DATA, C::STYLE, C::FLOWSPEC],
        ),
        (MessageType::RESV_CONF, &[C::SESSION, C::ERROR_SPEC, C::RESV_CONFIRM, C::STYLE, C::FLOWSPEC]),
        (MessageType::RESV_TEAR, &[C::SESSION, C::RSVP_HOP, C::STYLE]),
        (MessageType::PATH_TEAR, &[C::SESSION, C::RSVP_HOP, C::SENDER_TEMPLATE, C::SENDER_TSPEC]),
    ];
    assert_eq!(sent.len(), expected.len(), "{:?}", kinds(&sent));
    for (one, (kind, order)) in sent.iter().zip(expected) {
        assert_eq!((one.kind(), classes(one).as_slice()), (kind, order));
    }
    // Explicit styles: each FLOWSPEC stands before its filters, of FF for each.
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.path(&Path::of(session(), n, 1));
    }
    let sent = rig.resv(&Resv::ff(&[(load(B), 1), (load(2.0 * B), 2)]));
    let ff = classes(&sent[0]);
    assert_eq!(ff[3..], [C::STYLE, C::FLOWSPEC, C::FILTER_SPEC, C::FLOWSPEC, C::FILTER_SPEC]);
    rig.resv_tear(&Resv::ff(&[(load(B), 1), (load(2.0 * B), 2)]));
    let se = classes(&rig.resv(&Resv::se(load(B), &[1, 2]))[0]);
    assert_eq!(se[3..], [C::STYLE, C::FLOWSPEC, C::FILTER_SPEC, C::FILTER_SPEC]);
}

/// RSVP-3.1.1-09, RSVP-3.3-02, RSVP-3.3-03, RSVP-3.3-04: Send_TTL is the IP TTL; Path, PathTear and ResvConf have a
/// Router Alert; Path and PathTear have the source address of the data.
#[test]
fn messages_are_addressed_as_their_types_are() {
    let sent = one_of_each();
    assert_eq!(sent.len(), 7);
    for one in &sent {
        assert_eq!(one.message().send_ttl, one.ttl, "{}", one.kind());
        let (alert, src): (bool, IpAddr) = match one.kind() {
            MessageType::PATH | MessageType::PATH_TEAR => (true, sender(1).src),
            MessageType::RESV_CONF => (true, at(3, 1)),
            MessageType::RESV_ERR => (false, at(3, 1)),
            _ => (false, at(1, 1)),
        };
        assert_eq!((one.router_alert, one.src), (alert, src), "{}", one.kind());
        let dst = match one.kind() {
            MessageType::PATH | MessageType::PATH_TEAR => group().dest,
            MessageType::RESV_CONF => addr("10.9.0.9"),
            MessageType::RESV_ERR => at(3, 9),
            _ => at(1, 9),
        };
        assert_eq!(one.dst, dst);
        let ttl = match one.kind() {
            MessageType::PATH | MessageType::PATH_TEAR | MessageType::RESV_CONF => 59,
            _ => 255,
        };
        assert_eq!(one.ttl, ttl);
    }
}

/// RSVP-3.1.2-01: each object has its length, header included, its class and its type.
#[test]
fn objects_have_their_header() {
    let mut rig = Rig::new();
    let sent = rig.path(&Path::new());
    let octets = &sent[0].octets[HEADER_OCTETS..];
    let session = [0, 12, 1, 1, 10, 9, 0, 1, 17, 0, 0x13, 0x8c];
    let [h3, h2, h1, h0] = crate::rig::handle(2).to_be_bytes();
    let hop = [0, 12, 3, 1, 10, 0, 2, 1, h3, h2, h1, h0];
    let time = [0, 8, 5, 1, 0, 0, 0x75, 0x30];
    let template = [0, 12, 11, 1, 10, 8, 0, 1, 0, 0, 0x0f, 0xa0];
    let expected = [&session[..], &hop, &time, &template, &[0, 36, 12, 2]].concat();
    assert_eq!(octets[..expected.len()], expected);
    assert_eq!(octets.len(), expected.len() + 32);
}

/// RSVP-3.1.3-09: a Path is of one sender, and goes out once a period by each interface of that sender.
#[test]
fn a_path_is_of_one_sender() {
    let mut rig = Rig::new();
    for (n, oifs) in [(1, vec![3, 4]), (2, vec![3])] {
        rig.trees.insert((group().dest, sender(n).src), (1, oifs));
        rig.path(&Path::of(group(), n, 1));
    }
    let (mut sent, start) = (Vec::new(), rig.now);
    for _ in 0..40 {
        for n in [1, 2] {
            rig.path(&Path::of(group(), n, 1));
        }
        sent.extend(rig.wait(Duration::from_secs(15)));
    }
    assert_eq!(rig.now.since(start), Duration::from_secs(600));
    for one in &sent {
        let senders = classes(one).into_iter().filter(|class| *class == Class::SENDER_TEMPLATE).count();
        assert_eq!((one.kind(), senders), (MessageType::PATH, 1));
    }
    let of =
        |n, oif| sent.iter().filter(|one| one.message().sender == Some(sender(n)) && one.oif == oif).count();
    // Twenty periods of R, each drawn from half of it to one and a half.
    for (n, oif) in [(1, 3), (1, 4), (2, 3)] {
        assert!((13..=40).contains(&of(n, oif)), "{}", of(n, oif));
    }
    assert_eq!(of(2, 4), 0);
}

/// RSVP-3.3-08: a message is one packet of any size: 400 flow descriptors, which IP has to fragment.
#[test]
fn a_large_message_is_one_packet() {
    let mut rig = Rig::new();
    let number = |n: u16| Filter { selector: Selector::Port(n), ..sender(1) };
    for n in 1..=400 {
        rig.path(&Path { sender: number(n), ..Path::new() });
    }
    let flows = (1..=400).map(|n| (Some(load(100.0)), vec![number(n)])).collect();
    let sent = rig.resv(&Resv { flows, ..Resv::ff(&[]) });
    assert_eq!((kinds(&sent), rig.reservations()), (vec![(MessageType::RESV, at(1, 9))], 400));
    assert!(sent[0].octets.len() > 12 * 1500);
    assert_eq!(sent[0].flows().len(), 400);
    let sent = rig.wait(Duration::from_secs(45));
    let refreshes = all(&sent, MessageType::RESV);
    assert!(!refreshes.is_empty() && refreshes.iter().all(|one| one.flows().len() == 400));
}

/// RSVP-3.3-09: messages have the code point of network control, or a configured one; K is configured for each
/// interface.
#[test]
fn the_class_of_messages_and_k_are_settings() {
    let mut config = Config::default();
    config.interfaces.insert("eth1".to_owned(), InterfaceConfig { cleanup: 5, ..InterfaceConfig::default() });
    config.interfaces.insert("eth2".to_owned(), InterfaceConfig { tos: 0x68, ..InterfaceConfig::default() });
    let mut rig = Rig::with(config);
    let path = Path::new();
    let sent = rig.path(&path);
    assert_eq!(one(&sent, MessageType::PATH).tos, 0x68);
    let sent = rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(one(&sent, MessageType::RESV).tos, 0xc0);
    // (5 + 0.5) · 1.5 · 30 s for path state from eth1.
    let sent = rig.wait(Duration::from_millis(247_400));
    assert_eq!((all(&sent, MessageType::PATH_TEAR).len(), rig.rsvp.senders()), (0, 1));
    let sent = rig.wait(Duration::from_millis(200));
    one(&sent, MessageType::PATH_TEAR);
}

/// RSVP-2.2-03: flowspecs, ADSPECs and policy data are opaque: what this node cannot read is forwarded.
#[test]
fn what_others_understand_is_passed_on() {
    let mut rig = Rig::new();
    // An unknown service, with a parameter of one word.
    let unknown = [0x63, 0, 0, 2, 0xfa, 0, 0, 1, 1, 2, 3, 4];
    let known = compose(MessageType::PATH, 1, |w| _ = w.adspec(&Adspec::START))[HEADER_OCTETS..].to_vec();
    let mut adspec = [&known[..], &unknown].concat();
    let length = u16::try_from(adspec.len()).unwrap().to_be_bytes();
    adspec[..2].copy_from_slice(&length);
    let words = u16::try_from(adspec.len() / 4 - 2).unwrap().to_be_bytes();
    adspec[6..8].copy_from_slice(&words);
    let sent = rig.path(&Path { adspec, extra: POLICY.to_vec(), ..Path::new() });
    let path = one(&sent, MessageType::PATH);
    let found = path
        .octets
        .windows(11)
        .any(|part| part[0] == 0x63 && part[1] & 0x7f == 0 && part[2..] == unknown[2..11]);
    assert!(found, "{:x?}", path.octets);
    assert!(path.octets.windows(POLICY.len()).any(|part| part == POLICY));
    // An error about a request for a service that this node does not support.
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let flowspec = [0, 20, 9, 2, 0, 0, 0, 3, 0x63, 0, 0, 2, 0xfa, 0, 0, 1, 9, 8, 7, 6];
    let error = compose(MessageType::RESV_ERR, 255, |w| {
        let (flags, code) = (ErrorFlags::default(), ErrorCode::ADMISSION);
        w.session(&session(), false).hop(&RsvpHop { addr: at(1, 9), lih: 77 });
        w.error_spec(&ErrorSpec { node: addr("10.7.7.7"), flags, code, value: 2 }).style(Style::Ff);
        w.body(&flowspec).filter_spec(&sender(1));
    });
    let sent = rig.neighborly(1, at(1, 9), &error);
    let error = one(&sent, MessageType::RESV_ERR);
    assert!(error.octets.windows(flowspec.len()).any(|part| part == flowspec));
}
