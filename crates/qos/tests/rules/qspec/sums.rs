//! Latency, jitter and ratios along a path (RFC 5975 §5.2.3 to §5.2.6).

use signalbox_qos::qspec::{Collect, Estimate, Message, Offer, Quality, Resolution, Wish};
use signalbox_qos::wire::qspec::{
    INDETERMINATE, INDETERMINATE_RATIO, Jitter, ObjectType, ParameterId, Procedure, Value,
};

use super::support::*;

const A: ObjectType = ObjectType::AVAILABLE;
const ALL: Collect = Collect { latency: true, jitter: true, plr: true, per: true };

const fn jitter(variance: u32, percentile: u32, minimum: u32) -> Jitter {
    Jitter { variance, percentile, minimum }
}

/// A link whose quality values are all available.
fn link(latency: u32, jitter: Jitter, plr: f32, per: f32) -> Quality {
    Quality {
        latency: Estimate::Known(latency),
        jitter: Estimate::Known(jitter),
        plr: Estimate::Known(plr),
        per: Estimate::Known(per),
    }
}

/// A QUERY over nodes with these links.
fn collected(links: &[Quality]) -> Vec<u8> {
    let desired = [(M, Value::Tmod1(tmod(10.0)))];
    let sent = compose(&Wish { collect: ALL, ..Wish::of(Procedure::QUERY, &desired) });
    let nodes: Vec<_> = links.iter().map(|quality| Offer { quality: *quality, ..node(1e6) }).collect();
    along(&sent, Message::Query, &nodes).0
}

/// QSPEC-3.3.2-02, QSPEC-3.3.2-04, QSPEC-3.3.2-06, QSPEC-3.3.2-08: over links of 1, 2 and 3 ms the sums arrive, without
/// flags.
#[test]
fn sums_arrive() {
    let arrived = collected(&[
        link(1000, jitter(1, 10, 100), 0.001, 0.002),
        link(2000, jitter(2, 20, 200), 0.002, 0.004),
        link(3000, jitter(3, 30, 300), 0.004, 0.008),
    ]);
    let sums = values(&arrived, A);
    assert_eq!(sums[1..3], [Value::PathLatency(6000), Value::PathJitter(jitter(6, 60, 600))]);
    let (Value::PathPlr(plr), Value::PathPer(per)) = (sums[3], sums[4]) else { panic!("{sums:?}") };
    assert!((plr - 0.007).abs() < 1e-9 && (per - 0.014).abs() < 1e-8, "{plr} {per}");
    assert!(object(&arrived, A).parameters().all(|p| !p.flags.not_supported && !p.flags.error));
}

/// QSPEC-5.2.3-03, QSPEC-5.2.3-04, QSPEC-5.2.4-03, QSPEC-5.2.5-03, QSPEC-5.2.5-04, QSPEC-5.2.6-03, QSPEC-5.2.6-04: one node
/// adds 1 to 2^28 microseconds and at most 10^-2, and sums stop at 2^32−1 and 10^-1, which is indeterminate
/// (QSPEC-5.2.4-06, QSPEC-5.2.5-07, QSPEC-5.2.6-07).
#[test]
fn sums_stop_at_their_largest_values() {
    let huge = link(u32::MAX, jitter(0, u32::MAX, 7), 1.0, f32::NAN).reported(Resolution::default());
    let most = 1 << 28;
    assert_eq!(huge, link(most, jitter(1, most, 7), 0.01, 0.01));
    let fifteen = collected(&[huge; 15]);
    assert_eq!(value(&fifteen, A, ParameterId::PATH_LATENCY), Value::PathLatency(most * 15));
    let (a, b) = (u32::MAX - 1 - most * 15, u32::MAX - most * 15);
    for (rest, sum) in [(a, u32::MAX - 1), (b, INDETERMINATE), (most, INDETERMINATE)] {
        let mut links = vec![huge; 15];
        links.push(link(rest, jitter(1, rest, 1), 0.0, 0.0));
        let arrived = collected(&links);
        assert_eq!(value(&arrived, A, ParameterId::PATH_LATENCY), Value::PathLatency(sum));
        assert_eq!(value(&arrived, A, ParameterId::PATH_JITTER), Value::PathJitter(jitter(16, sum, 106)));
        assert_eq!(value(&arrived, A, ParameterId::PATH_PLR), Value::PathPlr(INDETERMINATE_RATIO));
        assert_eq!(value(&arrived, A, ParameterId::PATH_PER), Value::PathPer(INDETERMINATE_RATIO));
    }
    // An indeterminate sum stays indeterminate.
    let arrived = collected(&[huge; 18]);
    assert_eq!(value(&arrived, A, ParameterId::PATH_LATENCY), Value::PathLatency(INDETERMINATE));
}

