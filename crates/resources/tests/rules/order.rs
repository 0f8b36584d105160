//! Order, sums and merges of TSpecs and RSpecs.

use std::cmp::Ordering;

use proptest::prelude::*;
use signalbox_core::traffic::TrafficSpec;
use signalbox_resources::intserv::{RSpec, SpecError, TSpec};

fn tspec(rate: f32, bucket: f32, peak: f32, min: u32, max: u32) -> TSpec {
    TSpec::new(rate, bucket, peak, min, max).unwrap()
}

/// TSpecs with few different values, so that equal and ordered ones are common, and extreme ones.
fn any_tspec() -> impl Strategy<Value = TSpec> {
    let rate = || prop_oneof![Just(1.0), Just(125_000.0), Just(125_000.5), Just(40e12), 1.0f32..1e9];
    let peak = prop_oneof![rate(), Just(f32::INFINITY)];
    let bucket = prop_oneof![Just(1.0), Just(1500.0), Just(250e9), 1.0f32..1e9];
    let size = || prop_oneof![Just(1u32), Just(64), Just(1500), Just(u32::MAX), 1u32..9000];
    (rate(), bucket, peak, size(), size())
        .prop_map(|(rate, bucket, peak, a, b)| tspec(rate, bucket, peak, a.min(b), a.max(b)))
}

fn any_rspec() -> impl Strategy<Value = RSpec> {
    (prop_oneof![Just(1.0), Just(1e6), 1.0f32..1e9], prop_oneof![Just(0u32), Just(5), Just(u32::MAX)])
        .prop_map(|(rate, slack)| RSpec::new(rate, slack).unwrap())
}

/// Invalid and valid values: zeros of either sign, negatives, NaN, infinities, below 1 and above the range; m = 0, M <
/// m. RSVPIS-2215-3.6-03, RSVPIS-2212-Invocation-02.
#[test]
fn what_is_no_tspec_is_refused() {
    let bad = [0.0, -0.0, -1.0, 0.5, f32::NAN, f32::NEG_INFINITY, f32::MIN_POSITIVE];
    for value in bad {
        assert_eq!(TSpec::new(value, 1.0, 1.0, 1, 1), Err(SpecError::Rate), "{value}");
        assert_eq!(TSpec::new(1.0, value, 1.0, 1, 1), Err(SpecError::Bucket), "{value}");
        assert_eq!(TSpec::new(1.0, 1.0, value, 1, 1), Err(SpecError::Peak), "{value}");
        assert_eq!(RSpec::new(value, 0), Err(SpecError::ServiceRate), "{value}");
    }
    assert_eq!(TSpec::new(f32::INFINITY, 1.0, 1.0, 1, 1), Err(SpecError::Rate));
    assert_eq!(TSpec::new(1.0, f32::INFINITY, 1.0, 1, 1), Err(SpecError::Bucket));
    assert_eq!(RSpec::new(f32::INFINITY, 0), Err(SpecError::ServiceRate));
    assert!(TSpec::new(1.0, 1.0, f32::INFINITY, 1, 1).is_ok());
    assert_eq!(TSpec::new(5e13, 1.0, 1e3, 1, 1), Err(SpecError::Rate));
    assert_eq!(TSpec::new(1.0, 1e12, 1e3, 1, 1), Err(SpecError::Bucket));
    assert_eq!(TSpec::new(1.0, 1.0, 5e13, 1, 1), Err(SpecError::Peak));
    assert!(TSpec::new(40e12, 250e9, 40e12, 1, u32::MAX).is_ok());
    let unsaid = TSpec::new(1000.0, 1000.0, 1000.0, 0, 1500).unwrap();
    assert_eq!((unsaid.min_policed(), unsaid.smallest_packet()), (0, 20));
    assert_eq!(unsaid.to_traffic().unwrap().min_policed, 20);
    assert_eq!(TSpec::new(1.0, 1.0, 1.0, 500, 100), Err(SpecError::MaxPacket));
}

/// Guaranteed service needs R ≥ r and p ≥ r; controlled load ignores p.
#[test]
fn guaranteed_service_needs_rates_over_the_token_rate() {
    let spec = tspec(1000.0, 1500.0, 2000.0, 64, 1500);
    assert!(RSpec::new(1000.0, u32::MAX).unwrap().checked(&spec).is_ok());
    assert_eq!(RSpec::new(999.0, 0).unwrap().checked(&spec), Err(SpecError::ServiceBelowRate));
    let slow_peak = tspec(1000.0, 1500.0, 999.0, 64, 1500);
    assert_eq!(RSpec::new(1000.0, 0).unwrap().checked(&slow_peak), Err(SpecError::PeakBelowRate));
}

