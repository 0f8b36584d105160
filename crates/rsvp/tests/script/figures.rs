//! The worked examples of RFC 2205: previous hops behind eth1 (a) and eth2 (b), next hops at eth3 (c) and eth4 (d).

use std::time::Duration;

use signalbox_rsvp::wire::{MessageType, Style};

use crate::rig::{B, Path, Resv, Rig, Sent, all, at, group, kinds, load, one_to, sender};

/// Sender 1 comes by eth1, senders 2 and 3 by eth2; all go out by eth3 and eth4.
fn figure() -> Rig {
    let mut rig = Rig::new();
    for (n, iif) in [(1, 1), (2, 2), (3, 2)] {
        rig.tree(group(), n, iif, &[3, 4]);
        rig.trees.insert((group().dest, sender(n).src), (iif, vec![3, 4]));
        let sent = rig.path(&Path::of(group(), n, iif));
        assert_eq!(sent.iter().map(|one| one.oif).collect::<Vec<_>>(), [3, 4]);
    }
    rig
}

fn at_c(resv: Resv) -> Resv {
    resv.from(3, 9, group())
}

fn at_d(resv: Resv, k: u32) -> Resv {
    resv.from(4, k, group())
}

/// The next refresh to a previous hop.
fn refresh(rig: &mut Rig, iif: u32) -> Sent {
    let sent = rig.wait(Duration::from_secs(45));
    let mut resvs: Vec<Sent> = all(&sent, MessageType::RESV);
    resvs.retain(|one| one.dst == at(iif, 9));
    resvs.into_iter().next_back().unwrap()
}

/// RSVP-1.4-01, RSVP-1.3-01, RSVP-1.2-04, RSVP-3.1.4-12
#[test]
fn figure_5_wildcard() {
    let mut rig = figure();
    let sent = rig.resv(&at_c(Resv::wf(load(4.0 * B))));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9)), (MessageType::RESV, at(2, 9))]);
    assert_eq!(one_to(&sent, MessageType::RESV, at(1, 9)).scope(), Some(vec![sender(1).src]));
    assert_eq!(one_to(&sent, MessageType::RESV, at(2, 9)).scope(), Some(vec![sender(2).src, sender(3).src]));
    assert_eq!(kinds(&rig.resv(&at_d(Resv::wf(load(3.0 * B)), 8))), []);
    assert_eq!(kinds(&rig.resv(&at_d(Resv::wf(load(2.0 * B)), 9))), []);
    assert_eq!((rig.reserved(3), rig.reserved(4)), (40_000, 30_000));
    for hop in [1, 2] {
        let resv = refresh(&mut rig, hop);
        assert_eq!((resv.message().style, resv.rates()), (Some(Style::Wf), vec![(4.0 * B, 0)]));
    }
}

/// RSVP-1.4-02, RSVP-1.3-02, RSVP-2209-RREF-01, RSVP-3.1.6-06, RSVP-3.1.6-07, RSVP-3.1.6-08, RSVP-3.1.6-09
#[test]
fn figure_6_fixed() {
    let mut rig = figure();
    rig.resv(&at_c(Resv::ff(&[(load(4.0 * B), 1), (load(5.0 * B), 2)])));
    rig.resv(&at_d(Resv::ff(&[(load(3.0 * B), 1), (load(B), 3)]), 8));
    assert_eq!(kinds(&rig.resv(&at_d(Resv::ff(&[(load(B), 1)]), 9))), []);
    assert_eq!((rig.reserved(3), rig.reserved(4)), (90_000, 40_000));
    assert_eq!(refresh(&mut rig, 1).rates(), [(4.0 * B, 1)]);
    let mut packed = refresh(&mut rig, 2).rates();
    packed.sort_by_key(|(_, n)| *n);
    assert_eq!(packed, [(5.0 * B, 2), (B, 3)]);

    // RSVP-3.1.6-07: R2 tears S3.
    let sent = rig.resv_tear(&at_d(Resv::ff(&[(load(B), 3)]), 8));
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(2, 9))]);
    assert_eq!(sent[0].rates(), [(0.0, 3)]);
    assert_eq!(rig.reserved(4), 30_000);
    // RSVP-3.1.6-08: R1 tears S1.
    let sent = rig.resv_tear(&at_c(Resv::ff(&[(load(4.0 * B), 1)])));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].rates(), [(3.0 * B, 1)]);
    // RSVP-3.1.6-09: R3 tears S1.
    assert_eq!(kinds(&rig.resv_tear(&at_d(Resv::ff(&[(load(B), 1)]), 9))), []);
    assert_eq!(rig.reserved(4), 30_000);
}

