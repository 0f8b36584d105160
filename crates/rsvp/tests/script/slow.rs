//! The slow refresh period Rs towards neighbors that acknowledge (draft-pan-rsvp-timer-00 §3.2, RFC 2961).

use std::time::Duration;

use signalbox_rsvp::engine::{Config, InterfaceConfig, Staged};
use signalbox_rsvp::wire::MessageType;

use crate::reduction::Pair;
use crate::rig::{B, Path, R, Resv, Sent, all, load, one, tspec};
use crate::staged::{acknowledge, with_group};

const SECOND: Duration = Duration::from_secs(1);
/// Rs, milliseconds.
const RS: u32 = 900_000;

/// Slow refreshes, to which the period grows in one step if `steep`.
fn slow(steep: bool) -> Config {
    let staged = Some(Staged { slow_refresh: true, ..Staged::default() });
    let slew_max = if steep { 1000.0 } else { InterfaceConfig::default().slew_max };
    let mut config = Config {
        interface: InterfaceConfig { staged, slew_max, ..InterfaceConfig::default() },
        ..Config::default()
    };
    // An Srefresh for each refresh: they are counted.
    config.neighbors.interface.reduction.summaries = 250;
    config.neighbors.interface.reduction.all_nodes_capable = true;
    config
}

/// Periods in Paths.
fn announced(sent: &[Sent]) -> Vec<u32> {
    all(sent, MessageType::PATH).iter().filter_map(|one| one.message().refresh_period).collect()
}

/// Lets time pass on both sides; the previous hop refreshes its Path each 10 s.
fn run(pair: &mut Pair, seconds: u64) {
    for _ in 0..seconds / 10 {
        let sent = pair.up.path(&Path::new());
        pair.carry(sent, Vec::new());
        let end = pair.up.now + 10 * SECOND;
        while pair.up.now < end {
            let (up, down) = (pair.up.wait(SECOND / 10), pair.down.wait(SECOND / 10));
            pair.carry(up, down);
        }
    }
}

/// RSVPST-3.2-03, RSVPST-3.3-02, RSVPST-X-04: after an answer no copy follows, and the period grows to Rs by Slew.Max at
/// most. It stands in an acknowledged message before it is the interval.
#[test]
fn the_period_grows_to_rs_once_the_neighbor_answers() {
    assert_eq!((Staged::default().slow, Staged::default().slow_refresh), (Duration::from_secs(900), false));
    let mut pair = Pair::with(slow(false), slow(false));
    let sent = pair.up.path(&Path::new());
    one(&sent, MessageType::PATH);
    pair.carry(sent, Vec::new());
    pair.wait(Duration::from_millis(300));
    assert_eq!(all(&pair.up.wait(10 * SECOND), MessageType::PATH), [], "it was acknowledged");
    pair.crossed.clear();
    run(&mut pair, 8_000);
    let paths = all(&pair.crossed, MessageType::PATH);
    let periods = announced(&paths);
    assert_eq!(periods.last(), Some(&RS));
    assert!(periods.windows(2).all(|two| two[0] < two[1] && f64::from(two[1]) <= f64::from(two[0]) * 1.3));
    for (acknowledged, two) in periods.iter().zip(paths[1..].windows(2)) {
        let interval = two[1].at.since(two[0].at).as_secs_f64() * 1000.0;
        assert!(interval <= f64::from(*acknowledged) * 1.5 + 100.0, "{interval} {periods:?}");
    }
    let start = pair.crossed.len();
    run(&mut pair, 8_000);
    let refreshes = pair.crossed[start..].iter().filter(|one| one.oif == 2);
    let refreshes =
        refreshes.filter(|one| matches!(one.kind(), MessageType::PATH | MessageType::SREFRESH)).count();
    assert!((6..=17).contains(&refreshes), "{refreshes} in 8000 s");
    assert_eq!(pair.down.rsvp.senders(), 1);
    // A change is announced with R again.
    let start = pair.crossed.len();
    let sent = pair.up.path(&Path { tspec: tspec(5.0 * B), ..Path::new() });
    pair.carry(sent, Vec::new());
    assert_eq!(announced(&pair.crossed[start..]), [R]);
}

/// RSVPST-X-04: without its acknowledgment a longer period is no interval, and the next Path says R.
#[test]
fn without_an_answer_the_period_stays() {
    let mut pair = Pair::with(slow(true), slow(true));
    pair.path();
    pair.wait(SECOND);
    let mut sent = Vec::new();
    for _ in 0..10 {
        sent.extend(pair.up.wait(10 * SECOND));
        pair.up.path(&Path::new());
    }
    // The neighbor is gone: the longer period is sent three times by RFC 2961 §6, and once without MESSAGE_ID. The next refresh
    // comes after R.
    let periods = announced(&sent);
    let (raised, after) = periods.split_at(periods.len().min(4));
    assert_eq!(raised, [RS; 4]);
    assert!(!after.is_empty() && after.iter().all(|period| *period == R), "{periods:?}");
}

/// RSVPST-5.4-01: towards a group the period grows if all next hops with a reservation answered, else not.
#[test]
fn all_next_hops_of_a_group_have_to_answer() {
    for answering in [2_u32, 3] {
        let (mut rig, to) = with_group(slow(true));
        let path = Path::of(to, 1, 1);
        let mut sent = rig.path(&path);
        let mut paths = Vec::new();
        for _ in 0..300 {
            for k in 7..7 + answering {
                acknowledge(&mut rig, k, &sent);
            }
            paths.append(&mut sent);
            for k in 7..10 {
                rig.resv(&Resv::ff(&[(load(B), 1)]).from(2, k, to));
            }
            rig.path(&path);
            sent = rig.wait(SECOND);
        }
        let periods = announced(&paths.into_iter().filter(|one| one.oif == 2).collect::<Vec<_>>());
        let grows = periods.contains(&RS);
        assert_eq!(grows, answering == 3, "{answering}: {periods:?}");
    }
}