/// A table of pairs. RSVPIS-2211-8-01, RSVPIS-2212-Ordering-01.
#[test]
fn tspecs_are_ordered_only_if_all_five_agree() {
    let base = tspec(100.0, 1000.0, 200.0, 64, 1000);
    let cases = [
        (base, Some(Ordering::Equal)),
        (tspec(101.0, 1000.0, 200.0, 64, 1000), Some(Ordering::Greater)),
        (tspec(100.0, 1001.0, 200.0, 64, 1000), Some(Ordering::Greater)),
        (tspec(100.0, 1000.0, f32::INFINITY, 64, 1000), Some(Ordering::Greater)),
        (tspec(100.0, 1000.0, 200.0, 63, 1000), Some(Ordering::Greater)),
        (tspec(100.0, 1000.0, 200.0, 64, 1001), Some(Ordering::Greater)),
        (tspec(99.0, 999.0, 199.0, 65, 999), Some(Ordering::Less)),
        (tspec(99.0, 1000.0, 200.0, 64, 1000), Some(Ordering::Less)),
        (tspec(100.0, 1000.0, 200.0, 65, 1000), Some(Ordering::Less)),
        (tspec(101.0, 999.0, 200.0, 64, 1000), None),
        (tspec(101.0, 1000.0, 200.0, 65, 1000), None),
        (tspec(101.0, 1000.0, 200.0, 64, 999), None),
        (tspec(100.0, 1000.0, 201.0, 64, 999), None),
    ];
    for (other, expected) in cases {
        assert_eq!(other.partial_cmp(&base), expected, "{other:?}");
        assert_eq!(base.partial_cmp(&other), expected.map(Ordering::reverse), "{other:?}");
    }
}

/// The merge takes the smaller M, against the order: it is not ≥ the first. RSVPIS-2211-8-02, RSVPIS-2212-Ordering-02.
#[test]
fn merging_takes_the_smaller_packets() {
    let a = tspec(100.0, 3000.0, 200.0, 64, 1500);
    let b = tspec(200.0, 1000.0, f32::INFINITY, 40, 900);
    let merged = a.merged(b);
    assert_eq!(merged, tspec(200.0, 3000.0, f32::INFINITY, 40, 900));
    assert_eq!(merged.partial_cmp(&a), None);
}

/// RSVPIS-2211-8-03: largest r, b, p and M, smallest m.
#[test]
fn the_least_common_tspec_keeps_the_larger_packets() {
    let a = tspec(100.0, 3000.0, 200.0, 64, 1500);
    let b = tspec(200.0, 1000.0, 150.0, 40, 900);
    assert_eq!(a.least_common(b), tspec(200.0, 3000.0, 200.0, 40, 1500));
}

/// RSVPIS-2211-8-04: three senders.
#[test]
fn a_sum_adds_rates_and_buckets() {
    let a = tspec(100.0, 3000.0, 200.0, 64, 1500);
    let b = tspec(200.5, 1000.0, 150.0, 40, 900);
    let c = tspec(1.0, 1.0, 1.0, 100, 100);
    assert_eq!(TSpec::sum([a, b, c]).unwrap(), tspec(301.5, 4001.0, 351.0, 40, 1500));
    let endless = tspec(1.0, 1.0, f32::INFINITY, 100, 100);
    assert_eq!(TSpec::sum([a, endless, b]).unwrap().peak(), f32::INFINITY);
    assert_eq!(TSpec::sum([]), Err(SpecError::Empty));
    let huge = tspec(40e12, 1.0, 40e12, 1, 1);
    assert_eq!(TSpec::sum([huge, huge]), Err(SpecError::Rate));
}

/// Unordered: the larger b. Ordered: the smaller one whole, M and m included. RSVPIS-2211-8-05.
#[test]
fn the_minimum_of_unordered_tspecs_has_the_larger_bucket() {
    let a = tspec(100.0, 3000.0, 200.0, 64, 1500);
    let b = tspec(200.0, 1000.0, 150.0, 40, 900);
    assert_eq!(a.minimum(b), tspec(100.0, 3000.0, 150.0, 40, 900));
    assert_eq!(b.minimum(a), a.minimum(b));
    let smaller = tspec(100.0, 2000.0, 200.0, 70, 1400);
    assert_eq!(a.minimum(smaller), smaller);
    assert_eq!(smaller.minimum(a), smaller);
}

/// The numbers of the table: (R10,S5) + (R8,S2) is (R10,S2). RSVPIS-2212-Ordering-03.
#[test]
fn rspecs_merge_to_the_larger_rate_and_the_smaller_slack() {
    let (a, b) = (RSpec::new(10.0, 5).unwrap(), RSpec::new(8.0, 2).unwrap());
    assert_eq!(a.merged(b), RSpec::new(10.0, 2).unwrap());
    assert_eq!(a.partial_cmp(&b), None);
    assert!(a.merged(b) >= a && a.merged(b) >= b);
    assert!(RSpec::new(10.0, 2).unwrap() > RSpec::new(10.0, 3).unwrap());
}

