//! PathErrs and ResvErrs and their destinations (RFC 2205 §2.10, §3.1.7, §3.1.8; RERR MESSAGE ARRIVES of RFC 2209).

use signalbox_resources::decision::{Outcome, Why};
use signalbox_rsvp::wire::{Class, ErrorCode, ErrorFlags, ErrorSpec, MessageType, RsvpHop, Session, Style};

use crate::rig::{
    B, Path, Resv, Rig, Sent, addr, all, at, compose, group, handle, kinds, load, one, one_to, sender,
    session,
};

/// Senders 1, 2 and 3 come from one previous hop at eth1; all go out by eth3, and 2 and 3 by eth4 as well.
fn tree() -> Rig {
    let mut rig = Rig::new();
    for (n, oifs) in [(1, vec![3]), (2, vec![3, 4]), (3, vec![3, 4])] {
        rig.trees.insert((group().dest, sender(n).src), (1, oifs));
        rig.path(&Path::of(group(), n, 1));
    }
    rig
}

/// Message types and destinations.
fn destinations(sent: &[Sent]) -> Vec<(MessageType, std::net::IpAddr)> {
    let mut kinds_sent = kinds(sent);
    kinds_sent.sort_by_key(|(_, dst)| *dst);
    kinds_sent
}

fn path_err(of: u32) -> Vec<u8> {
    let node = addr("10.7.7.7");
    let (flags, code) = (ErrorFlags::default(), ErrorCode::CONFLICTING_DEST_PORTS);
    compose(MessageType::PATH_ERR, 255, |w| {
        w.session(&session(), false).error_spec(&ErrorSpec { node, flags, code, value: 7 });
        w.sender_template(&sender(of)).sender_tspec(&Path::new().tspec);
    })
}

/// RSVP-3.1.7-02, RSVP-3.1.7-04: a PathErr goes to the previous hop in the path state of its sender, with the node that
/// found the error.
#[test]
fn a_path_err_goes_back_the_way_of_its_path() {
    let mut rig = Rig::new();
    rig.path(&Path::of(session(), 1, 1));
    rig.path(&Path::of(session(), 2, 4));
    for (n, iif) in [(1, 1), (2, 4)] {
        let sent = rig.neighborly(2, at(2, 9), &path_err(n));
        assert_eq!(kinds(&sent), [(MessageType::PATH_ERR, at(iif, 9))]);
        let error = sent[0].error();
        assert_eq!(
            (error.node, error.code, error.value),
            (addr("10.7.7.7"), ErrorCode::CONFLICTING_DEST_PORTS, 7)
        );
        assert_eq!((sent[0].src, sent[0].message().sender), (at(iif, 1), Some(sender(n))));
    }
    // The previous hop changed.
    rig.path(&Path { hop: RsvpHop { addr: at(3, 9), lih: 1 }, iif: 3, ..Path::of(session(), 1, 1) });
    assert_eq!(kinds(&rig.neighborly(2, at(2, 9), &path_err(1))), [(MessageType::PATH_ERR, at(3, 9))]);
    // It changes no state, and for an unknown sender it is dropped.
    assert_eq!(rig.rsvp.senders(), 2);
    assert_eq!(kinds(&rig.neighborly(2, at(2, 9), &path_err(3))), []);
}

/// RSVP-3.1.3-08, RSVP-3.1.7-01: an error in a Path is reported to its previous hop, with this node's address, by a
/// PathErr in the order of the RFC.
#[test]
fn an_error_in_a_path_is_answered() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let portless = Session { port: 0, ..session() };
    let filter =
        signalbox_rsvp::wire::Filter { selector: signalbox_rsvp::wire::Selector::Port(0), ..sender(1) };
    let hop = RsvpHop { addr: at(4, 7), lih: 9 };
    let bad = Path { session: portless, sender: filter, hop, iif: 4, ..Path::new() };
    let sent = rig.path(&bad);
    let error = one(&sent, MessageType::PATH_ERR);
    assert_eq!((error.dst, error.src, error.oif, sent.len()), (at(4, 7), at(4, 1), 4, 1));
    assert_eq!((error.error().node, error.message().session), (at(4, 1), Some(portless)));
    assert_eq!(error.message().sender_tspec.unwrap().read().unwrap(), bad.tspec);
    let message = error.message();
    let order: Vec<Class> = message.objects().map(|object| object.kind.class).collect();
    let expected = [Class::SESSION, Class::ERROR_SPEC, Class::SENDER_TEMPLATE, Class::SENDER_TSPEC];
    assert_eq!(order, expected);
    assert_eq!(rig.rsvp.senders(), 1);
}