/// QSPEC-5.2.3-02, QSPEC-5.2.4-02, QSPEC-5.2.5-02, QSPEC-5.2.6-02, QSPEC-3.3.2-10: a value below the resolution of a
/// coarse clock or counter is zero.
#[test]
fn a_value_below_the_resolution_is_zero() {
    let fine = link(1234, jitter(1, 999_500, 0), 0.001_234_5, 0.000_000_001_2);
    let millisecond = fine.reported(Resolution { time_us: 1000, ratio: 1e-4 });
    assert_eq!(millisecond, link(2000, jitter(1000, 1_000_000, 1000), 0.0012, 0.0));
    let longest =
        link(u32::MAX, jitter(0, 0, 0), 0.0, 0.0).reported(Resolution { time_us: 1000, ratio: 1e-9 });
    assert_eq!(longest.latency, Estimate::Known(268_435_000));
    let fine = fine.reported(Resolution { time_us: 1, ratio: 1e-9 });
    assert_eq!(fine.per, Estimate::Known(1e-9));
    assert_eq!(fine.latency, Estimate::Known(1234));
}

/// QSPEC-5.2.3-05, QSPEC-5.2.4-04, QSPEC-5.2.5-05, QSPEC-5.2.6-05: a node without the value sets N, and leaves the sum
/// or adds a lower bound, as configured; QSPEC-5.2.4-05, QSPEC-5.2.5-06, QSPEC-5.2.6-06: or makes it indeterminate,
/// which is the default for all but latency.
#[test]
fn a_node_without_the_value() {
    let known = link(1000, jitter(1, 2, 3), 0.001, 0.002);
    let at_least = Quality {
        latency: Estimate::AtLeast(500),
        jitter: Estimate::AtLeast(jitter(4, 5, 6)),
        plr: Estimate::AtLeast(0.0),
        per: Estimate::AtLeast(0.0),
    };
    let indeterminate = jitter(INDETERMINATE, INDETERMINATE, INDETERMINATE);
    for (quality, sums) in [
        (
            Quality::default(),
            [
                Value::PathLatency(2000),
                Value::PathJitter(jitter(2, 4, 6)),
                Value::PathPlr(0.002),
                Value::PathPer(0.004),
            ],
        ),
        (
            at_least,
            [
                Value::PathLatency(2500),
                Value::PathJitter(jitter(6, 9, 12)),
                Value::PathPlr(0.002),
                Value::PathPer(0.004),
            ],
        ),
        (
            Quality::NOT_KNOWN,
            [
                Value::PathLatency(2000),
                Value::PathJitter(indeterminate),
                Value::PathPlr(INDETERMINATE_RATIO),
                Value::PathPer(INDETERMINATE_RATIO),
            ],
        ),
    ] {
        let arrived = collected(&[known, quality, known]);
        assert_eq!(values(&arrived, A)[1..], sums);
        assert!(object(&arrived, A).parameters().skip(1).all(|p| p.flags.not_supported));
    }
    assert_eq!(Offer::of(tmod(1.0)).quality, Quality::NOT_KNOWN);
}

/// An imprecise sum that has to be interpreted counts as interpreted: N, but no failure.
#[test]
fn vague_is_not_unsupported() {
    let both = [(M, Value::Tmod1(tmod(10.0))), (M, Value::PathLatency(0))];
    let sent = qspec(Procedure::AVAILABLE, &[(ObjectType::DESIRED, &both), (A, &both)]);
    let (out, passed) = at(&sent, Message::Reserve, &node(1e6));
    assert!(!passed.failed && passed.not_supported);
    assert!(flags(&out, A, ParameterId::PATH_LATENCY).not_supported);
    assert!(!object(&out, A).error);
}
