//! Packets of IP protocol 46, in the form that the engine works with.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::packet::{
    ROUTER_ALERT_RSVP_V6, Received, Transmit, router_alert, router_alert_v4, router_alert_v6_before,
};
use signalbox_core::{Entry, IfIndex};

/// A received packet of IP protocol 46 (RSVP, RFC 2205 §3.3). It was addressed to this node or to a group
/// that this node has joined, or it passed by with a Router Alert and was intercepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpReceived<'a> {
    /// Source address. In a Path message it is the sender of the flow.
    pub src: IpAddr,
    /// Destination address, even when the packet was intercepted.
    pub dst: IpAddr,
    /// Interface by which it came in.
    pub ifindex: IfIndex,
    /// IPv4 TTL or IPv6 hop limit as received, not yet decremented by this node.
    pub ttl: u8,
    /// IPv4 TOS octet or IPv6 traffic class.
    pub tos: u8,
    /// Whether it carries a Router Alert (RFC 2113, RFC 2711).
    pub router_alert: bool,
    /// Octets after the IP header and its options; they begin with the RSVP common header and are not
    /// checked.
    pub payload: &'a [u8],
}

/// A packet of IP protocol 46 to be sent. If it is larger than the MTU, the kernel fragments it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpTransmit<'a> {
    /// Source address. If it is unspecified, the kernel chooses it. It may belong to another node: Path and
    /// PathTear carry the source of their flow (RFC 2205 §3.1.3).
    pub src: IpAddr,
    /// Destination address. If it is a group, `ifindex` must be given.
    pub dst: IpAddr,
    /// Outgoing interface; `None`: the kernel's routing chooses it.
    pub ifindex: Option<IfIndex>,
    /// Next hop at that interface, where the route of the data names it; `None`: the kernel's routing chooses it.
    pub gateway: Option<IpAddr>,
    /// IPv4 TTL or IPv6 hop limit to send.
    pub ttl: u8,
    /// IPv4 TOS octet or IPv6 traffic class.
    pub tos: u8,
    /// Whether to send it with a Router Alert. The value is 0 with IPv4 (Path, PathTear, ResvConf: RFC 2205
    /// §3.3) and [`ROUTER_ALERT_RSVP_V6`] with IPv6 (all RSVP messages: RFC 2711 §2.1).
    pub router_alert: bool,
    /// Its next node has an address that others named, and that node has proved nothing.
    pub unproved: bool,
    /// Octets after the IP header and its options.
    pub payload: &'a [u8],
}

/// IP protocol number of RSVP.
const RSVP: u8 = 46;

impl<'a> From<Received<'a>> for IpReceived<'a> {
    fn from(packet: Received<'a>) -> Self {
        let Received { src, dst, ifindex, ttl, tos, options, payload, .. } = packet;
        let router_alert = router_alert(options, dst.is_ipv6()).is_some();
        Self { src: src.ip(), dst: dst.ip(), ifindex, ttl, tos, router_alert, payload }
    }
}

impl<'a> From<Transmit<'a>> for IpTransmit<'a> {
    fn from(packet: Transmit<'a>) -> Self {
        let Transmit { src, dst, ifindex, gateway, ttl, tos, options, unproved, payload, .. } = packet;
        let router_alert = router_alert(options, dst.is_ipv6()).is_some();
        Self { src: src.ip(), dst: dst.ip(), ifindex, gateway, ttl, tos, router_alert, unproved, payload }
    }
}

impl<'a> From<IpReceived<'a>> for Received<'a> {
    fn from(packet: IpReceived<'a>) -> Self {
        let IpReceived { src, dst, ifindex, ttl, tos, router_alert, payload } = packet;
        Self {
            entry: Entry::Ip(RSVP),
            src: SocketAddr::new(src, 0),
            dst: SocketAddr::new(dst, 0),
            ifindex,
            ttl,
            tos,
            options: alert_options(router_alert, dst),
            payload,
        }
    }
}

/// The IP options of an RSVP packet to `dst`, with or without a Router Alert (RFC 2205 §3.3, RFC 2711 §2.1).
const fn alert_options(router_alert: bool, dst: IpAddr) -> &'static [u8] {
    const V4: [u8; 4] = router_alert_v4(0);
    const V6: [u8; 8] = router_alert_v6_before(RSVP, ROUTER_ALERT_RSVP_V6);
    match (router_alert, dst) {
        (false, _) => &[],
        (true, IpAddr::V4(_)) => &V4,
        (true, IpAddr::V6(_)) => &V6,
    }
}

impl<'a> From<IpTransmit<'a>> for Transmit<'a> {
    fn from(packet: IpTransmit<'a>) -> Self {
        let IpTransmit { src, dst, ifindex, gateway, ttl, tos, router_alert, unproved, payload } = packet;
        let options = alert_options(router_alert, dst);
        Self {
            entry: Entry::Ip(RSVP),
            src: SocketAddr::new(src, 0),
            dst: SocketAddr::new(dst, 0),
            ifindex,
            gateway,
            ttl,
            tos,
            dont_fragment: false,
            flow_label: 0,
            unproved,
            options,
            payload,
        }
    }
}
