//! Requests to admission control and policy, and what follows from their answers (RFC 2205 §1.2, §2.2, §2.7; UPDATE
//! TRAFFIC CONTROL of RFC 2209).

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::traffic::FlowFilter;
use signalbox_resources::LostWhy;
use signalbox_resources::config::{Action, RuleConfig};
use signalbox_resources::intserv::TSpec;
use signalbox_rsvp::engine::Input;
use signalbox_rsvp::wire::{ErrorCode, ErrorFlags, FlowSpec, MessageType};

use crate::rig::{
    B, Path, Resv, Rig, all, at, group, guaranteed, kinds, load, one, one_to, sender, session, tspec,
};

/// Senders 1 and 2 of the group come by eth1, sender 3 by eth2; all leave by eth3, and 1 and 2 by eth4 as well.
fn tree() -> Rig {
    let mut rig = Rig::new();
    for (n, iif, oifs) in [(1, 1, vec![3, 4]), (2, 1, vec![3, 4]), (3, 2, vec![3])] {
        rig.trees.insert((group().dest, sender(n).src), (iif, oifs));
        rig.path(&Path::of(group(), n, iif));
    }
    rig
}

/// Rate and bucket installed at an interface, one for each reservation.
fn installed(rig: &Rig, oif: u32) -> Vec<(u64, u32)> {
    let at = rig.resources.reservations().filter(|one| one.ifindex.0 == oif);
    let mut all: Vec<_> = at.map(|one| (one.traffic.rate, one.traffic.burst)).collect();
    all.sort_unstable();
    all
}

/// The senders whose packets get what is reserved at an interface.
fn served(rig: &Rig, oif: u32) -> Vec<Vec<IpAddr>> {
    let at = rig.resources.reservations().filter(|one| one.ifindex.0 == oif);
    at.map(|one| {
        let mut senders: Vec<IpAddr> = one.filters.iter().map(|filter| filter.src.addr).collect();
        senders.sort();
        senders
    })
    .collect()
}

fn deep(rate: f32, bucket: f32) -> FlowSpec {
    FlowSpec { tspec: TSpec::new(rate, bucket, f32::INFINITY, 64, 1500).unwrap(), rspec: None }
}

/// RSVP-1.2-01: a request that admission control refuses goes no farther; the rest of the message does.
#[test]
fn a_request_goes_on_only_if_it_is_admitted() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.path(&Path { tspec: tspec(200.0 * B), ..Path::of(session(), n, 1) });
    }
    let sent = rig.resv(&Resv::ff(&[(load(90.0 * B), 1), (load(B), 2)]));
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(90.0 * B, 1), (B, 2)]);
    let sent = rig.resv(&Resv::ff(&[(load(90.0 * B), 1), (load(50.0 * B), 2)]));
    let refused = one(&sent, MessageType::RESV_ERR);
    assert_eq!((refused.dst, refused.error().code), (at(2, 9), ErrorCode::ADMISSION));
    assert_eq!((refused.rates(), sent.len()), (vec![(50.0 * B, 2)], 1));
    assert_eq!(installed(&rig, 2), [(10_000, 3000), (900_000, 3000)]);
    let sent = rig.wait(Duration::from_secs(45));
    let resvs = all(&sent, MessageType::RESV);
    assert!(!resvs.is_empty());
    for resv in resvs {
        let mut rates = resv.rates();
        rates.sort_by_key(|(_, n)| *n);
        assert_eq!(rates, [(90.0 * B, 1), (B, 2)], "upstream what stood");
    }
}

