//! Resvs of one next hop.

use std::time::Duration;

use signalbox_rsvp::wire::{ErrorCode, ErrorFlags, MessageType, RsvpHop, Style};

use crate::rig::{B, Path, Resv, Rig, addr, at, guaranteed, handle, kinds, load, one, sender, session};

/// RSVP-1.2-03, RSVP-3.1.4-04, RSVP-3.1.4-05, RSVP-2.1-02, RSVP-2209-RREF-05
#[test]
fn a_resv_is_reserved_and_goes_to_the_previous_hop() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let resv = Resv::ff(&[(load(4.0 * B), 1)]);
    let sent = rig.resv(&resv);
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    let message = sent[0].message();
    assert_eq!(message.hop, Some(RsvpHop { addr: at(1, 1), lih: 77 }));
    assert_eq!((message.session, message.style), (Some(session()), Some(Style::Ff)));
    assert_eq!(sent[0].flows(), [(Some(load(4.0 * B)), Some(sender(1)))]);
    assert_eq!((sent[0].src, sent[0].router_alert), (at(1, 1), false));
    assert_eq!((rig.reserved(1), rig.reserved(2)), (0, 40_000));
    assert_eq!(kinds(&rig.resv(&resv)), [], "a refresh goes nowhere");
}

/// RSVP-3.1.6-02, RSVP-3.1.6-03, RSVP-3.1.6-04, RSVP-2.4-07
#[test]
fn a_resv_tear_ends_it() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let resv = Resv::ff(&[(load(4.0 * B), 1)]);
    rig.resv(&resv);
    let wrong = Resv { hop: RsvpHop { addr: at(2, 9), lih: handle(3) }, ..resv.clone() };
    assert_eq!(kinds(&rig.resv_tear(&wrong)), []);
    let odd = Resv::ff(&[(load(B), 1)]);
    let sent = rig.resv_tear(&odd);
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(1, 9))]);
    assert_eq!(sent[0].rates(), [(0.0, 1)]);
    assert_eq!(rig.reservations(), 0);
    assert_eq!(kinds(&rig.resv_tear(&odd)), []);
}

/// RSVP-3.1.6-05
#[test]
fn a_reservation_that_is_not_refreshed_ends() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(4.0 * B), 1)]));
    for _ in 0..10 {
        rig.wait(Duration::from_secs(15));
        rig.path(&Path::new());
    }
    assert_eq!(rig.reservations(), 1);
    let sent = rig.wait(Duration::from_secs(10));
    one(&sent, MessageType::RESV_TEAR);
    assert_eq!(rig.reservations(), 0);
}

/// RSVP-2209-RESV-02, RSVP-B-06, RSVP-B-07, RSVP-2209-RESV-08
#[test]
fn a_resv_without_path_is_answered() {
    let mut rig = Rig::new();
    let sent = rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(2, 9))]);
    assert_eq!((sent[0].error().code, sent[0].error().node), (ErrorCode::NO_PATH, at(2, 1)));
    rig.path(&Path::new());
    let sent = rig.resv(&Resv::ff(&[(load(B), 2), (load(B), 1)]));
    assert_eq!(one(&sent, MessageType::RESV_ERR).error().code, ErrorCode::NO_SENDER);
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(B, 1)]);
    assert_eq!(rig.reserved(2), 10_000);
}

/// RSVP-2.5-02, RSVP-3.1.8-05, RSVP-2209-UTC-02, RSVP-B-02
#[test]
fn what_does_not_fit_is_refused_and_what_stood_stands() {
    let mut rig = Rig::new();
    rig.path(&Path { tspec: crate::rig::tspec(200.0 * B), ..Path::new() });
    let sent = rig.resv(&Resv::ff(&[(load(100.0 * B), 1)]));
    let error = one(&sent, MessageType::RESV_ERR).error();
    assert_eq!((error.code, error.value, error.flags), (ErrorCode::ADMISSION, 2, ErrorFlags::default()));
    assert_eq!((sent.len(), rig.reservations()), (1, 0));
    rig.resv(&Resv::ff(&[(load(50.0 * B), 1)]));
    let sent = rig.resv(&Resv::ff(&[(load(100.0 * B), 1)]));
    let error = one(&sent, MessageType::RESV_ERR).error();
    assert_eq!((error.code, error.flags), (ErrorCode::ADMISSION, ErrorFlags::IN_PLACE));
    assert_eq!(rig.reserved(2), 500_000);
    assert_eq!(addr("10.0.2.1"), error.node);
}

/// RSVP-B-18, RSVP-3.11.6-01: controlled load and guaranteed service cannot be merged.
#[test]
fn services_that_cannot_be_merged_are_refused() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(4.0 * B), 1)]));
    let other = Resv::ff(&[(guaranteed(2.0 * B, 4.0 * B, 0), 1)]).from(2, 8, session());
    let sent = rig.resv(&other);
    assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(2, 8))]);
    assert_eq!((sent[0].error().code, sent[0].error().value), (ErrorCode::TRAFFIC_CONTROL, 1));
    assert_eq!(rig.reserved(2), 40_000);
}
