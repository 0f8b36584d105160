//! Refresh periods and lifetimes (RFC 2205 §3.7).

use std::time::Duration;

use signalbox_core::{IfIndex, Time};
use signalbox_rsvp::engine::{Config, Input, InterfaceConfig, Staged};
use signalbox_rsvp::wire::MessageType;

use crate::rig::{B, Path, R, Resv, Rig, Sent, at, group, load, sender, session};

const SECOND: Duration = Duration::from_secs(1);

/// Settings of single interfaces.
fn config(of: &[(&str, InterfaceConfig)]) -> Config {
    let interfaces = of.iter().map(|(name, one)| ((*name).to_owned(), *one)).collect();
    Config { interfaces, ..Config::default() }
}

fn refreshed_each(seconds: u64) -> InterfaceConfig {
    InterfaceConfig { refresh: Duration::from_secs(seconds), ..InterfaceConfig::default() }
}

/// Sender 1 comes by eth1 and goes out by eth3 and eth4.
fn tree(config: Config) -> Rig {
    let mut rig = Rig::with(config);
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    rig.path(&Path::of(group(), 1, 1));
    rig
}

/// Messages that leave in this time, while sender 1 and a receiver at eth3 send refreshes.
fn run(rig: &mut Rig, seconds: u64) -> Vec<Sent> {
    let mut sent = Vec::new();
    for _ in 0..seconds / 10 {
        sent.extend(rig.path(&Path::of(group(), 1, 1)));
        sent.extend(rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, group())));
        sent.extend(rig.wait(10 * SECOND));
    }
    sent
}

/// Times of the messages of a type by an interface, and the refresh periods in them.
fn refreshes(sent: &[Sent], kind: MessageType, oif: u32) -> (Vec<Time>, Vec<u32>) {
    let of = sent.iter().filter(|one| one.kind() == kind && one.oif == oif);
    of.map(|one| (one.at, one.message().refresh_period.unwrap())).unzip()
}

fn intervals(times: &[Time]) -> Vec<f64> {
    times.windows(2).map(|two| two[1].since(two[0]).as_secs_f64()).collect()
}

/// RSVP-3.7-01, RSVP-3.7-06, RSVP-3.7-09: each interface has its own period, which is in its messages.
#[test]
fn each_interface_has_its_own_period() {
    assert_eq!(Config::default().interface.refresh, Duration::from_secs(30));
    let mut rig = tree(config(&[("eth3", refreshed_each(10))]));
    let sent = run(&mut rig, 900);
    for (kind, oif, period) in
        [(MessageType::PATH, 3, 10), (MessageType::PATH, 4, 30), (MessageType::RESV, 1, 30)]
    {
        let (times, said) = refreshes(&sent, kind, oif);
        assert!(said.iter().all(|said| *said == period * 1000));
        let (low, high) = (f64::from(period) * 0.5, f64::from(period) * 1.5 + 0.1);
        // The first interval after a change may be shorter.
        let intervals = &intervals(&times)[1..];
        assert!(
            intervals.len() >= 18 && intervals.iter().all(|one| (low..high).contains(one)),
            "{intervals:?}"
        );
    }
}

/// RSVP-3.7-02
#[test]
fn intervals_are_spread_around_the_period() {
    let mut rig = tree(Config::default());
    let sent = run(&mut rig, 6000);
    for (kind, oif) in [(MessageType::PATH, 3), (MessageType::PATH, 4), (MessageType::RESV, 1)] {
        let intervals = intervals(&refreshes(&sent, kind, oif).0);
        let count = u32::try_from(intervals.len()).unwrap();
        assert!(count >= 150);
        assert!(intervals.iter().all(|one| (15.0..45.1).contains(one)), "{intervals:?}");
        let mean = intervals.iter().sum::<f64>() / f64::from(count);
        assert!((27.0..33.0).contains(&mean), "{mean}");
        assert!(intervals.iter().any(|one| *one < 19.0) && intervals.iter().any(|one| *one > 41.0));
    }
}

