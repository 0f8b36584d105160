//! The identity of sessions, senders and reservations (RFC 2205 §1.1, §1.3, §3.1.4; RFC 2209 §1).

use std::time::Duration;

use signalbox_rsvp::engine::ReservationView;
use signalbox_rsvp::wire::{Class, ErrorCode, ErrorFlags, MessageType, RsvpHop, Session, Style};

use crate::rig::{B, Path, Resv, Rig, addr, all, at, group, kinds, load, one, one_to, sender, session, to};

/// RSVP-1.1-01: sessions that differ in one element only share neither path state nor reservations.
#[test]
fn each_of_three_elements_makes_another_session() {
    let mut rig = Rig::new();
    let sessions = [
        session(),
        Session { port: 5006, ..session() },
        Session { protocol: 6, ..session() },
        Session { dest: addr("10.9.0.2"), ..session() },
    ];
    let path = |of: Session| Path { session: of, ..Path::new() };
    let resv = |of: Session| Resv::ff(&[(load(B), 1)]).from(2, 9, of);
    for of in sessions {
        let sent = rig.path(&path(of));
        assert_eq!(one(&sent, MessageType::PATH).message().session, Some(of));
        let sent = rig.resv(&resv(of));
        assert_eq!(one(&sent, MessageType::RESV).message().session, Some(of));
    }
    assert_eq!((rig.rsvp.sessions(), rig.rsvp.senders(), rig.reserved(2)), (4, 4, 40_000));
    let sent = rig.path_tear(&path(sessions[0]));
    assert_eq!(one(&sent, MessageType::PATH_TEAR).message().session, Some(sessions[0]));
    assert_eq!((rig.rsvp.senders(), rig.reserved(2)), (3, 30_000));
    let sent = rig.resv_tear(&resv(sessions[1]));
    assert_eq!(one(&sent, MessageType::RESV_TEAR).message().session, Some(sessions[1]));
    assert_eq!((rig.rsvp.senders(), rig.reserved(2)), (3, 20_000));
    let refreshed: Vec<_> = rig.wait(Duration::from_secs(45));
    for (of, paths, resvs) in [
        (sessions[0], false, false),
        (sessions[1], true, false),
        (sessions[2], true, true),
        (sessions[3], true, true),
    ] {
        let said = |kind| all(&refreshed, kind).iter().any(|one| one.message().session == Some(of));
        assert_eq!((said(MessageType::PATH), said(MessageType::RESV)), (paths, resvs), "{of}");
    }
}

/// RSVP-1.1-01, RSVP-2209-1-01: blockade state is of one session, with explicit styles of one sender.
#[test]
fn a_blockade_is_of_one_session_and_sender() {
    let mut rig = Rig::new();
    let other = Session { port: 5006, ..group() };
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
    }
    for of in [group(), other] {
        for n in [1, 2] {
            rig.path(&Path::of(of, n, 1));
        }
        rig.resv(&Resv::ff(&[(load(4.0 * B), 1), (load(4.0 * B), 2)]).from(3, 9, of));
        rig.resv(&Resv::ff(&[(load(2.0 * B), 1), (load(2.0 * B), 2)]).from(4, 9, of));
    }
    let failed = Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group());
    rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::ADMISSION, 2, true));
    assert_eq!(rig.rsvp.counters().blockades, 1);
    let sent = rig.wait(Duration::from_secs(45));
    let mut seen = 0;
    for resv in all(&sent, MessageType::RESV) {
        let mut rates = resv.rates();
        rates.sort_by_key(|(_, n)| *n);
        let first = if resv.message().session == Some(group()) { 2.0 * B } else { 4.0 * B };
        assert_eq!(rates, [(first, 1), (4.0 * B, 2)]);
        seen += 1;
    }
    assert!(seen >= 2);
}

/// RSVP-1.1-02: the senders of a unicast session have reservations of their own on the link that they share.
#[test]
fn senders_of_a_unicast_session_are_reserved_for_one_by_one() {
    let mut rig = Rig::new();
    rig.path(&Path::of(session(), 1, 1));
    rig.path(&Path::of(session(), 2, 4));
    let sent = rig.resv(&Resv::ff(&[(load(4.0 * B), 1), (load(3.0 * B), 2)]));
    assert_eq!(one_to(&sent, MessageType::RESV, at(1, 9)).rates(), [(4.0 * B, 1)]);
    assert_eq!(one_to(&sent, MessageType::RESV, at(4, 9)).rates(), [(3.0 * B, 2)]);
    assert_eq!((rig.reservations(), rig.reserved(2)), (2, 70_000));
    assert!(rig.resources.reservations().all(|one| one.filters.len() == 1));
    let sent = rig.resv(&Resv::ff(&[(load(4.0 * B), 1), (load(B), 2)]));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(4, 9))]);
    let sent = rig.resv_tear(&Resv::ff(&[(load(4.0 * B), 1)]));
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(1, 9))]);
    assert_eq!((rig.reservations(), rig.reserved(2)), (1, 10_000));
}

