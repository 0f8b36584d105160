//! Staged refresh timers (draft-pan-rsvp-timer-00).

use std::time::Duration;

use signalbox_core::Time;
use signalbox_rsvp::engine::{Config, InterfaceConfig, Staged};
use signalbox_rsvp::wire::{HeaderFlags, MessageType, Session};

use crate::reduction::Pair;
use crate::rig::{B, Path, R, Resv, Rig, Sent, all, at, compose, group, kinds, load, one, sender, to, tspec};

const SECOND: Duration = Duration::from_secs(1);
/// Times of the messages about a change with the default values, in seconds. The last one ends the stages.
const DEFAULT: [f64; 11] = [0.0, 3.0, 6.9, 11.97, 18.561, 27.129, 38.268, 52.749, 71.573, 96.045, 126.045];

fn staged() -> Config {
    let interface = InterfaceConfig { staged: Some(Staged::default()), ..InterfaceConfig::default() };
    Config { interface, ..Config::default() }
}

/// Two nodes of plain RFC 2205, of which the first has staged timers.
fn plain_pair() -> Pair {
    let (mut up, mut down) = (staged(), Config::default());
    up.neighbors.interface.reduction.reliable = false;
    down.neighbors.interface.reduction.reliable = false;
    Pair::with(up, down)
}

/// Lets time pass while neighbors refresh their state each 10 s.
fn run(rig: &mut Rig, seconds: u64, path: &Path, resv: Option<&Resv>) -> Vec<Sent> {
    let mut sent = Vec::new();
    for _ in 0..seconds / 10 {
        sent.extend(rig.wait(10 * SECOND));
        sent.extend(rig.path(path));
        sent.extend(resv.map(|resv| rig.resv(resv)).unwrap_or_default());
    }
    sent
}

/// Seconds from `start` to the messages of a type by an interface.
fn times(sent: &[Sent], kind: MessageType, oif: u32, start: Time) -> Vec<f64> {
    let of = sent.iter().filter(|one| one.kind() == kind && one.oif == oif);
    of.map(|one| one.at.since(start).as_secs_f64()).collect()
}

/// Whether the first of `times` are these, but for the ticks of the engine's timers.
#[track_caller]
fn begin(times: &[f64], expected: &[f64]) {
    let same = expected.iter().zip(times).all(|(a, b)| (a - b).abs() < 0.15);
    assert!(same && times.len() >= expected.len(), "{times:?}, expected {expected:?}");
}

/// RSVPST-3.1-01, RSVPST-3.2-01, RSVPST-3.2-04, RSVPST-3.3-01, RSVPST-X-06, RSVPST-2.2-01, RSVPST-A.1.1-01: a new Path
/// is sent at growing intervals, the last of which is the refresh period. Unchanged Paths from upstream change nothing.
#[test]
fn a_new_path_is_sent_in_stages() {
    let mut rig = Rig::with(staged());
    let start = rig.now;
    let mut sent = rig.path(&Path::new());
    sent.extend(run(&mut rig, 130, &Path::new(), None));
    let times = times(&sent, MessageType::PATH, 2, start);
    begin(&times, &DEFAULT);
    assert_eq!(times.len(), DEFAULT.len());
}

/// RSVPST-3.1-02, RSVPST-3.2-02, RSVPST-X-07: after the stages, intervals are drawn from half a period to one and a half.
#[test]
fn the_stages_end_in_plain_refreshes() {
    assert_eq!(InterfaceConfig::default().refresh, 30 * SECOND);
    let mut rig = Rig::with(staged());
    let start = rig.now;
    rig.path(&Path::new());
    run(&mut rig, 130, &Path::new(), None);
    let sent = run(&mut rig, 30_000, &Path::new(), None);
    let times = times(&sent, MessageType::PATH, 2, start);
    let intervals: Vec<f64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!((900..1100).contains(&intervals.len()), "{}", intervals.len());
    assert!(intervals.iter().all(|one| (15.0..45.1).contains(one)), "{intervals:?}");
    for third in [15.0..25.0, 25.0..35.0, 35.0..45.1] {
        assert!(intervals.iter().filter(|one| third.contains(*one)).count() > 250);
    }
}

/// RSVPST-3.3-03: a change begins the stages again.
#[test]
fn a_change_begins_again() {
    let mut rig = Rig::with(staged());
    rig.path(&Path::new());
    run(&mut rig, 50, &Path::new(), None);
    let start = rig.now;
    let changed = Path { tspec: tspec(5.0 * B), ..Path::new() };
    let mut sent = rig.path(&changed);
    sent.extend(run(&mut rig, 130, &changed, None));
    begin(&times(&sent, MessageType::PATH, 2, start), &DEFAULT);
}