/// RSVP-1.2-01, RSVP-2.7-01: policy must accept as well. A refused request is not installed and goes no farther.
#[test]
fn a_request_goes_on_only_if_policy_accepts() {
    let mut links = signalbox_resources::Config::of_link("*", "10mbit".parse().unwrap());
    let mut rule = RuleConfig::new("not sender 1", Action::Deny);
    rule.source = vec!["10.8.0.1/32".parse().unwrap()];
    links.rules = vec![rule];
    let mut rig = Rig::with_resources(links);
    // Only policy control reads its contents.
    let policy = [0, 12, 14, 1, 0, 4, 0, 0, 0xde, 0xad, 0xbe, 0xef];
    for n in [1, 2] {
        rig.path(&Path::of(session(), n, 1));
    }
    let resv = Resv { extra: policy.to_vec(), ..Resv::ff(&[(load(B), 1), (load(B), 2)]) };
    let sent = rig.resv(&resv);
    let refused = one(&sent, MessageType::RESV_ERR);
    assert_eq!((refused.error().code, refused.rates()), (ErrorCode::POLICY, vec![(B, 1)]));
    let resv = one(&sent, MessageType::RESV);
    assert_eq!((resv.dst, resv.rates()), (at(1, 9), vec![(B, 2)]));
    assert!(resv.octets.windows(policy.len()).any(|part| part == policy), "unread, and passed on");
    assert_eq!((rig.reservations(), rig.rsvp.counters().granted, rig.rsvp.counters().refused), (1, 1, 1));
    assert_eq!(served(&rig, 2), [vec![sender(2).src]]);
}

/// Threat T04: where the default is to deny, only Resvs of configured neighbors are admitted (RFC 2205 §1.2).
#[test]
fn a_neighbor_that_is_not_configured_reserves_nothing() {
    for (trusted, held) in [("10.0.2.0/24", 1), ("10.0.7.0/24", 0)] {
        let mut links = signalbox_resources::Config::of_link("*", "10mbit".parse().unwrap());
        links.default = Action::Deny;
        links.trusted = vec![trusted.parse().unwrap()];
        let mut rig = Rig::with_resources(links);
        rig.path(&Path::of(session(), 1, 1));
        let sent = rig.resv(&Resv::ff(&[(load(B), 1)]));
        assert_eq!(rig.reservations(), held, "{trusted}");
        if held == 0 {
            assert_eq!(one(&sent, MessageType::RESV_ERR).error().code, ErrorCode::POLICY);
        }
    }
}

/// RSVP-1.2-02: the classifier gets the filters of the named senders only.
#[test]
fn packets_of_other_senders_are_not_classified() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.path(&Path::of(session(), n, 1));
    }
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let meets = |filter: &FlowFilter, src: IpAddr, port: u16| {
        filter.src.contains(src)
            && filter.dst.contains(session().dest)
            && filter.src_port.is_none_or(|named| named == port)
    };
    let filters: Vec<FlowFilter> = rig.resources.reservations().flat_map(|one| one.filters).collect();
    let met = |src, port| filters.iter().any(|filter| meets(filter, src, port));
    assert!(met(sender(1).src, 4000));
    assert!(!met(sender(2).src, 4000) && !met(sender(1).src, 4001));
}

/// RSVP-2.2-02, RSVP-2209-UTC-01: the least upper bound of an interface's requests is installed, limited by the sum of
/// the senders that route there; the requested flowspec goes upstream.
#[test]
fn installed_is_the_lesser_of_what_is_asked_for_and_what_is_sent() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let sent = rig.resv(&Resv::ff(&[(load(50.0 * B), 1)]));
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(50.0 * B, 1)]);
    assert_eq!(installed(&rig, 2), [(100_000, 3000)]);

    // Next hops of one interface, whose requests are not ordered: the bound of both.
    let mut rig = tree();
    rig.resv(&Resv::ff(&[(load(4.0 * B), 1)]).from(3, 9, group()));
    rig.resv(&Resv::ff(&[(deep(2.0 * B, 9000.0), 1)]).from(3, 8, group()));
    rig.resv(&Resv::ff(&[(load(B), 1)]).from(4, 9, group()));
    rig.resv(&Resv::ff(&[(load(B), 2)]).from(3, 9, group()));
    let view: Vec<_> = rig.rsvp.view().collect();
    let merged = view[0].reservations.iter().find(|one| one.next_hops.len() == 2).unwrap();
    assert_eq!(merged.flowspec, deep(4.0 * B, 9000.0));
    // The minimum takes the larger bucket of two that have no order (RFC 2210).
    assert_eq!(installed(&rig, 3), [(10_000, 3000), (40_000, 9000)]);
    assert_eq!(installed(&rig, 4), [(10_000, 3000)]);

    // Shared styles: the sum of all senders that route there, each 10 B.
    for (resv, at_3, at_4) in [
        (Resv::wf(load(90.0 * B)), 300_000, 200_000),
        (Resv::se(load(90.0 * B), &[1, 3]), 200_000, 100_000),
        (Resv::se(load(15.0 * B), &[1, 2, 3]), 150_000, 150_000),
    ] {
        let mut rig = tree();
        rig.resv(&resv.clone().from(3, 9, group()));
        rig.resv(&resv.from(4, 9, group()));
        assert_eq!((rig.reserved(3), rig.reserved(4)), (at_3, at_4));
    }
}

