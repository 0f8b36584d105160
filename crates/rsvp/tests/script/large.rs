//! Large messages, and sessions with many senders: what one message of a neighbor causes, and what is stored of it.

use std::collections::BTreeSet;
use std::time::Duration;

use signalbox_resources::LostWhy;
use signalbox_rsvp::engine::Config;
use signalbox_rsvp::wire::{ErrorCode, Filter, ListedId, MessageType, RsvpHop, Selector, Style};

use crate::named::{EPOCH, named};
use crate::rig::{B, Path, Resv, Rig, addr, all, at, compose, group, load, one, sender, session};

/// Senders of one source, which differ by their port.
fn ports(count: u16) -> Vec<Filter> {
    (0..count).map(|n| Filter { selector: Selector::Port(5000 + n), ..sender(1) }).collect()
}

/// The senders of [`ports`] come by eth1, from previous hops that differ by their handle or from one, and leave by eth3 and eth4.
fn crowd(count: u16, many_hops: bool) -> Rig {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    for (n, sender) in (0..).zip(ports(count)) {
        let hop = RsvpHop { addr: at(1, 9), lih: if many_hops { 1000 + n } else { 1000 } };
        rig.path(&Path { sender, hop, ..Path::of(group(), 1, 1) });
    }
    rig
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

/// Each next hop has many small objects, which differ. Merging them costs little, and a part of them leaves room for the request.
#[test]
fn objects_of_many_next_hops_do_not_keep_a_request_back() {
    let mut rig = crowd(60, false);
    let mut last = Vec::new();
    for hop in 0..20 {
        let extra = (0..250).flat_map(|n| unknown(200 + hop, n, 4)).collect();
        let flows = vec![(Some(load(B + f32::from(hop))), ports(60))];
        let resv = Resv { extra, flows, ..Resv::se(load(B), &[]) };
        last = rig.resv(&resv.from(3, 20 + u32::from(hop), group()));
    }
    let resv = one(&last, MessageType::RESV);
    assert_eq!((resv.dst, resv.flows().len()), (at(1, 9), 60));
    let carried = resv.message().kept().count() * 4;
    assert!((8_000..=16 * 1024).contains(&carried), "{carried}");
}

/// A list names one MESSAGE_ID hundreds of times. The state that it stands for, which may be a request for many senders, is
/// refreshed once.
#[test]
fn an_srefresh_refreshes_a_request_once() {
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    rig.path(&Path::new());
    rig.path(&Path::of(session(), 2, 1));
    rig.neighborly(2, at(2, 9), &named(Resv::se(load(B), &[1, 2]).octets(), 5));
    let before = rig.rsvp.counters().resvs_refreshed;
    let ids = vec![ListedId { id: 5, source: None, group: None }; 300];
    let refresh = compose(MessageType::SREFRESH, 255, |w| _ = w.id_list(EPOCH, &ids));
    rig.neighborly(2, at(2, 9), &refresh);
    assert_eq!(rig.rsvp.counters().resvs_refreshed, before + 1);
    // In another packet it counts again.
    rig.neighborly(2, at(2, 9), &refresh);
    assert_eq!(rig.rsvp.counters().resvs_refreshed, before + 2);
}

/// RSVP-3.5-05: a request that is not blockaded goes upstream at once, in parts to the 300 previous hops that one ResvErr concerns.
/// The same ResvErr again changes nothing that goes upstream.
#[test]
fn an_admission_failure_is_followed_upstream_in_parts() {
    let mut rig = crowd(300, true);
    let large = Resv::wf(load(4.0 * B)).from(3, 9, group());
    rig.resv(&large);
    rig.resv(&Resv::wf(load(2.0 * B)).from(4, 9, group()));
    rig.wait(Duration::from_secs(1));
    let error = large.error_octets(1, ErrorCode::ADMISSION, 2, true);
    let at_once = all(&rig.neighborly(1, at(1, 9), &error), MessageType::RESV);
    assert!((1..=64).contains(&at_once.len()), "{}", at_once.len());
    let later = all(&rig.wait(Duration::from_secs(1)), MessageType::RESV);
    let all_of_them = at_once.iter().chain(&later);
    assert!(all_of_them.clone().all(|one| one.rates() == [(2.0 * B, 0)]));
    let hops: BTreeSet<u32> = all_of_them.map(|one| one.message().hop.unwrap().lih).collect();
    assert_eq!(hops.len(), 300);
    let again = rig.neighborly(1, at(1, 9), &error);
    assert!(all(&again, MessageType::RESV).is_empty());
    assert!(all(&rig.wait(Duration::from_secs(1)), MessageType::RESV).is_empty());
}

/// A SCOPE has room for 16,000 senders. Of those that a session cannot have nothing is stored: the error about the loss of the
/// reservation has the others.
#[test]
fn of_a_long_scope_the_senders_of_the_session_are_stored() {
    let mut rig = crowd(1, true);
    let foreign = (0..3000).map(|n| addr(&format!("10.7.{}.{}", n / 250, n % 250)));
    let scope = foreign.chain([sender(1).src; 2]).collect();
    let resv = Resv { scope, ..Resv::wf(load(B)).from(3, 9, group()) };
    assert_eq!(one(&rig.resv(&resv), MessageType::RESV).dst, at(1, 9));
    assert!(all(&rig.resv(&resv), MessageType::RESV).is_empty(), "it is the same");
    let lost = one(&rig.lose(3, LostWhy::Preempted), MessageType::RESV_ERR);
    assert_eq!(lost.scope(), Some(vec![sender(1).src]));
}

/// A SCOPE is for wildcard requests (RFC 2205 §3.4): beside others it is ignored.
#[test]
fn a_scope_of_explicit_requests_is_not_stored() {
    let mut rig = crowd(2, true);
    let flows = vec![(Some(load(B)), ports(2))];
    let resv = Resv { flows, scope: vec![addr("10.7.7.7")], ..Resv::ff(&[]).from(3, 9, group()) };
    rig.resv(&resv);
    assert_eq!(rig.reservations(), 2);
    assert_eq!(one(&rig.lose(3, LostWhy::Preempted), MessageType::RESV_ERR).scope(), None);
}

/// RSVP-3.1.4-14: another next hop, at the same interface or another one, asks for more for all senders of a request, which names each
/// of them twice. They are confirmed by one message.
#[test]
fn the_senders_of_a_request_are_confirmed_together() {
    for other in [3, 4] {
        let mut rig = crowd(10, true);
        let flows = |rate: f32| vec![(Some(load(rate)), [ports(10), ports(10)].concat())];
        rig.resv(&Resv { flows: flows(2.0 * B), ..Resv::ff(&[]).from(other, 8, group()) });
        let resv = Resv { flows: flows(B), ..Resv::ff(&[]).from(3, 9, group()) };
        let sent = rig.resv(&resv.confirmed(at(3, 77)));
        let confirmation = one(&sent, MessageType::RESV_CONF);
        assert_eq!((confirmation.dst, confirmation.flows().len()), (at(3, 77), 10));
    }
}

/// A request for the senders of 300 previous hops, with and without a RESV_CONFIRM: 64 get it at once.
#[test]
fn a_confirmed_request_goes_upstream_in_parts() {
    for (style, confirmed) in [(Style::Wf, true), (Style::Ff, true), (Style::Ff, false)] {
        let mut rig = crowd(300, true);
        let request = |rate: f32| {
            let resv = match style {
                Style::Wf => Resv::wf(load(rate)),
                _ => Resv { flows: vec![(Some(load(rate)), ports(300))], ..Resv::ff(&[]) },
            };
            Resv { confirm: confirmed.then(|| at(3, 77)), ..resv.from(3, 9, group()) }
        };
        for rate in [B / 10.0, B / 5.0] {
            let at_once = all(&rig.resv(&request(rate)), MessageType::RESV);
            assert_eq!(at_once.len(), 64, "{style:?}");
            assert!(at_once.iter().all(|one| one.message().confirm.is_some() == confirmed));
            let later = all(&rig.wait(Duration::from_secs(1)), MessageType::RESV);
            let hops = at_once.iter().chain(&later).map(|one| one.message().hop.unwrap().lih);
            assert_eq!(hops.collect::<BTreeSet<u32>>().len(), 300, "{style:?}");
        }
    }
}