/// RSVPST-A.1.3-01: a new Resv goes upstream in stages.
#[test]
fn a_new_resv_is_sent_in_stages() {
    let mut rig = Rig::with(staged());
    let (path, resv) = (Path::new(), Resv::ff(&[(load(B), 1)]));
    rig.path(&path);
    rig.wait(SECOND);
    let start = rig.now;
    let mut sent = rig.resv(&resv);
    sent.extend(run(&mut rig, 130, &path, Some(&resv)));
    begin(&times(&sent, MessageType::RESV, 1, start), &DEFAULT);
}

/// RSVPST-5.2-02: state lives by the period in the staged messages, from the last one that arrived.
#[test]
fn staged_messages_prolong_state() {
    let mut pair = plain_pair();
    pair.path();
    pair.wait(10 * SECOND);
    assert_eq!(all(&pair.crossed, MessageType::PATH).len(), 3);
    pair.down.wait(Duration::from_millis(154_200));
    assert_eq!(pair.down.rsvp.senders(), 1);
    pair.down.wait(Duration::from_millis(400));
    assert_eq!(pair.down.rsvp.senders(), 0);
}

/// RSVPST-3.2-05, RSVPST-A.1.1-01: each interface has its own stages, or has none.
#[test]
fn each_interface_has_its_own_stages() {
    let own = |staged| InterfaceConfig { staged, ..InterfaceConfig::default() };
    let fast = Staged { first: SECOND, factor: 2.0, ..Staged::default() };
    let interfaces = [("eth2", own(Some(fast))), ("eth3", own(Some(Staged::default()))), ("eth4", own(None))];
    let interfaces = interfaces.into_iter().map(|(name, one)| (name.to_owned(), one)).collect();
    let mut rig = Rig::with(Config { interfaces, ..Config::default() });
    rig.trees.insert((group().dest, sender(1).src), (1, vec![2, 3, 4]));
    let (path, start) = (Path::of(group(), 1, 1), rig.now);
    let mut sent = rig.path(&path);
    sent.extend(run(&mut rig, 130, &path, None));
    begin(&times(&sent, MessageType::PATH, 2, start), &[0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0]);
    assert!(times(&sent, MessageType::PATH, 4, start).iter().skip(1).all(|at| *at > 15.0));
    // The change is one event of one state, so its intervals are not spread.
    begin(&times(&sent, MessageType::PATH, 3, start), &DEFAULT);
}

/// RSVPST-5.1-01, RSVPST-X-01, RSVPST-X-02: a neighbor of RFC 2205 notices nothing but more messages. None of them has
/// the draft's types or flag, and the period in them is the one that follows.
#[test]
fn neighbors_notice_nothing_but_more_messages() {
    let mut pair = plain_pair();
    for _ in 0..20 {
        pair.path();
        pair.resv();
        pair.wait(10 * SECOND);
    }
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    let sent = pair.up.path_tear(&Path::new());
    pair.carry(sent, Vec::new());
    assert_eq!((pair.up.rsvp.senders(), pair.down.rsvp.senders()), (0, 0));
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (0, 0));
    for one in &pair.crossed {
        let message = one.message();
        assert_eq!(message.flags, HeaderFlags::default());
        assert!(matches!(one.kind().0, 1 | 2 | 5), "{:?}", one.kind());
        assert!(message.refresh_period.is_none_or(|period| period == R));
    }
    assert!(all(&pair.crossed, MessageType::PATH).len() >= 12);
}

/// RSVPST-X-03: where messages have MESSAGE_IDs, their acknowledgment is the answer, and there are no stages.
#[test]
fn acknowledged_messages_have_no_stages() {
    let mut pair = Pair::with(staged(), staged());
    pair.path();
    pair.resv();
    pair.wait(14 * SECOND);
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    for kind in [MessageType::PATH, MessageType::RESV] {
        assert_eq!(all(&pair.crossed, kind).len(), 1, "{:?}", kinds(&pair.crossed));
    }
}