/// RSVP-3.1.8-02, RSVP-2209-RERR-03: a ResvErr goes by unicast to each next hop whose reservation has a part in it; not
/// to others, and not back by its incoming interface.
#[test]
fn a_resv_err_goes_to_all_who_may_have_caused_it() {
    let mut rig = tree();
    for (n, k, of) in [(3, 9, 2), (3, 8, 2), (4, 9, 2), (4, 7, 3)] {
        rig.resv(&Resv::ff(&[(load(B), of)]).from(n, k, group()));
    }
    let failed = Resv::ff(&[(load(B), 2)]).from(3, 9, group());
    let sent = rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::POLICY, 5, false));
    let err = |n, k| (MessageType::RESV_ERR, at(n, k));
    assert_eq!(destinations(&sent), [err(3, 8), err(3, 9), err(4, 9)]);
    for one in &sent {
        let error = one.error();
        assert_eq!((error.node, error.code, error.value), (addr("10.7.7.7"), ErrorCode::POLICY, 5));
        assert_eq!((one.rates(), one.src), (vec![(B, 2)], at(one.oif, 1)));
        assert_eq!(one.message().hop, Some(RsvpHop { addr: at(one.oif, 1), lih: handle(one.oif) }));
    }
    // The reservations of this node stay: the error is of a node upstream.
    assert_eq!((rig.reserved(3), rig.reserved(4)), (10_000, 20_000));
    // A ResvErr of a node that is not the previous hop is dropped.
    let sent = rig.neighborly(2, at(2, 9), &failed.error_octets(2, ErrorCode::POLICY, 5, false));
    assert_eq!(kinds(&sent), []);

    // Data in both directions: data from eth1 are not for next hops at eth1.
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    rig.trees.insert((group().dest, sender(2).src), (3, vec![1]));
    rig.path(&Path::of(group(), 1, 1));
    rig.path(&Path::of(group(), 2, 3));
    for n in [1, 3] {
        rig.resv(&Resv::wf(load(B)).from(n, 8, group()));
    }
    let failed = Resv { scope: vec![sender(1).src, sender(2).src], ..Resv::wf(load(B)).from(3, 8, group()) };
    let sent = rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::POLICY, 0, false));
    assert_eq!(kinds(&sent), [err(3, 8)]);
}

/// The record of decisions names the node upstream that refused, once for each reservation that has a part in it.
#[test]
fn a_router_records_which_node_upstream_refused() {
    let mut rig = tree();
    rig.resources.record_decisions(true);
    for (n, k, of) in [(3, 9, 2), (3, 8, 2), (4, 9, 2), (4, 7, 3)] {
        rig.resv(&Resv::ff(&[(load(B), of)]).from(n, k, group()));
    }
    while rig.resources.next_decision().is_some() {}
    let failed = Resv::ff(&[(load(B), 2)]).from(3, 9, group());
    rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::POLICY, 5, false));
    let mut decided: Vec<_> = std::iter::from_fn(|| rig.resources.next_decision())
        .map(|one| (one.interface.unwrap().to_string(), one.outcome, one.why))
        .collect();
    decided.sort_by(|a, b| a.0.cmp(&b.0));
    let refused = |n: u8| (format!("eth{n}"), Outcome::Refused, Why::Beyond(Some(addr("10.7.7.7"))));
    assert_eq!(decided, [refused(3), refused(4)]);
    // A ResvErr that no state here has to do with is no decision.
    rig.neighborly(2, at(2, 9), &failed.error_octets(2, ErrorCode::POLICY, 5, false));
    assert_eq!(rig.resources.next_decision(), None);
}

/// RSVP-2209-RERR-03, RSVP-3.1.8-08: with InPlace an admission failure is not sent to next hops with smaller requests.
#[test]
fn smaller_requests_get_no_admission_failure() {
    for (in_place, receivers) in [(true, vec![(3, 9), (4, 9)]), (false, vec![(3, 8), (3, 9), (4, 8), (4, 9)])]
    {
        let mut rig = tree();
        for (n, k, rate) in [(3, 9, 4.0), (3, 8, 2.0), (4, 9, 5.0), (4, 8, 3.0)] {
            rig.resv(&Resv::ff(&[(load(rate * B), 2)]).from(n, k, group()));
        }
        let failed = Resv::ff(&[(load(4.0 * B), 2)]).from(3, 9, group());
        let octets = failed.error_octets(1, ErrorCode::ADMISSION, 2, in_place);
        let sent = all(&rig.neighborly(1, at(1, 9), &octets), MessageType::RESV_ERR);
        let expected: Vec<_> = receivers.iter().map(|(n, k)| (MessageType::RESV_ERR, at(*n, *k))).collect();
        assert_eq!(destinations(&sent), expected);
        let flags = if in_place { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        assert!(sent.iter().all(|one| one.error().flags == flags));
    }
}

/// RSVP-3.1.8-07: with SE each next hop gets the senders that it named itself.
#[test]
fn each_next_hop_gets_errors_of_its_own_senders() {
    let mut rig = tree();
    rig.resv(&Resv::se(load(B), &[1, 2]).from(3, 9, group()));
    rig.resv(&Resv::se(load(B), &[2, 3]).from(3, 8, group()));
    rig.resv(&Resv::se(load(B), &[3]).from(4, 9, group()));
    let failed = Resv::se(load(B), &[1, 2]).from(3, 9, group());
    let sent = rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::POLICY, 0, false));
    let named = |k| {
        let mut rates = one_to(&sent, MessageType::RESV_ERR, at(3, k)).rates();
        rates.sort_by_key(|(_, n)| *n);
        rates
    };
    assert_eq!(sent.len(), 2);
    assert_eq!(named(9).iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(named(8).iter().map(|(_, n)| *n).collect::<Vec<_>>(), [2]);
}

