//! Laws of the composition rules, for any values.

use proptest::prelude::*;
use signalbox_qos::qspec::{
    Estimate, Message, Offer, Quality, Wish, add_jitter, add_latency, add_ratio, class_for, common_tmod,
    is_stronger_class, meets, weaker_class,
};
use signalbox_qos::wire::qspec::{
    INDETERMINATE_RATIO, Jitter, MAX_BUCKET, MAX_RATE, ObjectType, Procedure, Tmod, Value, y1541_objectives,
};

use super::support::*;

fn any_tmod() -> impl Strategy<Value = Tmod> {
    let peak = prop_oneof![1 => Just(f32::INFINITY), 3 => 1.0..=MAX_RATE, 2 => 1.0..=1000.0_f32];
    let rate = prop_oneof![1.0..=MAX_RATE, 1.0..=1000.0_f32];
    (rate, 1.0..=MAX_BUCKET, peak, 1..=u32::MAX, 1..=u32::MAX).prop_map(|(rate, bucket, peak, a, b)| Tmod {
        rate: rate.min(peak),
        bucket,
        peak: rate.max(peak),
        min_policed: a.min(b),
        max_packet: a.max(b),
    })
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    any::<[u32; 3]>().prop_map(|[variance, percentile, minimum]| Jitter { variance, percentile, minimum })
}

fn is_at_most(a: Tmod, b: Tmod) -> bool {
    meets(&Value::Tmod1(b), &Value::Tmod1(a)) == Some(true)
}

