//! The first steps for every packet: destination, format, interface (RFC 2205 §2.9, §3.1.1, §3.3; MESSAGE ARRIVES of
//! RFC 2209).

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::{Config, Input};
use signalbox_rsvp::wire::{ErrorCode, MessageType, RsvpHop, Session, checksum};

use crate::rig::{B, Path, Resv, Rig, Sent, addr, all, at, handle, kinds, load, one, sender, session};

/// With the checksum that its octets have.
fn summed(mut octets: Vec<u8>) -> Vec<u8> {
    octets[2..4].fill(0);
    let sum = checksum(&octets).to_be_bytes();
    octets[2..4].copy_from_slice(&sum);
    octets
}

fn give(rig: &mut Rig, octets: &[u8]) -> Vec<Sent> {
    rig.packet(1, sender(1).src, session().dest, 60, octets)
}

/// RSVP-3.1.1-08: a message with a wrong checksum is dropped; a checksum of zero is not checked.
#[test]
fn a_wrong_checksum_is_dropped() {
    let mut rig = Rig::new();
    let mut octets = Path::new().octets();
    octets[2] ^= 0x10;
    assert_eq!(kinds(&give(&mut rig, &octets)), []);
    // An octet was changed on the path.
    let mut octets = Path::new().octets();
    let last = octets.len() - 1;
    octets[last] ^= 1;
    assert_eq!(kinds(&give(&mut rig, &octets)), []);
    assert_eq!((rig.rsvp.counters().bad_checksum, rig.rsvp.sessions()), (2, 0));
    octets[2..4].fill(0);
    one(&give(&mut rig, &octets), MessageType::PATH);
}

/// RSVP-3.1.1-10: the length is that of the message, and ends with an object.
#[test]
fn a_wrong_length_is_dropped() {
    let mut rig = Rig::new();
    let good = Path::new().octets();
    let length = u16::try_from(good.len()).unwrap();
    for said in [length - 4, length + 4, length + 1, 0, 4, 8] {
        let mut octets = good.clone();
        octets[6..8].copy_from_slice(&said.to_be_bytes());
        assert_eq!(kinds(&give(&mut rig, &summed(octets))), []);
    }
    assert_eq!(rig.rsvp.counters().bad_length, 6);
    // The last object goes beyond the end, or there are octets behind it.
    for change in [4, -4] {
        let mut octets = good.clone();
        let last = octets.len() - 36;
        let object = i32::from(u16::from_be_bytes([octets[last], octets[last + 1]])) + change;
        octets[last..last + 2].copy_from_slice(&u16::try_from(object).unwrap().to_be_bytes());
        assert_eq!(kinds(&give(&mut rig, &summed(octets))), []);
    }
    assert_eq!(rig.rsvp.counters().bad_object_length, 2);
    assert_eq!(rig.rsvp.sessions(), 0);
    one(&give(&mut rig, &good), MessageType::PATH);
}

/// RSVP-3.1.1-11: the reserved octet is zero when sent, and ignored when received.
#[test]
fn the_reserved_octet_is_zero_and_ignored() {
    let mut rig = Rig::new();
    let mut octets = Path::new().octets();
    octets[5] = 0xaa;
    let sent = give(&mut rig, &summed(octets));
    assert_eq!(one(&sent, MessageType::PATH).octets[5], 0);
    let sent = rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(one(&sent, MessageType::RESV).octets[5], 0);
}

/// RSVP-2.9-01: a message for another node is passed on unchanged; a Path is handled by every node on its path.
#[test]
fn what_is_for_another_node_passes() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let elsewhere = addr("10.9.7.7");
    let resv = Resv::ff(&[(load(B), 1)]);
    let failed = resv.error_octets(2, ErrorCode::ADMISSION, 2, false);
    for octets in [resv.octets(), resv.tear_octets(), failed] {
        let sent = rig.packet(2, at(2, 9), elsewhere, 60, &octets);
        let [passed] = &sent[..] else { panic!("{:?}", kinds(&sent)) };
        assert_eq!((passed.src, passed.dst, passed.ttl), (at(2, 9), elsewhere, 59));
        assert_eq!((&passed.octets, passed.oif), (&octets, 0));
        assert_eq!(kinds(&rig.packet(2, at(2, 9), elsewhere, 1, &octets)), []);
    }
    assert_eq!((rig.reservations(), rig.rsvp.counters().passed_on), (0, 3));
}