/// RSVPST-X-03: a neighbor that acknowledges nothing gets the three transmissions of RFC 2961 and no stages. Then it
/// counts as one of RFC 2205, and the next change is sent in stages.
#[test]
fn a_neighbor_without_answers_gets_stages_from_the_next_change_on() {
    let mut rig = Rig::with_neighbors(staged(), "10mbit");
    crate::capable::shown(&mut rig, 2, 9);
    let start = rig.now;
    let mut sent = rig.path(&Path::new());
    sent.extend(run(&mut rig, 10, &Path::new(), None));
    let named = all(&sent, MessageType::PATH);
    assert!(named[..3].iter().all(|one| one.message().message_id.is_some()));
    let first = times(&sent, MessageType::PATH, 2, start);
    begin(&first, &[0.0, 0.5, 1.5, 3.5]);
    assert_eq!(first.len(), 4, "the last one without MESSAGE_ID");

    let (start, changed) = (rig.now, Path { tspec: tspec(5.0 * B), ..Path::new() });
    let mut sent = rig.path(&changed);
    sent.extend(run(&mut rig, 30, &changed, None));
    assert!(all(&sent, MessageType::PATH).iter().all(|one| one.message().message_id.is_none()));
    begin(&times(&sent, MessageType::PATH, 2, start), &DEFAULT[..6]);
}

/// RSVPST-X-05: what one event changes is not repeated at one instant.
#[test]
fn a_burst_of_changes_is_spread() {
    let mut rig = Rig::with(Config { staged_rate: 10_000, ..staged() });
    for n in 0..1000 {
        rig.path(&Path { session: to(&format!("10.9.{}.{}", n / 250, n % 250 + 1)), ..Path::new() });
    }
    let start = rig.now;
    let sent = rig.wait(Duration::from_millis(4_550));
    let times = times(&sent, MessageType::PATH, 2, start);
    assert!(times.len() >= 1000 && times.iter().all(|at| *at >= 1.49));
    for third in [1.5..2.5, 2.5..3.5] {
        assert!((250..450).contains(&times.iter().filter(|at| third.contains(*at)).count()));
    }
}

/// RSVPST-X-11: repetitions are bounded in sum, and no state is lost by that.
#[test]
fn repetitions_have_a_limit() {
    const SESSIONS: usize = 200;
    let path = |n: usize| Path { session: to(&format!("10.9.0.{}", n + 1)), ..Path::new() };
    let mut rig = Rig::with(Config { staged_rate: 5, ..staged() });
    (0..SESSIONS).for_each(|n| drop(rig.path(&path(n))));
    let mut sent = rig.wait(20 * SECOND);
    assert!((50..=110).contains(&sent.len()), "{}", sent.len());
    assert!(rig.rsvp.counters().staged_left_out > 300);
    sent.clear();
    for _ in 0..20 {
        (0..SESSIONS).for_each(|n| drop(rig.path(&path(n))));
        sent.extend(rig.wait(10 * SECOND));
    }
    let served: std::collections::BTreeSet<_> = sent.iter().map(|one| one.dst).collect();
    assert_eq!(served.len(), SESSIONS);
}

/// RSVPST-X-12: local repair is a change.
#[test]
fn local_repair_begins_the_stages() {
    let mut rig = Rig::with(staged());
    rig.path(&Path::new());
    run(&mut rig, 200, &Path::new(), None);
    let mut sent = rig.route("10.9.0.0", 16, 3);
    sent.extend(run(&mut rig, 30, &Path::new(), None));
    let first = all(&sent, MessageType::PATH).into_iter().find(|one| one.oif == 3).unwrap().at;
    begin(&times(&sent, MessageType::PATH, 3, first), &DEFAULT[..5]);
}

/// RSVPST-A.1.2-01, RSVPST-A.1.2-02, RSVPST-A.1.4-01, RSVPST-5.3-02, RSVPST-X-08, RSVPST-X-09: tears free resources and
/// are sent on at once. They are not repeated, and copies of them have no effect.
#[test]
fn tears_are_sent_once() {
    let (path, resv) = (Path::new(), Resv::ff(&[(load(B), 1)]));
    let mut rig = Rig::with(staged());
    rig.path(&path);
    rig.resv(&resv);
    let sent = rig.resv_tear(&resv);
    assert_eq!((kinds(&sent).len(), rig.reserved(2)), (1, 0));
    one(&sent, MessageType::RESV_TEAR);
    for _ in 0..4 {
        assert_eq!(rig.resv_tear(&resv), []);
    }
    rig.resv(&resv);
    let sent = rig.path_tear(&path);
    assert_eq!((kinds(&sent).len(), rig.reserved(2)), (1, 0));
    one(&sent, MessageType::PATH_TEAR);
    for _ in 0..4 {
        assert_eq!(rig.path_tear(&path), []);
    }
    assert_eq!(rig.wait(130 * SECOND), []);
    assert_eq!(rig.path_tear(&Path { session: to("10.9.0.7"), ..Path::new() }), []);
}

