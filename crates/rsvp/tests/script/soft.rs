//! Soft state: changes are sent at once and as far as they change anything, state that ended is removed (RFC 2205 §2.3,
//! §2.4, §3.1.5, §3.1.6).

use std::time::Duration;

use signalbox_rsvp::engine::{Command, FlowRequest, Input, ReserveRequest};
use signalbox_rsvp::wire::{ErrorCode, MessageType, Session, Style};

use crate::rig::{B, Path, Resv, Rig, all, at, group, kinds, load, one, one_to, sender, session, tspec};

/// Senders 1 and 2 come from one previous hop at eth1, sender 3 by eth2; all go out by eth3 and eth4.
fn tree() -> Rig {
    let mut rig = Rig::new();
    for (n, iif) in [(1, 1), (2, 1), (3, 2)] {
        rig.trees.insert((group().dest, sender(n).src), (iif, vec![3, 4]));
        rig.path(&Path::of(group(), n, iif));
    }
    rig
}

/// RSVP-2.3-02: a node without state creates it from refreshes; a node with state takes the same octets for refreshes.
#[test]
fn a_refresh_has_the_octets_of_the_first_message() {
    let (path, resv) = (Path::new(), Resv::ff(&[(load(B), 1)]));
    let mut old = Rig::new();
    old.path(&path);
    old.resv(&resv);
    old.wait(Duration::from_secs(40));
    let path_refresh = old.packet(1, sender(1).src, session().dest, 60, &path.octets());
    let resv_refresh = old.neighborly(2, at(2, 9), &resv.octets());
    assert_eq!((path_refresh, resv_refresh), (vec![], vec![]));
    let mut fresh = Rig::new();
    let sent = fresh.packet(1, sender(1).src, session().dest, 60, &path.octets());
    one(&sent, MessageType::PATH);
    let sent = fresh.neighborly(2, at(2, 9), &resv.octets());
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(B, 1)]);
    let state = |rig: &Rig| {
        rig.rsvp
            .view()
            .map(|one| (one.session, one.senders.len(), one.reservations[0].flowspec))
            .collect::<Vec<_>>()
    };
    assert_eq!(state(&old), state(&fresh));
    assert_eq!(old.reserved(2), fresh.reserved(2));
}

/// What operators are shown as the age of state: refreshes and changes do not make it younger, its end does.
#[test]
fn state_is_as_old_as_its_first_message() {
    let mut rig = Rig::new();
    let receiver = Session { dest: at(3, 1), ..session() };
    let here = Path { session: receiver, ..Path::new() };
    let since = |rig: &Rig| {
        let mut sessions: Vec<_> = rig.rsvp.view().collect();
        sessions.sort_by_key(|one| one.session.dest == receiver.dest);
        let times = sessions.iter().map(|one| {
            let reservation = &one.reservations[0];
            let granted = reservation.grant.and_then(|grant| rig.resources.reservation(grant));
            (one.senders[0].since, reservation.requested_here.or(granted.map(|granted| granted.since)))
        });
        times.collect::<Vec<_>>()
    };
    let start = rig.now;
    rig.path(&Path::new());
    rig.path(&here);
    rig.wait(Duration::from_secs(10));
    let reserved = rig.now;
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    rig.command(1, Command::Session(receiver));
    let reserve = |rate| {
        let flows = vec![FlowRequest { flowspec: load(rate), senders: vec![sender(1)] }];
        Command::Reserve(ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() })
    };
    rig.command(1, reserve(B));
    for _ in 0..10 {
        rig.wait(Duration::from_secs(30));
        for path in [&Path::new(), &here] {
            rig.path(path);
        }
        rig.resv(&Resv::ff(&[(load(B), 1)]));
    }
    rig.path(&Path { tspec: tspec(11.0 * B), ..Path::new() });
    rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]));
    rig.command(1, reserve(2.0 * B));
    assert_eq!(since(&rig), [(start, Some(reserved)); 2]);
    rig.path_tear(&Path::new());
    rig.wait(Duration::from_secs(1));
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(since(&rig), [(rig.now, Some(rig.now)), (start, Some(reserved))]);
}