/// RSVP-1.4-03, RSVP-1.3-03, RSVP-3.1.4-10
#[test]
fn figure_7_shared_explicit() {
    let mut rig = figure();
    rig.resv(&at_c(Resv::se(load(B), &[1, 2])));
    rig.resv(&at_d(Resv::se(load(3.0 * B), &[1, 3]), 8));
    rig.resv(&at_d(Resv::se(load(2.0 * B), &[2]), 9));
    assert_eq!((rig.reserved(3), rig.reserved(4)), (10_000, 30_000));
    let filters: Vec<usize> = rig.resources.reservations().map(|one| one.filters.len()).collect();
    assert_eq!(filters.iter().sum::<usize>(), 5);
    assert_eq!(refresh(&mut rig, 1).rates(), [(3.0 * B, 1)]);
    let resv = refresh(&mut rig, 2);
    let mut senders: Vec<u32> = resv.rates().iter().map(|(_, n)| *n).collect();
    senders.sort_unstable();
    assert_eq!((resv.rates()[0].0, senders), (3.0 * B, vec![2, 3]));
}

/// RSVP-1.4-04, RSVP-2.3-06: data of senders 2 and 3 go to (d) only.
#[test]
fn figure_8_partial_routing() {
    let mut rig = figure();
    rig.tree(group(), 2, 2, &[4]);
    rig.tree(group(), 3, 2, &[4]);
    rig.resv(&at_c(Resv::wf(load(4.0 * B))));
    rig.resv(&at_d(Resv::wf(load(3.0 * B)), 8));
    assert_eq!(refresh(&mut rig, 1).rates(), [(4.0 * B, 0)]);
    assert_eq!(refresh(&mut rig, 2).rates(), [(3.0 * B, 0)]);
}

/// RSVP-2.3-05: the data that leave an interface come from the others.
#[test]
fn figure_10_two_ways() {
    let mut rig = Rig::new();
    // Routes that name the incoming interface too.
    rig.trees.insert((group().dest, sender(1).src), (1, vec![1, 3]));
    rig.trees.insert((group().dest, sender(2).src), (3, vec![1, 3]));
    rig.path(&Path::of(group(), 1, 1));
    rig.path(&Path::of(group(), 2, 3));
    rig.resv(&at_c(Resv::wf(load(3.0 * B))));
    rig.resv(&Resv::wf(load(4.0 * B)).from(1, 9, group()));
    assert_eq!(refresh(&mut rig, 1).rates(), [(3.0 * B, 0)]);
    assert_eq!(refresh(&mut rig, 3).rates(), [(4.0 * B, 0)]);
}

/// RSVP-3.4-06, RSVP-3.4-03, RSVP-3.4-05: interfaces a, b and c are eth1, eth2 and eth3.
#[test]
fn figure_11_scopes() {
    let mut rig = Rig::new();
    for (n, iif, oifs) in [(4, 1, vec![2, 3]), (1, 2, vec![1, 3]), (2, 3, vec![1, 2]), (3, 3, vec![1, 2])] {
        rig.trees.insert((group().dest, sender(n).src), (iif, oifs));
        rig.path(&Path::of(group(), n, iif));
    }
    for (n, senders) in [(3, vec![4, 1]), (1, vec![1, 2, 3]), (2, vec![2, 3, 4])] {
        let scope = senders.into_iter().map(|n| sender(n).src).collect();
        rig.resv(&Resv { scope, ..Resv::wf(load(B)).from(n, 9, group()) });
    }
    assert_eq!(refresh(&mut rig, 1).scope(), Some(vec![sender(4).src]));
    assert_eq!(refresh(&mut rig, 2).scope(), Some(vec![sender(1).src]));
    assert_eq!(refresh(&mut rig, 3).scope(), Some(vec![sender(2).src, sender(3).src]));
    // A sender that no next hop names is left out.
    for (n, senders) in [(3, vec![4, 1]), (1, vec![1, 3]), (2, vec![3, 4])] {
        let scope = senders.into_iter().map(|n| sender(n).src).collect();
        rig.resv(&Resv { scope, ..Resv::wf(load(B)).from(n, 9, group()) });
    }
    assert_eq!(refresh(&mut rig, 3).scope(), Some(vec![sender(3).src]));
}