/// RSVP-2209-UTC-01: the filters are those of all next hops of the interface.
#[test]
fn filters_are_the_union() {
    let mut rig = tree();
    rig.resv(&Resv::se(load(B), &[1]).from(3, 9, group()));
    assert_eq!(served(&rig, 3), [vec![sender(1).src]]);
    rig.resv(&Resv::se(load(B), &[2, 3]).from(3, 8, group()));
    assert_eq!(served(&rig, 3), [vec![sender(1).src, sender(2).src, sender(3).src]]);
    rig.resv_tear(&Resv::se(load(B), &[2]).from(3, 8, group()));
    assert_eq!(served(&rig, 3), [vec![sender(1).src, sender(3).src]]);
    assert_eq!((rig.reservations(), rig.reserved(4)), (1, 0));
}

/// RSVP-2209-RESV-04: traffic control is asked only about new and changed requests.
#[test]
fn an_unchanged_resv_asks_for_nothing() {
    let mut rig = tree();
    for resv in [Resv::se(load(B), &[1]), Resv::se(load(B), &[1])] {
        rig.resv(&resv.from(3, 9, group()));
        assert_eq!(rig.rsvp.counters().granted, 1);
    }
    // One more filter.
    rig.resv(&Resv::se(load(B), &[1, 2]).from(3, 9, group()));
    assert_eq!((rig.rsvp.counters().granted, rig.reservations()), (2, 1));
    assert_eq!(served(&rig, 3), [vec![sender(1).src, sender(2).src]]);
    // Another flowspec.
    rig.resv(&Resv::se(load(2.0 * B), &[1, 2]).from(3, 9, group()));
    assert_eq!((rig.rsvp.counters().granted, rig.reserved(3)), (3, 20_000));
    // A request of another next hop is refreshed by itself.
    rig.resv(&Resv::se(load(2.0 * B), &[2]).from(3, 8, group()));
    assert_eq!(rig.rsvp.counters().granted, 4);
    for (k, senders) in [(9, &[1, 2][..]), (8, &[2])] {
        rig.resv(&Resv::se(load(2.0 * B), senders).from(3, k, group()));
    }
    assert_eq!((rig.rsvp.counters().granted, rig.reservations()), (4, 1));
}

/// RSVP-2209-RESV-07: nothing of a refused change is kept; the former request is refreshed and forwarded.
#[test]
fn a_refused_change_leaves_the_former_reservation() {
    let mut rig = Rig::new();
    rig.path(&Path { tspec: tspec(200.0 * B), ..Path::new() });
    let good = Resv::ff(&[(load(50.0 * B), 1)]);
    rig.resv(&good);
    for _ in 0..8 {
        rig.path(&Path { tspec: tspec(200.0 * B), ..Path::new() });
        let sent = rig.resv(&Resv::ff(&[(load(100.0 * B), 1)]));
        let refused = one(&sent, MessageType::RESV_ERR);
        assert_eq!((refused.error().flags, sent.len()), (ErrorFlags::IN_PLACE, 1));
        assert_eq!(refused.rates(), [(100.0 * B, 1)]);
        let view: Vec<_> = rig.rsvp.view().collect();
        assert_eq!(view[0].reservations[0].flowspec, load(50.0 * B));
        assert_eq!(installed(&rig, 2), [(500_000, 3000)]);
        let sent = rig.wait(Duration::from_secs(30));
        assert!(all(&sent, MessageType::RESV).iter().all(|one| one.rates() == [(50.0 * B, 1)]));
    }
    // Nothing is kept of a refused new next hop at the same interface.
    let other = Resv::ff(&[(load(100.0 * B), 1)]).from(2, 8, session());
    let sent = rig.resv(&other);
    assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(2, 8))]);
    let view: Vec<_> = rig.rsvp.view().collect();
    assert_eq!(view[0].reservations[0].next_hops, [Some(at(2, 9))]);
    assert_eq!(kinds(&rig.resv_tear(&other)), []);
}