/// RSVP-3.1.3-07, RSVP-2.3-03: all contents of a Path are stored and refreshed, and changes are sent at once.
#[test]
fn path_state_is_what_the_last_path_said() {
    let mut rig = Rig::new();
    let policy = vec![0, 12, 14, 1, 0, 4, 0, 0, 1, 2, 3, 4];
    let first = Path { extra: policy.clone(), ..Path::new() };
    rig.path(&first);
    let view: Vec<_> = rig.rsvp.view().collect();
    let known = view[0].senders[0].clone();
    assert_eq!((view[0].session, known.sender), (session(), sender(1)));
    assert_eq!((known.tspec, known.previous_hop, known.ifindex.0), (first.tspec, Some(at(1, 9)), 1));
    let said = |octets: &[u8]| octets.windows(policy.len()).any(|part| part == policy);
    assert!(all(&rig.wait(Duration::from_secs(45)), MessageType::PATH).iter().all(|one| said(&one.octets)));
    let now = rig.now;
    let sent = rig.path(&Path { tspec: tspec(3.0 * B), ..first.clone() });
    let path = one(&sent, MessageType::PATH);
    assert_eq!((path.at, path.message().sender_tspec.unwrap().read().unwrap()), (now, tspec(3.0 * B)));
    let sent = rig.path(&Path { tspec: tspec(3.0 * B), ..Path::new() });
    assert!(!said(&one(&sent, MessageType::PATH).octets), "policy data that are gone");
    let view: Vec<_> = rig.rsvp.view().collect();
    assert_eq!(view[0].senders[0].tspec, tspec(3.0 * B));
}

/// RSVP-2.3-03, RSVP-2.3-04: a change goes upstream at once, and only where it changes the merge.
#[test]
fn a_change_goes_as_far_as_it_changes_anything() {
    let mut rig = tree();
    rig.resv(&Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group()));
    // Smaller requests that change below the larger one change the reservation here alone.
    for (rate, reserved) in [(1.0, 10_000), (3.0, 30_000), (4.0, 40_000), (2.0, 20_000)] {
        assert_eq!(kinds(&rig.resv(&Resv::ff(&[(load(rate * B), 1)]).from(4, 9, group()))), []);
        assert_eq!(rig.reserved(4), reserved);
    }
    let now = rig.now;
    for rate in [5.0, 6.0, 2.0] {
        let sent = rig.resv(&Resv::ff(&[(load(rate * B), 1)]).from(4, 9, group()));
        let resv = one_to(&sent, MessageType::RESV, at(1, 9));
        assert_eq!((resv.rates(), resv.at, sent.len()), (vec![(rate.max(4.0) * B, 1)], now, 1));
    }
    // A new sender is sent to its own previous hop alone.
    let sent = rig.resv(&Resv::ff(&[(load(B), 3)]).from(4, 9, group()));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(2, 9))]);
}

/// RSVP-2.4-04, RSVP-2209-PTEAR-01: a PathTear leaves by all interfaces of the Paths, and ends the reservations for its
/// sender; a ResvTear ends where another reservation needs the same.
#[test]
fn tears_go_as_far_as_they_change_anything() {
    let mut rig = tree();
    let both = |n| Resv::ff(&[(load(B), 1), (load(B), 2)]).from(n, 9, group());
    rig.resv(&both(3));
    rig.resv(&both(4));
    let sent = rig.path_tear(&Path::of(group(), 1, 1));
    let tears: Vec<_> = sent.iter().map(|one| (one.kind(), one.oif, one.dst, one.src)).collect();
    let tear = |oif| (MessageType::PATH_TEAR, oif, group().dest, sender(1).src);
    assert_eq!(tears, [tear(3), tear(4)]);
    assert_eq!((rig.reserved(3), rig.reserved(4), rig.rsvp.senders()), (10_000, 10_000, 2));
    // Two next hops request sender 2: the first tear is not forwarded, the second is.
    assert_eq!(kinds(&rig.resv_tear(&both(3))), []);
    assert_eq!((rig.reserved(3), rig.reserved(4)), (0, 10_000));
    let sent = rig.resv_tear(&both(4));
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(1, 9))]);
    assert_eq!((sent[0].rates(), rig.reservations()), (vec![(0.0, 2)], 0));
}