/// Staged timers of which tears are a part.
fn repeating() -> Config {
    let staged = Some(Staged { tears: true, ..Staged::default() });
    Config { interface: InterfaceConfig { staged, ..InterfaceConfig::default() }, ..Config::default() }
}

/// RSVPST-3.1-03, RSVPST-5.3-01, RSVPST-5.3-03, RSVPST-3.3-01: where tears are repeated, resources are free at once, and
/// the tears stop with the stages.
#[test]
fn tears_are_repeated_up_to_the_refresh_period() {
    let (path, resv) = (Path::new(), Resv::ff(&[(load(B), 1)]));
    let mut rig = Rig::with(repeating());
    rig.path(&path);
    rig.resv(&resv);
    rig.wait(SECOND);
    let start = rig.now;
    let mut sent = rig.resv_tear(&resv);
    assert_eq!((rig.reserved(2), rig.reservations(), rig.rsvp.tears_repeated()), (0, 0, 1));
    sent.extend(run(&mut rig, 140, &path, None));
    let resv_tears = times(&sent, MessageType::RESV_TEAR, 1, start);
    begin(&resv_tears, &DEFAULT[..10]);
    assert_eq!((resv_tears.len(), rig.rsvp.tears_repeated()), (10, 0));

    let start = rig.now;
    let mut sent = rig.path_tear(&path);
    assert_eq!((rig.rsvp.senders(), rig.rsvp.sessions(), rig.rsvp.tears_repeated()), (0, 0, 1));
    sent.extend(rig.wait(Duration::from_millis(125_800)));
    assert_eq!(rig.rsvp.tears_repeated(), 1);
    sent.extend(rig.wait(400 * SECOND));
    let path_tears = times(&sent, MessageType::PATH_TEAR, 2, start);
    begin(&path_tears, &DEFAULT[..10]);
    assert_eq!((path_tears.len(), sent.len()), (10, 10));
    assert!(rig.rsvp.holds_nothing());
}

/// RSVPST-X-08, RSVPST-X-09: a new Path or Resv ends the repetition of its tear at once, and of no other tear. A second
/// tear from the neighbor changes nothing.
#[test]
fn new_state_ends_the_repetition_of_its_tear() {
    let path = |n| Path::of(crate::rig::session(), n, 1);
    let mut rig = Rig::with(repeating());
    (1..=2).for_each(|n| drop(rig.path(&path(n))));
    rig.resv(&Resv::ff(&[(load(B), 1), (load(B), 2)]));
    (1..=2).for_each(|n| drop(rig.resv_tear(&Resv::ff(&[(load(B), n)]))));
    assert_eq!((rig.rsvp.tears_repeated(), rig.reserved(2)), (2, 0));
    rig.wait(SECOND);
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(rig.rsvp.tears_repeated(), 1, "that for sender 2 goes on");
    let tears = all(&rig.wait(5 * SECOND), MessageType::RESV_TEAR);
    let named: Vec<_> = tears.iter().flat_map(Sent::flows).map(|(_, filter)| filter).collect();
    assert!(!named.is_empty() && named.iter().all(|one| *one == Some(sender(2))), "{named:?}");

    rig.path_tear(&path(1));
    assert_eq!(rig.path_tear(&path(1)), []);
    rig.wait(SECOND);
    let before = rig.rsvp.tears_repeated();
    rig.path(&path(1));
    assert_eq!(rig.rsvp.tears_repeated(), before - 1);
    assert_eq!(all(&rig.wait(5 * SECOND), MessageType::PATH_TEAR), []);
}

/// RSVPST-X-11: repeated tears share the limit of staged messages.
#[test]
fn repeated_tears_have_a_limit() {
    let path = |n: usize| Path { session: to(&format!("10.9.0.{}", n + 1)), ..Path::new() };
    let mut rig = Rig::with(Config { staged_rate: 5, ..repeating() });
    (0..200).for_each(|n| drop(rig.path(&path(n))));
    (0..200).for_each(|n| drop(rig.path_tear(&path(n))));
    assert_eq!(rig.rsvp.tears_repeated(), 200);
    let sent = rig.wait(20 * SECOND);
    assert!((50..=110).contains(&sent.len()), "{}", sent.len());
    rig.wait(110 * SECOND);
    assert_eq!(rig.rsvp.tears_repeated(), 0);
}

