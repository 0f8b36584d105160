//! Confirmations (RFC 2205 §2.6, §3.1.4, §3.1.9).

use std::time::Duration;

use signalbox_rsvp::wire::{Class, ErrorCode, ErrorFlags, ErrorSpec, MessageType, Style};

use crate::rig::{B, Path, Resv, Rig, addr, all, at, compose, group, kinds, load, sender, session};

fn tree() -> Rig {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    rig.path(&Path::of(group(), 1, 1));
    rig
}

/// RSVP-2.6-03, RSVP-3.1.4-13, RSVP-2209-RESV-06: forwarded once, at once.
#[test]
fn the_largest_goes_up_once() {
    let mut rig = tree();
    let receiver = addr("10.5.5.5");
    let resv = Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group());
    let sent = rig.resv(&resv.clone().confirmed(receiver));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].message().confirm, Some(receiver));
    for _ in 0..10 {
        let sent = rig.wait(Duration::from_secs(15));
        assert!(all(&sent, MessageType::RESV).iter().all(|one| one.message().confirm.is_none()));
        rig.path(&Path::of(group(), 1, 1));
        rig.resv(&resv);
    }
    // RSVP-2209-RESV-06: only the confirmation is requested again.
    let sent = rig.resv(&resv.confirmed(receiver));
    assert_eq!(sent[0].message().confirm, Some(receiver));
}

/// RSVP-2.6-02, RSVP-3.1.4-14, RSVP-3.1.9-01, RSVP-2209-UTC-05, RSVP-B-01
#[test]
fn an_equal_or_smaller_one_is_confirmed_here() {
    let mut rig = tree();
    rig.resv(&Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group()));
    let receiver = addr("10.5.5.6");
    for rate in [4.0 * B, 2.0 * B] {
        let sent = rig.resv(&Resv::ff(&[(load(rate), 1)]).from(4, 9, group()).confirmed(receiver));
        assert_eq!(kinds(&sent), [(MessageType::RESV_CONF, receiver)]);
        let message = sent[0].message();
        assert_eq!((message.confirm, sent[0].router_alert), (Some(receiver), true));
        let error = sent[0].error();
        assert_eq!((error.code, error.value, error.node), (ErrorCode::CONFIRMATION, 0, at(4, 1)));
        let order: Vec<Class> = message.objects().map(|object| object.kind.class).collect();
        let head = [Class::SESSION, Class::ERROR_SPEC, Class::RESV_CONFIRM, Class::STYLE];
        assert_eq!(order, [&head[..], &[Class::FLOWSPEC, Class::FILTER_SPEC]].concat());
        assert_eq!((sent[0].src, sent[0].rates()), (at(4, 1), vec![(rate, 1)]));
    }
    let sent = rig.resv(&Resv::ff(&[(load(5.0 * B), 1)]).from(4, 9, group()).confirmed(receiver));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].message().confirm, Some(receiver));
}

/// RSVP-3.1.4-15: the RESV_CONFIRM of a blockaded request is dropped.
#[test]
fn a_blockaded_one_is_dropped() {
    let mut rig = tree();
    let resv = Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group());
    rig.resv(&resv);
    rig.neighborly(1, at(1, 9), &resv.error_octets(1, ErrorCode::ADMISSION, 2, true));
    assert_eq!(kinds(&rig.resv(&resv.confirmed(addr("10.5.5.5")))), []);
}

/// RSVP-3.1.9-03: each flow descriptor of a Resv is confirmed where it is merged; the others go upstream with the
/// RESV_CONFIRM.
#[test]
fn a_part_of_a_request_is_confirmed_here() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
        rig.path(&Path::of(group(), n, 1));
    }
    rig.resv(&Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group()));
    let receiver = addr("10.5.5.5");
    let asked = Resv::ff(&[(load(3.0 * B), 1), (load(3.0 * B), 2)]).from(4, 9, group()).confirmed(receiver);
    for _ in 0..2 {
        let sent = rig.resv(&asked);
        let (resvs, confirmed) = (all(&sent, MessageType::RESV), all(&sent, MessageType::RESV_CONF));
        assert_eq!((resvs.len(), confirmed.len()), (1, 1));
        assert_eq!((resvs[0].dst, resvs[0].rates()), (at(1, 9), vec![(3.0 * B, 2)]));
        assert_eq!(resvs[0].message().confirm, Some(receiver));
        assert_eq!((confirmed[0].dst, confirmed[0].rates()), (receiver, vec![(3.0 * B, 1)]));
    }
}

