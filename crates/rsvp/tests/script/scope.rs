//! SCOPE of wildcard reservations, which prevents loops (RFC 2205 §3.4).

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::hops;
use signalbox_resources::LostWhy;
use signalbox_rsvp::engine::{Command, Config, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{ErrorCode, Filter, MessageType, Selector, Style};

use crate::rig::{B, Path, Resv, Rig, all, at, group, kinds, load, one, one_to, sender, tspec};

/// Senders 1 and 2 come by eth1 and eth2, and go out by eth3 and eth4.
fn tree_of(config: Config) -> Rig {
    let mut rig = Rig::with(config);
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (n, vec![3, 4]));
        rig.path(&Path { tspec: tspec(200.0 * B), ..Path::of(group(), n, n) });
    }
    rig
}

fn tree() -> Rig {
    tree_of(Config::default())
}

fn sources(senders: &[u32]) -> Vec<IpAddr> {
    senders.iter().map(|n| sender(*n).src).collect()
}

/// WF from neighbor 9 at interface `n`, for these senders; for all if there are none.
fn wf(n: u32, rate: f32, senders: &[u32]) -> Resv {
    Resv { scope: sources(senders), ..Resv::wf(load(rate)).from(n, 9, group()) }
}

/// RSVP-3.4-02, RSVP-2209-RREF-04: each previous hop gets its own senders, and one without senders gets no Resv.
#[test]
fn a_resv_without_senders_is_not_sent() {
    let mut rig = tree();
    let sent = rig.resv(&wf(3, B, &[1]));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].scope(), Some(sources(&[1])));
    let sent = all(&rig.wait(Duration::from_secs(100)), MessageType::RESV);
    assert!(sent.len() >= 2);
    assert!(sent.iter().all(|one| one.dst == at(1, 9) && one.scope() == Some(sources(&[1]))));
    // Another next hop requests the other sender.
    let sent = rig.resv(&wf(4, B, &[2]));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(2, 9))]);
    assert_eq!(sent[0].scope(), Some(sources(&[2])));
    // Then it does not any more.
    assert_eq!(kinds(&rig.resv(&wf(4, B, &[1]))), [(MessageType::RESV_TEAR, at(2, 9))]);
    assert_eq!(kinds(&rig.resv(&wf(4, B, &[1, 2]))), [(MessageType::RESV, at(2, 9))]);
}

/// RSVP-3.4-04
#[test]
fn senders_of_this_node_are_in_no_scope() {
    let mut rig = tree();
    let own = Filter { src: at(3, 1), selector: Selector::Port(4000) };
    rig.trees.insert((group().dest, own.src), (0, vec![3]));
    rig.command(1, Command::Session(group()));
    let request = SenderRequest { adspec: false, ttl: 9, ..SenderRequest::new(own, tspec(B)) };
    assert_eq!(one(&rig.command(1, Command::Sender(request)), MessageType::PATH).oif, 3);
    rig.take_events(1);
    for scope in [vec![], vec![own.src, sender(1).src, sender(2).src]] {
        let rate = if scope.is_empty() { B } else { 2.0 * B };
        let sent = rig.resv(&Resv { scope, ..wf(3, rate, &[]) });
        assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9)), (MessageType::RESV, at(2, 9))]);
        assert_eq!(one_to(&sent, MessageType::RESV, at(1, 9)).scope(), Some(sources(&[1])));
        assert_eq!(one_to(&sent, MessageType::RESV, at(2, 9)).scope(), Some(sources(&[2])));
        let (flowspec, policy) = (load(rate), Box::default());
        let expected = RsvpEvent::Resv {
            style: Style::Wf,
            flowspec,
            senders: vec![],
            policy,
            path: hops::Path::default(),
        };
        assert_eq!(rig.take_events(1), [expected]);
    }
}

