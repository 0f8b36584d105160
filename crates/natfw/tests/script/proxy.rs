//! EXTERNAL in proxy mode: the edge sends a CREATE.

use signalbox_core::handover::Entries;
use signalbox_core::service::SendError;
use signalbox_core::{Mri, PathCoupled};
use signalbox_natfw::engine::Input;
use signalbox_natfw::wire::{Info, Message, MessageType};

use crate::rig::{EDGE, FAR, HOST, INSIDE, OTHER, Rig, Sent, addr, external, loose, notify, only, success};

fn request(msn: u32, lifetime: u32) -> Message<'static> {
    Message { proxy: true, nonce: Some(0xaabb_ccdd), ..external(msn, lifetime, 20230) }
}

/// The EXTERNAL is accepted; the RESPONSE, and the CREATE.
pub(crate) fn begun(rig: &mut Rig) -> (Sent, Sent) {
    let sent = rig.by_inside(loose(HOST, FAR), &request(1, 1000));
    let [answer, create] = <[Sent; 2]>::try_from(sent).unwrap();
    assert_eq!(answer.info(), Info::PROCESSED);
    (answer, create)
}

/// NATFW-3.7.6.1-02, NATFW-3.7.6.1-03
#[test]
fn the_edge_answers_and_sends_a_create() {
    let mut rig = Rig::edge_nat();
    let (answer, create) = begun(&mut rig);
    let port = answer.message().external.unwrap().port.unwrap();
    let message = create.message();
    assert_eq!((message.kind, message.proxy, message.extend), (MessageType::CREATE, false, false));
    assert_eq!((message.nonce, message.lifetime), (Some(0xaabb_ccdd), Some(1000)));
    assert_ne!(create.session, answer.session, "a session of its own");
    let Mri::PathCoupled(PathCoupled { src_prefix: 0, dst, dst_port, .. }) = create.mri else {
        panic!("{}", create.mri)
    };
    assert_eq!((dst, dst_port), (addr(HOST), Some(20230)));
    assert_eq!(rig.kernel, []);
    assert_eq!(rig.answer(&create, &success(message.msn.unwrap(), 1000)), []);
    let rule = format!("allow 0.0.0.0/0 > {EDGE} port {port} proto 17 to {HOST} port 20230");
    assert_eq!(rig.holes[0].1.to_string(), rule);
}

/// NATFW-3.7.6.1-04
#[test]
fn the_create_is_refreshed_only_with_the_external() {
    let mut rig = Rig::edge_nat();
    let (_, create) = begun(&mut rig);
    let msn = create.message().msn.unwrap();
    rig.answer(&create, &success(msn, 1000));
    assert_eq!(rig.pass_secs(900), []);
    let sent = rig.by_inside(loose(HOST, FAR), &request(2, 1000));
    let refreshes: Vec<_> = sent.iter().filter(|sent| sent.message().kind == MessageType::CREATE).collect();
    let [refresh] = refreshes.as_slice() else { panic!("{sent:?}") };
    assert_eq!((refresh.session, refresh.message().msn), (create.session, Some(msn.wrapping_add(1))));
    rig.answer(refresh, &success(msn.wrapping_add(1), 1000));
    rig.pass_secs(999);
    assert_eq!((rig.holes.len(), rig.natfw.session_count()), (1, 2));
}

/// NATFW-3.7.6.1-05, NATFW-3.7.6.1-06
#[test]
fn the_create_ends_with_the_external() {
    for deleted in [true, false] {
        let mut rig = Rig::edge_nat();
        let (_, create) = begun(&mut rig);
        rig.answer(&create, &success(create.message().msn.unwrap(), 1000));
        rig.kernel.clear();
        let sent = if deleted {
            rig.by_inside(loose(HOST, FAR), &external(2, 0, 20230))
        } else {
            rig.pass_secs(1000)
        };
        assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0), "{deleted}");
        assert_eq!(rig.natfw.tables()[1].size, 0, "the port is free");
        if !deleted {
            continue; // both lifetimes are over
        }
        // A deletion needs no proxy mode, but its objects differ from those of the session.
        assert!(
            sent.iter().any(|sent| sent.session == create.session && sent.message().deletes()),
            "{sent:?}"
        );
    }
}

