//! Code points and flags (sections 4.2 and 4.3 and appendix A of the draft).

signalbox_wire::code_points! {
    /// Type of a message.
    pub struct MessageType(u8) {
        /// A message along the chain of CASP nodes.
        SIGNALING = 1, "Signaling";
        /// The search for the next CASP node.
        SCOUT_REQUEST = 2, "Scout Request";
        /// The answer to it.
        SCOUT_RESPONSE = 3, "Scout Response";
    }
}

signalbox_wire::code_points! {
    /// Class of an object.
    pub struct Class(u8) {
        /// The data flow.
        FLOW_ID = 1, "FLOW_ID";
        /// Lifetime of state without refresh.
        CASP_TIMEOUT = 2, "CASP_TIMEOUT";
        /// The message of a client.
        CLIENT_DATA = 3, "CLIENT_DATA";
        /// An error of the messaging layer.
        ERROR = 4, "ERROR";
        /// Cookie of the node that sends a Scout Request.
        SCOUT_COOKIE_I = 5, "SCOUT_COOKIE_I";
        /// Cookie of the node that answers it.
        SCOUT_COOKIE_R = 6, "SCOUT_COOKIE_R";
        /// The nodes that a message without state has passed. An extension of this suite.
        RECORD_ROUTE = 240, "RECORD_ROUTE (extension)";
        /// The nodes that a message without state has yet to pass. An extension of this suite.
        ROUTE = 241, "ROUTE (extension)";
    }
}

impl Class {
    /// Whether the draft defines the class.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(self.0, 1..=6)
    }
}

/// C-Type of all objects that have only one.
pub const ONLY: u8 = 1;

signalbox_wire::code_points! {
    /// Form of a flow identifier: the C-Type of FLOW_ID.
    pub struct FlowForm(u8) {
        /// IPv4 addresses, ports and protocol.
        IPV4_PORTS = 1, "IPv4 with ports";
        /// IPv4 addresses and an IPsec SPI.
        IPV4_SPI = 2, "IPv4 with SPI";
        /// IPv6 addresses and a flow label.
        IPV6_LABEL = 3, "IPv6 with flow label";
        /// IPv6 addresses, ports and protocol. An extension of this suite.
        IPV6_PORTS = 129, "IPv6 with ports (extension)";
        /// IPv6 addresses and an IPsec SPI. An extension of this suite.
        IPV6_SPI = 130, "IPv6 with SPI (extension)";
    }
}

signalbox_wire::code_points! {
    /// A client: the C-Type of CLIENT_DATA. 0 and 255 are not used.
    pub struct ClientType(u8) {
        /// Quality of service.
        QOS = 1, "QoS";
        /// Firewalls and NATs. The number is of this suite.
        NATFW = 2, "NATFW";
        /// Ping. The number is of this suite.
        PING = 254, "Ping";
    }
}

signalbox_wire::code_points! {
    /// An error of the messaging layer.
    pub struct ErrorCode(u32) {
        /// Any other error.
        UNKNOWN = 0, "UNKNOWN";
        /// The SCOUT_COOKIE_R is not one of the node that received it.
        COOKIE_ERROR = 1, "COOKIE_ERROR";
        /// The path has changed. An extension of this suite.
        ROUTE_CHANGED = 0x8000_0001, "route changed (extension)";
        /// The message has passed as many nodes as it may. An extension of this suite.
        TTD_EXCEEDED = 0x8000_0002, "TTD exceeded (extension)";
        /// There is no next node. An extension of this suite.
        NO_NEXT_PEER = 0x8000_0003, "no next peer (extension)";
        /// A policy rule. An extension of this suite.
        REFUSED = 0x8000_0004, "refused by policy (extension)";
        /// No node had the client. An extension of this suite.
        NO_CLIENT = 0x8000_0005, "no such client (extension)";
    }
}

impl ErrorCode {
    /// Whether the code is an extension of this suite.
    #[must_use]
    pub const fn is_private(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

signalbox_wire::flags! {
    /// Flags of the Common Header. The low four bits are not used: they are sent as zero and ignored.
    pub struct Flags(u8) {
        /// R: the message travels against the data flow.
        REVERSE = 0x80, "reverse";
        /// T: state is removed.
        TEAR_DOWN = 0x40, "tear-down";
        /// D: each node on the path discovers its next node again.
        DISCOVER = 0x20, "discovery";
        /// U: the message crossed a hop without channel security.
        UNSECURE = 0x10, "unsecure";
    }
}

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);

    /// The flags of an octet.
    #[must_use]
    pub const fn from_octet(octet: u8) -> Self {
        Self(octet & 0xf0)
    }

    /// The octet of the flags.
    #[must_use]
    pub const fn octet(self) -> u8 {
        self.0
    }

    /// Whether the message travels against the data flow.
    #[must_use]
    pub const fn is_reverse(self) -> bool {
        self.contains(Self::REVERSE)
    }
}
