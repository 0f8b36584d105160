//! A planned restart.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::handover::Entries;
use signalbox_core::node::Prefix;

use crate::rig::*;

const GONE: Duration = Duration::from_secs(5);

/// What a server leaves, and its successor that takes it, whose clock begins anew.
fn successor(before: &Rig, config: Config) -> (Rig, Vec<Seen>) {
    let mut entries = Entries::default();
    before.mapper.hand_over(before.now, &mut entries);
    let mut rig = Rig { mapper: Mapper::new(config, [2; 32]), now: Time::from_secs(1) };
    let lan = interface(INSIDE, "lan", &["192.168.1.1", "2001:db8:1::1", "fe80::1"]);
    let wan = interface(OUTSIDE, "wan", &["203.0.113.1"]);
    assert_eq!(rig.handle(Input::Interfaces(&[lan, wan])), []);
    let seen = rig.handle(Input::Handover { entries, elapsed: GONE });
    (rig, seen)
}

fn epoch(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets[8..12].try_into().unwrap())
}

/// PCP-8.5-01: the epoch goes on, nothing is announced, the path is asked for the place of before, and the host notices nothing.
#[test]
fn a_planned_restart_is_not_noticed() {
    let mut before = Rig::new(config());
    let asked = Ask::default().option(filter("198.51.100.0/24", 0)).option(Known::Description(b"music"));
    let (id, _) = before.asked(host(), &asked.octets());
    let told = epoch(&before.opened(id, Ok("203.0.113.1:50000")));
    before.wait(Duration::from_secs(100));
    let (mut rig, seen) = successor(&before, config());
    let [Seen::Open(id, wanted)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((wanted.wish, wanted.exactly), (place("203.0.113.1:50000"), false));
    assert_eq!(
        (wanted.inside, wanted.filters.len()),
        (Inside { client: host().ip(), protocol: 6, port: 22_000 }, 1)
    );
    let opened = Input::Opened { id: *id, result: Ok(place("203.0.113.1:50000")) };
    assert_eq!(rig.handle(opened), [], "the place is the same");
    assert_eq!(rig.handle(Input::Outside(Some([203, 0, 113, 1].into()))), [], "so is the address outside");
    assert_eq!(rig.wait(Duration::from_secs(60)), [], "nothing is announced");
    let view: Vec<_> = rig.mapper.mappings().collect();
    assert_eq!((view.len(), view[0].description, view[0].state), (1, Some("music"), State::Standing));
    let left = view[0].ends.unwrap().since(rig.now);
    drop(view);
    assert_eq!(left, Duration::from_secs(3_600 - 100) - GONE - Duration::from_secs(60));
    // The host renews with its nonce. Its epoch is as old as it would be without the restart.
    let answer = rig.answer(host(), &asked.octets());
    assert_eq!((answer[3], epoch(&answer)), (0, told + 100 + 5 + 60));
    assert_eq!(rig.counters().restored, 1);
}

/// PCP-14.2-01: a place that the path cannot give again is told to the host.
#[test]
fn another_place_after_a_restart_is_told() {
    let mut before = Rig::new(config());
    before.standing();
    let (mut rig, seen) = successor(&before, config());
    let [Seen::Open(id, _)] = &seen[..] else { panic!("{seen:?}") };
    let seen = rig.handle(Input::Opened { id: *id, result: Ok(place("203.0.113.1:50009")) });
    let [Seen::Datagram { to, octets, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((*to, octets[1], &octets[42..44]), (host(), 0x81, &50_009_u16.to_be_bytes()[..]));
}

/// What the new configuration does not allow is dropped, and so is what is damaged.
#[test]
fn what_is_not_allowed_any_more_is_dropped() {
    let mut before = Rig::new(config());
    before.standing();
    let other = Config { from: vec![Prefix { addr: address("192.168.9.0"), len: 24 }], ..config() };
    let (rig, seen) = successor(&before, other);
    assert_eq!((seen, rig.mapper.len()), (vec![], 0));
    let mut whole = Entries::default();
    before.mapper.hand_over(before.now, &mut whole);
    let mut entries = Vec::new();
    while let Some(entry) = whole.take() {
        entries.push(entry.to_vec());
    }
    for cut in 0..entries[1].len() - 1 {
        let mut damaged = Entries::default();
        damaged.push(&entries[1][..cut]);
        let mut rig = Rig::new(config());
        let seen = rig.handle(Input::Handover { entries: damaged, elapsed: GONE });
        assert_eq!((seen, rig.mapper.len()), (vec![], 0), "{cut}");
    }
}

/// PCP-8.5-02: after a crash nothing is handed over, so the epoch falls, which is announced.
#[test]
fn after_a_crash_the_epoch_falls() {
    let mut rig = Rig::silent(config());
    let seen = rig.wait(Duration::from_millis(250));
    let (_, Seen::Datagram { to, octets, .. }) = &seen[0] else { panic!("{seen:?}") };
    assert_eq!((to.to_string().as_str(), epoch(octets)), ("224.0.0.1:5350", 0));
}