/// RSVP-2209-MSG-01: the order of checks is version and checksum, destination, objects, INTEGRITY, contents.
#[test]
fn checks_have_an_order() {
    let mut rig = Rig::new();
    let elsewhere = addr("10.9.7.7");
    let mut cut = Resv::ff(&[(load(B), 1)]).octets();
    let time = cut.windows(4).position(|part| part == [0, 8, 5, 1]).unwrap();
    cut.drain(time..time + 8);
    let length = u16::try_from(cut.len()).unwrap();
    cut[6..8].copy_from_slice(&length.to_be_bytes());
    let cut = summed(cut);
    // A message for another node is passed on even without TIME_VALUES.
    assert_eq!(rig.packet(2, at(2, 9), elsewhere, 60, &cut).len(), 1);
    // A broken message for another node is dropped.
    let mut broken = cut.clone();
    broken[12] ^= 1;
    assert_eq!(kinds(&rig.packet(2, at(2, 9), elsewhere, 60, &broken)), []);
    assert_eq!(kinds(&rig.packet(2, at(2, 9), at(2, 1), 60, &broken)), []);
    let mut version = cut.clone();
    version[0] = 0x20;
    assert_eq!(kinds(&rig.packet(2, at(2, 9), elsewhere, 60, &summed(version))), []);
    assert_eq!((rig.rsvp.counters().bad_checksum, rig.rsvp.counters().bad_version), (2, 1));
    // A message for this node without TIME_VALUES, for a session without path state, is not answered.
    assert_eq!(kinds(&rig.packet(2, at(2, 9), at(2, 1), 60, &cut)), []);
    assert_eq!(rig.rsvp.counters().missing_object, 1);
    // An unsigned message with conflicting ports is not answered.
    let mut config = Config::default();
    config.neighbors.interface.reduction.reliable = false;
    let portless = Session { port: 0, ..session() };
    let filter =
        signalbox_rsvp::wire::Filter { selector: signalbox_rsvp::wire::Selector::Port(0), ..sender(1) };
    let conflicting = Path { session: portless, sender: filter, ..Path::new() };
    for (receiving, answers) in [(false, 1), (true, 0)] {
        config.neighbors.interface.integrity.receiving = receiving;
        let mut rig = Rig::with_neighbors(config.clone(), "10mbit");
        if receiving {
            assert_eq!(kinds(&rig.path(&Path::new())), []);
            assert_eq!(rig.rsvp.sessions(), 0);
        }
        rig.command(1, signalbox_rsvp::engine::Command::Session(session()));
        let sent = rig.path(&conflicting);
        assert_eq!(all(&sent, MessageType::PATH_ERR).len(), answers);
    }
}

/// RSVP-2.9-02, RSVP-2209-RESV-01: the handle names the interface, not the incoming interface of the Resv or its
/// address.
#[test]
fn the_handle_names_the_interface() {
    for (arrived, addressed) in [(4, at(4, 1)), (4, at(2, 1)), (2, at(3, 1))] {
        let mut rig = Rig::distant();
        rig.path(&Path::new());
        let resv = Resv::ff(&[(load(B), 1)]);
        let sent = rig.packet(arrived, at(2, 9), addressed, 255, &resv.octets());
        assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
        assert_eq!((rig.reserved(2), rig.reserved(3), rig.reserved(4)), (10_000, 0, 0));
        // The ResvErr leaves by that interface too.
        let too_much = Resv::ff(&[(load(200.0 * B), 1)]);
        rig.path(&Path { tspec: crate::rig::tspec(300.0 * B), ..Path::new() });
        let sent = rig.packet(arrived, at(2, 9), addressed, 255, &too_much.octets());
        let error = one(&sent, MessageType::RESV_ERR);
        assert_eq!((error.src, error.oif, error.error().node), (at(2, 1), 2, at(2, 1)));
        let sent = rig.packet(arrived, at(2, 9), addressed, 255, &resv.tear_octets());
        assert_eq!((kinds(&sent), rig.reserved(2)), (vec![(MessageType::RESV_TEAR, at(1, 9))], 0));
    }
    // An interface by which the data do not leave.
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let hop = RsvpHop { addr: at(2, 9), lih: handle(4) };
    let sent =
        rig.resv(&Resv { hop: RsvpHop { addr: at(4, 9), ..hop }, iif: 4, ..Resv::ff(&[(load(B), 1)]) });
    assert_eq!(one(&sent, MessageType::RESV_ERR).error().code, ErrorCode::NO_SENDER);
}

