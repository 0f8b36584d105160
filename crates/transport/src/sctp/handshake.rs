//! INIT, INIT ACK and the state cookie (RFC 9260 §3.3.2, §3.3.3, §5.1). The responder keeps no state until a COOKIE ECHO
//! proves that the initiator receives packets at its address.
//!
//! The source of an INIT may be forged, so an INIT ACK has at most one and a half times its octets, even if the INIT has no
//! parameter: the state cookie has 20 octets. It has no tag of this node, because that stands in the packet with the COOKIE ECHO,
//! and everything else that this node sends in an INIT ACK follows from the tag and the configuration.

use std::net::SocketAddr;

use core::time::Duration;

use signalbox_core::secret::same;
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
/// Most streams in one direction: their number has one octet in a cookie.
const MOST_STREAMS: u16 = 255;

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
    /// The parameters of this node with this tag. The initial sequence number is the tag (RFC 9260 §3.3.2 allows it).
    pub(super) fn own(tag: u32, window: u32, streams: u16) -> Self {
        let streams = streams.clamp(1, MOST_STREAMS);
        Self { tag, window, outbound: streams, inbound: streams, tsn: tag, forward_tsn: true }
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

    /// Composes the value of an INIT (RFC 9260 §3.3.2).
    pub(super) fn value(&self) -> Vec<u8> {
        let mut octets = self.fixed().to_vec();
        if self.forward_tsn {
            // In this order the chunk ends without padding, which its length would not count.
            parameter(&mut octets, EXTENSIONS, &[kind::FORWARD_TSN]);
            parameter(&mut octets, FORWARD_TSN_SUPPORTED, &[]);
        }
        octets
    }

    /// Composes the value of an INIT ACK to `peer` (RFC 9260 §3.3.3).
    pub(super) fn answer(&self, peer: &Self, cookie: &[u8]) -> Vec<u8> {
        let mut octets = self.fixed().to_vec();
        if self.forward_tsn && peer.forward_tsn {
            parameter(&mut octets, FORWARD_TSN_SUPPORTED, &[]);
        }
        parameter(&mut octets, COOKIE, cookie);
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
}

/// A receive window in 7 bits, rounded down by a fifth at most: it counts until the first SACK.
fn packed(window: u32) -> u8 {
    let exponent = window.max(LEAST_WINDOW).ilog2();
    let mantissa = window.max(LEAST_WINDOW) >> (exponent - 2) & 3;
    u8::try_from(exponent << 2 | mantissa).unwrap_or_default()
}

fn unpacked(packed: u8) -> u32 {
    let (exponent, mantissa) = (u32::from(packed >> 2), u32::from(packed & 3));
    // The exponents that `packed` writes are 10 to 31.
    ((4 | mantissa) << exponent.clamp(2, 31).saturating_sub(2)).max(LEAST_WINDOW)
}

impl Cookies {
    /// Cookies that are valid for `life` at most, and for half of it at least.
    pub(super) fn new(life: Duration, rng: &mut Random) -> Self {
        Self { secret: RotatingSecret::new(life / 2, rng) }
    }

    /// A cookie with the parameters of the peer, bound to the tag of this node, the addresses and the time.
    pub(super) fn seal(&self, now: Time, own_tag: u32, peer: &Init, ends: &[SocketAddr; 2]) -> [u8; 20] {
        let generation = self.secret.current(now);
        let [.., octet] = generation.to_be_bytes();
        let streams = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
        let window = u8::from(peer.forward_tsn) << 7 | packed(peer.window);
        let ([t0, t1, t2, t3], [n0, n1, n2, n3]) = (peer.tag.to_be_bytes(), peer.tsn.to_be_bytes());
        let (outbound, inbound) = (streams(peer.outbound), streams(peer.inbound));
        let body = [octet, window, outbound, inbound, t0, t1, t2, t3, n0, n1, n2, n3];
        let mac = self.mac(generation, &body, own_tag, ends);
        let mut cookie = [0; 20];
        cookie.iter_mut().zip(body.into_iter().chain(mac)).for_each(|(to, from)| *to = from);
        cookie
    }

    /// Verifies a cookie and returns the parameters of the peer (RFC 9260 §5.1.4).
    pub(super) fn open(
        &self,
        now: Time,
        cookie: &[u8],
        own_tag: u32,
        ends: &[SocketAddr; 2],
    ) -> Option<Init> {
        let (body, mac) = cookie.split_last_chunk::<8>()?;
        let [octet, window, outbound, inbound, t0, t1, t2, t3, n0, n1, n2, n3] =
            *<&[u8; 12]>::try_from(body).ok()?;
        let generation = self.secret.from_octet(now, octet)?;
        if !same(&self.mac(generation, body, own_tag, ends), mac) {
            return None;
        }
        Some(Init {
            tag: u32::from_be_bytes([t0, t1, t2, t3]),
            window: unpacked(window & 0x7f),
            outbound: outbound.into(),
            inbound: inbound.into(),
            tsn: u32::from_be_bytes([n0, n1, n2, n3]),
            forward_tsn: window & 0x80 != 0,
        })
    }

    /// Who guesses a cookie has one chance in 2^64, and makes one association from a forged address.
    fn mac(&self, generation: u32, body: &[u8], own_tag: u32, ends: &[SocketAddr; 2]) -> [u8; 8] {
        let ends = ends_octets(ends);
        let tag = self.secret.tag(generation, &[body, &own_tag.to_be_bytes(), ends.as_bytes()]);
        let mut mac = [0; 8];
        for (to, from) in mac.iter_mut().zip(tag) {
            *to = from;
        }
        mac
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
        let (mine, peer) = (Init::own(77, 9000, 3), Init::own(0x1234_5678, 1 << 20, 4));
        let ends = ["192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap()];
        let other = ["192.0.2.1:1".parse().unwrap(), "192.0.2.3:2".parse().unwrap()];
        let now = Time::from_secs(1000);
        let cookie = cookies.seal(now, mine.tag, &peer, &ends);
        let open = |now, cookie: &[u8], tag, ends| cookies.open(now, cookie, tag, ends);
        assert_eq!(open(now, &cookie, 77, &ends), Some(peer));
        assert_eq!(open(now + Duration::from_secs(29), &cookie, 77, &ends), Some(peer));
        assert_eq!(open(now, &cookie, 77, &other), None);
        assert_eq!(open(now, &cookie, 78, &ends), None);
        assert_eq!(open(now + Duration::from_secs(61), &cookie, 77, &ends), None);
        for at in 0..cookie.len() {
            let mut changed = cookie;
            changed[at] ^= 1;
            assert_eq!(open(now, &changed, 77, &ends), None, "{at}");
            assert_eq!(open(now, &cookie[..at], 77, &ends), None, "{at}");
        }
        let value = mine.answer(&peer, &cookie);
        assert_eq!(Init::parse(&value), Some((mine, Some(&cookie[..]))));
        assert_eq!(Init::parse(&mine.value()), Some((mine, None)));
        assert_eq!(mine.streams(&peer), 3);
    }

    #[test]
    fn a_cookie_holds_what_a_peer_may_say() {
        let cookies = Cookies::new(Duration::from_secs(60), &mut Random::from_number(2));
        let ends = ["[2001:db8::1]:1".parse().unwrap(), "[2001:db8::2]:2".parse().unwrap()];
        for window in [1500, 4095, 65_536, 100_000, 1 << 31, u32::MAX] {
            for (streams, forward_tsn) in [(1, false), (255, true), (u16::MAX, true)] {
                let peer = Init { tag: 9, window, outbound: streams, inbound: 1, tsn: u32::MAX, forward_tsn };
                let cookie = cookies.seal(Time::ZERO, 5, &peer, &ends);
                let opened = cookies.open(Time::ZERO, &cookie, 5, &ends).unwrap();
                assert!((window - window / 5..=window).contains(&opened.window), "{window} {opened:?}");
                assert_eq!(opened, Init { window: opened.window, outbound: streams.min(255), ..peer });
            }
        }
    }
}
