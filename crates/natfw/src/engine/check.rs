//! Values of a request that this node accepts (RFC 5973 §3.4, §3.7.2, §4.2.4).

use core::time::Duration;

use signalbox_core::traffic::FlowFilter;

use super::config::Config;
use super::session::Request;
use crate::wire::{Info, ObjectType, RuleAction};

/// Why a request is refused: class and code, the object concerned, a lifetime that would be accepted, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) info: Info,
    pub(super) object: Option<ObjectType>,
    pub(super) lifetime: Option<u32>,
    pub(super) note: Option<String>,
}

impl From<Info> for Refused {
    fn from(info: Info) -> Self {
        Self { info, object: None, lifetime: None, note: None }
    }
}

impl Refused {
    pub(super) fn of(info: Info, object: ObjectType) -> Self {
        Self { object: Some(object), ..Self::from(info) }
    }

    /// A refusal with a text for the user.
    pub(super) fn because(info: Info, note: &str) -> Self {
        Self { note: Some(note.to_owned()), ..Self::from(info) }
    }
}

const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ESP: u8 = 50;
const AH: u8 = 51;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Whether the packets of a protocol have ports that a NAT translates.
pub(super) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE)
}

/// Whether the protocol is ICMP of either version.
pub(super) const fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, ICMP | ICMPV6)
}

/// The whole seconds of a time.
pub(super) fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// The lifetime that this node accepts for a requested one (RFC 5973 §3.4): never a longer one.
pub(super) fn lifetime(config: &Config, requested: u32) -> Result<u32, Refused> {
    let (least, most) = (seconds(config.min_lifetime), seconds(config.max_lifetime));
    if requested < least {
        let refused = Refused::of(Info::LIFETIME_TOO_SMALL, ObjectType::LT);
        return Err(Refused { lifetime: Some(least), ..refused });
    }
    if requested > most && config.refuse_long {
        let refused = Refused::of(Info::LIFETIME_TOO_BIG, ObjectType::LT);
        return Err(Refused { lifetime: Some(most), ..refused });
    }
    Ok(requested.min(most))
}

/// Action, second port and types of ICMP messages. `protocol`: that of the packets, if they are of one.
pub(super) fn values(config: &Config, request: &Request, protocol: Option<u8>) -> Result<(), Refused> {
    if !matches!(request.efi.action, RuleAction::ALLOW | RuleAction::DENY) {
        return Err(Refused::of(Info::UNKNOWN_ACTION, ObjectType::EFI));
    }
    if request.efi.sub_ports > 1 {
        return Err(Refused::of(Info::SUB_PORTS, ObjectType::EFI));
    }
    let (permitted, types) = (&config.icmp_types, request.icmp_types());
    // Without types, ICMP messages of all types pass.
    let all = types.is_empty() && protocol.is_none_or(is_icmp);
    if !permitted.is_empty() && (all || types.iter().any(|kind| !permitted.contains(kind))) {
        return Err(Refused::of(Info::ICMP_TYPE, ObjectType::ICMP_TYPES));
    }
    Ok(())
}

/// Whether a firewall or NAT can and may handle these packets. `any_source`: the sender need not be known.
pub(super) fn packets(
    config: &Config,
    packets: &FlowFilter,
    any_source: bool,
    second: bool,
) -> Result<(), Info> {
    let bits = if packets.is_ipv4() { 32 } else { 128 };
    let open = |len: u8| bits - len.min(bits);
    if !any_source && open(packets.src.len) > config.open_bits.source {
        return Err(Info::SOURCE_RANGE);
    }
    if open(packets.dst.len) > config.open_bits.destination {
        return Err(Info::DESTINATION_RANGE);
    }
    // The kernel's sets have no place for these fields.
    if packets.dscp.is_some() || packets.flow_label.is_some() {
        return Err(Info::POLICY_CONFLICT);
    }
    let Some(protocol) = packets.protocol else {
        return if config.any_protocol { Ok(()) } else { Err(Info::PLAIN_IP) };
    };
    if has_ports(protocol) {
        if packets.dst_port.is_none_or(|port| port == 0) && !config.any_port {
            return Err(Info::DESTINATION_PORTS);
        }
        let last = |port: Option<u16>| second && port == Some(u16::MAX);
        return if last(packets.dst_port) || last(packets.src_port) { Err(Info::SUB_PORTS) } else { Ok(()) };
    }
    if second {
        return Err(Info::SUB_PORTS);
    }
    if is_icmp(protocol) || matches!(protocol, ESP | AH) { Ok(()) } else { Err(Info::PROTOCOL_NOT_SUPPORTED) }
}
