//! Delay, slack and buffer of guaranteed service.

use std::time::Duration;

use proptest::prelude::*;
use signalbox_resources::intserv::{
    ErrorTerms, LocalTerms, RSpec, TSpec, buffer, delay_bound, rate_for_delay,
};

fn tspec(peak: f32) -> TSpec {
    TSpec::new(1000.0, 5000.0, peak, 100, 1000).unwrap()
}

const TERMS: ErrorTerms = ErrorTerms { c_tot: 3000, d_tot: 2000, c_sum: 1000, d_sum: 500_000 };

fn rate(rate: f32) -> RSpec {
    RSpec::new(rate, 0).unwrap()
}

/// Results by hand for all three branches. p = 4000, R = 2000: (5000−1000)/2000·(4000−2000)/(4000−1000) +
/// (1000+3000)/2000 = 1.3333 + 2 s, and 2 ms. R = 4000 = p: (1000+3000)/4000 = 1 s. p unknown, R = 2000: 2 + 2 s.
/// RSVPIS-2212-End-to-End-01.
#[test]
fn the_delay_bound_has_two_branches() {
    let bound = |peak, at| delay_bound(&tspec(peak), rate(at), &TERMS);
    assert_eq!(bound(4000.0, 2000.0), Duration::from_micros(3_335_334));
    assert_eq!(bound(4000.0, 4000.0), Duration::from_micros(1_002_000));
    assert_eq!(bound(4000.0, 8000.0), Duration::from_micros(502_000));
    assert_eq!(bound(f32::INFINITY, 2000.0), Duration::from_micros(4_002_000));
    // With p = r = R no packet ever waits behind the bucket.
    assert_eq!(bound(1000.0, 1000.0), Duration::from_micros(4_002_000));
}

/// Results by hand. Peak unknown: b + Csum + Dsum·R = 5000 + 1000 + 0.5·2000. Peak 4000, R 2000: Csum/R + Dsum = 1 s,
/// the burst lasts 4000/3000 s: X = R. Peak 40000: the burst lasts 0.1026 s: X = r. Peak 1500 < R: X = p.
/// RSVPIS-2212-Guidelines-01.
#[test]
fn the_buffer_has_four_branches() {
    let need = |peak, at: RSpec| buffer(&tspec(peak), at, &TERMS);
    assert_eq!(need(f32::INFINITY, rate(2000.0)), 7000);
    // 1000 + 4000·(4000−2000)/3000 + 1·2000 = 5666.7
    assert_eq!(need(4000.0, rate(2000.0)), 5667);
    // 1000 + 4000·(40000−1000)/39000 + 1·1000
    assert_eq!(need(40_000.0, rate(2000.0)), 6000);
    // 1000 + 4000·0 + 1·1500
    assert_eq!(need(1500.0, rate(2000.0)), 2500);
    // Returned slack counts as Dsum: another 0.25 s of R.
    assert_eq!(need(f32::INFINITY, RSpec::new(2000.0, 250_000).unwrap()), 7500);
}

/// RSVPIS-2212-Exported-01, RSVPIS-2212-Exported-02: 1500 octets at 1.25 MB/s are 1200 µs. Exported values stay within
/// 1 to 2^28, and sums saturate.
#[test]
fn error_terms_are_those_of_a_fair_queue() {
    assert_eq!(LocalTerms::fair_queue(1_250_000, 1500), LocalTerms { c: 1500, d: 1200 });
    assert_eq!(LocalTerms::fair_queue(u64::MAX, 1500).d, 1);
    assert_eq!(LocalTerms::fair_queue(0, 1500).d, 1 << 28);
    assert_eq!(LocalTerms::fair_queue(1, u32::MAX), LocalTerms { c: 1 << 28, d: 1 << 28 });
    let nearly = ErrorTerms { c_tot: u32::MAX - 1, d_tot: u32::MAX - 1, c_sum: 5, d_sum: 6 };
    let more = nearly.plus(LocalTerms { c: 1500, d: 80 });
    assert_eq!((more.c_tot, more.d_tot, more.c_sum, more.d_sum), (u32::MAX, u32::MAX, 1505, 86));
}

/// Two hops of C=1500, D=80; a point that reshapes sets Csum and Dsum to zero, and the totals continue.
#[test]
fn error_terms_add_up_and_restart_at_a_shaper() {
    let hop = LocalTerms { c: 1500, d: 80 };
    let two = ErrorTerms::default().plus(hop).plus(hop);
    assert_eq!(two, ErrorTerms { c_tot: 3000, d_tot: 160, c_sum: 3000, d_sum: 160 });
    let third = two.reshaped().plus(hop);
    assert_eq!(third, ErrorTerms { c_tot: 4500, d_tot: 240, c_sum: 1500, d_sum: 80 });
}

/// Result by hand: b + Ctot = 8000 octets. From R = 4000 to 2000 takes 8000·(1/2000 − 1/4000) = 2 s of slack.
/// RSVPIS-2212-Ordering-04.
#[test]
fn slack_pays_for_a_lower_rate() {
    let spec = tspec(f32::INFINITY);
    let asked = RSpec::new(4000.0, 2_000_000).unwrap();
    assert_eq!(asked.lowered_to(2000.0, &spec, 3000), Some(rate(2000.0)));
    assert_eq!(asked.lowered_to(1999.0, &spec, 3000), None, "not enough slack");
    assert_eq!(asked.lowered_to(4001.0, &spec, 3000), None, "over R");
    let much = RSpec::new(4000.0, u32::MAX).unwrap();
    assert_eq!(much.lowered_to(999.0, &spec, 3000), None, "below r");
    assert_eq!(asked.lowered_to(4000.0, &spec, 3000), Some(asked));
    assert_eq!(asked.lowest_rate(&spec, 3000), 2000.0);
    assert_eq!(much.lowest_rate(&spec, 3000), 1000.0);
}

