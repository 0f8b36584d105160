//! Path state whose previous hop is silent when its route changes (RFC 2205 §3.6).
//!
//! While routes change, a router may lose its way to the destination, be left by the data meanwhile, and find the way again before its
//! path state expires. A Path of this state would make it the previous hop of the router behind it again, although the data come there
//! by another way. And when the state expires, its PathTear would end there what the Paths of that other way have set up. So
//! path state follows a new route only while its own refreshes come. Otherwise it waits for the next one, which shows that the data come
//! by this router. If none comes, the state expires and no PathTear is sent. Along a route that stays, refreshes go out until the state
//! expires: K - 1 of them may be lost on each link (§2.3).

use core::time::Duration;

use super::sender::{HELD, LOCAL, REPAIR, Sender, UNSENT};
use crate::engine::Rsvp;
use crate::engine::interfaces::{Iface, Interfaces};

/// The refresh period of a previous hop in one octet: its first four significant bits, and where they stand. The rest is cut off, so that
/// it is too short by an eighth at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pace(u8);

impl Pace {
    #[expect(clippy::cast_possible_truncation, reason = "at most 28 · 8 + 7")]
    pub(crate) const fn of(period_ms: u32) -> Self {
        let period = if period_ms < 8 { 8 } else { period_ms };
        let shift = 28 - period.leading_zeros();
        Self((shift << 3 | (period >> shift & 7)) as u8)
    }

    /// The period in milliseconds, at least 8.
    const fn milliseconds(self) -> u32 {
        (8 | self.0 as u32 & 7) << (self.0 >> 3)
    }
}

impl Interfaces {
    /// How much of its lifetime state has left when its neighbor has sent nothing for two periods. A refresh comes after 1.5 periods
    /// at the latest (RFC 2205 §3.7).
    fn left_without_refresh(&self, iface: Iface, pace: Pace) -> Duration {
        let period = pace.milliseconds();
        self.lifetime(iface, period).saturating_sub(Duration::from_millis(u64::from(period) * 2))
    }
}

impl Rsvp {
    /// Whether the data of a sender perhaps do not come by this router any more, so that no Path takes a new route. To a group more
    /// interfaces are no other way.
    pub(in crate::engine) fn is_doubtful(&self, sender: &Sender) -> bool {
        sender.has(REPAIR | UNSENT | HELD)
            && !sender.has(LOCAL)
            && sender.expires.left(self.now) < self.interfaces.left_without_refresh(sender.iif, sender.pace)
            && self.sessions.get_index(sender.session).is_some_and(|session| !session.multicast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_in_an_octet_is_too_short_by_an_eighth_at_most() {
        for period in (8..4096).chain([30_000, 900_000, u32::MAX - 1, u32::MAX]) {
            let stored = Pace::of(period).milliseconds();
            assert!(stored <= period && stored >= period - period / 8, "{stored} for {period}");
        }
        assert_eq!(Pace::of(0), Pace::default());
        assert_eq!(Pace::default().milliseconds(), 8);
    }
}
