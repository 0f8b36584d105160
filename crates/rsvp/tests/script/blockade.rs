//! Blockade state (RFC 2205 §3.5).

use std::time::Duration;

use signalbox_rsvp::wire::{ErrorCode, MessageType};

use crate::rig::{B, Path, Resv, Rig, all, at, group, kinds, load, one_to, sender};

/// Senders 1 and 2 come by eth1 and eth2, and go out by eth3 and eth4.
fn tree() -> Rig {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (n, vec![3, 4]));
        rig.path(&Path::of(group(), n, n));
    }
    rig
}

/// RSVP-3.5-09, RSVP-3.5-08, RSVP-3.5-05, RSVP-3.5-11, RSVP-2.5-03, RSVP-2.5-04, RSVP-3.5-06
#[test]
fn figure_12() {
    let mut rig = tree();
    let large = Resv::wf(load(4.0 * B)).from(3, 9, group());
    rig.resv(&large);
    rig.resv(&Resv::wf(load(2.0 * B)).from(4, 9, group()));
    let error = large.error_octets(1, ErrorCode::ADMISSION, 2, true);
    let sent = rig.neighborly(1, at(1, 9), &error);
    let resv = one_to(&sent, MessageType::RESV, at(1, 9));
    assert_eq!(resv.rates(), [(2.0 * B, 0)]);
    // With InPlace next hops with smaller requests get no error.
    one_to(&sent, MessageType::RESV_ERR, at(3, 9));
    assert_eq!(sent.len(), 2);
    assert_eq!((rig.reserved(3), rig.reserved(4)), (40_000, 20_000));
    let sent = rig.wait(Duration::from_secs(45));
    for resv in all(&sent, MessageType::RESV) {
        let rate = if resv.dst == at(1, 9) { 2.0 * B } else { 4.0 * B };
        assert_eq!(resv.rates(), [(rate, 0)]);
    }
}

/// What an operator sees of the same: each next hop's request, what goes to each previous hop, and what is blocked for how long.
#[test]
fn requests_of_both_sides_and_the_blockade_are_shown() {
    let mut rig = tree();
    let large = Resv::wf(load(4.0 * B)).from(3, 9, group());
    rig.resv(&large);
    rig.resv(&Resv::wf(load(2.0 * B)).from(4, 9, group()));
    rig.neighborly(1, at(1, 9), &large.error_octets(1, ErrorCode::ADMISSION, 2, true));
    let view = rig.rsvp.view().next().unwrap();
    let [blockade] = view.blockades.as_slice() else { panic!("{:?}", view.blockades) };
    assert_eq!((blockade.previous_hop, blockade.flowspec), (Some(at(1, 9)), load(4.0 * B)));
    let left = blockade.expires.since(rig.now);
    assert!(left > Duration::from_secs(60) && left <= Duration::from_secs(150), "{left:?}");
    let mut upstream: Vec<_> = view
        .upstream
        .iter()
        .map(|one| (one.previous_hop, one.flows[0].1, one.next_refresh.is_some()))
        .collect();
    upstream.sort_by_key(|one| one.0);
    assert_eq!(upstream, [(at(1, 9), load(2.0 * B), true), (at(2, 9), load(4.0 * B), true)]);
    for sender in &view.senders {
        assert_eq!(sender.outgoing.iter().map(|one| one.0).collect::<Vec<_>>(), [3, 4]);
        assert!(sender.next_refresh.is_some_and(|at| at > rig.now));
    }
    assert_eq!(view.reservations.len(), 2);
    for reservation in &view.reservations {
        let [request] = reservation.requests.as_slice() else { panic!("{reservation:?}") };
        assert_eq!(reservation.next_hops, [request.next_hop]);
        assert!(request.expires.is_some_and(|at| at.since(rig.now) > Duration::from_secs(60)));
    }
}

/// RSVP-3.5-05, RSVP-3.5-07, RSVP-2209-RREF-02, RSVP-2209-RERR-02: all requests are blockaded, so nothing goes upstream
/// at once, and later the smallest.
#[test]
fn when_all_is_blockaded_the_least_goes_at_the_next_refresh() {
    let mut rig = tree();
    let large = Resv::wf(load(4.0 * B)).from(3, 9, group());
    rig.resv(&large);
    rig.resv(&Resv::wf(load(3.0 * B)).from(4, 9, group()));
    let failed = Resv::wf(load(3.0 * B)).from(3, 9, group());
    let sent = rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::ADMISSION, 2, false));
    assert_eq!(all(&sent, MessageType::RESV).len(), 0);
    assert_eq!(all(&sent, MessageType::RESV_ERR).len(), 2);
    let sent = rig.wait(Duration::from_secs(45));
    let resvs: Vec<_> = all(&sent, MessageType::RESV).into_iter().filter(|one| one.dst == at(1, 9)).collect();
    assert!(!resvs.is_empty() && resvs.iter().all(|one| one.rates() == [(3.0 * B, 0)]));
}

/// RSVP-3.5-04, RSVP-3.5-10: the blockade ends after Kb refresh periods, and the large request is tried again.
#[test]
fn a_blockade_ends() {
    let mut rig = tree();
    let large = Resv::wf(load(4.0 * B)).from(3, 9, group());
    rig.resv(&large);
    rig.resv(&Resv::wf(load(2.0 * B)).from(4, 9, group()));
    rig.neighborly(1, at(1, 9), &large.error_octets(1, ErrorCode::ADMISSION, 2, true));
    let (mut small, mut big) = (0, 0);
    for second in (0..180).step_by(10) {
        let sent = rig.wait(Duration::from_secs(10));
        for n in [1, 2] {
            rig.path(&Path::of(group(), n, n));
        }
        rig.resv(&large);
        rig.resv(&Resv::wf(load(2.0 * B)).from(4, 9, group()));
        for resv in all(&sent, MessageType::RESV).into_iter().filter(|one| one.dst == at(1, 9)) {
            if resv.rates() == [(2.0 * B, 0)] {
                assert!(second <= 120);
                small += 1;
            } else {
                assert!(second >= 110 && resv.rates() == [(4.0 * B, 0)]);
                big += 1;
            }
        }
    }
    assert!(small > 0 && big > 0, "{small} {big}");
}

