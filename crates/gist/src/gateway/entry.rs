//! The entry of this gateway in a NAT-Traversal object: what it needs to send the answer back, and two keyed hashes.
//!
//! Only entries that this gateway made are used. The first hash covers what a Response and an Error have, the second one
//! the Query-Cookie too: only a Response to the Query itself opens ports.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::secret::{RotatingSecret, same};
use signalbox_core::{NslpId, SessionId, Time};
use signalbox_wire::Reader;

/// Formats of entries: of a Query that came from the address that its NLI names, and of one that did not.
const FORMATS: [u8; 2] = [1, 2];
/// Octets of each of the two hashes.
const HASH: usize = 8;
/// Octets of the longest entry, that of an IPv6 address.
const LONGEST: usize = 10 + 16 + 2 * HASH;

/// What the gateway needs of a Query when its answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number of the interface by which the Query came in; 0: it does not fit.
    pub(super) link: u16,
    /// UDP source port of the Query.
    pub(super) port: u16,
    /// The binding of the flow; 0: it has none.
    pub(super) binding: u32,
    /// Interface-Address in the Query's NLI.
    pub(super) interface: IpAddr,
    /// The Query came from this address.
    pub(super) own: bool,
}

/// What the hashes cover, beside the entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound<'a> {
    pub(super) session: SessionId,
    pub(super) nslp: NslpId,
    /// The MRI in the NAT-Traversal object.
    pub(super) mri: &'a [u8],
    /// The Query-Cookie; `None`: the message has none.
    pub(super) cookie: Option<&'a [u8]>,
}

/// An entry as octets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sealed {
    octets: [u8; LONGEST],
    length: usize,
}

impl Sealed {
    pub(super) fn octets(&self) -> &[u8] {
        self.octets.get(..self.length).unwrap_or_default()
    }
}

impl Entry {
    /// The octets of the entry with both hashes.
    pub(super) fn seal(&self, secret: &RotatingSecret, now: Time, bound: &Bound<'_>) -> Sealed {
        let generation = secret.current(now);
        let [.., octet] = generation.to_be_bytes();
        let mut sealed = Sealed { octets: [0; LONGEST], length: 0 };
        let mut put = |octets: &[u8]| {
            if let Some(place) = sealed.octets.get_mut(sealed.length..sealed.length + octets.len()) {
                place.copy_from_slice(octets);
                sealed.length += octets.len();
            }
        };
        let [own, other] = FORMATS;
        put(&[if self.own { own } else { other }, octet]);
        put(&self.link.to_be_bytes());
        put(&self.port.to_be_bytes());
        put(&self.binding.to_be_bytes());
        match self.interface {
            IpAddr::V4(v4) => put(&v4.octets()),
            IpAddr::V6(v6) => put(&v6.octets()),
        }
        let length = sealed.length;
        for with_cookie in [false, true] {
            let hash =
                hash(secret, generation, sealed.octets.get(..length).unwrap_or_default(), bound, with_cookie);
            if let Some(place) = sealed.octets.get_mut(sealed.length..sealed.length + HASH) {
                place.copy_from_slice(&hash);
                sealed.length += HASH;
            }
        }
        sealed
    }

    /// The entry, if this gateway made it for this session, and whether it made it for this Query-Cookie. GISTNAT-X-02,
    /// GISTNAT-X-07.
    pub(super) fn open(
        secret: &RotatingSecret,
        now: Time,
        octets: &[u8],
        bound: &Bound<'_>,
    ) -> Option<(Self, bool)> {
        let plain = octets.len().checked_sub(2 * HASH)?;
        let (plain, hashes) = octets.split_at_checked(plain)?;
        let (first, second) = hashes.split_at_checked(HASH)?;
        let mut r = Reader::new(plain);
        let [format, octet, l1, l0, p1, p0, b3, b2, b1, b0] = r.array().ok()?;
        if !FORMATS.contains(&format) {
            return None;
        }
        let interface = match r.peek_rest().len() {
            4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>().ok()?)),
            16 => IpAddr::V6(Ipv6Addr::from(r.array::<16>().ok()?)),
            _ => return None,
        };
        let generation = secret.from_octet(now, octet)?;
        if !same(&hash(secret, generation, plain, bound, false), first) {
            return None;
        }
        let of_query = bound.cookie.is_some() && same(&hash(secret, generation, plain, bound, true), second);
        let entry = Self {
            link: u16::from_be_bytes([l1, l0]),
            port: u16::from_be_bytes([p1, p0]),
            binding: u32::from_be_bytes([b3, b2, b1, b0]),
            interface,
            own: FORMATS.first() == Some(&format),
        };
        Some((entry, of_query))
    }
}

