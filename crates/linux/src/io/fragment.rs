//! Fragments of whole IP packets. The kernel fragments what a socket gives it as a payload, but takes a whole packet only if it fits
//! the interface.

use crate::sys;

/// IPv4: no fragments may be made.
const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4: more fragments follow.
const MORE: u16 = 0x2000;
/// IPv4: the flag of options that each fragment has (RFC 791 §3.1).
const COPIED: u8 = 0x80;
/// Octets of the first part of IPv4's header, without options.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Next Header of IPv6's hop-by-hop options and of its Fragment header (RFC 8200 §4.3, §4.5).
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const FRAGMENT_HEADER: usize = 8;

/// The identifications of fragmented packets: they count from a random number.
#[derive(Debug)]
pub(super) struct Identifications(u32);

impl Identifications {
    pub(super) fn new() -> Self {
        let mut octets = [0; 4];
        // Without a random number they begin with that of the process: it matters only that few packets between two addresses have
        // the same one at the same time.
        if sys::getrandom(&mut octets).is_err() {
            octets = std::process::id().to_ne_bytes();
        }
        Self(u32::from_ne_bytes(octets))
    }

    /// The next one. Neither it nor its lower half is 0, for which the kernel would choose another one in each fragment.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        if self.0 as u16 == 0 {
            self.0 = self.0.wrapping_add(1);
        }
        self.0
    }
}

/// Gives `each` a whole packet, or its fragments if it has more than `mtu` octets and may be fragmented.
pub(super) fn cut(packet: &[u8], mtu: usize, ids: &mut Identifications, mut each: impl FnMut(&[u8])) {
    let cut = packet.len() > mtu
        && match packet.first().map(|first| first >> 4) {
            Some(4) => cut_v4(packet, mtu, ids, &mut each),
            Some(6) => cut_v6(packet, mtu, ids, &mut each),
            _ => None,
        }
        .is_some();
    if !cut {
        each(packet);
    }
}

/// `None`: it cannot be fragmented, and `each` got nothing.
fn cut_v4(packet: &[u8], mtu: usize, ids: &mut Identifications, each: &mut impl FnMut(&[u8])) -> Option<()> {
    let first = packet.get(..usize::from(packet.first()? & 0x0f) * 4)?;
    let rest = packet.get(first.len()..)?;
    let flags = u16::from_be_bytes(*packet.get(6..8)?.first_chunk()?);
    let room = mtu.checked_sub(first.len())? & !7;
    if flags & DONT_FRAGMENT != 0 || room == 0 {
        return None;
    }
    let later = header_of_later(first)?;
    let id = (ids.next() as u16).to_be_bytes();
    let mut fragment = Vec::with_capacity(mtu);
    for (number, part) in rest.chunks(room).enumerate() {
        let header = if number == 0 { first } else { &later };
        let offset = number * room;
        let more = if offset + part.len() < rest.len() { MORE } else { 0 };
        fragment.clear();
        fragment.extend_from_slice(header);
        fragment.extend_from_slice(part);
        let total = u16::try_from(fragment.len()).ok()?.to_be_bytes();
        let place = (u16::try_from(offset / 8).ok()? | more).to_be_bytes();
        fragment.get_mut(2..8)?.copy_from_slice(&[total[0], total[1], id[0], id[1], place[0], place[1]]);
        each(&fragment);
    }
    Some(())
}

/// The header of the fragments after the first: with the options that are to be copied (RFC 791 §3.2).
fn header_of_later(first: &[u8]) -> Option<Vec<u8>> {
    let (fixed, mut options) = first.split_at_checked(IPV4_HEADER)?;
    let mut header = fixed.to_vec();
    // End of Option List and No Operation have one octet; all others have their length in the second.
    while let Some(kind @ 1..) = options.first() {
        let length = if *kind == 1 { 1 } else { usize::from(*options.get(1)?).max(2) };
        let (option, rest) = options.split_at_checked(length)?;
        if kind & COPIED != 0 {
            header.extend_from_slice(option);
        }
        options = rest;
    }
    header.resize(header.len().next_multiple_of(4), 0);
    *header.first_mut()? = 0x40 | (header.len() / 4) as u8; // at most 15, as in the first
    Some(header)
}