/// RSVP-2209-RTEAR-02, RSVP-3.1.6-06: the previous hop gets a Resv while another interface has a reservation, and the
/// ResvTear with the last one; each previous hop by itself.
#[test]
fn a_tear_becomes_a_resv_where_something_is_left() {
    for (at_3, at_4, left) in [
        (Resv::wf(load(4.0 * B)), Resv::wf(load(2.0 * B)), 0),
        (Resv::se(load(4.0 * B), &[1, 3]), Resv::se(load(2.0 * B), &[1, 3]), 1),
        (Resv::ff(&[(load(4.0 * B), 1), (load(B), 3)]), Resv::ff(&[(load(2.0 * B), 1)]), 1),
    ] {
        let mut rig = tree();
        let distinct = at_3.style == Style::Ff;
        let (at_3, at_4) = (at_3.from(3, 9, group()), at_4.from(4, 9, group()));
        rig.resv(&at_3);
        rig.resv(&at_4);
        let sent = rig.resv_tear(&at_3);
        assert_eq!(one_to(&sent, MessageType::RESV, at(1, 9)).rates(), [(2.0 * B, left)]);
        if distinct {
            assert_eq!(one_to(&sent, MessageType::RESV_TEAR, at(2, 9)).rates(), [(0.0, 3)]);
        } else {
            assert_eq!(one_to(&sent, MessageType::RESV, at(2, 9)).rates()[0].0, 2.0 * B);
        }
        assert_eq!(sent.len(), 2);
        let sent = rig.resv_tear(&at_4);
        one_to(&sent, MessageType::RESV_TEAR, at(1, 9));
        assert_eq!(sent.len(), if distinct { 1 } else { 2 });
        assert_eq!(rig.reservations(), 0);
    }
}

/// RSVP-2.4-05: a lost ResvTear ends the reservation by expiry, and a tear goes upstream then.
#[test]
fn a_lost_resv_tear_is_made_up_for_by_time() {
    let mut rig = tree();
    let resv = Resv::wf(load(B)).from(3, 9, group());
    rig.resv(&resv);
    let mut sent = Vec::new();
    for _ in 0..12 {
        for (n, iif) in [(1, 1), (2, 1), (3, 2)] {
            rig.path(&Path::of(group(), n, iif));
        }
        sent.extend(rig.wait(Duration::from_secs(15)));
    }
    let mut tears: Vec<_> = all(&sent, MessageType::RESV_TEAR).iter().map(|one| one.dst).collect();
    tears.sort();
    assert_eq!(tears, [at(1, 9), at(2, 9)]);
    assert_eq!((rig.reservations(), kinds(&rig.resv_tear(&resv))), (0, vec![]));
}

/// RSVP-2.4-06: a ResvTear names any of the requested senders; a PathTear names one.
#[test]
fn some_senders_can_be_torn_and_others_stay() {
    let mut rig = tree();
    rig.resv(&Resv::se(load(B), &[1, 2, 3]).from(3, 9, group()));
    let sent = rig.resv_tear(&Resv::se(load(B), &[2, 3]).from(3, 9, group()));
    assert_eq!(one_to(&sent, MessageType::RESV_TEAR, at(1, 9)).rates(), [(0.0, 2)]);
    assert_eq!(one_to(&sent, MessageType::RESV_TEAR, at(2, 9)).rates(), [(0.0, 3)]);
    let view: Vec<_> = rig.rsvp.view().collect();
    assert_eq!(view[0].reservations[0].senders, [sender(1)]);
    assert_eq!((rig.reserved(3), view[0].senders.len()), (10_000, 3));
    rig.path_tear(&Path::of(group(), 3, 2));
    let view: Vec<_> = rig.rsvp.view().collect();
    assert_eq!((view[0].senders.len(), rig.reserved(3)), (2, 10_000));

    let mut rig = tree();
    rig.resv(&Resv::ff(&[(load(B), 1), (load(2.0 * B), 2), (load(3.0 * B), 3)]).from(3, 9, group()));
    let sent = rig.resv_tear(&Resv::ff(&[(load(B), 1), (load(B), 3)]).from(3, 9, group()));
    assert_eq!(one_to(&sent, MessageType::RESV_TEAR, at(1, 9)).rates(), [(0.0, 1)]);
    assert_eq!(one_to(&sent, MessageType::RESV_TEAR, at(2, 9)).rates(), [(0.0, 3)]);
    assert_eq!(rig.reserved(3), 20_000);
}