/// A CREATE that fails ends the EXTERNAL too: they share their fate.
#[test]
fn a_create_that_fails_ends_the_external() {
    let mut rig = Rig::edge_nat();
    let (_, create) = begun(&mut rig);
    let msn = create.message().msn.unwrap();
    let error = Message {
        msn: Some(msn),
        info: Some(Info::AUTHORIZATION.into()),
        ..Message::new(MessageType::RESPONSE)
    };
    let sent = only(rig.answer(&create, &error));
    assert_eq!((sent.message(), sent.mri), (notify(Info::TERMINATED), loose(HOST, FAR).inverted()));
    assert_eq!((rig.natfw.session_count(), rig.natfw.tables()[1].size), (0, 0));
}

/// The CREATE is repeated until it is answered, and not beyond the lifetime.
#[test]
fn a_create_without_response_is_given_up() {
    let mut rig = Rig::edge_nat();
    let (_, create) = begun(&mut rig);
    let sent = rig.pass_secs(1000);
    assert!(sent.iter().filter(|sent| sent.session == create.session).count() > 5);
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
}

/// NATFW-3.7.6.3-01, NATFW-3.7.6.3-02: with E the EXTERNAL goes on, and a failure there does not matter.
#[test]
fn an_extended_external_also_goes_on() {
    let mut rig = Rig::edge_nat();
    let request = Message { extend: true, ..request(1, 1000) };
    let sent = rig.by_inside(loose(HOST, FAR), &request);
    let on = sent.iter().find(|sent| sent.message().kind == MessageType::EXTERNAL).unwrap();
    assert!(on.message().proxy && on.message().extend);
    assert_eq!(sent.len(), 3);
    assert_eq!(rig.failed(on, SendError::NoNextNode), []);
    assert_eq!(rig.natfw.session_count(), 2);
}

/// O08: after a planned restart the CREATE goes on in its session, with the next number, when the host refreshes its EXTERNAL: the nodes
/// inside replace what they have. A session that ended is not taken up again.
#[test]
fn the_create_keeps_its_session_over_a_restart() {
    for ended in [false, true] {
        let mut rig = Rig::edge_nat();
        let (_, create) = begun(&mut rig);
        let msn = create.message().msn.unwrap();
        rig.answer(&create, &success(msn, 1000));
        let mut entries = Entries::default();
        rig.natfw.hand_over(rig.now, &mut entries);

        let mut rig = Rig::edge_nat();
        assert_eq!(rig.input(Input::Handover(entries)), []);
        assert_eq!(
            (rig.natfw.session_count(), rig.holes.len()),
            (1, 0),
            "nothing refreshes the CREATE but the host"
        );
        if ended {
            rig.receive(OTHER, INSIDE, loose(HOST, FAR), &external(2, 0, 20230));
            assert_eq!(rig.natfw.session_count(), 0);
        }
        let number = if ended { 3 } else { 2 };
        let sent = rig.receive(OTHER, INSIDE, loose(HOST, FAR), &request(number, 1000));
        let again: Vec<_> = sent.iter().filter(|one| one.message().kind == MessageType::CREATE).collect();
        let [again] = again.as_slice() else { panic!("{sent:?}") };
        let same = (again.session, again.message().msn) == (create.session, Some(msn.wrapping_add(1)));
        assert_eq!(same, !ended);
        if !ended {
            assert_eq!((again.mri, again.message().nonce), (create.mri, Some(0xaabb_ccdd)));
            rig.answer(again, &success(msn.wrapping_add(1), 1000));
            assert_eq!((rig.natfw.session_count(), rig.holes.len()), (2, 1));
        }
    }
}
