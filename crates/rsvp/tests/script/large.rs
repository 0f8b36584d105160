//! Large messages, and sessions with many senders: what one message of a neighbour causes, and what is stored of it.

use signalbox_rsvp::wire::{Filter, MessageType, Selector};

use crate::rig::{B, Path, Resv, Rig, all, load, sender};

/// Senders of one source, which differ by their port.
fn ports(count: u16) -> Vec<Filter> {
    (0..count).map(|n| Filter { selector: Selector::Port(5000 + n), ..sender(1) }).collect()
}

/// An object of unknown class that is forwarded, with this number of octets.
fn unknown(class: u8, c_type: u8, octets: u16) -> Vec<u8> {
    let [high, low] = octets.to_be_bytes();
    let mut object = vec![high, low, class, c_type];
    object.resize(octets.into(), 0);
    object
}

/// A filter takes 12 octets of a Resv. Each has its own ResvErr, with what the message has once.
#[test]
fn a_resv_for_unknown_senders_is_answered_with_few_errors() {
    for long in [false, true] {
        let mut rig = Rig::new();
        rig.path(&Path::new());
        let extra = if long { unknown(200, 1, 20_000) } else { unknown(200, 1, 100) };
        let resv = Resv { flows: vec![(Some(load(B)), ports(2500))], extra, ..Resv::ff(&[]) };
        let octets = resv.octets().len();
        let sent = rig.resv(&resv);
        let errors = all(&sent, MessageType::RESV_ERR);
        assert!((1..=64).contains(&errors.len()), "{}", errors.len());
        assert!(errors.iter().map(|one| one.octets.len()).sum::<usize>() < octets);
        assert!(errors.iter().all(|one| one.message().kept().count() == usize::from(!long)));
        assert_eq!(rig.rsvp.counters().errors_limited, 2500 - 64);
    }
}