/// RSVP-2209-RESV-05: with SE each sender lives as long as messages name it.
#[test]
fn a_sender_that_is_named_no_more_ends_alone() {
    let mut rig = tree();
    rig.resv(&Resv::se(load(B), &[1, 3]).from(3, 9, group()));
    let (mut torn, start) = (Vec::new(), rig.now);
    for _ in 0..14 {
        for (n, iif) in [(1, 1), (2, 1), (3, 2)] {
            rig.path(&Path::of(group(), n, iif));
        }
        rig.resv(&Resv::se(load(B), &[1]).from(3, 9, group()));
        torn.extend(all(&rig.wait(Duration::from_secs(15)), MessageType::RESV_TEAR));
    }
    let [tear] = &torn[..] else { panic!("{torn:?}") };
    assert_eq!((tear.dst, tear.rates()), (at(2, 9), vec![(0.0, 3)]));
    assert!(tear.at >= start + Duration::from_millis(157_500));
    let view: Vec<_> = rig.rsvp.view().collect();
    assert_eq!((view[0].reservations[0].senders.clone(), rig.reserved(3)), (vec![sender(1)], 10_000));
}

/// RSVP-2209-RESV-03: an unknown sender is ignored, unless all are unknown.
#[test]
fn a_filter_without_sender_is_left_out() {
    let mut rig = tree();
    let sent = rig.resv(&Resv::se(load(B), &[1, 9]).from(3, 9, group()));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].rates(), [(B, 1)]);
    let filters: Vec<_> = rig.resources.reservations().map(|one| one.filters.len()).collect();
    assert_eq!(filters, [1]);
    let sent = rig.resv(&Resv::se(load(B), &[8, 9]).from(4, 9, group()));
    assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(4, 9))]);
    assert_eq!((sent[0].error().code, sent[0].flows().len()), (ErrorCode::NO_SENDER, 2));
    assert_eq!(rig.reserved(4), 0);
}

/// RSVP-3.1.5-09, RSVP-3.1.5-10: a reservation ends with its sender, with WF with the last one, without a message
/// upstream or downstream.
#[test]
fn a_reservation_that_ends_with_its_sender_causes_no_message() {
    for (resv, one_less) in [
        (Resv::ff(&[(load(B), 1), (load(B), 2), (load(B), 3)]), 20_000),
        (Resv::se(load(B), &[1, 2, 3]), 10_000),
        (Resv::wf(load(B)), 10_000),
    ] {
        let mut rig = tree();
        rig.resv(&resv.from(3, 9, group()));
        // The refresh for the other sender of the previous hop is due at the same time as before.
        let due = rig.rsvp.next_deadline().unwrap();
        let sent = rig.path_tear(&Path::of(group(), 1, 1));
        assert!(sent.iter().all(|one| one.kind() == MessageType::PATH_TEAR));
        assert!(rig.rsvp.next_deadline().unwrap() >= due);
        assert_eq!(rig.reserved(3), one_less);
        let filters: Vec<_> = rig.resources.reservations().flat_map(|one| one.filters).collect();
        assert!(filters.iter().all(|filter| filter.src.addr != sender(1).src));
        for (n, iif) in [(2, 1), (3, 2)] {
            assert_eq!(rig.reservations(), if one_less == 20_000 { 4 - n as usize } else { 1 });
            let sent = rig.path_tear(&Path::of(group(), n, iif));
            assert!(sent.iter().all(|one| one.kind() == MessageType::PATH_TEAR));
        }
        assert_eq!((rig.reservations(), rig.rsvp.sessions()), (0, 0));
        assert_eq!(kinds(&rig.wait(Duration::from_secs(300))), []);
    }
}

