//! Code points (§3.1) and flags (§3.2.1).

use core::fmt;

signalbox_wire::code_points! {
    /// Type of a message: how its format and flags are read.
    pub struct MessageType(u8) {
        /// A reservation.
        RESERVATION = 0x10, "BOOMERANG_RESERVATION";
        /// Named in the draft without a body; never sent, always forwarded unchanged.
        MARKER_SETUP = 0x20, "DS MARKER_SETUP";
    }
}

signalbox_wire::code_points! {
    /// Address family of a flow specification: the low nibble of the format.
    pub struct Family(u8) {
        /// IPv4.
        IPV4 = 0x02, "IPv4";
        /// IPv6.
        IPV6 = 0x0a, "IPv6";
    }
}

signalbox_wire::code_points! {
    /// Format of the QoS specification: the high nibble of the format.
    pub struct QosFormat(u8) {
        /// Two rates.
        BITRATE = 0x10, "QOSFMT_BITRATE";
        /// Two IntServ messages (RFC 2210).
        INTSERV = 0x20, "QOSFMT_INTSERV";
        /// A list of pairs of rates.
        DOWNGRADE = 0x30, "QOSFMT_DOWNGRADE";
    }
}

signalbox_wire::code_points! {
    /// Type of an option.
    pub struct OptionType(u16) {
        /// Padding up to the end of the message.
        PADDING = 0, "padding";
        /// User and credential.
        UID = 0x0001, "Boomerang_UID";
        /// A proposed aggregate.
        AGGREGATION = 0x0002, "RESV_AGGREGATION";
        /// The node that refused, and the reason. An extension of this suite.
        REFUSAL = 0x8001, "refusal (extension)";
        /// HMAC with a key of the domain. An extension of this suite.
        AUTHENTICATION = 0x8002, "authentication (extension)";
        /// What proves that the initiating node received the reply. An extension of this suite.
        RETURN_PROOF = 0x8003, "proof of return (extension)";
        /// What the node that refused adds for people. An extension of this suite.
        NOTE = 0x8004, "note (extension)";
        /// The nodes that granted a request.
        NODES = 0x8005, "nodes (extension)";
    }
}

/// Format of a reservation message: address family and QoS format. Both are compared as numbers, not as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format(pub u8);

impl Format {
    /// A format of these parts.
    #[must_use]
    pub const fn of(family: Family, qos: QosFormat) -> Self {
        Self(family.0 | qos.0)
    }

    /// The address family. BOOM-3.1-07.
    #[must_use]
    pub const fn family(self) -> Family {
        Family(self.0 & 0x0f)
    }

    /// The QoS format. BOOM-3.1-08.
    #[must_use]
    pub const fn qos(self) -> QosFormat {
        QosFormat(self.0 & 0xf0)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Format({:#04x}: {}, {})", self.0, self.family(), self.qos())
    }
}

signalbox_wire::flags! {
    /// Flags of a reservation message.
    pub struct Flags(pub u16) {
        /// A node refused the reservation.
        NACK = 0x0001, "NACK";
        /// The message is not to be returned (the draft names no bit).
        NO_ECHO = 0x0002, "NO_ECHO";
        /// The initiating node returns options of [`OptionType::RETURN_PROOF`]. An extension of this suite.
        RETURNS = 0x0004, "RETURNS";
        /// The path granted the reservation before: a node that lost it since then refuses the message. An extension of this suite.
        STANDS = 0x0008, "STANDS";
    }
}

/// The direction in which a message travels. The ICMP type is its only sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// An Echo Request, from the initiating node to the far end.
    Request,
    /// An Echo Reply, from the far end back.
    Reply,
}

impl Pass {
    /// The ICMP or ICMPv6 type. BOOM-F4.1.4-01, BOOM-2.2-01, BOOM-G29-01.
    #[must_use]
    pub const fn icmp_type(self, ipv6: bool) -> u8 {
        match (self, ipv6) {
            (Self::Request, false) => 8,
            (Self::Reply, false) => 0,
            (Self::Request, true) => 128,
            (Self::Reply, true) => 129,
        }
    }

    /// The pass of an ICMP or ICMPv6 type.
    #[must_use]
    pub const fn of_icmp_type(kind: u8, ipv6: bool) -> Option<Self> {
        match (kind, ipv6) {
            (8, false) | (128, true) => Some(Self::Request),
            (0, false) | (129, true) => Some(Self::Reply),
            _ => None,
        }
    }
}