fn hash(
    secret: &RotatingSecret,
    generation: u32,
    plain: &[u8],
    bound: &Bound<'_>,
    with_cookie: bool,
) -> [u8; HASH] {
    let cookie = bound.cookie.filter(|_| with_cookie).unwrap_or_default();
    let parts: [&[u8]; 6] =
        [&[u8::from(with_cookie)], plain, &bound.session.0, &bound.nslp.0.to_be_bytes(), bound.mri, cookie];
    let tag = secret.tag(generation, &parts);
    *tag.first_chunk().unwrap_or(&[0; HASH])
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use signalbox_core::Random;

    fn secret(number: u64) -> RotatingSecret {
        RotatingSecret::new(Duration::from_secs(300), &mut Random::from_number(number))
    }

    const BOUND: Bound<'_> =
        Bound { session: SessionId([7; 16]), nslp: NslpId::PING, mri: &[1, 2, 3, 4], cookie: Some(&[9; 8]) };

    fn entry(interface: &str) -> Entry {
        Entry { link: 2, port: 32768, binding: 0x11, interface: interface.parse().unwrap(), own: true }
    }

    /// GISTNAT-X-01: format, generation, link, port, binding, address and two hashes, as in the worked example.
    #[test]
    fn an_entry_has_the_format_of_the_worked_example() {
        let sealed = entry("192.168.0.10").seal(&secret(1), Time::ZERO, &BOUND);
        assert_eq!(sealed.octets().len(), 30);
        assert_eq!(sealed.octets()[..14], [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0x11, 0xc0, 0xa8, 0, 0x0a]);
        assert_eq!(entry("fd00::1").seal(&secret(1), Time::ZERO, &BOUND).octets().len(), 42);
    }

    #[test]
    fn only_its_own_entries_are_opened() {
        for address in ["192.168.0.10", "fd00::1"] {
            let entry = Entry { own: address.contains('.'), ..entry(address) };
            let sealed = entry.seal(&secret(1), Time::ZERO, &BOUND);
            let open = |octets: &[u8], bound: &Bound<'_>, now| Entry::open(&secret(1), now, octets, bound);
            assert_eq!(open(sealed.octets(), &BOUND, Time::from_secs(299)), Some((entry, true)));
            // The key before the present one is valid, older ones are not.
            assert_eq!(open(sealed.octets(), &BOUND, Time::from_secs(599)), Some((entry, true)));
            assert_eq!(open(sealed.octets(), &BOUND, Time::from_secs(600)), None);
            assert_eq!(Entry::open(&secret(2), Time::ZERO, sealed.octets(), &BOUND), None);
            for at in 0..sealed.octets().len() - HASH {
                let mut octets = sealed.octets().to_vec();
                octets[at] ^= 1;
                assert_eq!(open(&octets, &BOUND, Time::ZERO), None, "octet {at}");
                assert_eq!(open(&octets[..at], &BOUND, Time::ZERO), None, "length {at}");
            }
            // An Error has no Query-Cookie, and a Response may have another one.
            for cookie in [None, Some(&[8; 8][..])] {
                let bound = Bound { cookie, ..BOUND };
                assert_eq!(open(sealed.octets(), &bound, Time::ZERO), Some((entry, false)));
            }
            let other = [
                Bound { session: SessionId([6; 16]), ..BOUND },
                Bound { nslp: NslpId::QOS, ..BOUND },
                Bound { mri: &[1, 2, 3, 5], ..BOUND },
            ];
            for bound in other {
                assert_eq!(open(sealed.octets(), &bound, Time::ZERO), None);
            }
        }
    }
}
