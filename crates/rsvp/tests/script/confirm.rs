//! Confirmations (RFC 2205 §2.6, §3.1.4, §3.1.9).

use std::time::Duration;

use signalbox_rsvp::wire::{ErrorCode, MessageType};

use crate::rig::{B, Path, Resv, Rig, addr, all, at, group, kinds, load, sender};

fn tree() -> Rig {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    rig.path(&Path::of(group(), 1, 1));
    rig
}

/// RSVP-2.6-03, RSVP-3.1.4-13: forwarded once, at once.
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
    // RSVP-2209-RESV-06: asked for again, though nothing else is new.
    let sent = rig.resv(&resv.confirmed(receiver));
    assert_eq!(sent[0].message().confirm, Some(receiver));
}

/// RSVP-2.6-02, RSVP-3.1.4-14, RSVP-3.1.9-01, RSVP-3.1.9-02, RSVP-2209-UTC-05, RSVP-B-01
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
        assert_eq!((sent[0].error().code, sent[0].error().node), (ErrorCode::CONFIRMATION, at(4, 1)));
        assert_eq!((sent[0].src, sent[0].rates()), (at(4, 1), vec![(rate, 1)]));
    }
    let sent = rig.resv(&Resv::ff(&[(load(5.0 * B), 1)]).from(4, 9, group()).confirmed(receiver));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].message().confirm, Some(receiver));
}

/// RSVP-3.1.4-15: in a blockaded request the wish is dropped.
#[test]
fn a_blockaded_one_is_dropped() {
    let mut rig = tree();
    let resv = Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group());
    rig.resv(&resv);
    rig.neighbourly(1, at(1, 9), &resv.error_octets(1, ErrorCode::ADMISSION, 2, true));
    assert_eq!(kinds(&rig.resv(&resv.confirmed(addr("10.5.5.5")))), []);
}
