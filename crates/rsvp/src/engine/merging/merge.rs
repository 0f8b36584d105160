//! Comparing and merging flowspecs (RFC 2205 §3.11.6, RFC 2211 §8, RFC 2212 "Ordering and Merging").

use core::cmp::Ordering;

use signalbox_resources::intserv::RSpec;

use crate::wire::FlowSpec;

/// Requests for different services have no common order, bound or merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incompatible;

/// Compares two flowspecs; `Ok(None)`: neither is greater, but they can be merged.
pub(crate) fn compare(a: &FlowSpec, b: &FlowSpec) -> Result<Option<Ordering>, Incompatible> {
    let rates = match (&a.rspec, &b.rspec) {
        (None, None) => Some(Ordering::Equal),
        (Some(a), Some(b)) => a.partial_cmp(b),
        _ => return Err(Incompatible),
    };
    let (Some(traffic), Some(rate)) = (a.tspec.partial_cmp(&b.tspec), rates) else { return Ok(None) };
    Ok(match (traffic, rate) {
        (Ordering::Equal, other) | (other, Ordering::Equal) => Some(other),
        (one, other) => (one == other).then_some(one),
    })
}

/// Whether `a` is strictly greater than `b`.
pub(crate) fn exceeds(a: &FlowSpec, b: &FlowSpec) -> bool {
    compare(a, b) == Ok(Some(Ordering::Greater))
}

/// Whether `a` is equal to `b` or greater.
pub(crate) fn is_at_least(a: &FlowSpec, b: &FlowSpec) -> bool {
    matches!(compare(a, b), Ok(Some(Ordering::Greater | Ordering::Equal)))
}

/// The merged flowspec, which is installed and forwarded: the least upper bound, but with the smaller maximum packet
/// size. Of different services the first one is returned: [`compare`] keeps them out of one reservation.
pub(crate) fn merged(a: &FlowSpec, b: &FlowSpec) -> FlowSpec {
    let rspec = match (a.rspec, b.rspec) {
        (None, None) => None,
        (Some(a), Some(b)) => Some(a.merged(b)),
        _ => return *a,
    };
    FlowSpec { tspec: a.tspec.merged(b.tspec), rspec }
}

/// The greatest lower bound, which is forwarded when all requests are blockaded (RFC 2205 §3.5).
pub(crate) fn lower_bound(a: &FlowSpec, b: &FlowSpec) -> FlowSpec {
    let rspec = match (a.rspec, b.rspec) {
        (None, None) => None,
        // The smaller of two valid rates is valid.
        (Some(a), Some(b)) => Some(RSpec::new(a.rate().min(b.rate()), a.slack().max(b.slack())).unwrap_or(a)),
        _ => return *a,
    };
    FlowSpec { tspec: a.tspec.greatest_common(b.tspec), rspec }
}

/// Whether blockade state with flowspec `blockade` keeps `request` out of merges: unless the blockaded flowspec is
/// strictly greater. Equal and incomparable requests are kept out too (RFC 2205 §3.5), requests for another service are
/// not.
pub(crate) fn blockades(blockade: &FlowSpec, request: &FlowSpec) -> bool {
    matches!(compare(blockade, request), Ok(order) if order != Some(Ordering::Greater))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use signalbox_resources::intserv::TSpec;

    use super::*;

    fn load(rate: f32, bucket: f32, max: u32) -> FlowSpec {
        FlowSpec { tspec: TSpec::new(rate, bucket, f32::INFINITY, 64, max).unwrap(), rspec: None }
    }

    fn guaranteed(rate: f32, service: f32, slack: u32) -> FlowSpec {
        let tspec = TSpec::new(rate, 3000.0, f32::INFINITY, 64, 1500).unwrap();
        FlowSpec { tspec, rspec: Some(RSpec::new(service, slack).unwrap()) }
    }

    /// RSVP-3.11.6-01, RSVP-3.11.6-02, RSVP-2.2-01
    #[test]
    fn flowspecs_are_equal_ordered_incomparable_or_incompatible() {
        let small = load(1000.0, 3000.0, 1500);
        let large = load(2000.0, 3000.0, 1500);
        let deep = load(1000.0, 9000.0, 1500);
        assert_eq!(compare(&small, &small), Ok(Some(Ordering::Equal)));
        assert_eq!(compare(&large, &small), Ok(Some(Ordering::Greater)));
        assert_eq!(compare(&small, &large), Ok(Some(Ordering::Less)));
        assert_eq!(compare(&deep, &large), Ok(None));
        assert_eq!(merged(&deep, &large), load(2000.0, 9000.0, 1500));
        assert_eq!(lower_bound(&deep, &large), small);
        assert_eq!(compare(&small, &guaranteed(1000.0, 1000.0, 0)), Err(Incompatible));
        // A high rate with loose delay and a low rate with tight delay.
        let (fast, tight) = (guaranteed(1000.0, 9000.0, 500), guaranteed(1000.0, 2000.0, 0));
        assert_eq!(compare(&fast, &tight), Ok(None));
        assert_eq!(merged(&fast, &tight), guaranteed(1000.0, 9000.0, 0));
        assert_eq!(lower_bound(&fast, &tight), guaranteed(1000.0, 2000.0, 500));
        assert!(exceeds(&merged(&fast, &tight), &fast));
    }

    #[test]
    fn of_the_largest_packet_the_smaller_one_counts() {
        assert_eq!(merged(&load(1000.0, 3000.0, 1500), &load(500.0, 3000.0, 800)), load(1000.0, 3000.0, 800));
    }

    /// RSVP-3.5-03: equal and incomparable requests are blockaded, smaller ones are not.
    #[test]
    fn a_blockade_holds_all_that_is_not_strictly_less() {
        let four = load(4000.0, 3000.0, 1500);
        assert!(blockades(&four, &four));
        assert!(blockades(&four, &load(5000.0, 3000.0, 1500)));
        assert!(blockades(&four, &load(2000.0, 9000.0, 1500)));
        assert!(!blockades(&four, &load(2000.0, 3000.0, 1500)));
        assert!(!blockades(&four, &guaranteed(1000.0, 1000.0, 0)));
    }

    fn any_load() -> impl Strategy<Value = FlowSpec> {
        (1u16..9, 1u16..9, 1u32..4)
            .prop_map(|(rate, bucket, max)| load(rate.into(), bucket.into(), 500 * max))
    }

    proptest! {
        #[test]
        fn bounds_are_bounds_whatever_the_order(specs in prop::collection::vec(any_load(), 1..6)) {
            let fold = |f: fn(&FlowSpec, &FlowSpec) -> FlowSpec, all: &[FlowSpec]| {
                all.iter().copied().reduce(|a, b| f(&a, &b)).unwrap()
            };
            let backwards: Vec<_> = specs.iter().rev().copied().collect();
            let (upper, lower) = (fold(merged, &specs), fold(lower_bound, &specs));
            prop_assert_eq!(upper, fold(merged, &backwards));
            prop_assert_eq!(lower, fold(lower_bound, &backwards));
            for spec in &specs {
                let order = compare(&lower, spec).unwrap();
                prop_assert!(matches!(order, Some(Ordering::Less | Ordering::Equal)));
            }
        }
    }
}
