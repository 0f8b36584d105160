//! Common parts of all messages that this node composes.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::packet::{router_alert_v4, router_alert_v6};
use signalbox_core::{Direction, Mri};

use crate::engine::Gist;
use crate::engine::config::Config;
use crate::engine::outbox::Envelope;
use crate::engine::receive::Arrival;
use crate::engine::routes::covers;
use crate::wire::{HEADER_LENGTH, MAGIC, Nli, PORT};

/// The validity time in the NLI (RFC 5971 A.3.3): whole milliseconds, never 0.
pub(in crate::engine) fn milliseconds(validity: Duration) -> u32 {
    u32::try_from(validity.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Addressing of a message in normal encapsulation: from an address of this node and GIST's port, without IP options
/// (RFC 5971 §5.3.1).
pub(in crate::engine) fn normal(config: &Config, src: IpAddr, dst: SocketAddr, ttl: u8) -> Envelope {
    let (src, tos) = ((src, PORT).into(), config.dscp << 2);
    let (ifindex, gateway) = (None, None);
    Envelope { src, dst, ifindex, gateway, ttl, tos, dont_fragment: false, flow_label: 0, unproved: false }
}

/// The IPv6 flow label of the packets of a flow, 0 if its MRI has no flow label. GIST-5.8.1.2-05.
pub(in crate::engine) fn flow_label(mri: &Mri) -> u32 {
    match mri {
        Mri::PathCoupled(p) => p.flow_label.unwrap_or(0),
        Mri::LooseEnd(_) => 0,
    }
}

/// The IP options of a Q-mode packet and their length: Router Alert, which can be left out in IPv4 only (RFC 5971
/// §5.3.2). GIST-5.3.2.1-02, GIST-5.3.2.2-01.
pub(in crate::engine) fn router_alert(config: &Config, dst: IpAddr, value: u16) -> ([u8; 8], usize) {
    if dst.is_ipv6() {
        return (router_alert_v6(value), 8);
    }
    let [a, b, c, d] = router_alert_v4(value);
    let without = config.without_router_alert.iter().any(|prefix| covers(prefix, dst, 32));
    ([a, b, c, d, 0, 0, 0, 0], if without { 0 } else { 4 })
}

/// Most octets of a GIST message on a link with this MTU; an MTU of 0 is not known. 64 octets are reserved for the
/// headers around the message (RFC 5971 §4.3.3). GIST-4.3.3-06, GIST-4.3.3-07.
pub(in crate::engine) fn limit(config: &Config, mtu: u16) -> usize {
    let most = usize::from(config.max_datagram);
    if mtu == 0 { most } else { most.min(usize::from(mtu).saturating_sub(64)) }
}

/// Most octets of a GIST message that answers a datagram of a sender that has proved nothing: with its headers it has at
/// most one and a half times the octets of that datagram.
pub(in crate::engine) fn room_for_answer(a: &Arrival<'_>) -> usize {
    let around = MAGIC.len() + if a.dst.is_ipv6() { 48 } else { 28 };
    let came = around + a.options.len() + a.octets.len();
    (came * 3 / 2).saturating_sub(around)
}

/// The IP-TTL field of an NLI of this node: the TTL of the packet downstream, the measured distance upstream (RFC 5971
/// §5.2.2).
/// GIST-5.2.2-05, GIST-5.2.2-07.
pub(in crate::engine) const fn nli_ttl(direction: Direction, sent: u8, distance: u8) -> u8 {
    match direction {
        Direction::Downstream => sent,
        Direction::Upstream => distance,
    }
}

/// The distance to the sender of a message: measured if the message came downstream, in the NLI if it came upstream
/// (RFC 5971 §5.2.2). `None`: the NLI has no TTL, or the received TTL is 0, as of messages over an association.
/// GIST-5.2.2-06, GIST-5.2.2-08.
pub(in crate::engine) fn distance(mri: &Mri, nli: &Nli<'_>, received_ttl: u8) -> Option<u8> {
    match mri.direction() {
        Direction::Downstream if nli.ip_ttl == 0 || received_ttl == 0 => None,
        Direction::Downstream => nli.ip_ttl.checked_sub(received_ttl),
        Direction::Upstream => Some(nli.ip_ttl),
    }
}

/// The Network-Layer-Information of this node (RFC 5971 §5.2.2).
pub(in crate::engine) fn nli(config: &Config, validity: Duration, interface: IpAddr, ip_ttl: u8) -> Nli<'_> {
    Nli { peer_identity: &config.identity, ip_ttl, validity_ms: milliseconds(validity), interface }
}

/// Octets of a Data message in normal encapsulation, without those of the application.
pub(in crate::engine) fn overhead(mri: &Mri, identity: usize) -> usize {
    let address = if mri.src().is_ipv6() { 16 } else { 4 };
    let mri = match mri {
        Mri::PathCoupled(p) => {
            let word = |there: bool| if there { 4 } else { 0 };
            8 + 2 * address
                + word(p.flow_label.is_some())
                + word(p.spi.is_some())
                + word(p.src_port.is_some() || p.dst_port.is_some())
        }
        Mri::LooseEnd(_) => 4 + 2 * address,
    };
    let (session, nli) = (16, 8 + identity.next_multiple_of(4) + address);
    // Four TLV headers: MRI, session, NLI, NSLP-Data.
    HEADER_LENGTH + 4 * 4 + mri + session + nli
}

impl Gist {
    /// The validity time that this node proposes and requires: the configured one, or a longer one, so that refreshes take
    /// at most half of the rate limit (RFC 5971 §4.4.4). GIST-4.4.4-04.
    pub(in crate::engine) fn validity(&self) -> Duration {
        let limit = u64::from(self.config.dmode_limit());
        if limit == 0 {
            return self.config.validity;
        }
        let needed = Duration::from_millis(2000 * u64::from(self.records.len()) / limit);
        self.config.validity.max(needed)
    }
}

#[cfg(test)]
mod tests {
    use signalbox_core::{NslpId, PathCoupled, SessionId};
    use signalbox_wire::Writer;

    use super::*;
    use crate::wire::{Message, MessageType};

    #[test]
    fn the_overhead_is_what_the_encoder_makes() {
        let config = Config { identity: vec![1; 7], ..Config::default() };
        for (src, ports) in [("10.0.0.1", None), ("10.0.0.1", Some(5)), ("2001:db8::1", Some(5))] {
            let src: IpAddr = src.parse().unwrap();
            let mut p = PathCoupled::between(src, src);
            (p.protocol, p.src_port) = (ports.map(|_| 17), ports);
            let mri = Mri::PathCoupled(p);
            let mut message = Message::new(MessageType::DATA, NslpId::PING, 1);
            message.mri = Some(mri.into());
            message.session = Some(SessionId([0; 16]));
            message.nli = Some(nli(&config, config.validity, src, 0));
            message.nslp_data = Some(&[0; 8]);
            let mut octets = Vec::new();
            message.encode(&mut Writer::new(&mut octets)).unwrap();
            assert_eq!(octets.len(), overhead(&mri, 7) + 8);
        }
    }
}