fn any_flow() -> impl Strategy<Value = (TSpec, RSpec, ErrorTerms)> {
    let spec = (1.0f32..1e8, 1.0f32..1e7, 1.0f32..1e4, any::<bool>(), 1u32..1500, 0u32..9000);
    let terms = (0u32..1_000_000, 0u32..10_000_000, 0u32..1_000_000, 0u32..10_000_000);
    (spec, 1.0f32..1e3, 0u32..10_000_000, terms).prop_map(|(spec, over, slack, terms)| {
        let (rate, bucket, ratio, unknown, min, more) = spec;
        let peak = if unknown { f32::INFINITY } else { rate * ratio };
        let tspec = TSpec::new(rate, bucket, peak, min, min + more).unwrap();
        let (c_tot, d_tot, c_sum, d_sum) = terms;
        (tspec, RSpec::new(rate * over, slack).unwrap(), ErrorTerms { c_tot, d_tot, c_sum, d_sum })
    })
}

/// The bound computed a second time, from the text of the RFC, in doubles only.
fn reference(tspec: &TSpec, at: f64, terms: &ErrorTerms) -> f64 {
    let (r, b, p) = (f64::from(tspec.rate()), f64::from(tspec.bucket()), f64::from(tspec.peak()));
    let m = f64::from(tspec.max_packet());
    let rest = (m + f64::from(terms.c_tot)) / at + f64::from(terms.d_tot) / 1e6;
    if at >= p {
        rest
    } else if p.is_infinite() {
        (b - m).max(0.0) / at + rest
    } else {
        (b - m).max(0.0) * (p - at) / (at * (p - r)) + rest
    }
}

proptest! {
    #[test]
    fn the_bound_is_that_of_the_rfc((tspec, rspec, terms) in any_flow()) {
        let bound = delay_bound(&tspec, rspec, &terms).as_secs_f64();
        let wanted = reference(&tspec, f64::from(rspec.rate()), &terms);
        prop_assert!(bound >= wanted * (1.0 - 1e-9) && bound <= wanted * (1.0 + 1e-9) + 2e-6);
    }

    /// More rate is never slower; more error terms are never faster.
    #[test]
    fn the_bound_is_monotone((tspec, rspec, terms) in any_flow(), more in 1.0f32..10.0) {
        let bound = delay_bound(&tspec, rspec, &terms);
        let faster = RSpec::new(rspec.rate() * more, 0).unwrap();
        prop_assert!(delay_bound(&tspec, faster, &terms) <= bound);
        let further = terms.plus(LocalTerms { c: 1500, d: 1 });
        prop_assert!(delay_bound(&tspec, rspec, &further) >= bound);
    }

    /// The rate for a delay satisfies it, and a rate one percent lower does not, unless r forbids a lower one.
    #[test]
    fn the_rate_for_a_delay_is_the_lowest((tspec, rspec, terms) in any_flow()) {
        let wanted = delay_bound(&tspec, rspec, &terms);
        let found = rate_for_delay(&tspec, &terms, wanted).expect("the rate that it is the bound of");
        prop_assert!(delay_bound(&tspec, found, &terms) <= wanted);
        prop_assert!(found.rate() >= tspec.rate());
        let lower = found.rate() * 0.99;
        let fixed = Duration::from_micros(u64::from(terms.d_tot));
        // Below that, one percent is lost in rounding to microseconds.
        if lower >= tspec.rate() && wanted - fixed > Duration::from_micros(500) {
            prop_assert!(delay_bound(&tspec, RSpec::new(lower, 0).unwrap(), &terms) > wanted);
        }
    }

    /// The rule of the RFC in its literal form: Sout + b/Rout + Ctot/Rout ≤ Sin + b/Rin + Ctot/Rin, and r ≤ Rout ≤ Rin.
    /// RSVPIS-2212-Ordering-04.
    #[test]
    fn slack_is_never_overdrawn((tspec, rspec, terms) in any_flow(), part in 0.0f32..1.0) {
        let out = tspec.rate() + (rspec.rate() - tspec.rate()) * part;
        let side = |spec: RSpec| {
            let work = f64::from(tspec.bucket()) + f64::from(terms.c_tot);
            f64::from(spec.slack()) / 1e6 + work / f64::from(spec.rate())
        };
        for out in [out, rspec.lowest_rate(&tspec, terms.c_tot)] {
            if let Some(given) = rspec.lowered_to(out, &tspec, terms.c_tot) {
                prop_assert!(given.rate() >= tspec.rate() && given.rate() <= rspec.rate());
                prop_assert!(given.slack() <= rspec.slack());
                prop_assert!(side(given) <= side(rspec) * (1.0 + 1e-12));
            }
        }
    }

    /// The buffer is finite and at least a packet, and a known peak rate never increases it.
    #[test]
    fn buffers_are_sane((tspec, rspec, terms) in any_flow()) {
        let need = buffer(&tspec, rspec, &terms);
        prop_assert!(need >= u64::from(tspec.max_packet()) && need < 1 << 60);
        let unknown = TSpec::new(
            tspec.rate(), tspec.bucket(), f32::INFINITY, tspec.min_policed(), tspec.max_packet()
        ).unwrap();
        prop_assert!(need <= buffer(&unknown, rspec, &terms) + 1);
    }
}