/// RSVP-1.3-04: a Resv of another style than the one in place is refused and changes nothing.
#[test]
fn styles_are_not_merged() {
    let of = |style| match style {
        Style::Wf => Resv::wf(load(B)),
        Style::Ff => Resv::ff(&[(load(B), 1)]),
        Style::Se => Resv::se(load(B), &[1]),
    };
    for in_place in [Style::Wf, Style::Ff, Style::Se] {
        for other in [Style::Wf, Style::Ff, Style::Se].into_iter().filter(|one| *one != in_place) {
            let mut rig = Rig::new();
            rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
            rig.path(&Path::of(group(), 1, 1));
            rig.resv(&of(in_place).from(3, 9, group()));
            let before: Vec<_> = rig.rsvp.view().collect();
            // From another next hop of the same interface, from another interface, and from the same next hop.
            for (n, k) in [(3, 8), (4, 9), (3, 9)] {
                let resv = of(other).from(n, k, group());
                let sent = rig.resv(&resv);
                assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(n, k))]);
                let (error, message) = (sent[0].error(), sent[0].message());
                assert_eq!((error.code, error.flags), (ErrorCode::CONFLICTING_STYLE, ErrorFlags::default()));
                assert_eq!((error.node, message.style), (at(n, 1), Some(other)));
                assert_eq!(sent[0].flows().len(), 1);
            }
            assert_eq!(rig.rsvp.view().collect::<Vec<_>>(), before);
            assert_eq!((rig.reserved(3), rig.reserved(4)), (10_000, 0));
            // A tear of another style matches nothing.
            assert_eq!(kinds(&rig.resv_tear(&of(other).from(3, 9, group()))), []);
            assert_eq!(rig.rsvp.view().collect::<Vec<_>>(), before);
        }
    }
}

/// RSVP-2209-RTEAR-01: a ResvTear of another style than the reservation's is dropped.
#[test]
fn a_tear_of_another_style_is_dropped() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::wf(load(B)));
    assert_eq!(kinds(&rig.resv_tear(&Resv::ff(&[(load(B), 1)]))), []);
    assert_eq!(kinds(&rig.resv_tear(&Resv::se(load(B), &[1]))), []);
    assert_eq!((rig.reserved(2), rig.rsvp.counters().unmatched), (10_000, 2));
}

/// RSVP-3.1.4-16: sessions of different styles towards one previous hop have messages of their own.
#[test]
fn a_resv_has_one_style() {
    let mut rig = Rig::new();
    let styles = [
        (to("10.9.0.1"), Resv::wf(load(B))),
        (to("10.9.0.2"), Resv::ff(&[(load(B), 1)])),
        (to("10.9.0.3"), Resv::se(load(B), &[1])),
    ];
    for (of, resv) in &styles {
        rig.path(&Path { session: *of, ..Path::new() });
        rig.resv(&resv.clone().from(2, 9, *of));
    }
    let sent = rig.wait(Duration::from_secs(45));
    let resvs = all(&sent, MessageType::RESV);
    for resv in &resvs {
        let styles_in_it =
            resv.message().objects().filter(|object| object.kind.class == Class::STYLE).count();
        assert_eq!((resv.dst, styles_in_it), (at(1, 9), 1));
    }
    for (of, sent_for) in &styles {
        let found = resvs.iter().find(|one| one.message().session == Some(*of));
        assert_eq!(found.and_then(|one| one.message().style), Some(sent_for.style));
    }
}

/// RSVP-2209-1-01: path state by sender, reservation state by next hop and filter, traffic control state by interface
/// and filter.
#[test]
fn there_is_one_block_of_state_for_each_key() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
        for _ in 0..2 {
            rig.path(&Path::of(group(), n, 1));
        }
    }
    let both = Resv::ff(&[(load(2.0 * B), 1), (load(B), 2)]);
    for (n, k) in [(3, 9), (3, 8), (4, 9), (3, 9)] {
        rig.resv(&both.clone().from(n, k, group()));
    }
    let view: Vec<_> = rig.rsvp.view().collect();
    let [one] = &view[..] else { panic!("{view:?}") };
    let mut senders: Vec<_> = one.senders.iter().map(|one| one.sender).collect();
    senders.sort_by_key(|one| one.src);
    assert_eq!(senders, [sender(1), sender(2)]);
    let mut blocks: Vec<_> = one
        .reservations
        .iter()
        .map(|block: &ReservationView| {
            let mut hops = block.next_hops.clone();
            hops.sort();
            (block.ifindex.0, block.senders.clone(), hops, block.flowspec)
        })
        .collect();
    blocks.sort_by_key(|(oif, senders, ..)| (*oif, senders[0].src));
    let hop = |n, k| Some(at(n, k));
    assert_eq!(
        blocks,
        [
            (3, vec![sender(1)], vec![hop(3, 8), hop(3, 9)], load(2.0 * B)),
            (3, vec![sender(2)], vec![hop(3, 8), hop(3, 9)], load(B)),
            (4, vec![sender(1)], vec![hop(4, 9)], load(2.0 * B)),
            (4, vec![sender(2)], vec![hop(4, 9)], load(B)),
        ]
    );
    assert_eq!(rig.reservations(), 4);
}

/// RSVP-2209-1-03: Paths of a unicast session leave by one interface, whatever interface they come by.
#[test]
fn unicast_path_state_has_one_way_out_and_any_way_in() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    // By another interface, from the same previous hop and from another one.
    for hop in [RsvpHop { addr: at(1, 9), lih: 77 }, RsvpHop { addr: at(4, 9), lih: 5 }] {
        let sent = rig.path(&Path { iif: 4, hop, ..Path::new() });
        assert!(all(&sent, MessageType::PATH).iter().all(|one| one.oif == 2));
        assert_eq!((rig.rsvp.senders(), rig.reserved(2)), (1, 10_000));
    }
    rig.route("10.9.0.0", 24, 3);
    let sent = rig.wait(Duration::from_secs(60));
    let paths = all(&sent, MessageType::PATH);
    assert!(!paths.is_empty() && paths.iter().all(|one| one.oif == 3));
}
