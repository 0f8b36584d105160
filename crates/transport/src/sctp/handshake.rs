//! INIT, INIT ACK and the state cookie (RFC 9260 §3.3.2, §3.3.3, §5.1). The responder keeps no state until a COOKIE ECHO
//! proves that the initiator receives packets at its address.

use std::net::SocketAddr;

use core::time::Duration;

use signalbox_core::{Random, RotatingSecret, Time};
use signalbox_wire::Reader;

use super::packet::kind;

/// State Cookie parameter.
const COOKIE: u16 = 7;
/// Supported Extensions (RFC 5061).
const EXTENSIONS: u16 = 0x8008;
/// Forward-TSN-Supported (RFC 3758): partial reliability.
const FORWARD_TSN_SUPPORTED: u16 = 0xc000;
/// Least receive window that is accepted (RFC 9260 §3.3.2).
const LEAST_WINDOW: u32 = 1500;

/// The parameters of one end, in its INIT or INIT ACK (RFC 9260 §3.3.2, §3.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) tag: u32,
    pub(super) window: u32,
    pub(super) outbound: u16,
    pub(super) inbound: u16,
    pub(super) tsn: u32,
    /// Partial reliability (RFC 3758).
    pub(super) forward_tsn: bool,
}

impl Init {
    /// The parameters of this node, with a random tag and a random initial sequence number; neither is 0.
    pub(super) fn own(rng: &mut Random, window: u32, streams: u16) -> Self {
        let tag = rng.u32().max(1);
        Self { tag, window, outbound: streams, inbound: streams, tsn: rng.u32().max(1), forward_tsn: true }
    }

    /// Parses the value of an INIT or INIT ACK (RFC 9260 §3.3.2, §3.3.3); also returns the cookie. `None` if it is
    /// malformed or has a forbidden value.
    pub(super) fn parse(value: &[u8]) -> Option<(Self, Option<&[u8]>)> {
        let mut reader = Reader::new(value);
        let mut init = Self {
            tag: reader.u32().ok()?,
            window: reader.u32().ok()?,
            outbound: reader.u16().ok()?,
            inbound: reader.u16().ok()?,
            tsn: reader.u32().ok()?,
            forward_tsn: false,
        };
        let mut cookie = None;
        while reader.left() >= 4 {
            let (parameter, length) = (reader.u16().ok()?, usize::from(reader.u16().ok()?));
            let value = reader.take(length.checked_sub(4)?).ok()?;
            let padding = (length.next_multiple_of(4) - length).min(reader.left());
            reader.take(padding).ok()?;
            match parameter {
                COOKIE => cookie = Some(value),
                FORWARD_TSN_SUPPORTED => init.forward_tsn = true,
                EXTENSIONS => init.forward_tsn |= value.contains(&kind::FORWARD_TSN),
                _ => {}
            }
        }
        let usable = init.tag != 0 && init.tsn != 0 && init.outbound != 0 && init.inbound != 0;
        (usable && init.window >= LEAST_WINDOW).then_some((init, cookie))
    }

    /// Composes the value of an INIT, or of an INIT ACK with its cookie (RFC 9260 §3.3.2, §3.3.3).
    pub(super) fn value(&self, cookie: Option<&[u8]>) -> Vec<u8> {
        let mut octets = self.fixed().to_vec();
        if self.forward_tsn {
            // In this order the chunk ends without padding, which its length would not count.
            parameter(&mut octets, EXTENSIONS, &[kind::FORWARD_TSN]);
            parameter(&mut octets, FORWARD_TSN_SUPPORTED, &[]);
        }
        if let Some(cookie) = cookie {
            parameter(&mut octets, COOKIE, cookie);
        }
        octets
    }

    /// Streams that can be used in both directions under the same number (RFC 6084 §3.2).
    pub(super) fn streams(&self, peer: &Self) -> u16 {
        self.outbound.min(peer.inbound).min(self.inbound).min(peer.outbound)
    }

