//! Reservations follow what the ADSPECs of Paths say of the path before this node: error terms and MTU (RFC 2205 §3.11.2, RFC 2210, RFC
//! 2212).

use std::time::Duration;

use signalbox_resources::intserv::{ErrorTerms, Given, Path as Parameters};
use signalbox_rsvp::engine::Config;
use signalbox_rsvp::wire::{Adspec, ErrorCode, ErrorFlags, FlowSpec, Guaranteed, MessageType, RsvpHop};

use crate::intserv::adspec_object;
use crate::named::{is_asked_for, named};
use crate::rig::{
    B, Path, Resv, Rig, Sent, all, at, group, guaranteed, kinds, load, one, one_to, sender, session, tspec,
};

/// An ADSPEC with these sums of error terms.
fn adspec(terms: ErrorTerms) -> Vec<u8> {
    let start = Adspec::START;
    let guaranteed = start.guaranteed.map(|one| Guaranteed { terms: Some(terms), ..one });
    adspec_object(&Adspec { guaranteed, ..start })
}

/// Terms since the last node that shapes the flow again, which make the bucket of a reservation larger.
fn sums(c_sum: u32, d_sum: u32) -> ErrorTerms {
    ErrorTerms { c_sum, d_sum, ..ErrorTerms::default() }
}

/// A Path of sender `n` with an ADSPEC.
fn path(n: u32, terms: ErrorTerms) -> Path {
    Path { adspec: adspec(terms), ..Path::of(session(), n, 1) }
}

/// RSVPIS-2212-Guidelines-01: the kernel gets the bucket for the present error terms at once. Neighbors get nothing: the previous hop has what it had, and the next
/// hop gets the ADSPEC with the next refresh.
#[test]
fn a_grant_follows_the_error_terms_of_its_path() {
    let request = guaranteed(10.0 * B, 20.0 * B, 0);
    for resv in [Resv::ff(&[(request, 1)]), Resv::se(request, &[1]), Resv::wf(request)] {
        let mut rig = Rig::new();
        rig.path(&path(1, sums(2500, 50_000)));
        rig.resv(&resv);
        assert_eq!(rig.bursts(2), [3000 + 2500 + 5000]);
        for (terms, burst) in [(sums(500, 10_000), 4500), (sums(4000, 0), 7000), (sums(4000, 0), 7000)] {
            assert_eq!(kinds(&rig.path(&path(1, terms))), []);
            assert_eq!(rig.bursts(2), [burst], "{terms:?}");
        }
        assert_eq!(kinds(&rig.path(&Path { adspec: Vec::new(), ..path(1, sums(0, 0)) })), []);
        assert_eq!(rig.bursts(2), [3000]);
        // With another previous hop, whose Path is no other in all the rest.
        let moved = Path { hop: RsvpHop { addr: at(1, 8), lih: 5 }, ..path(1, sums(1000, 0)) };
        one_to(&rig.path(&moved), MessageType::RESV, at(1, 8));
        assert_eq!(rig.bursts(2), [4000]);
        // Refreshes change nothing.
        rig.resv(&resv);
        assert_eq!(rig.bursts(2), [4000]);
    }
}

/// RSVPIS-2212-Guidelines-01: of several senders in one reservation the largest terms count.
#[test]
fn a_shared_grant_follows_the_largest_terms() {
    let mut rig = Rig::new();
    rig.path(&path(1, sums(500, 0)));
    rig.path(&path(2, sums(300, 0)));
    rig.resv(&Resv::se(guaranteed(10.0 * B, 20.0 * B, 0), &[1, 2]));
    let bucket = |rig: &Rig| rig.bursts(2)[0];
    let before = bucket(&rig);
    rig.path(&path(2, sums(400, 0)));
    assert_eq!(bucket(&rig), before);
    rig.path(&path(2, sums(700, 0)));
    assert_eq!(bucket(&rig), before + 200);
    rig.path(&path(2, sums(0, 0)));
    assert_eq!(bucket(&rig), before);
    rig.path(&path(1, sums(0, 0)));
    assert_eq!(bucket(&rig), before - 500);
}

/// Admission control is asked again only where what it was asked for has changed.
#[test]
fn other_values_of_an_adspec_ask_for_nothing() {
    for (request, asks) in [(guaranteed(10.0 * B, 20.0 * B, 0), 1), (load(10.0 * B), 0)] {
        let mut rig = Rig::new();
        rig.path(&path(1, sums(500, 0)));
        rig.resv(&Resv::ff(&[(request, 1)]));
        let granted = |rig: &Rig| rig.rsvp.counters().granted;
        assert_eq!(granted(&rig), 1);
        let mut general = Adspec::START;
        general.general = Parameters { hops: 7, ..general.general };
        general.guaranteed = general.guaranteed.map(|one| Guaranteed { terms: Some(sums(500, 0)), ..one });
        let other = Path { adspec: adspec_object(&general), ..path(1, sums(0, 0)) };
        assert_eq!(kinds(&rig.path(&other)), []);
        assert_eq!(granted(&rig), 1);
        rig.path(&path(1, sums(600, 0)));
        assert_eq!(granted(&rig), 1 + asks);
        rig.path(&path(1, sums(600, 0)));
        assert_eq!(granted(&rig), 1 + asks);
    }
}

