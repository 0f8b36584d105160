//! What a flood leaves to others.

use signalbox_boomerang::engine::{Config, Input, Reason};

use crate::rig::*;

fn small(port: u16, src: &str) -> Fields {
    let mut fields = Fields { rates: vec![rates(8, 0)], ..request(port) };
    fields.flow.classifier.src = ip(src);
    fields
}

#[test]
fn a_source_that_floods_leaves_places_to_others() {
    let mut rig = Rig::with(Config { max_flows: 64, ..Config::default() });
    for port in 1..=100 {
        rig.pass(&small(port, IN));
    }
    assert_eq!(rig.node.flow_count(), 48);
    let out = rig.pass(&small(101, IN));
    let by = out.message().body.unwrap().options.refusal().unwrap();
    assert_eq!(Reason::of(by.cause), Reason::Full);
    // Another source by another interface finds its place.
    let other = small(1, "192.0.2.77");
    let sent = rig.octets(3, &other, &other.octets());
    assert!(!sent[0].message().is_refused());
    assert_eq!(rig.node.flow_count(), 49);
}

#[test]
fn forged_sources_leave_places_to_other_interfaces() {
    let mut rig = Rig::with(Config { max_flows: 64, ..Config::default() });
    for host in 1..=200 {
        rig.pass(&small(1, &format!("10.0.0.{host}")));
    }
    assert_eq!(rig.node.flow_count(), 48);
    let other = small(1, "192.0.2.77");
    rig.octets(3, &other, &other.octets());
    assert_eq!(rig.node.flow_count(), 49);
}

/// BOOM-F5.4-02: messages of a source beyond the rate are not processed; others are.
#[test]
fn the_rate_of_a_source_is_limited() {
    let mut rig = Rig::with(Config { rate: 40, ..Config::default() });
    let passed = (0..100).filter(|_| !rig.octets(1, &request(1), &request(1).octets()).is_empty()).count();
    assert_eq!((passed, rig.node.counters().rate_limited), (10, 90));
    let mut other = request(2);
    other.ends.src = ip("192.0.2.77");
    assert_eq!(rig.octets(1, &other, &other.octets()).len(), 1);
}

/// Who forges the address of a source behind another interface takes nothing of its rate.
#[test]
fn a_forged_source_leaves_the_rate_at_its_own_interface() {
    let mut rig = Rig::with(Config { rate: 40, ..Config::default() });
    let passed = (0..100).filter(|_| !rig.octets(3, &request(1), &request(1).octets()).is_empty()).count();
    assert_eq!(passed, 10);
    assert_eq!(rig.octets(1, &request(1), &request(1).octets()).len(), 1);
}

/// BOOM-F5.4-02: a reload gives no source its burst once more.
#[test]
fn a_reload_gives_back_no_rate_that_was_used() {
    let mut rig = Rig::with(Config { rate: 40, ..Config::default() });
    let passed = |rig: &mut Rig| {
        (0..30).filter(|_| !rig.octets(1, &request(1), &request(1).octets()).is_empty()).count()
    };
    assert_eq!(passed(&mut rig), 10);
    for rate in [40, 80, 400, 40] {
        rig.0.node.set_limits(rig.0.now, &Config { rate, ..Config::default() }).unwrap();
        assert_eq!(passed(&mut rig), 0, "{rate}");
    }
}

/// What ends at one time ends in parts, so that messages have their turn in between.
#[test]
fn many_reservations_end_in_parts() {
    let mut rig = Rig::new();
    for port in 1..=600 {
        rig.pass(&small(port, IN));
    }
    assert_eq!(rig.node.flow_count(), 600);
    rig.now = rig.now + core::time::Duration::from_secs(3600);
    let mut left = || {
        rig.input(Input::Timer);
        (rig.node.flow_count(), rig.node.next_deadline().is_some_and(|at| at <= rig.now))
    };
    assert_eq!([left(), left(), left()], [(344, true), (88, true), (0, false)]);
}

#[test]
fn nothing_is_left_when_all_is_released() {
    let mut rig = Rig::with(Config { max_flows: 64, ..Config::default() });
    for _ in 0..5 {
        for port in 1..=40 {
            rig.pass(&small(port, IN));
        }
        assert_eq!(rig.node.flow_count(), 40);
        rig.wait(seconds(200.0));
        assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
    }
}

/// No message makes more octets than came, except for the option of a refusal: 12 octets to 92.
#[test]
fn nothing_is_amplified() {
    let mut rig = Rig::new();
    for fields in [request(1), Fields { rates: vec![rates(999_000, 0)], ..request(2) }, reply(3)] {
        let out = rig.pass(&fields);
        assert!((out.octets.len() + 20) * 2 <= (fields.octets().len() + 20) * 3);
    }
}