proptest! {
    /// Composition of TMODs is a meet: commutative, associative, idempotent, below both, and the largest such. p stays
    /// at least r.
    #[test]
    fn tmods(a in any_tmod(), b in any_tmod(), c in any_tmod()) {
        let both = common_tmod(a, b);
        prop_assert_eq!(both, common_tmod(b, a));
        prop_assert_eq!(common_tmod(both, c), common_tmod(a, common_tmod(b, c)));
        prop_assert_eq!(common_tmod(a, a), a);
        prop_assert_eq!(common_tmod(both, a), both);
        prop_assert!(both.peak >= both.rate);
        let below = |x: Tmod, y: Tmod| x.rate <= y.rate && x.bucket <= y.bucket && x.peak <= y.peak
            && x.max_packet <= y.max_packet && x.min_policed >= y.min_policed;
        prop_assert!(below(both, a) && below(both, b));
        prop_assert!(!(below(c, a) && below(c, b)) || below(c, both));
        // The composition is monotone: smaller inputs give smaller results.
        prop_assert!(below(common_tmod(both, c), common_tmod(a, c)));
        prop_assert!(is_at_most(a, a));
        prop_assert!(!(is_at_most(a, b) && is_at_most(b, c)) || is_at_most(a, c));
    }

    /// Sums commute, never shrink, and are associative where they are whole numbers.
    #[test]
    fn sums(a: u32, b: u32, c: u32, x in 0.0..=0.1_f32, y in 0.0..=0.1_f32, z in 0.0..=0.1_f32, j in any_jitter(), k in any_jitter(), l in any_jitter()) {
        prop_assert_eq!(add_latency(a, b), add_latency(b, a));
        prop_assert_eq!(add_latency(add_latency(a, b), c), add_latency(a, add_latency(b, c)));
        prop_assert!(add_latency(a, b) >= a.max(b));
        prop_assert_eq!(add_latency(a, 0), a);
        prop_assert_eq!(add_jitter(j, k), add_jitter(k, j));
        prop_assert_eq!(add_jitter(add_jitter(j, k), l), add_jitter(j, add_jitter(k, l)));
        prop_assert_eq!(add_ratio(x, y), add_ratio(y, x));
        prop_assert!(add_ratio(x, y) >= x.max(y) && add_ratio(x, y) <= INDETERMINATE_RATIO);
        prop_assert_eq!(add_ratio(x, 0.0), x);
        let (left, right) = (add_ratio(add_ratio(x, y), z), add_ratio(x, add_ratio(y, z)));
        prop_assert!((left - right).abs() < 1e-7);
        prop_assert!(x > y || add_ratio(x, z) <= add_ratio(y, z));
    }

    /// Y.1541 classes: the weaker of two is a meet of the partial order of their objectives.
    #[test]
    fn classes(a in 0..8_u8, b in 0..8_u8, c in 0..8_u8) {
        let both = weaker_class(a, b);
        prop_assert_eq!(both, weaker_class(b, a));
        prop_assert_eq!(weaker_class(both, c), weaker_class(a, weaker_class(b, c)));
        prop_assert_eq!(weaker_class(a, a), a);
        prop_assert!(is_stronger_class(a, both) && is_stronger_class(b, both));
        prop_assert!(!(is_stronger_class(a, c) && is_stronger_class(b, c)) || is_stronger_class(both, c));
    }

    /// The class that remains holds for the measured values, and is the strongest such class.
    #[test]
    fn classes_for_measurements(class in 0..8_u8, latency in 0..2_000_000_u32, jitter in 0..100_000_u32, loss in 0.0..0.01_f32) {
        let measured = Jitter { variance: 0, percentile: jitter, minimum: 0 };
        let holds = |class: u8| {
            let promise = y1541_objectives(class).unwrap();
            promise.delay_us.is_none_or(|us| latency <= us)
                && promise.variation_us.is_none_or(|us| jitter <= us)
                && promise.loss.is_none_or(|most| loss <= most)
        };
        let left = class_for(class, Some(latency), Some(measured), Some(loss));
        prop_assert!(holds(left) && is_stronger_class(class, left));
        for other in 0..8 {
            prop_assert!(!(holds(other) && is_stronger_class(class, other)) || is_stronger_class(left, other));
        }
        prop_assert_eq!(class_for(class, None, None, None), class);
    }

    /// Along any path QoS Available only gets worse, each node once or in any order gives the same result, and a second
    /// visit to a node changes sums only.
    #[test]
    fn any_path(start in any_tmod(), limits in prop::collection::vec(any_tmod(), 1..6), latencies in prop::collection::vec(1..1000_u32, 6)) {
        let desired = [(M, Value::Tmod1(start))];
        let collect = signalbox_qos::qspec::Collect { latency: true, ..Default::default() };
        let sent = compose(&Wish { collect, ..Wish::of(Procedure::QUERY, &desired) });
        let nodes: Vec<_> = limits.iter().zip(&latencies).map(|(limit, us)| {
            let quality = Quality { latency: Estimate::Known(*us), ..Quality::default() };
            Offer { quality, ..Offer::of(Tmod { min_policed: 1, ..*limit }) }
        }).collect();
        let a = ObjectType::AVAILABLE;
        let (there, _) = along(&sent, Message::Query, &nodes);
        let mut reversed = nodes.clone();
        reversed.reverse();
        let (back, _) = along(&sent, Message::Query, &reversed);
        prop_assert_eq!(values(&there, a), values(&back, a));
        let (again, _) = along(&there, Message::Query, &nodes);
        prop_assert_eq!(values(&again, a)[0], values(&there, a)[0]);
        let total: u32 = latencies.iter().take(nodes.len()).sum();
        prop_assert_eq!(values(&there, a)[1], Value::PathLatency(total));
        let (Value::Tmod1(before), Value::Tmod1(after)) = (values(&sent, a)[0], values(&there, a)[0]) else { panic!() };
        prop_assert!(after.rate <= before.rate && after.bucket <= before.bucket && after.max_packet <= before.max_packet);
        prop_assert!(after.is_valid());
    }
}

/// An indeterminate sum is worse than the limit of any class, and satisfies only a minimum that is indeterminate too.
#[test]
fn indeterminate() {
    assert_eq!(class_for(0, Some(u32::MAX), None, None), 5);
    assert_eq!(class_for(6, None, None, Some(INDETERMINATE_RATIO)), 5);
    assert_eq!(meets(&Value::PathLatency(u32::MAX), &Value::PathLatency(u32::MAX - 1)), Some(false));
    assert_eq!(meets(&Value::SlackTerm(1), &Value::SlackTerm(2)), None);
}