/// RSVP-3.7-06, RSVP-3.7-03: the neighbor's period counts, not this node's.
#[test]
fn state_lives_by_the_period_of_who_refreshes_it() {
    let mut rig = Rig::new();
    rig.path(&Path { period: 5_000, ..Path::new() });
    rig.wait(Duration::from_millis(26_200));
    assert_eq!(rig.rsvp.senders(), 1);
    rig.wait(Duration::from_millis(300));
    assert_eq!(rig.rsvp.senders(), 0);
    rig.path(&Path::new());
    rig.resv(&Resv { period: 5_000, ..Resv::ff(&[(load(B), 1)]) });
    rig.wait(Duration::from_millis(26_200));
    assert_eq!(rig.reservations(), 1);
    rig.wait(Duration::from_millis(300));
    assert_eq!(rig.reservations(), 0);
}

/// RSVP-3.7-05: state that two next hops refresh with different periods lives by the longer one.
#[test]
fn shared_state_lives_by_the_longest_period() {
    let mut rig = Rig::new();
    rig.path(&Path { period: 600_000, ..Path::new() });
    for (k, period) in [(9, 60_000), (8, 10_000)] {
        rig.resv(&Resv { period, ..Resv::ff(&[(load(B), 1)]).from(2, k, session()) });
    }
    rig.wait(Duration::from_millis(314_900));
    assert_eq!((rig.reservations(), rig.reserved(2)), (1, 10_000));
    rig.wait(Duration::from_millis(300));
    assert_eq!(rig.reservations(), 0);
}

/// RSVP-3.7-08: a change is sent again soon, and the period in messages does not change.
#[test]
fn a_change_may_be_said_more_often() {
    let staged = Some(Staged { first: SECOND, factor: 2.0, ..Staged::default() });
    let interface = InterfaceConfig { staged, ..InterfaceConfig::default() };
    let mut rig = tree(Config { interface, ..Config::default() });
    let start = rig.now;
    let sent = run(&mut rig, 600);
    for (kind, oif) in [(MessageType::PATH, 3), (MessageType::PATH, 4), (MessageType::RESV, 1)] {
        let (times, said) = refreshes(&sent, kind, oif);
        assert!(said.iter().all(|said| *said == R));
        let after: Vec<f64> = times.iter().map(|at| at.since(start).as_secs_f64()).collect();
        let soon = after.iter().filter(|after| **after > 0.0 && **after < 16.0).count();
        assert_eq!(soon, 4, "{after:?}");
        let later: Vec<Time> = times.into_iter().filter(|at| at.since(start) > 20 * SECOND).collect();
        assert!(intervals(&later).iter().all(|one| (15.0..45.1).contains(one)));
    }
}

/// RSVP-3.7-09, RSVP-3.7-04: K of one interface, Slew.Max of another.
#[test]
fn lifetimes_and_slew_are_set_for_each_interface() {
    let patient = InterfaceConfig { cleanup: 5, ..InterfaceConfig::default() };
    let steep = InterfaceConfig { slew_max: 1.0, ..refreshed_each(10) };
    let mut rig = tree(config(&[("eth2", patient), ("eth3", steep), ("eth4", refreshed_each(10))]));
    rig.path(&Path { iif: 2, hop: signalbox_rsvp::wire::RsvpHop { addr: at(2, 9), lih: 0 }, ..Path::new() });
    rig.wait(Duration::from_millis(157_600));
    assert_eq!(rig.rsvp.senders(), 1, "what came by eth1 is gone");
    rig.wait(Duration::from_millis(89_700));
    assert_eq!(rig.rsvp.senders(), 1);
    rig.wait(Duration::from_millis(300));
    assert_eq!(rig.rsvp.senders(), 0);

    rig.path(&Path::of(group(), 1, 1));
    for n in [3, 4] {
        rig.input(Input::Refresh { ifindex: IfIndex(n), period: Duration::from_secs(60) });
    }
    let sent = run(&mut rig, 900);
    for (oif, most) in [(3, 2.0), (4, 1.3)] {
        let said = refreshes(&sent, MessageType::PATH, oif).1;
        let steps: Vec<f64> = said.windows(2).map(|two| f64::from(two[1]) / f64::from(two[0])).collect();
        assert_eq!(said.last(), Some(&60_000));
        assert!(steps.iter().all(|step| (1.0..=most).contains(step)), "{said:?}");
        assert!(steps.iter().any(|step| *step > most - 0.01), "{said:?}");
    }
}
