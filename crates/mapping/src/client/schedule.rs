//! When a request is sent again, and when a mapping is renewed.

use core::time::Duration;

use signalbox_core::Random;

/// The first wait of PCP for a response, and the longest (RFC 6887 §8.1.1).
const FIRST: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(1_024);

/// The first wait of NAT-PMP, and its attempts (RFC 6886 §3.1).
const NAT_PMP_FIRST: Duration = Duration::from_millis(250);
pub(super) const NAT_PMP_ATTEMPTS: u8 = 9;

/// Renewals are never closer than this (RFC 6887 §11.2.1).
pub(super) const CLOSEST: Duration = Duration::from_secs(4);

/// The wait for the response to a request of PCP; `before`: the wait of the transmission before.
pub(super) fn wait(before: Option<Duration>, rng: &mut Random) -> Duration {
    let base = before.map_or(FIRST, |before| (before * 2).min(LONGEST));
    rng.jitter(base, 0.9, 1.1)
}

/// The wait for the response to the transmission of this number, from 1, of a request of NAT-PMP; nothing after the last one.
pub(super) fn nat_pmp_wait(number: u8) -> Option<Duration> {
    (1..=NAT_PMP_ATTEMPTS).contains(&number).then(|| NAT_PMP_FIRST * (1 << (number - 1)))
}

/// How long after the response that granted `lifetime` the renewal of this number, from 0, is due: in the first eighth behind a half of the
/// lifetime, then in the first sixteenth behind three quarters, and so on. Nothing when there is no time left for one.
pub(super) fn renewal(lifetime: Duration, number: u32, rng: &mut Random) -> Option<Duration> {
    let parts = 2_u32.checked_pow(number + 1)?;
    let from = lifetime - lifetime / parts;
    let to = from + lifetime / parts / 4;
    let at = rng.jitter(from, 1.0, to.as_secs_f64() / from.as_secs_f64().max(f64::MIN_POSITIVE));
    // The one before is at least half of a part earlier.
    (number == 0 || lifetime / parts >= CLOSEST * 2).then(|| at.max(CLOSEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng() -> Random {
        Random::new([9; 32])
    }

    /// PCP-8.1.1-02, PCP-8.1.1-03
    #[test]
    fn waits_double_up_to_a_limit() {
        let mut rng = rng();
        let mut sum = Duration::ZERO;
        for _ in 0..10_000 {
            let first = wait(None, &mut rng);
            assert!(
                first >= Duration::from_millis(2_700) && first <= Duration::from_millis(3_300),
                "{first:?}"
            );
            sum += first;
        }
        let mean = sum / 10_000;
        assert!(mean > Duration::from_millis(2_980) && mean < Duration::from_millis(3_020), "{mean:?}");
        let next = wait(Some(Duration::from_secs(10)), &mut rng);
        assert!(next >= Duration::from_secs(18) && next <= Duration::from_secs(22), "{next:?}");
        let last = wait(Some(Duration::from_secs(1_000)), &mut rng);
        assert!(
            last >= Duration::from_millis(921_600) && last <= Duration::from_millis(1_126_400),
            "{last:?}"
        );
    }

    /// NATPMP-3.1-01
    #[test]
    fn nine_attempts_of_nat_pmp() {
        let waits: Vec<_> = (1..=10).map_while(nat_pmp_wait).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]);
    }

    /// PCP-11.2.1-02, PCP-11.2.1-03
    #[test]
    fn renewals_come_closer() {
        let mut rng = rng();
        let lifetime = Duration::from_secs(3_200);
        for (number, from, to) in [(0, 1_600, 2_000), (1, 2_400, 2_600), (2, 2_800, 2_900)] {
            for _ in 0..1_000 {
                let at = renewal(lifetime, number, &mut rng).unwrap();
                assert!(at >= Duration::from_secs(from) && at <= Duration::from_secs(to), "{number}: {at:?}");
            }
        }
        let times: Vec<_> =
            (0..40).map_while(|number| renewal(Duration::from_secs(20), number, &mut rng)).collect();
        assert_eq!(times.len(), 1, "{times:?}");
        for lifetime in 20..200 {
            let lifetime = Duration::from_secs(lifetime);
            let times: Vec<_> = (0..40).map_while(|number| renewal(lifetime, number, &mut rng)).collect();
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= CLOSEST), "{times:?}");
        }
        assert_eq!(renewal(Duration::from_secs(1), 0, &mut rng), Some(CLOSEST));
    }
}