/// RSVP-2209-PATH-08: the Tspec of a sender changed: traffic control is asked again, and the previous hop gets a Resv.
#[test]
fn a_changed_path_updates_what_is_reserved() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(50.0 * B), 1)]));
    assert_eq!(installed(&rig, 2), [(100_000, 3000)]);
    let sent = rig.path(&Path { tspec: tspec(20.0 * B), ..Path::new() });
    assert_eq!(one(&sent, MessageType::PATH).oif, 2);
    assert_eq!(one_to(&sent, MessageType::RESV, at(1, 9)).rates(), [(50.0 * B, 1)]);
    assert_eq!(installed(&rig, 2), [(200_000, 3000)]);
    let sent = rig.path(&Path { tspec: tspec(5.0 * B), ..Path::new() });
    one(&sent, MessageType::RESV);
    assert_eq!(installed(&rig, 2), [(50_000, 3000)]);
}

/// RSVP-2209-UTC-03: traffic control gets a change of the policing flags; nothing goes upstream.
#[test]
fn police_flags_go_to_traffic_control_alone() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    for (e_police, asked) in [(true, 2), (true, 2), (false, 3)] {
        assert_eq!(kinds(&rig.path(&Path { e_police, ..Path::new() })), []);
        assert_eq!(rig.rsvp.counters().granted, asked);
    }
    assert_eq!(rig.reservations(), 1);
}

/// RSVP-2209-UTC-04: a reservation ends with its last next hop, and the previous hop gets a tear.
#[test]
fn the_last_next_hop_ends_the_reservation() {
    let mut rig = tree();
    let resv = |k| Resv::wf(load(B)).from(3, k, group());
    rig.resv(&resv(9));
    rig.resv(&resv(8));
    assert_eq!(kinds(&rig.resv_tear(&resv(9))), []);
    assert_eq!((rig.reservations(), rig.reserved(3)), (1, 10_000));
    let mut kinds_sent = kinds(&rig.resv_tear(&resv(8)));
    kinds_sent.sort_by_key(|(_, dst)| *dst);
    assert_eq!(kinds_sent, [(MessageType::RESV_TEAR, at(1, 9)), (MessageType::RESV_TEAR, at(2, 9))]);
    assert_eq!((rig.reservations(), rig.reserved(3)), (0, 0));
    assert!(rig.rsvp.view().all(|one| one.reservations.is_empty()));
}

/// RSVP-3.1.8-10: the loss of a reservation is reported to all its next hops.
#[test]
fn a_preempted_reservation_is_reported_downstream() {
    let mut rig = tree();
    for k in [9, 8] {
        rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, k, group()));
    }
    rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]).from(4, 9, group()));
    let taken =
        rig.resources.reservations().find(|one| one.ifindex.0 == 4).map(|one| (one.owner.key, one.grant));
    let (key, grant) = taken.unwrap();
    let sent = rig.input(Input::Lost { key, grant, why: LostWhy::Preempted });
    let lost = one(&sent, MessageType::RESV_ERR);
    assert_eq!((lost.dst, lost.rates()), (at(4, 9), vec![(2.0 * B, 1)]));
    let error = lost.error();
    assert_eq!(
        (error.code, error.node, error.flags),
        (ErrorCode::PREEMPTED, at(4, 1), ErrorFlags::default())
    );
    // The rest goes upstream.
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(B, 1)]);
    let taken =
        rig.resources.reservations().find(|one| one.ifindex.0 == 3).map(|one| (one.owner.key, one.grant));
    let (key, grant) = taken.unwrap();
    let sent = rig.input(Input::Lost { key, grant, why: LostWhy::Preempted });
    let mut kinds_sent = kinds(&sent);
    kinds_sent.sort_by_key(|(_, dst)| *dst);
    assert_eq!(
        kinds_sent,
        [
            (MessageType::RESV_TEAR, at(1, 9)),
            (MessageType::RESV_ERR, at(3, 8)),
            (MessageType::RESV_ERR, at(3, 9))
        ]
    );
    assert!(rig.rsvp.view().all(|one| one.reservations.is_empty()));
}

