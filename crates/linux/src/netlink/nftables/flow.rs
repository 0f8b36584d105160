//! The expressions of rules about flows: keys of several parts, lookups in sets and maps, marks of flows, translation.
//!
//! Each part of a key begins at a register of 32 bits. The key begins at the first register, the value that a map gives at
//! the register behind the longest key.

use super::expression::{
    Compare, Header, NFT_META_L4PROTO, NFT_META_PRIORITY, NFT_REG_1, NFT_REG_VERDICT, NFTA_PAYLOAD_BASE,
    NFTA_PAYLOAD_DREG, NFTA_PAYLOAD_LEN, NFTA_PAYLOAD_OFFSET, append, change_bits, compare, load_meta_into,
    set_meta,
};
use super::{NFPROTO_IPV4, NFPROTO_IPV6, number, text};
use crate::netlink::Batch;

/// The first register of 32 bits.
const NFT_REG32_00: u32 = 8;
/// The register of a map's value: the longest key has 44 octets.
const VALUE: u32 = NFT_REG32_00 + 11;
const NFT_META_NFPROTO: u32 = 15;
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFTA_CT_DIRECTION: u16 = 3;
const NFTA_CT_SREG: u16 = 4;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_MARK: u32 = 3;
const NFT_CT_PROTOCOL: u32 = 10;
const NFT_CT_PROTO_SRC: u32 = 11;
const NFT_CT_PROTO_DST: u32 = 12;
const NFT_CT_SRC_IP: u32 = 19;
const NFT_CT_DST_IP: u32 = 20;
const NFT_CT_SRC_IP6: u32 = 21;
const NFT_CT_DST_IP6: u32 = 22;
/// The direction of a flow's first packet.
const IP_CT_DIR_ORIGINAL: u8 = 0;
/// The state of a flow of which no answer was seen yet.
const STATE_NEW: u32 = 8;
const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_DREG: u16 = 3;
const NFTA_NAT_TYPE: u16 = 1;
const NFTA_NAT_FAMILY: u16 = 2;
const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
const NFTA_NAT_REG_PROTO_MIN: u16 = 5;

/// A part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The protocol.
    Protocol,
    /// The source port; with ICMP the identifier.
    SourcePort,
    /// The destination port; with ICMP type and code.
    DestinationPort,
}

impl Part {
    /// The number of registers that the part takes.
    pub(crate) const fn registers(self, ipv6: bool) -> u32 {
        match self {
            Self::Source | Self::Destination if ipv6 => 4,
            _ => 1,
        }
    }
}

/// What a flow's addresses are translated to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Translation {
    /// Another source.
    Source = 0,
    /// Another destination.
    Destination = 1,
}

/// The rule continues with packets of this family.
pub(crate) fn family(rule: &mut Batch, ipv6: bool) {
    load_meta_into(rule, NFT_META_NFPROTO, NFT_REG_1);
    compare(rule, Compare::Equal, &[if ipv6 { NFPROTO_IPV6 } else { NFPROTO_IPV4 }]);
}

/// Loads parts of the headers of the flow's first packet as it arrived: connection tracking has them, for packets of both
/// directions, before and after translation. The rule ends if the packet belongs to no flow of this family.
pub(crate) fn load_flow(rule: &mut Batch, ipv6: bool, parts: &[Part]) {
    load_each(rule, ipv6, parts, |rule, part, register| {
        let key = match (part, ipv6) {
            (Part::Source, false) => NFT_CT_SRC_IP,
            (Part::Source, true) => NFT_CT_SRC_IP6,
            (Part::Destination, false) => NFT_CT_DST_IP,
            (Part::Destination, true) => NFT_CT_DST_IP6,
            (Part::Protocol, _) => NFT_CT_PROTOCOL,
            (Part::SourcePort, _) => NFT_CT_PROTO_SRC,
            (Part::DestinationPort, _) => NFT_CT_PROTO_DST,
        };
        append(rule, "ct", |ct| {
            ct.attribute(NFTA_CT_KEY, &number(key))
                .attribute(NFTA_CT_DREG, &number(register))
                .attribute(NFTA_CT_DIRECTION, &[IP_CT_DIR_ORIGINAL])
        });
    });
}