    fn fixed(&self) -> [u8; 16] {
        let mut octets = [0; 16];
        let parts = [
            u64::from(self.tag) << 32 | u64::from(self.window),
            u64::from(self.outbound) << 48 | u64::from(self.inbound) << 32 | u64::from(self.tsn),
        ];
        for (to, part) in octets.chunks_exact_mut(8).zip(parts) {
            to.copy_from_slice(&part.to_be_bytes());
        }
        octets
    }
}

fn parameter(octets: &mut Vec<u8>, kind: u16, value: &[u8]) {
    octets.extend_from_slice(&kind.to_be_bytes());
    // The parameters of this node have a few dozen octets.
    octets.extend_from_slice(&u16::try_from(value.len() + 4).unwrap_or(4).to_be_bytes());
    octets.extend_from_slice(value);
    octets.resize(octets.len().next_multiple_of(4), 0);
}

/// Composes and verifies state cookies (RFC 9260 §5.1.3).
#[derive(Debug)]
pub(super) struct Cookies {
    secret: RotatingSecret,
    life: Duration,
}

impl Cookies {
    pub(super) fn new(life: Duration, rng: &mut Random) -> Self {
        Self { secret: RotatingSecret::new(life, rng), life }
    }

    /// A cookie with the parameters of both ends, bound to their addresses and the time.
    pub(super) fn seal(&self, now: Time, mine: &Init, peer: &Init, ends: &[SocketAddr; 2]) -> Vec<u8> {
        let generation = self.secret.current(now);
        let mut cookie = Vec::with_capacity(64);
        cookie.extend_from_slice(&generation.to_be_bytes());
        cookie.extend_from_slice(&now.as_micros().to_be_bytes());
        for init in [mine, peer] {
            cookie.extend_from_slice(&init.fixed());
            // Two octets, so that the length stays a multiple of 4.
            cookie.extend_from_slice(&[0, u8::from(init.forward_tsn)]);
        }
        let tag = self.secret.tag(generation, &[&cookie, ends_octets(ends).as_bytes()]);
        cookie.extend_from_slice(&tag);
        cookie
    }

    /// Verifies a cookie and returns the parameters of both ends (RFC 9260 §5.1.4).
    pub(super) fn open(&self, now: Time, cookie: &[u8], ends: &[SocketAddr; 2]) -> Option<(Init, Init)> {
        let (body, tag) = cookie.split_last_chunk::<16>()?;
        let mut reader = Reader::new(body);
        let generation = reader.u32().ok()?;
        if !self.secret.verify(now, generation, &[body, ends_octets(ends).as_bytes()], tag) {
            return None;
        }
        let made = Time::from_micros(reader.u64().ok()?);
        let mut init = || {
            let (mut init, _) = Init::parse(reader.take(16).ok()?)?;
            init.forward_tsn = reader.take(2).ok()? == [0, 1];
            Some(init)
        };
        let pair = (init()?, init()?);
        (now.since(made) <= self.life).then_some(pair)
    }
}

fn ends_octets(ends: &[SocketAddr; 2]) -> String {
    format!("{} {}", ends[0], ends[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_bound() {
        let mut rng = Random::from_number(1);
        let cookies = Cookies::new(Duration::from_secs(60), &mut rng);
        let (mine, peer) = (Init::own(&mut rng, 9000, 3), Init::own(&mut rng, 8000, 4));
        let ends = ["192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap()];
        let other = ["192.0.2.1:1".parse().unwrap(), "192.0.2.3:2".parse().unwrap()];
        let now = Time::from_secs(1000);
        let cookie = cookies.seal(now, &mine, &peer, &ends);
        assert_eq!(cookies.open(now, &cookie, &ends), Some((mine, peer)));
        assert_eq!(cookies.open(now, &cookie, &other), None);
        assert_eq!(cookies.open(now + Duration::from_secs(61), &cookie, &ends), None);
        for at in 0..cookie.len() {
            let mut changed = cookie.clone();
            changed[at] ^= 1;
            assert_eq!(cookies.open(now, &changed, &ends), None, "{at}");
            assert_eq!(cookies.open(now, &cookie[..at], &ends), None, "{at}");
        }
        let value = mine.value(Some(&cookie));
        assert_eq!(Init::parse(&value), Some((mine, Some(&cookie[..]))));
        assert_eq!(mine.streams(&peer), 3);
    }
}