/// A flow descriptor that changes the merge without being the largest goes upstream without the RESV_CONFIRM.
#[test]
fn what_is_merged_is_not_asked_about() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
        rig.path(&Path::of(group(), n, 1));
    }
    rig.resv(&Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group()));
    let tspec = signalbox_resources::intserv::TSpec::new(B, 9000.0, f32::INFINITY, 64, 1500).unwrap();
    let deep = signalbox_rsvp::wire::FlowSpec { tspec, rspec: None };
    let receiver = addr("10.5.5.5");
    let asked = Resv::ff(&[(deep, 1), (load(3.0 * B), 2)]).from(4, 9, group()).confirmed(receiver);
    let sent = rig.resv(&asked);
    let [merged, largest] = &all(&sent, MessageType::RESV)[..] else { panic!("{:?}", kinds(&sent)) };
    assert_eq!((merged.rates(), merged.message().confirm), (vec![(4.0 * B, 1)], None));
    assert_eq!((largest.rates(), largest.message().confirm), (vec![(3.0 * B, 2)], Some(receiver)));
    assert_eq!(all(&sent, MessageType::RESV_CONF)[0].rates(), [(B, 1)], "what it asked for");
}

/// RSVP-3.1.9-02, RSVP-3.1.9-04, RSVP-2209-RACK-01: a ResvConf is intercepted and sent on with a Router Alert to the
/// address in its RESV_CONFIRM; one with another destination is dropped.
#[test]
fn a_confirmation_passes_if_it_says_where_it_goes() {
    let receiver = addr("10.9.0.1");
    let octets = compose(MessageType::RESV_CONF, 60, |w| {
        let node = addr("10.7.7.7");
        let (flags, code) = (ErrorFlags::default(), ErrorCode::CONFIRMATION);
        w.session(&session(), false).error_spec(&ErrorSpec { node, flags, code, value: 0 });
        w.resv_confirm(receiver).style(Style::Ff).flowspec(&load(B)).filter_spec(&sender(1));
    });
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let sent = rig.packet(1, at(1, 9), receiver, 60, &octets);
    let passed = &sent[0];
    assert_eq!((kinds(&sent), passed.oif), (vec![(MessageType::RESV_CONF, receiver)], 2));
    assert_eq!((passed.src, passed.ttl, passed.message().send_ttl), (at(2, 1), 59, 59));
    assert_eq!((passed.error().node, passed.router_alert), (addr("10.7.7.7"), true));
    for elsewhere in [addr("10.9.0.2"), at(1, 1)] {
        assert_eq!(kinds(&rig.packet(1, at(1, 9), elsewhere, 60, &octets)), []);
    }
    assert_eq!(rig.rsvp.counters().bad_confirmation, 2);
}

/// A ResvConf goes where the reservation is, but never back, so that two nodes cannot send it to each other for ever.
#[test]
fn a_confirmation_does_not_turn_round() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let receiver = addr("10.9.0.1");
    let octets = compose(MessageType::RESV_CONF, 60, |w| {
        let error = ErrorSpec {
            node: at(1, 9),
            flags: ErrorFlags::default(),
            code: ErrorCode::CONFIRMATION,
            value: 0,
        };
        w.session(&session(), false).error_spec(&error).resv_confirm(receiver).style(Style::Ff);
        w.flowspec(&load(B)).filter_spec(&sender(1));
    });
    let ways = [(1, 2), (2, 0)];
    for (iif, oif) in ways {
        let sent = rig.packet(iif, at(iif, 9), receiver, 60, &octets);
        assert_eq!(kinds(&sent), [(MessageType::RESV_CONF, receiver)]);
        assert_eq!((sent[0].oif, sent[0].ttl), (oif, 59), "0: routing has a route");
    }
}