/// Loads parts of the packet's own headers. The rule is for packets of this family.
pub(crate) fn load_packet(rule: &mut Batch, ipv6: bool, parts: &[Part]) {
    load_each(rule, ipv6, parts, |rule, part, register| {
        let (header, offset, octets) = match (part, ipv6) {
            (Part::Source, false) => (Header::Network, 12, 4),
            (Part::Source, true) => (Header::Network, 8, 16),
            (Part::Destination, false) => (Header::Network, 16, 4),
            (Part::Destination, true) => (Header::Network, 24, 16),
            (Part::SourcePort, _) => (Header::Transport, 0, 2),
            (Part::DestinationPort, _) => (Header::Transport, 2, 2),
            (Part::Protocol, _) => return load_meta_into(rule, NFT_META_L4PROTO, register),
        };
        append(rule, "payload", |payload| {
            payload
                .attribute(NFTA_PAYLOAD_DREG, &number(register))
                .attribute(NFTA_PAYLOAD_BASE, &number(header as u32))
                .attribute(NFTA_PAYLOAD_OFFSET, &number(offset))
                .attribute(NFTA_PAYLOAD_LEN, &number(octets))
        });
    });
}

fn load_each(rule: &mut Batch, ipv6: bool, parts: &[Part], load: impl Fn(&mut Batch, Part, u32)) {
    let mut register = NFT_REG32_00;
    for part in parts {
        load(rule, *part, register);
        register += part.registers(ipv6);
    }
}

/// The rule continues if the set has the key that was loaded.
pub(crate) fn is_in(rule: &mut Batch, set: &str) {
    append(rule, "lookup", |lookup| {
        lookup.attribute(NFTA_LOOKUP_SET, &text(set)).attribute(NFTA_LOOKUP_SREG, &number(NFT_REG32_00))
    });
}

/// Translates the flow to what the map has for the key that was loaded: an address, and behind it a port if `port`. The rule
/// ends if the map has nothing.
pub(crate) fn translate(rule: &mut Batch, map: &str, what: Translation, ipv6: bool, port: bool) {
    look_up(rule, map, VALUE);
    let family = if ipv6 { NFPROTO_IPV6 } else { NFPROTO_IPV4 };
    append(rule, "nat", |nat| {
        nat.attribute(NFTA_NAT_TYPE, &number(what as u32))
            .attribute(NFTA_NAT_FAMILY, &number(family.into()))
            .attribute(NFTA_NAT_REG_ADDR_MIN, &number(VALUE));
        if port {
            let register = VALUE + Part::Source.registers(ipv6);
            nat.attribute(NFTA_NAT_REG_PROTO_MIN, &number(register));
        }
        nat
    });
}

/// Gives the packet the class, its priority, that the map has for the key that was loaded. The rule ends if the map has nothing.
pub(crate) fn classify(rule: &mut Batch, map: &str) {
    look_up(rule, map, VALUE);
    set_meta(rule, NFT_META_PRIORITY, VALUE);
}

/// Continues in the chain that the map has for the class of the packet. The rule ends if the map has nothing.
pub(crate) fn go_by_class(rule: &mut Batch, map: &str) {
    load_meta_into(rule, NFT_META_PRIORITY, NFT_REG32_00);
    look_up(rule, map, NFT_REG_VERDICT);
}

/// Loads what a map has for the key that was loaded.
fn look_up(rule: &mut Batch, map: &str, register: u32) {
    append(rule, "lookup", |lookup| {
        lookup
            .attribute(NFTA_LOOKUP_SET, &text(map))
            .attribute(NFTA_LOOKUP_SREG, &number(NFT_REG32_00))
            .attribute(NFTA_LOOKUP_DREG, &number(register))
    });
}

/// The rule continues with packets of flows of which no answer was seen yet.
pub(crate) fn is_new(rule: &mut Batch) {
    load_ct(rule, NFT_CT_STATE);
    change_bits(rule, &STATE_NEW.to_ne_bytes(), &[0; 4]);
    compare(rule, Compare::NotEqual, &[0; 4]);
}

/// The rule continues with packets of flows whose mark has this bit.
pub(crate) fn has_mark(rule: &mut Batch, bit: u32) {
    load_ct(rule, NFT_CT_MARK);
    change_bits(rule, &bit.to_ne_bytes(), &[0; 4]);
    compare(rule, Compare::Equal, &bit.to_ne_bytes());
}

/// Sets a bit of the flow's mark, and leaves the others.
pub(crate) fn set_mark(rule: &mut Batch, bit: u32) {
    load_ct(rule, NFT_CT_MARK);
    change_bits(rule, &(!bit).to_ne_bytes(), &bit.to_ne_bytes());
    append(rule, "ct", |ct| {
        ct.attribute(NFTA_CT_KEY, &number(NFT_CT_MARK)).attribute(NFTA_CT_SREG, &number(NFT_REG_1))
    });
}

fn load_ct(rule: &mut Batch, key: u32) {
    append(rule, "ct", |ct| {
        ct.attribute(NFTA_CT_KEY, &number(key)).attribute(NFTA_CT_DREG, &number(NFT_REG_1))
    });
}