/// RSVP-3.4-07, RSVP-2209-RREF-04: there is no SCOPE with explicit styles, on shared trees, or with one previous hop.
#[test]
fn a_scope_is_attached_where_it_is_needed() {
    let scopes = |rig: &mut Rig, resv: &Resv| -> Vec<_> {
        let sent = all(&rig.resv(resv), MessageType::RESV);
        sent.iter().map(super::rig::Sent::scope).collect()
    };
    assert_eq!(scopes(&mut tree(), &wf(3, B, &[])), [Some(sources(&[1])), Some(sources(&[2]))]);
    let se = Resv::se(load(B), &[1, 2]).from(3, 9, group());
    assert_eq!(scopes(&mut tree(), &se), [None, None]);
    let ff = Resv::ff(&[(load(B), 1), (load(B), 2)]).from(3, 9, group());
    assert_eq!(scopes(&mut tree(), &ff), [None, None]);
    let shared = Config { source_trees: false, ..Config::default() };
    assert_eq!(scopes(&mut tree_of(shared), &wf(3, B, &[])), [None, None]);
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
        rig.path(&Path::of(group(), n, 1));
    }
    assert_eq!(scopes(&mut rig, &wf(3, B, &[])), [None]);
}

/// RSVP-3.4-08: the SCOPE of the message that failed, and of the state that was lost.
#[test]
fn an_error_found_here_has_the_scope_of_what_failed() {
    let mut rig = tree();
    let error = one(&rig.resv(&wf(3, 200.0 * B, &[1, 2])), MessageType::RESV_ERR);
    assert_eq!((error.error().code, error.scope()), (ErrorCode::ADMISSION, Some(sources(&[1, 2]))));
    rig.resv(&wf(3, B, &[2]));
    let error = one_to(&rig.lose(3, LostWhy::Preempted), MessageType::RESV_ERR, at(3, 9));
    assert_eq!((error.error().code, error.scope()), (ErrorCode::PREEMPTED, Some(sources(&[2]))));
}

/// RSVP-3.4-09: the SCOPE of an interface has the senders whose data leave by it.
#[test]
fn the_scope_of_an_error_is_pruned_for_each_interface() {
    let mut rig = Rig::new();
    for (n, oifs) in [(1, vec![3]), (2, vec![4]), (3, vec![3, 4])] {
        rig.trees.insert((group().dest, sender(n).src), (1, oifs));
        rig.path(&Path::of(group(), n, 1));
    }
    rig.resv(&wf(3, 4.0 * B, &[]));
    rig.resv(&wf(4, 3.0 * B, &[]));
    let mut error = |senders: &[u32]| {
        let failed = wf(3, 4.0 * B, senders);
        let sent = rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::POLICY, 0, false));
        let mut events: Vec<_> = sent.iter().map(|one| (one.dst, one.scope().unwrap())).collect();
        events.sort();
        events
    };
    assert_eq!(error(&[1, 3]), [(at(3, 9), sources(&[1, 3])), (at(4, 9), sources(&[3]))]);
    assert_eq!(error(&[2]), [(at(4, 9), sources(&[2]))]);
}

/// RSVP-3.4-01: messages that arrive ten times too often are not forwarded more often; tears and errors are forwarded
/// at once.
#[test]
fn refreshes_go_on_at_this_nodes_own_pace() {
    let mut rig = tree();
    let resv = wf(3, B, &[]);
    rig.resv(&resv);
    let mut sent = Vec::new();
    for _ in 0..200 {
        for n in [1, 2] {
            sent.extend(rig.path(&Path { tspec: tspec(200.0 * B), ..Path::of(group(), n, n) }));
        }
        assert_eq!(kinds(&rig.resv(&resv)), []);
        sent.extend(rig.wait(Duration::from_secs(3)));
    }
    let times = |kind, oif| -> Vec<_> {
        sent.iter()
            .filter(|one| {
                one.kind() == kind && one.oif == oif && {
                    kind != MessageType::PATH || one.src == sender(1).src
                }
            })
            .map(|one| one.at)
            .collect()
    };
    for (kind, oif) in [(MessageType::PATH, 3), (MessageType::PATH, 4), (MessageType::RESV, 1)] {
        let times = times(kind, oif);
        assert!(times.len() >= 13, "{kind} {oif} {times:?}");
        assert!(times.windows(2).all(|two| two[1].since(two[0]) >= Duration::from_secs(15)));
    }
    let error = resv.error_octets(1, ErrorCode::POLICY, 0, false);
    assert_eq!(kinds(&rig.neighborly(1, at(1, 9), &error)), [(MessageType::RESV_ERR, at(3, 9))]);
    assert_eq!(all(&rig.path_tear(&Path::of(group(), 1, 1)), MessageType::PATH_TEAR).len(), 2);
}
