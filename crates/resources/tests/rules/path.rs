//! Parameters of a path, composed node by node.

use proptest::prelude::*;
use signalbox_resources::intserv::{Bandwidth, Latency, Path, SpecError, compose_override};

/// Invalid values: negative zero, infinity, NaN, a negative number, a denormal one.
#[test]
fn what_is_no_bandwidth_is_refused() {
    for bits in [0x8000_0000, 0x7F80_0000, 0x7FC0_0000, 0xBF80_0000, 0x0000_0001] {
        assert_eq!(Bandwidth::new(f32::from_bits(bits)), Err(SpecError::Rate), "{bits:x}");
    }
    assert_eq!(Bandwidth::new(0.0), Ok(Bandwidth::UNKNOWN));
    assert!(Bandwidth::new(40e12).is_ok());
    assert_eq!(Bandwidth::new(41e12), Err(SpecError::Rate));
}

/// Links of 10 and 1.25 MB/s give 1.25e6; a link without a known rate gives 0. RSVPIS-2215-3.3-01.
#[test]
fn bandwidth_is_the_minimum() {
    let (fast, slow) = (Bandwidth::of_link(10_000_000), Bandwidth::of_link(1_250_000));
    assert_eq!(fast.composed(slow).value(), 1.25e6);
    assert_eq!(fast.composed(Bandwidth::of_link(0)), Bandwidth::UNKNOWN);
    assert!(f64::from(Bandwidth::of_link(16_777_217).value()) <= 16_777_217.0);
}

/// RSVPIS-2215-3.4-01: 0xFFFFFFFE + 10 is indeterminate, and stays so.
#[test]
fn latency_is_a_sum_that_may_become_indeterminate() {
    assert_eq!(Latency(100).composed(Latency(20)), Latency(120));
    let lost = Latency(0xFFFF_FFFE).composed(Latency(10));
    assert_eq!((lost, lost.composed(Latency(1))), (Latency::INDETERMINATE, Latency::INDETERMINATE));
}

/// Three routers with MTUs 1500, 1000, 1500, the second behind a tunnel. RSVPIS-2215-3.2-01.
#[test]
fn a_path_composes_every_parameter() {
    let hop = |mtu| Path::hop(1_250_000, Latency(100), mtu);
    let second = Path { broken: true, ..hop(1000) };
    let path = Path::START.composed(&hop(1500)).composed(&second).composed(&hop(1500));
    assert_eq!((path.hops, path.mtu, path.latency, path.broken), (3, 1000, Latency(300), true));
    assert_eq!(path.bandwidth.value(), 1.25e6);
    let long = (0..300).fold(Path::START, |path, _| path.composed(&hop(1500)));
    assert_eq!(long.hops, 255);
    assert!(!long.broken);
}

/// All combinations of received and local values. RSVPIS-2215-2-01.
#[test]
fn overrides_compose_with_what_there_is() {
    let compose = |arriving, local| compose_override((arriving, 1500), (local, 1400), u32::min);
    assert_eq!(compose(None, None), None);
    assert_eq!(compose(None, Some(250)), Some(250));
    assert_eq!(compose(Some(1450), None), Some(1400));
    assert_eq!(compose(Some(1450), Some(1480)), Some(1450));
    assert_eq!(compose_override((None, 100), (Some(1400), 1400), u32::min), Some(100));
}

proptest! {
    /// The path is the same in any order of composition.
    #[test]
    fn composition_is_associative(hops in prop::collection::vec((0u64..1 << 45, any::<u32>(), 1u32..9000), 3)) {
        let hop = |at: usize| Path::hop(hops[at].0, Latency(hops[at].1), hops[at].2);
        let (a, b, c) = (hop(0), hop(1), hop(2));
        prop_assert_eq!(a.composed(&b).composed(&c), a.composed(&b.composed(&c)));
        prop_assert_eq!(Path::START.composed(&a), a);
    }
}