/// RSVPST-X-03, RSVPST-5.3-03: a tear with a MESSAGE_ID is repeated by RFC 2961 alone, until it is acknowledged.
#[test]
fn acknowledged_tears_have_no_stages() {
    let mut pair = Pair::with(repeating(), Config::default());
    pair.path();
    pair.wait(SECOND);
    pair.up.path_tear(&Path::new());
    assert_eq!(pair.up.rsvp.tears_repeated(), 0);
    let again = pair.up.wait(Duration::from_millis(600));
    one(&again, MessageType::PATH_TEAR);
    pair.carry(again, Vec::new());
    pair.wait(SECOND);
    assert_eq!(pair.down.rsvp.senders(), 0);
    assert_eq!(all(&pair.up.wait(10 * SECOND), MessageType::PATH_TEAR), []);
    assert!(pair.up.rsvp.holds_nothing());
}

/// RSVPST-X-10: a tear is acknowledged again when the state is gone.
#[test]
fn a_repeated_tear_is_acknowledged_again() {
    let mut pair = Pair::with(staged(), staged());
    pair.path();
    pair.wait(SECOND);
    let sent = pair.up.path_tear(&Path::new());
    let tear = one(&sent, MessageType::PATH_TEAR);
    pair.carry(sent, Vec::new());
    pair.wait(SECOND);
    assert_eq!(pair.down.rsvp.senders(), 0);
    let mut answer = pair.down.packet(1, tear.src, tear.dst, tear.ttl, &tear.octets);
    answer.extend(pair.down.wait(SECOND));
    let ack = one(&answer, MessageType::ACK);
    let (id, wanted) = (ack.message().acks().next().unwrap().0.id, tear.message().message_id.unwrap().id);
    assert_eq!(id, wanted);
}

/// RSVPST-A.2-01: an acknowledgment of what was never sent is dropped.
#[test]
fn an_unknown_acknowledgment_is_dropped() {
    let mut rig = Rig::with_neighbors(staged(), "10mbit");
    let ack = compose(MessageType::ACK, 255, |w| {
        w.body(&[0, 12, 24, 1, 0, 0, 0, 9, 0, 0, 0, 7]);
    });
    assert_eq!(rig.neighborly(1, at(1, 9), &ack), []);
    assert_eq!(rig.wait(10 * SECOND), []);
}

/// A node with a group behind eth2.
pub(crate) fn with_group(config: Config) -> (Rig, Session) {
    let mut rig = Rig::with_neighbors(config, "10mbit");
    rig.trees.insert((group().dest, sender(1).src), (1, vec![2]));
    (rig, group())
}

/// Neighbor `k` at eth2 acknowledges the MESSAGE_IDs of these messages.
pub(crate) fn acknowledge(rig: &mut Rig, k: u32, sent: &[Sent]) -> Vec<Sent> {
    let ids: Vec<_> =
        sent.iter().filter(|one| one.oif == 2).filter_map(|one| one.message().message_id).collect();
    if ids.is_empty() {
        return Vec::new();
    }
    let mut ack = compose(MessageType::ACK, 255, |w| {
        for id in &ids {
            w.ack(id, false);
        }
    });
    // Refresh reduction capable.
    ack[0] |= 1;
    ack[2..4].fill(0);
    rig.neighborly(2, at(2, k), &ack)
}

/// RSVPST-5.4-03, RSVPST-A.2-02: a PathTear is repeated until each next hop with a reservation answered it.
#[test]
fn a_tear_waits_for_all_next_hops_with_reservations() {
    let (mut rig, to) = with_group(Config::default());
    let path = Path::of(to, 1, 1);
    let sent = rig.path(&path);
    (7..10).for_each(|k| drop(acknowledge(&mut rig, k, &sent)));
    for k in [7, 8] {
        rig.resv(&Resv::ff(&[(load(B), 1)]).from(2, k, to));
    }
    let sent = rig.path_tear(&path);
    one(&sent, MessageType::PATH_TEAR);
    assert_eq!((rig.rsvp.senders(), rig.reserved(2)), (0, 0));
    // Neighbor 9 has no reservation, neighbor 7 is one of two.
    for k in [9, 7] {
        acknowledge(&mut rig, k, &sent);
    }
    let again = rig.wait(Duration::from_millis(600));
    assert_eq!(one(&again, MessageType::PATH_TEAR).dst, to.dest);
    acknowledge(&mut rig, 8, &sent);
    assert_eq!(all(&rig.wait(20 * SECOND), MessageType::PATH_TEAR), []);
}