/// RSVP-3.1.8-08: a wildcard error goes to the interfaces of senders in its SCOPE, with those senders.
#[test]
fn a_wildcard_error_goes_by_its_scope() {
    let mut rig = tree();
    for n in [3, 4] {
        rig.resv(&Resv::wf(load(B)).from(n, 9, group()));
    }
    for (scope, at_3, at_4) in
        [(vec![1], Some(vec![1]), None), (vec![1, 2], Some(vec![1, 2]), Some(vec![2])), (vec![7], None, None)]
    {
        let sources = |of: Vec<u32>| of.into_iter().map(|n| sender(n).src).collect::<Vec<_>>();
        let failed = Resv { scope: sources(scope), ..Resv::wf(load(B)).from(3, 9, group()) };
        let sent = rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::POLICY, 0, false));
        for (n, expected) in [(3, at_3), (4, at_4)] {
            let to = sent.iter().find(|one| one.dst == at(n, 9));
            let mut scope = to.and_then(Sent::scope);
            if let Some(scope) = &mut scope {
                scope.sort();
            }
            assert_eq!(scope, expected.map(sources));
        }
    }
}

/// RSVP-3.1.8-03, RSVP-3.1.8-06: each flow descriptor of FF succeeds or fails by itself; failures are reported one by
/// one to their next hop.
#[test]
fn flow_descriptors_are_judged_one_by_one() {
    let mut rig = tree();
    rig.resv(&Resv::ff(&[(load(B), 2)]).from(4, 9, group()));
    let resv = Resv::ff(&[(load(B), 7), (load(2.0 * B), 1), (load(3.0 * B), 8), (load(200.0 * B), 2)]);
    let mut fast = Path::of(group(), 2, 1);
    fast.tspec = crate::rig::tspec(300.0 * B);
    rig.path(&fast);
    let sent = rig.resv(&resv.from(3, 8, group()));
    let errors = all(&sent, MessageType::RESV_ERR);
    let said: Vec<_> = errors.iter().map(|one| (one.dst, one.error().code, one.rates())).collect();
    assert_eq!(
        said,
        [
            (at(3, 8), ErrorCode::NO_SENDER, vec![(B, 7)]),
            (at(3, 8), ErrorCode::NO_SENDER, vec![(3.0 * B, 8)]),
            (at(3, 8), ErrorCode::ADMISSION, vec![(200.0 * B, 2)]),
        ]
    );
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(2.0 * B, 1)]);
    assert_eq!((rig.reserved(3), rig.reserved(4)), (20_000, 10_000));
}

/// RSVP-2209-RERR-01: a ResvErr for unknown state is dropped.
#[test]
fn an_error_about_nothing_is_dropped() {
    let mut rig = tree();
    let resv = Resv::ff(&[(load(B), 1)]).from(3, 9, group());
    rig.resv(&resv);
    let elsewhere = Resv { session: Session { port: 9, ..group() }, ..resv.clone() };
    for unknown in [
        elsewhere,
        Resv::ff(&[(load(B), 2)]).from(3, 9, group()),
        Resv::ff(&[(load(B), 9)]).from(3, 9, group()),
        Resv { style: Style::Se, ..resv },
    ] {
        let octets = unknown.error_octets(1, ErrorCode::POLICY, 0, false);
        assert_eq!(kinds(&rig.neighborly(1, at(1, 9), &octets)), []);
    }
    assert_eq!((rig.reserved(3), rig.rsvp.counters().resv_errors_sent), (10_000, 0));
}

/// RSVP-2.10-01: a Resv before any Path is answered with an error, and succeeds when it is repeated after a Path.
#[test]
fn a_resv_that_was_too_early_can_be_repeated() {
    let mut rig = Rig::new();
    let resv = Resv::ff(&[(load(B), 1)]);
    for _ in 0..2 {
        let sent = rig.resv(&resv);
        let error = one(&sent, MessageType::RESV_ERR);
        assert_eq!((error.dst, error.error().code, sent.len()), (at(2, 9), ErrorCode::NO_PATH, 1));
        assert_eq!((rig.rsvp.sessions(), rig.reservations()), (0, 0));
    }
    rig.path(&Path::new());
    assert_eq!(kinds(&rig.resv(&resv)), [(MessageType::RESV, at(1, 9))]);
}