/// A bucket that is in range but too large for policing is refused. RSVPIS-2211-5-01.
#[test]
fn whole_octets_are_rounded_up() {
    let spec = tspec(1000.25, 1500.5, 2000.75, 64, 1500);
    let traffic = spec.to_traffic().unwrap();
    assert_eq!((traffic.rate, traffic.burst, traffic.peak), (1001, 1501, Some(2001)));
    assert_eq!(tspec(1.0, 5e9, 1.0, 1, 1).to_traffic(), Err(SpecError::Unsupported));
    let no_rate = TrafficSpec { rate: 0, ..traffic };
    assert_eq!(TSpec::from_traffic(&no_rate), Err(SpecError::Rate));
    let too_fast = TrafficSpec { rate: u64::MAX, ..traffic };
    assert_eq!(TSpec::from_traffic(&too_fast), Err(SpecError::Rate));
}

proptest! {
    #[test]
    fn merges_are_commutative_associative_and_idempotent(
        a in any_tspec(), b in any_tspec(), c in any_tspec()
    ) {
        for merge in [TSpec::merged, TSpec::least_common, TSpec::greatest_common] {
            prop_assert_eq!(merge(a, a), a);
            prop_assert_eq!(merge(a, b), merge(b, a));
            prop_assert_eq!(merge(merge(a, b), c), merge(a, merge(b, c)));
        }
        prop_assert_eq!(a.minimum(a), a);
        prop_assert_eq!(a.minimum(b), b.minimum(a));
    }

    /// The least common TSpec is the least upper bound; the greatest common one is below both.
    #[test]
    fn bounds_bound(a in any_tspec(), b in any_tspec(), c in any_tspec()) {
        let (up, down) = (a.least_common(b), a.greatest_common(b));
        prop_assert!(up >= a && up >= b);
        if a.min_policed() <= b.max_packet() && b.min_policed() <= a.max_packet() {
            prop_assert!(down <= a && down <= b);
        }
        if c >= a && c >= b {
            prop_assert!(c >= up);
        }
    }

    /// The order is a partial order, and merging preserves it.
    #[test]
    fn order_is_consistent(a in any_tspec(), b in any_tspec(), c in any_tspec()) {
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
        if a <= b && b <= a {
            prop_assert_eq!(a, b);
        }
        if a <= b {
            prop_assert!(a.merged(c) <= b.merged(c));
            prop_assert_eq!(a.minimum(b), a);
        }
    }

    /// The sum is the same in any order of the summands, and is not below its parts.
    #[test]
    fn sums_do_not_depend_on_the_order(mut specs in prop::collection::vec(any_tspec(), 1..8)) {
        let forwards = TSpec::sum(specs.iter().copied());
        specs.reverse();
        prop_assert_eq!(forwards, TSpec::sum(specs.iter().copied()));
        let middle = specs.len() / 2;
        specs.rotate_left(middle);
        prop_assert_eq!(forwards, TSpec::sum(specs.iter().copied()));
        if let Ok(sum) = forwards {
            prop_assert!(specs.iter().all(|spec| sum >= *spec));
        }
        prop_assert_eq!(TSpec::sum([specs[0]]), Ok(specs[0]));
    }

    #[test]
    fn rspecs_form_a_lattice(a in any_rspec(), b in any_rspec(), c in any_rspec()) {
        prop_assert_eq!(a.merged(a), a);
        prop_assert_eq!(a.merged(b), b.merged(a));
        prop_assert_eq!(a.merged(b).merged(c), a.merged(b.merged(c)));
        prop_assert!(a.merged(b) >= a && a.merged(b) >= b);
    }

    /// No received bits produce a TSpec with an illegal value, or a panic.
    #[test]
    fn any_bits_are_a_lawful_tspec_or_refused(bits in any::<[u32; 5]>()) {
        let float = |at: usize| f32::from_bits(bits[at]);
        if let Ok(spec) = TSpec::new(float(0), float(1), float(2), bits[3], bits[4]) {
            prop_assert!(spec.rate() >= 1.0 && spec.bucket() >= 1.0 && spec.peak() >= 1.0);
            prop_assert!(spec.rate().is_finite() && spec.bucket().is_finite());
            prop_assert!(spec.min_policed() >= 1 && spec.min_policed() <= spec.max_packet());
            if let Ok(traffic) = spec.to_traffic() {
                let back = TSpec::from_traffic(&traffic);
                prop_assert!(back.is_err() || back.unwrap() >= spec);
            }
        }
    }
}
