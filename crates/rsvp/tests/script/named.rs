//! A MESSAGE_ID stands for its whole message, as long as all of that is in place (RFC 2961 §4.5, §5).

use std::time::Duration;

use signalbox_rsvp::engine::Config;
use signalbox_rsvp::wire::{ListedId, MessageType};

use crate::rig::{B, Path, Resv, Rig, all, at, compose, load, session};

/// Epoch of the neighbors.
pub(crate) const EPOCH: u32 = 77;

/// A message with MESSAGE_ID behind its common header.
pub(crate) fn named(mut octets: Vec<u8>, id: u32) -> Vec<u8> {
    let [e3, e2, e1, e0] = EPOCH.to_be_bytes();
    assert_eq!(e3, 0);
    let [i3, i2, i1, i0] = id.to_be_bytes();
    octets.splice(8..8, [0, 12, 23, 1, 1, e2, e1, e0, i3, i2, i1, i0]);
    let length = u16::try_from(octets.len()).unwrap().to_be_bytes();
    octets[2..4].fill(0);
    octets[6..8].copy_from_slice(&length);
    octets
}

/// Senders 1 and 2, and a request of the neighbor at eth2 for both with the MESSAGE_ID 5.
fn reserved(resv: &Resv) -> Rig {
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    rig.path(&Path::new());
    rig.path(&Path::of(session(), 2, 1));
    rig.neighborly(2, at(2, 9), &named(resv.octets(), 5));
    assert_eq!(rig.rsvp.reservations(), if resv.flows.len() == 1 { 1 } else { 2 });
    rig
}

/// Whether an Srefresh of MESSAGE_ID 5 is answered by a MESSAGE_ID_NACK.
pub(crate) fn is_asked_for(rig: &mut Rig) -> bool {
    let ids = [ListedId { id: 5, source: None, group: None }];
    let refresh = compose(MessageType::SREFRESH, 255, |w| {
        w.id_list(EPOCH, &ids);
    });
    let mut sent = rig.neighborly(2, at(2, 9), &refresh);
    sent.extend(rig.wait(Duration::from_millis(100)));
    let acks = all(&sent, MessageType::ACK);
    acks.iter().any(|ack| ack.message().acks().any(|(name, negative)| name.id == 5 && negative))
}

#[test]
fn a_name_stands_for_what_was_said() {
    for resv in [Resv::se(load(B), &[1, 2]), Resv::ff(&[(load(B), 1), (load(B), 2)])] {
        assert!(!is_asked_for(&mut reserved(&resv)));
    }
}

/// SE: an unknown sender is ignored. Once it is known, its request has to be received again.
#[test]
fn what_was_left_out_is_not_refreshed_by_name() {
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    rig.path(&Path::new());
    rig.neighborly(2, at(2, 9), &named(Resv::se(load(B), &[1, 2]).octets(), 5));
    assert_eq!(rig.rsvp.reservations(), 1);
    rig.path(&Path::of(session(), 2, 1));
    assert!(is_asked_for(&mut rig));
}

/// A sender ends and returns: only a part of the request that named it is in place.
#[test]
fn what_ended_in_part_is_not_refreshed_by_name() {
    for resv in [Resv::se(load(B), &[1, 2]), Resv::ff(&[(load(B), 1), (load(B), 2)])] {
        for gone in [1, 2] {
            let mut rig = reserved(&resv);
            rig.path_tear(&Path::of(session(), gone, 1));
            rig.path(&Path::of(session(), gone, 1));
            assert_eq!(rig.rsvp.reservations(), 1);
            assert!(is_asked_for(&mut rig), "{gone}: {resv:?}");
        }
    }
}

/// RFC 2961 §4.5: a tear that was overtaken by a newer Path or Resv ends nothing.
#[test]
fn a_tear_that_was_overtaken_ends_nothing() {
    for resv in [Resv::se(load(B), &[1, 2]), Resv::ff(&[(load(B), 1), (load(B), 2)]), Resv::wf(load(B))] {
        let before = reserved(&resv).rsvp.reservations();
        for (id, ends) in [(4, false), (6, true)] {
            let mut rig = reserved(&resv);
            rig.neighborly(2, at(2, 9), &named(resv.tear_octets(), id));
            assert_eq!(rig.rsvp.reservations(), if ends { 0 } else { before }, "{id}: {resv:?}");
            if !ends {
                assert!(!is_asked_for(&mut rig));
            }
        }
    }
    for (id, ends) in [(4, false), (6, true)] {
        let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
        let path = Path::new();
        rig.packet(1, path.sender.src, path.session.dest, path.ttl, &named(path.octets(), 5));
        rig.packet(1, path.sender.src, path.session.dest, path.ttl, &named(path.tear_octets(), id));
        assert_eq!(rig.rsvp.senders(), u32::from(!ends));
    }
}

/// SE: after a tear of a part the rest needs whole messages; the MESSAGE_ID of the former message does not refresh it.
#[test]
fn what_was_torn_in_part_is_not_refreshed_by_name() {
    let mut rig = reserved(&Resv::se(load(B), &[1, 2]));
    rig.neighborly(2, at(2, 9), &Resv::se(load(B), &[1]).tear_octets());
    assert_eq!(rig.rsvp.reservations(), 1);
    assert!(is_asked_for(&mut rig));
}

/// MESSAGE_IDs are removed with their state, in whatever way it ends.
#[test]
fn no_name_is_left_of_what_is_gone() {
    for resv in [Resv::se(load(B), &[1, 2]), Resv::ff(&[(load(B), 1), (load(B), 2)]), Resv::wf(load(B))] {
        let mut rig = reserved(&resv);
        for n in [1, 2] {
            rig.path_tear(&Path::of(session(), n, 1));
        }
        assert_eq!((rig.rsvp.sessions(), rig.rsvp.reservations()), (0, 0));
        assert!(rig.rsvp.holds_nothing(), "{resv:?}");
    }
}