/// RSVP-3.5-01: other errors set no blockade state.
#[test]
fn other_errors_leave_no_blockade() {
    let mut rig = tree();
    let large = Resv::wf(load(4.0 * B)).from(3, 9, group());
    rig.resv(&large);
    rig.resv(&Resv::wf(load(2.0 * B)).from(4, 9, group()));
    let sent = rig.neighborly(1, at(1, 9), &large.error_octets(1, ErrorCode::POLICY, 0, false));
    let mut events = kinds(&sent);
    events.sort_by_key(|(_, dst)| *dst);
    assert_eq!(events, [(MessageType::RESV_ERR, at(3, 9)), (MessageType::RESV_ERR, at(4, 9))]);
    assert_eq!(rig.rsvp.counters().blockades, 0);
}

/// RSVP-3.5-06: without InPlace all next hops with a part in the request get the error; with InPlace those with equal
/// and incomparable requests too.
#[test]
fn who_gets_an_admission_failure() {
    let ff = |n, rate, of| Resv::ff(&[(load(rate), of)]).from(n, 9, group());
    for (in_place, expected) in
        [(false, vec![at(3, 9), at(4, 9), at(4, 8)]), (true, vec![at(3, 9), at(4, 8)])]
    {
        let mut rig = tree();
        rig.resv(&ff(3, 4.0 * B, 1));
        rig.resv(&ff(4, 2.0 * B, 1));
        let deep = signalbox_resources::intserv::TSpec::new(B, 9000.0, f32::INFINITY, 64, 1500).unwrap();
        let deep = signalbox_rsvp::wire::FlowSpec { tspec: deep, rspec: None };
        rig.resv(&Resv::ff(&[(deep, 1)]).from(4, 8, group()));
        // A request for another sender.
        rig.resv(&Resv::ff(&[(load(5.0 * B), 2)]).from(4, 7, group()));
        let error = ff(3, 4.0 * B, 1).error_octets(1, ErrorCode::ADMISSION, 2, in_place);
        let mut events: Vec<_> = all(&rig.neighborly(1, at(1, 9), &error), MessageType::RESV_ERR);
        events.sort_by_key(|one| expected.iter().position(|dst| *dst == one.dst));
        assert_eq!(events.iter().map(|one| one.dst).collect::<Vec<_>>(), expected);
        assert!(events.iter().all(|one| one.rates() == [(4.0 * B, 1)]));
    }
}

/// RSVP-3.5-02: with explicit styles each sender in the message has blockade state, with the wildcard style its
/// previous hop has.
#[test]
fn blockades_are_of_senders_or_hops() {
    for (style, expected) in [("SE", 2), ("FF", 1), ("WF", 1)] {
        let mut rig = Rig::new();
        for n in [1, 2, 3] {
            rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
            rig.path(&Path::of(group(), n, 1));
        }
        let (large, failed) = match style {
            "SE" => (Resv::se(load(4.0 * B), &[1, 2, 3]), Resv::se(load(4.0 * B), &[1, 2])),
            "FF" => {
                let large = [1, 2, 3].map(|n| (load(4.0 * B), n));
                (Resv::ff(&large), Resv::ff(&large[..1]))
            }
            _ => (Resv::wf(load(4.0 * B)), Resv::wf(load(4.0 * B))),
        };
        rig.resv(&large.from(3, 9, group()));
        let failed = failed.from(3, 9, group());
        rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::ADMISSION, 2, true));
        assert_eq!(rig.rsvp.counters().blockades, expected, "{style}");
        // Another sender of the same hop is not blockaded, unless the hop is.
        let confirmed = Resv::ff(&[(load(5.0 * B), 3)]).from(3, 9, group()).confirmed(at(5, 5));
        let sent = if style == "FF" { rig.resv(&confirmed) } else { Vec::new() };
        let asks = all(&sent, MessageType::RESV).iter().any(|one| one.message().confirm.is_some());
        assert_eq!(asks, style == "FF", "a blockaded request goes up without its RESV_CONFIRM");
    }
}

/// RSVP-3.5-04: each error restarts the lifetime of the blockade state.
#[test]
fn a_repeated_error_prolongs_the_blockade() {
    let mut rig = tree();
    let (large, small) =
        (Resv::wf(load(4.0 * B)).from(3, 9, group()), Resv::wf(load(2.0 * B)).from(4, 9, group()));
    rig.resv(&large);
    rig.resv(&small);
    let error = large.error_octets(1, ErrorCode::ADMISSION, 2, true);
    rig.neighborly(1, at(1, 9), &error);
    let mut last = None;
    for second in (0..300).step_by(10) {
        if second == 100 {
            rig.neighborly(1, at(1, 9), &error);
        }
        for one in all(&rig.wait(Duration::from_secs(10)), MessageType::RESV) {
            if one.dst == at(1, 9) && one.rates() == [(2.0 * B, 0)] {
                last = Some(second);
            }
        }
        for n in [1, 2] {
            rig.path(&Path::of(group(), n, n));
        }
        rig.resv(&large);
        rig.resv(&small);
    }
    // Four periods after the second one, and no refresh later than that.
    assert!(last.is_some_and(|second| (170..=220).contains(&second)), "{last:?}");
}