/// RSVP-3.3-10, RSVP-3.3-11: the handle of another node is returned unchanged; a Resv with an unknown handle of this
/// node is not answered.
#[test]
fn handles_are_their_makers() {
    let mut rig = Rig::new();
    let hop = RsvpHop { addr: at(1, 9), lih: 0xdead_beef };
    rig.path(&Path { hop, ..Path::new() });
    let resv = Resv::ff(&[(load(B), 1)]);
    let handle = |sent: &[Sent], kind| one(sent, kind).message().hop.map(|hop| hop.lih);
    assert_eq!(handle(&rig.resv(&resv), MessageType::RESV), Some(0xdead_beef));
    let sent = rig.wait(Duration::from_secs(45));
    assert!(all(&sent, MessageType::RESV).iter().all(|one| one.message().hop.unwrap().lih == 0xdead_beef));
    for lih in [0, 2, 0xdead_beef] {
        let bogus = Resv { hop: RsvpHop { addr: at(2, 8), lih }, ..resv.clone() };
        assert_eq!(kinds(&rig.resv(&bogus)), []);
        let bogus = Resv { hop: RsvpHop { addr: at(2, 9), lih }, ..resv.clone() };
        assert_eq!(kinds(&rig.resv_tear(&bogus)), []);
    }
    assert_eq!((rig.reserved(2), rig.rsvp.counters().bad_handle), (10_000, 6));
    assert_eq!(handle(&rig.resv_tear(&resv), MessageType::RESV_TEAR), Some(0xdead_beef));
}

/// RSVP-2.9-04, RSVP-3.3-05: a Path that crossed nodes without RSVP names the last RSVP node, and the Resv goes
/// directly to it; its messages may have any TTL.
#[test]
fn nodes_without_rsvp_lie_between() {
    let mut rig = Rig::distant();
    let far = addr("10.55.0.1");
    let path = Path { hop: RsvpHop { addr: far, lih: 3 }, ttl: 55, send_ttl: 60, ..Path::new() };
    let sent = one(&rig.path(&path), MessageType::PATH);
    assert_eq!((sent.ttl, sent.message().send_ttl), (54, 54), "of the data's TTL what is left");
    let resv = Resv { hop: RsvpHop { addr: addr("10.66.0.1"), lih: handle(2) }, ..Resv::ff(&[(load(B), 1)]) };
    let sent = rig.packet(2, addr("10.66.0.1"), at(2, 1), 252, &resv.octets());
    assert_eq!(kinds(&sent), [(MessageType::RESV, far)]);
    assert_eq!((sent[0].ttl, sent[0].message().send_ttl, rig.reserved(2)), (255, 255, 10_000));
    let refreshes = rig.wait(Duration::from_secs(45));
    assert!(all(&refreshes, MessageType::RESV).iter().all(|one| one.dst == far));
    let sent = rig.packet(2, addr("10.66.0.1"), at(2, 1), 3, &resv.tear_octets());
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, far)]);
}

/// RSVP-3.3-03: a message that is addressed to this node needs no Router Alert.
#[test]
fn neighbors_need_no_alert() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let mut give = |src: IpAddr, ifindex: u32, octets: &[u8]| {
        rig.input(Input::Packet(IpReceived {
            src,
            dst: at(ifindex, 1),
            ifindex: IfIndex(ifindex),
            ttl: 255,
            tos: 0,
            router_alert: false,
            payload: octets,
        }))
    };
    let resv = Resv::ff(&[(load(B), 1)]);
    let sent = give(at(2, 9), 2, &resv.octets());
    assert!(!one(&sent, MessageType::RESV).router_alert);
    let sent = give(at(1, 9), 1, &resv.error_octets(1, ErrorCode::ADMISSION, 2, false));
    assert!(!one(&sent, MessageType::RESV_ERR).router_alert);
    let sent = give(at(2, 9), 2, &resv.tear_octets());
    assert!(!one(&sent, MessageType::RESV_TEAR).router_alert);
}