/// A sender's larger Tspec is refused: the former grant stays. When there is capacity, the next request is granted as a
/// whole, although it is a refresh.
#[test]
fn what_a_change_was_refused_is_asked_for_again() {
    let mut rig = Rig::new();
    let other = crate::rig::to("10.9.0.2");
    for (session, rate) in [(session(), 10.0), (other, 60.0)] {
        rig.path(&Path { tspec: tspec(rate * B), ..Path::of(session, 1, 1) });
        rig.resv(&Resv::ff(&[(load(60.0 * B), 1)]).from(2, 9, session));
    }
    assert_eq!(rig.reserved(2), 700_000);
    let sent = rig.path(&Path { tspec: tspec(50.0 * B), ..Path::of(session(), 1, 1) });
    let error = one(&sent, MessageType::RESV_ERR).error();
    assert_eq!((error.code, error.flags), (ErrorCode::ADMISSION, ErrorFlags::IN_PLACE));
    let same = Resv::ff(&[(load(60.0 * B), 1)]);
    assert_eq!(all(&rig.resv(&same), MessageType::RESV_ERR).len(), 1);
    assert_eq!(rig.reserved(2), 700_000);
    rig.path_tear(&Path::of(other, 1, 1));
    assert_eq!(rig.reserved(2), 100_000);
    assert_eq!(all(&rig.resv(&same), MessageType::RESV_ERR), []);
    assert_eq!(rig.reserved(2), 500_000);
}

/// RSVP-B-04: a guaranteed service request whose flow fits, but not the rate for its delay, is refused with the delay
/// error. With enough slack it is granted at a lower rate; if the flow itself does not fit, the error is about
/// bandwidth.
#[test]
fn a_delay_that_cannot_be_met_has_another_error_than_missing_bandwidth() {
    for (taken, asked, value) in [
        (0.0, guaranteed(20.0 * B, 94.0 * B, 0), Some(1)),
        (0.0, guaranteed(20.0 * B, 94.0 * B, 1), Some(1)),
        (0.0, guaranteed(20.0 * B, 94.0 * B, 1_000_000), None),
        (0.0, guaranteed(94.0 * B, 95.0 * B, 0), Some(2)),
        (0.0, load(94.0 * B), Some(2)),
        (80.0, guaranteed(10.0 * B, 20.0 * B, 0), Some(1)),
        (80.0, guaranteed(15.0 * B, 20.0 * B, 0), Some(2)),
        (80.0, guaranteed(20.0 * B, 20.0 * B, 0), Some(2)),
    ] {
        let mut rig = Rig::new();
        for n in 1..=2 {
            rig.path(&Path { tspec: tspec(100.0 * B), ..Path::of(session(), n, 1) });
        }
        if taken > 0.0 {
            rig.resv(&Resv::ff(&[(guaranteed(taken * B, taken * B, 0), 1)]));
        }
        let sent = rig.resv(&Resv::ff(&[(asked, 2)]));
        match value {
            Some(value) => {
                let error = one(&sent, MessageType::RESV_ERR).error();
                assert_eq!((error.code, error.value), (ErrorCode::ADMISSION, value), "{taken} {asked:?}");
            }
            None => assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]),
        }
    }
}