/// The same for IPv6: each fragment begins with the header and the hop-by-hop options, if there are any (RFC 8200 §4.5).
fn cut_v6(packet: &[u8], mtu: usize, ids: &mut Identifications, each: &mut impl FnMut(&[u8])) -> Option<()> {
    let next = *packet.get(6)?;
    let (head, place) = match next {
        HOP_BY_HOP => (IPV6_HEADER + 8 + 8 * usize::from(*packet.get(IPV6_HEADER + 1)?), IPV6_HEADER),
        _ => (IPV6_HEADER, 6),
    };
    let (head, rest) = packet.split_at_checked(head)?;
    let inner = *head.get(place)?;
    let room = mtu.checked_sub(head.len() + FRAGMENT_HEADER)? & !7;
    if room == 0 {
        return None;
    }
    let id = ids.next().to_be_bytes();
    let mut fragment = Vec::with_capacity(mtu);
    for (number, part) in rest.chunks(room).enumerate() {
        let offset = number * room;
        let more = u16::from(offset + part.len() < rest.len());
        fragment.clear();
        fragment.extend_from_slice(head);
        // The offset counts words of 8 octets in the upper 13 bits.
        let at = (u16::try_from(offset).ok()? | more).to_be_bytes();
        fragment.extend_from_slice(&[inner, 0, at[0], at[1], id[0], id[1], id[2], id[3]]);
        fragment.extend_from_slice(part);
        let length = u16::try_from(fragment.len() - IPV6_HEADER).ok()?.to_be_bytes();
        *fragment.get_mut(place)? = FRAGMENT;
        fragment.get_mut(4..6)?.copy_from_slice(&length);
        each(&fragment);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use etherparse::{IpFragOffset, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader};

    use super::*;

    const ALERT: [u8; 4] = [0x94, 4, 0, 0];

    fn v4(options: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = payload.len().try_into().unwrap();
        let mut header = Ipv4Header::new(length, 63, 46.into(), [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
        header.options = options.try_into().unwrap();
        header.set_payload_len(payload.len()).unwrap();
        header.dont_fragment = false;
        [header.to_bytes().as_slice(), payload].concat()
    }

    fn v6(payload: &[u8]) -> Vec<u8> {
        let options = Ipv6RawExtHeader::new_raw(46.into(), &[5, 2, 0, 1, 1, 0]).unwrap();
        let header = Ipv6Header {
            payload_length: (8 + payload.len()).try_into().unwrap(),
            next_header: 0.into(),
            hop_limit: 63,
            source: [1; 16],
            destination: [2; 16],
            ..Ipv6Header::default()
        };
        [&header.to_bytes()[..], &options.to_bytes(), payload].concat()
    }

    fn parts(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        cut(packet, mtu, &mut Identifications::new(), |part| all.push(part.to_vec()));
        all
    }

    fn payload(length: u32) -> Vec<u8> {
        (0..length).map(|n| (n % 251) as u8).collect()
    }

    /// An independent parser reads the fragments, which make up the packet again.
    #[test]
    fn fragments_of_ipv4_have_the_octets_and_the_copied_options_of_the_packet() {
        let payload = payload(4001);
        // A timestamp, which is not copied, before the Router Alert.
        let timestamp = [0x44, 4, 5, 0];
        let packet = v4(&[timestamp, ALERT].concat(), &payload);
        let all = parts(&packet, 1500);
        assert_eq!(all.len(), 3);
        let (mut again, mut ids) = (Vec::new(), Vec::new());
        for (number, part) in all.iter().enumerate() {
            let (header, rest) = Ipv4Header::from_slice(part).unwrap();
            assert!(part.len() <= 1500 && usize::from(header.total_len) == part.len());
            assert_eq!((header.time_to_live, header.protocol.0), (63, 46));
            assert_eq!(header.fragment_offset, IpFragOffset::try_new((again.len() / 8) as u16).unwrap());
            assert_eq!(header.more_fragments, number < 2);
            let options: &[u8] = if number == 0 { &packet[20..28] } else { &ALERT };
            assert_eq!(&header.options[..], options);
            ids.push(header.identification);
            again.extend_from_slice(rest);
        }
        assert_eq!(again, payload);
        assert!(ids[0] != 0 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[test]
    fn fragments_of_ipv6_begin_with_the_hop_by_hop_options() {
        let payload = payload(4001);
        let packet = v6(&payload);
        let all = parts(&packet, 1280);
        assert_eq!(all.len(), 4);
        let (mut again, mut ids) = (Vec::new(), Vec::new());
        for (number, part) in all.iter().enumerate() {
            let (header, rest) = Ipv6Header::from_slice(part).unwrap();
            assert!(part.len() <= 1280 && usize::from(header.payload_length) == rest.len());
            assert_eq!(header.next_header.0, 0);
            let (options, rest) = Ipv6RawExtHeader::from_slice(rest).unwrap();
            assert_eq!((options.next_header.0, options.payload()), (44, &[5, 2, 0, 1, 1, 0][..]));
            let (fragment, rest) = Ipv6FragmentHeader::from_slice(rest).unwrap();
            assert_eq!((fragment.next_header.0, fragment.more_fragments), (46, number < 3));
            assert_eq!(fragment.fragment_offset.value(), (again.len() / 8) as u16);
            ids.push(fragment.identification);
            again.extend_from_slice(rest);
        }
        assert_eq!(again, payload);
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        // Without options the Fragment header follows IPv6's.
        let mut bare = packet[..40].to_vec();
        bare[4..7].copy_from_slice(&[15, 161, 46]);
        bare.extend_from_slice(&payload);
        let first = parts(&bare, 1280).remove(0);
        assert_eq!((first[6], first[40]), (44, 46));
    }

    #[test]
    fn what_fits_or_may_not_be_fragmented_stays_whole() {
        let packet = v4(&ALERT, &payload(1476));
        assert_eq!(parts(&packet, 1500), core::slice::from_ref(&packet));
        let mut whole = v4(&ALERT, &payload(1477));
        assert_eq!(parts(&whole, 1500).len(), 2);
        whole[6] |= 0x40;
        assert_eq!(parts(&whole, 1500), [whole.clone()]);
        // No packet at all, and headers that the packet does not have.
        for odd in [vec![0; 1501], vec![0x4f; 30], [vec![0x60; 41], vec![0; 2]].concat(), vec![]] {
            assert_eq!(parts(&odd, 20), core::slice::from_ref(&odd));
        }
    }

    #[test]
    fn no_fragment_has_the_identification_0() {
        let mut ids = Identifications(u32::MAX - 1);
        assert_eq!([ids.next(), ids.next()], [u32::MAX, 1]);
        let mut ids = Identifications(0xffff);
        assert_eq!(ids.next(), 0x1_0001);
    }
}
