//! SCOUT_COOKIE_R: the proof that a signaling message follows a Scout Response of this node, without state (section 9.3 of
//! the draft).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::secret::{RotatingSecret, same};
use signalbox_core::{Random, Time};

use crate::wire::Cookie;

/// A cookie is good for one to two of these periods.
const PERIOD: Duration = Duration::from_secs(60);

/// The cookies of this node.
#[derive(Debug)]
pub(super) struct Cookies(RotatingSecret);

impl Cookies {
    pub(super) fn new(rng: &mut Random) -> Self {
        Self(RotatingSecret::new(PERIOD, rng))
    }

    /// The cookie for a node that asked for the next hop towards a destination.
    pub(super) fn make(&self, now: Time, requester: IpAddr, dst: IpAddr) -> Cookie {
        self.of(self.0.current(now), requester, dst)
    }

    /// Whether this node made a cookie for that node and that destination.
    pub(super) fn is_good(&self, now: Time, requester: IpAddr, dst: IpAddr, cookie: Cookie) -> bool {
        let generation = self.0.current(now);
        // Both are computed, so that the time does not depend on which one it is.
        let good = [generation, generation.wrapping_sub(1)]
            .map(|generation| same(&self.of(generation, requester, dst), &cookie));
        good.contains(&true)
    }

    fn of(&self, generation: u32, requester: IpAddr, dst: IpAddr) -> Cookie {
        let tag = self.0.tag(generation, &[b"CASP-R", &octets(requester), &octets(dst)]);
        let [a, b, c, d, e, f, g, h, ..] = tag;
        [a, b, c, d, e, f, g, h]
    }
}

/// An address as 16 octets, so that both IP versions are hashed alike.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// CASP-G-37, CASP-G-38, CASP-9.1-04, CASP-4.6-08, CASP-A.6-02: a cookie is good for its requester, its destination,
    /// its maker, and one to two periods.
    #[test]
    fn a_cookie_is_good_for_what_it_was_made_for() {
        let cookies = Cookies::new(&mut Random::from_number(1));
        let (from, dst) = (ip("192.0.2.1"), ip("198.51.100.7"));
        let made = Time::from_secs(1);
        let cookie = cookies.make(made, from, dst);
        let good = |at| cookies.is_good(Time::from_secs(at), from, dst, cookie);
        assert!(good(1) && good(59) && good(119));
        assert!(!good(120) && !good(122));
        assert!(!cookies.is_good(made, ip("192.0.2.2"), dst, cookie));
        assert!(!cookies.is_good(made, from, ip("198.51.100.8"), cookie));
        let other = Cookies::new(&mut Random::from_number(2));
        assert!(!other.is_good(made, from, dst, cookie));
        assert_ne!(other.make(made, from, dst), cookie);
        let mut rng = Random::from_number(3);
        assert!((0..1000).all(|_| !cookies.is_good(made, from, dst, rng.array())));
        let all = (0..1000u32).map(|n| (ip(&format!("10.0.{}.{}", n / 250, n % 250)), n));
        assert!(
            all.into_iter()
                .all(|(host, _)| { cookies.is_good(made, host, dst, cookies.make(made, host, dst)) })
        );
    }
}