/// RSVP-3.1.5-10: the same when a sender expires.
#[test]
fn a_sender_that_expires_is_reported_downstream_alone() {
    let mut rig = tree();
    let resv = Resv::se(load(B), &[1, 2]).from(3, 9, group());
    rig.resv(&resv);
    let mut last = Vec::new();
    for _ in 0..11 {
        for (n, iif) in [(2, 1), (3, 2)] {
            rig.path(&Path::of(group(), n, iif));
        }
        rig.resv(&Resv::se(load(B), &[2]).from(3, 9, group()));
        last = rig.wait(Duration::from_secs(15));
        if all(&last, MessageType::PATH_TEAR).len() == 2 {
            break;
        }
    }
    let tears = all(&last, MessageType::PATH_TEAR);
    assert_eq!(tears.len(), 2);
    let at_that_time = last.iter().filter(|one| one.at == tears[0].at);
    assert!(at_that_time.clone().all(|one| one.kind() == MessageType::PATH_TEAR), "{at_that_time:?}");
    assert!(all(&last, MessageType::RESV_ERR).is_empty() && all(&last, MessageType::RESV_TEAR).is_empty());
}

/// RSVP-3.1.4-11: WF is for the senders whose data leave by the interface where it was asked for.
#[test]
fn wildcards_take_the_senders_that_route_there() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    rig.trees.insert((group().dest, sender(2).src), (2, vec![4]));
    for (n, iif) in [(1, 1), (2, 2)] {
        rig.path(&Path::of(group(), n, iif));
    }
    let sent = rig.resv(&Resv::wf(load(B)).from(3, 9, group()));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    let sent = rig.wait(Duration::from_secs(45));
    assert!(all(&sent, MessageType::RESV).iter().all(|one| one.dst == at(1, 9)));
}

/// RSVP-3.3-07: a Resv of one of three neighbors on a LAN causes one message upstream, and none on the LAN.
#[test]
fn a_change_makes_no_burst() {
    let mut rig = tree();
    for k in [7, 8, 9] {
        rig.resv(&Resv::wf(load(B)).from(3, k, group()));
    }
    for rate in [2.0, 5.0, 3.0] {
        let sent = rig.resv(&Resv::wf(load(rate * B)).from(3, 8, group()));
        let mut kinds_sent = kinds(&sent);
        kinds_sent.sort_by_key(|(_, dst)| *dst);
        assert_eq!(kinds_sent, [(MessageType::RESV, at(1, 9)), (MessageType::RESV, at(2, 9))]);
    }
    // A Path that changes goes on by the other interfaces, not by its own.
    let sent = rig.path(&Path { tspec: tspec(B), ..Path::of(group(), 1, 1) });
    let paths: Vec<u32> = all(&sent, MessageType::PATH).iter().map(|one| one.oif).collect();
    assert_eq!(paths, [3, 4]);
    assert!(all(&sent, MessageType::RESV).iter().all(|one| one.dst == at(1, 9)), "the answer to its own hop");
    // Not even if the route names that one.
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![1, 3]));
    assert_eq!(one(&rig.path(&Path::of(group(), 1, 1)), MessageType::PATH).oif, 3);
}

/// Many senders expire at one moment. A timer input ends a part of them, another input fewer, and the rest stays due.
#[test]
fn senders_that_expire_together_end_in_parts() {
    const SESSIONS: u16 = 1000;
    let mut rig = Rig::new();
    for n in 0..SESSIONS {
        rig.path(&Path::of(Session { port: 1000 + n, ..session() }, 1, 1));
    }
    assert_eq!(rig.rsvp.sessions(), u32::from(SESSIONS));
    rig.now = rig.now + Duration::from_secs(3600);
    rig.path(&Path::of(Session { port: 1, ..session() }, 1, 1));
    assert!(rig.rsvp.sessions() >= u32::from(SESSIONS) - 16);
    let mut left = rig.rsvp.sessions();
    while rig.rsvp.next_deadline().is_some_and(|next| next <= rig.now) {
        rig.input(Input::Timer);
        assert!(rig.rsvp.sessions() + 256 >= left, "{left} sessions, then {}", rig.rsvp.sessions());
        left = rig.rsvp.sessions();
    }
    assert_eq!(left, 1, "the new one");
}