/// Ctot and Dtot up to this node.
fn totals(c_tot: u32) -> ErrorTerms {
    ErrorTerms { c_tot, ..ErrorTerms::default() }
}

/// RSVPIS-2212-Ordering-04: a lower rate uses slack, more of it the larger Ctot is. The previous hop gets at once what is left
/// with the present Ctot; the next hop an error, if the slack does not suffice any more, while the former grant stays.
#[test]
fn what_is_left_of_the_slack_follows_the_error_terms() {
    let mut rig = Rig::new();
    rig.path(&Path { sender: sender(2), tspec: tspec(60.0 * B), ..Path::new() });
    rig.resv(&Resv::ff(&[(load(60.0 * B), 2)]));
    rig.path(&path(1, totals(0)));
    let asked = guaranteed(10.0 * B, 60.0 * B, 1_000_000);
    let rspec =
        |sent: &[Sent]| one_to(sent, MessageType::RESV, at(1, 9)).flows()[0].0.unwrap().rspec.unwrap();
    let first = rspec(&rig.resv(&Resv::ff(&[(asked, 1)]).from(2, 8, session())));
    assert!(first.rate() < 60.0 * B && first.slack() > 990_000, "{first:?}");
    let sent = rig.path(&path(1, totals(100_000)));
    let second = rspec(&sent);
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert!(second.rate() == first.rate() && second.slack() < 900_000, "{second:?}");
    assert_eq!(kinds(&rig.path(&path(1, totals(100_000)))), []);
    // Nothing is left.
    let sent = rig.path(&path(1, totals(1_000_000)));
    assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(2, 8))]);
    let error = one(&sent, MessageType::RESV_ERR).error();
    assert_eq!((error.code, error.flags), (ErrorCode::ADMISSION, ErrorFlags::IN_PLACE));
    assert_eq!(rig.resources.reservations().find_map(|one| one.rspec), Some(second));
    // Enough again.
    assert_eq!(rspec(&rig.path(&path(1, totals(0)))), first);
}

/// A FLOWSPEC without M, and a Path whose path takes packets of `mtu`.
fn open(mtu: u32) -> (FlowSpec, Path) {
    let flowspec = FlowSpec { tspec: Given::tspec(B, 3000.0, f32::INFINITY, 64, 0).unwrap(), rspec: None };
    let mut adspec = Adspec::START;
    adspec.general = Parameters { mtu, ..adspec.general };
    (flowspec, Path { adspec: adspec_object(&adspec), ..Path::new() })
}

/// RSVPIS-2210-2.3.2-02: a FLOWSPEC that gives no M means the path MTU of the ADSPEC. When that changes, the next Resv counts, also from a neighbor that
/// refreshes by MESSAGE_IDs: it is asked for the whole message.
#[test]
fn a_request_without_m_follows_the_mtu_of_its_path() {
    let largest =
        |rig: &Rig| rig.resources.reservations().map(|one| one.traffic.max_packet).collect::<Vec<_>>();
    for (before, after) in [(1200, 900), (900, 1200)] {
        let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
        let (flowspec, path) = open(before);
        rig.path(&path);
        let resv = Resv::ff(&[(flowspec, 1)]);
        rig.neighborly(2, at(2, 9), &named(resv.octets(), 5));
        assert_eq!(largest(&rig), [before]);
        rig.wait(Duration::from_millis(500));
        rig.path(&path);
        assert!(!is_asked_for(&mut rig), "{before}");
        rig.path(&open(after).1);
        assert!(is_asked_for(&mut rig), "{after}");
        let sent = rig.neighborly(2, at(2, 9), &named(resv.octets(), 6));
        let up = one(&sent, MessageType::RESV).flows()[0].0.unwrap();
        assert_eq!((largest(&rig), up.tspec.max_packet()), (vec![after], after));
    }
    // A request for smaller packets depends on no path MTU, and on none of another value of the ADSPEC.
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    let small = signalbox_resources::intserv::TSpec::new(B, 3000.0, f32::INFINITY, 64, 800).unwrap();
    rig.path(&open(1200).1);
    let resv = Resv::ff(&[(FlowSpec { tspec: small, rspec: None }, 1)]);
    rig.neighborly(2, at(2, 9), &named(resv.octets(), 5));
    rig.path(&open(900).1);
    assert!(!is_asked_for(&mut rig));
}

/// The ADSPEC of stored path state counts from the moment when multicast routing turns to it.
#[test]
fn a_grant_follows_the_terms_of_the_state_in_use() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    for (iif, c_sum) in [(1, 500), (2, 900)] {
        rig.path(&Path { adspec: adspec(sums(c_sum, 0)), ..Path::of(group(), 1, iif) });
    }
    rig.resv(&Resv::ff(&[(guaranteed(10.0 * B, 20.0 * B, 0), 1)]).from(3, 9, group()));
    assert_eq!(rig.bursts(3), [3500]);
    // Stored state alone changes nothing.
    rig.path(&Path { adspec: adspec(sums(800, 0)), ..Path::of(group(), 1, 2) });
    assert_eq!(rig.bursts(3), [3500]);
    let sent = rig.tree(group(), 1, 2, &[3]);
    assert_eq!(all(&sent, MessageType::RESV_ERR).len(), 0);
    assert_eq!(rig.bursts(3), [3800]);
}
