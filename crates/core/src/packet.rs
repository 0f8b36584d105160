//! Packets as they are received from and sent to the network, with the fields of their IP headers.

use core::net::{IpAddr, SocketAddr};

use crate::entry::Entry;
use crate::id::IfIndex;

/// A received packet. It was addressed to this node or to a group that this node has joined, or it passed by
/// and was intercepted.
///
/// `O` holds its octets. They are borrowed in a [`Received`], the form that engines take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[cfg_attr(feature = "serde", serde(bound(serialize = "O: AsRef<[u8]>", deserialize = "O: From<Vec<u8>>")))]
pub struct ReceivedOf<O> {
    /// Port of entry by which it came in.
    pub entry: Entry,
    /// Address in the packet's source field; the port is 0 if the protocol has no ports.
    pub src: SocketAddr,
    /// Address in the packet's destination field, even when the packet was intercepted; the port is 0 if the
    /// protocol has no ports.
    pub dst: SocketAddr,
    /// Interface by which it came in.
    pub ifindex: IfIndex,
    /// IPv4 TTL or IPv6 hop limit as received, not yet decremented by this node.
    pub ttl: u8,
    /// IPv4 TOS octet or IPv6 traffic class.
    pub tos: u8,
    /// IPv4 options as in the header, or the whole IPv6 hop-by-hop options header (from its next-header octet
    /// on). Empty if the packet has neither.
    #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
    pub options: O,
    /// Octets after the header of the entry; [`Entry::Udp`], [`Entry::Ip`] and [`Entry::IcmpEcho`] each
    /// define them.
    #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
    pub payload: O,
}

/// A received packet whose octets are borrowed.
pub type Received<'a> = ReceivedOf<&'a [u8]>;

impl ReceivedOf<Vec<u8>> {
    /// The same packet with its octets borrowed.
    #[must_use]
    pub fn as_received(&self) -> Received<'_> {
        let &Self { entry, src, dst, ifindex, ttl, tos, ref options, ref payload } = self;
        Received { entry, src, dst, ifindex, ttl, tos, options, payload }
    }
}

/// A packet to be sent. If it is larger than the MTU, the kernel fragments it unless `dont_fragment` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Transmit<'a> {
    /// Port of entry by which it leaves.
    pub entry: Entry,
    /// Source address, and port where the protocol has one. If it is unspecified, the kernel chooses it. It
    /// may belong to another node: a Query carries the source of its flow (RFC 5971 §5.8.1.2), a forwarded
    /// packet its own.
    pub src: SocketAddr,
    /// Destination address, and port where the protocol has one. If it is a group, `ifindex` must be given.
    pub dst: SocketAddr,
    /// Outgoing interface; `None`: the kernel's routing chooses it.
    pub ifindex: Option<IfIndex>,
    /// Next hop at `ifindex`, where the route of a flow names it; `None`: the kernel's routing chooses it. A rule on ports can
    /// lead a flow to another next hop than a packet of signaling to the same destination.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub gateway: Option<IpAddr>,
    /// IPv4 TTL or IPv6 hop limit to send.
    pub ttl: u8,
    /// IPv4 TOS octet or IPv6 traffic class.
    pub tos: u8,
    /// Whether to set IPv4's DF bit (RFC 5971 §5.3.2.1 requires it in Q-mode).
    pub dont_fragment: bool,
    /// IPv6 flow label, 20 bits; 0: the kernel chooses it. It has no meaning with IPv4.
    pub flow_label: u32,
    /// Whether the receiver has proved nothing, so that there may be no such node. Packets that wait for the link-layer
    /// address of such a receiver must not delay others; the driver may drop them.
    pub unproved: bool,
    /// IPv4 options (a multiple of 4 octets) or a whole IPv6 hop-by-hop options header; may be empty.
    #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
    pub options: &'a [u8],
    /// Octets after the header of the entry; [`Entry::Udp`], [`Entry::Ip`] and [`Entry::IcmpEcho`] each
    /// define them.
    #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
    pub payload: &'a [u8],
}

/// Value of IPv6's Router Alert in front of RSVP (RFC 2711 §2.1).
pub const ROUTER_ALERT_RSVP_V6: u16 = 1;

/// IPv4 Router Alert option with value `value` (RFC 2113).
#[must_use]
pub const fn router_alert_v4(value: u16) -> [u8; 4] {
    let [high, low] = value.to_be_bytes();
    [0x94, 4, high, low]
}

/// IPv6 hop-by-hop options header in front of UDP that holds a Router Alert of `value` (RFC 2711 §2.1).
#[must_use]
pub const fn router_alert_v6(value: u16) -> [u8; 8] {
    router_alert_v6_before(17, value)
}

/// IPv6 hop-by-hop options header in front of the IP protocol `next` that holds a Router Alert of `value`
/// (RFC 2711 §2.1).
#[must_use]
pub const fn router_alert_v6_before(next: u8, value: u16) -> [u8; 8] {
    let [high, low] = value.to_be_bytes();
    // next header, length 0 (8 octets), option 5 of 2 octets, PadN of no octets
    [next, 0, 5, 2, high, low, 1, 0]
}

/// The Router Alert value among the options of a received packet, as [`Received::options`] gives them.
#[must_use]
pub fn router_alert(options: &[u8], ipv6: bool) -> Option<u16> {
    let (mut rest, alert, pad1) = if ipv6 { (options.get(2..)?, 5, 0) } else { (options, 0x94, 1) };
    while let Some((&kind, tail)) = rest.split_first() {
        if !ipv6 && kind == 0 {
            return None; // end of option list
        }
        if kind == pad1 {
            rest = tail;
            continue;
        }
        let length = usize::from(*tail.first()?);
        // IPv4 counts the two leading octets in the length, IPv6 does not.
        let data = if ipv6 { tail.get(1..1 + length)? } else { tail.get(1..length.checked_sub(1)?)? };
        if kind == alert {
            return data.first_chunk::<2>().map(|v| u16::from_be_bytes(*v));
        }
        rest = tail.get(1 + data.len()..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RSVP-RAO-01: type 148, length 4, value 0. RSVP-RAO-03: type 5, length 2, value 1, at an even offset,
    /// once.
    #[test]
    fn router_alerts_are_those_of_the_standards() {
        assert_eq!(router_alert_v4(0), [148, 4, 0, 0]);
        assert_eq!(router_alert_v6(ROUTER_ALERT_RSVP_V6)[1..], [0, 5, 2, 0, 1, 1, 0]);
    }

    #[test]
    fn router_alert_is_found_among_other_options() {
        assert_eq!(router_alert(&router_alert_v4(7), false), Some(7));
        assert_eq!(router_alert(&router_alert_v6(9), true), Some(9));
        assert_eq!(router_alert(&[1, 1, 7, 3, 4, 0x94, 4, 0, 1, 0, 0, 0], false), Some(1));
        assert_eq!(router_alert(&[17, 0, 0, 1, 0, 5, 2, 0, 3], true), Some(3));
    }

    #[test]
    fn broken_options_hold_no_router_alert() {
        for options in [&[][..], &[0x94], &[0x94, 4], &[0x94, 0, 0, 0], &[7, 200, 0], &[0, 0x94, 4, 0, 0]] {
            assert_eq!(router_alert(options, false), None, "{options:?}");
        }
        for options in [&[][..], &[17], &[17, 0, 5], &[17, 0, 5, 2, 0], &[17, 0, 5, 0]] {
            assert_eq!(router_alert(options, true), None, "{options:?}");
        }
    }
}
