//! Numbers of RFC 5974 §5.1 and §6, and our own in the ranges for private use.

use core::fmt;

signalbox_wire::code_points! {
    /// Type of a message (RFC 5974 §6.1). 240–255 are for private use.
    pub struct MessageType(u8) {
        /// Makes, changes, refreshes or removes a reservation.
        RESERVE = 1, "RESERVE";
        /// Queries the path, or asks the far end to reserve.
        QUERY = 2, "QUERY";
        /// Answers another message.
        RESPONSE = 3, "RESPONSE";
        /// Notifies without a request.
        NOTIFY = 4, "NOTIFY";
    }
}

signalbox_wire::code_points! {
    /// Type of an object (§6.2), 12 bits, shared by all signaling applications. 2000–2047 are for private use.
    pub struct ObjectType(u16) {
        /// Request identification information.
        RII = 0x001, "RII";
        /// Reservation sequence number.
        RSN = 0x002, "RSN";
        /// Refresh period.
        REFRESH_PERIOD = 0x003, "REFRESH-PERIOD";
        /// A session that this one is bound to.
        BOUND_SESSION_ID = 0x004, "BOUND-SESSION-ID";
        /// Which fields of the MRI classify packets.
        PACKET_CLASSIFIER = 0x005, "PACKET-CLASSIFIER";
        /// Success, error or information.
        INFO_SPEC = 0x006, "INFO-SPEC";
        /// More sessions of a summary refresh or tear.
        SESSION_ID_LIST = 0x007, "SESSION-ID-LIST";
        /// Their sequence numbers.
        RSN_LIST = 0x008, "RSN-LIST";
        /// Names a message that others wait for.
        MSG_ID = 0x009, "MSG-ID";
        /// Names the message that this one waits for.
        BOUND_MSG_ID = 0x00a, "BOUND-MSG-ID";
        /// The quality that is asked for or given (RFC 5975).
        QSPEC = 0x00b, "QSPEC";
        /// Authorisation of the session (RFC 5981 §3.1).
        SESSION_AUTH = 0x016, "SESSION-AUTH";
        /// Private to Signalbox: grants of the nodes on the path. AB=10, so that other nodes forward it.
        HOPS = 2000, "hops (Signalbox)";
        /// Private to Signalbox: a text for people. AB=10.
        NOTE = 2001, "note (Signalbox)";
        /// Private to Signalbox: the rate that the node which refused could still give, 64 bits, octets a second. AB=10.
        AVAILABLE = 2003, "available (Signalbox)";
    }
}

signalbox_wire::code_points! {
    /// Severity of an INFO-SPEC (§6.4), 4 bits.
    pub struct InfoClass(u8) {
        /// Information.
        INFORMATIONAL = 1, "Informational";
        /// Success.
        SUCCESS = 2, "Success";
        /// The message has an error.
        PROTOCOL_ERROR = 3, "Protocol Error";
        /// A later or a different request may succeed.
        TRANSIENT_FAILURE = 4, "Transient Failure";
        /// No request of this kind can succeed.
        PERMANENT_FAILURE = 5, "Permanent Failure";
        /// An error of the QoS model.
        QOS_MODEL_ERROR = 6, "QoS Model Error";
        /// An error of NAT and firewall signaling (RFC 5973).
        SESSION_FAILURE = 7, "Signaling Session Failure";
    }
}

signalbox_wire::code_points! {
    /// The reason of a binding (RFC 5974 §5.1.3.4). 128–159 are for private use.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct BindingCode(u8) {
        /// Tunnel and end-to-end sessions.
        TUNNEL = 0x01, "tunnel and end-to-end";
        /// The two directions of one reservation.
        BIDIRECTIONAL = 0x02, "bidirectional";
        /// Aggregate and member sessions.
        AGGREGATE = 0x03, "aggregate";
        /// The binding session lives only while the bound one does.
        DEPENDENT = 0x04, "dependent";
        /// The bound session caused the preemption of this one.
        PREEMPTION = 0x05, "caused preemption";
    }
}

impl BindingCode {
    /// Registered, or of the range for private use.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.name().is_some() || matches!(self.0, 128..=159)
    }
}

macro_rules! infos {
    ($($(#[$meta:meta])* $name:ident = $class:ident / $code:literal, $text:expr;)*) => {
        impl Info {
            $($(#[$meta])* pub const $name: Self = Self { class: InfoClass::$class, code: $code };)*

            /// All codes of §5.1.3.6, in its order.
            pub const CATALOGUE: &'static [Self] = &[$(Self::$name),*];

            /// The registered name; `None` if there is none.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                $(if self.class.0 == InfoClass::$class.0 && self.code == $code {
                    return Some($text);
                })*
                None
            }
        }
    };
}

/// Class and code of an INFO-SPEC (§5.1.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Info {
    /// The class.
    pub class: InfoClass,
    /// The code. Its meaning depends on the class.
    pub code: u8,
}

infos! {
    /// 1/0x01.
    UNKNOWN_BOUND_SESSION = INFORMATIONAL / 0x01, "Unknown BOUND-SESSION-ID";
    /// 1/0x02.
    ROUTE_CHANGE = INFORMATIONAL / 0x02, "Route Change";
    /// 1/0x03.
    NO_REDUCED_REFRESH = INFORMATIONAL / 0x03, "Reduced refreshes not supported";
    /// 1/0x04.
    CONGESTION = INFORMATIONAL / 0x04, "Congestion situation";
    /// 1/0x05.
    UNKNOWN_LISTED_SESSION = INFORMATIONAL / 0x05, "Unknown SESSION-ID in SESSION-ID-LIST";
    /// 1/0x06.
    LISTED_RSN_MISMATCH = INFORMATIONAL / 0x06, "Mismatching RSN in RSN-LIST";
    /// 2/0x01.
    RESERVED = SUCCESS / 0x01, "Reservation successful";
    /// 2/0x02.
    TORN_DOWN = SUCCESS / 0x02, "Teardown successful";
    /// 2/0x03.
    ACKNOWLEDGED = SUCCESS / 0x03, "Acknowledgement";
    /// 2/0x04.
    REFRESHED = SUCCESS / 0x04, "Refresh successful";
    /// 3/0x01.
    ILLEGAL_MESSAGE_TYPE = PROTOCOL_ERROR / 0x01, "Illegal message type";
    /// 3/0x02.
    MESSAGE_LENGTH = PROTOCOL_ERROR / 0x02, "Wrong message length";
    /// 3/0x03.
    GENERIC_FLAGS = PROTOCOL_ERROR / 0x03, "Bad generic flags";
    /// 3/0x04.
    MESSAGE_FLAGS = PROTOCOL_ERROR / 0x04, "Bad message-specific flags";
    /// 3/0x05.
    MISSING_OBJECT = PROTOCOL_ERROR / 0x05, "Mandatory object missing";
    /// 3/0x06.
    ILLEGAL_OBJECT = PROTOCOL_ERROR / 0x06, "Illegal object present";
    /// 3/0x07.
    UNKNOWN_OBJECT = PROTOCOL_ERROR / 0x07, "Unknown object present";
    /// 3/0x08.
    OBJECT_LENGTH = PROTOCOL_ERROR / 0x08, "Wrong object length";
    /// 3/0x09.
    WRONG_DIRECTION = PROTOCOL_ERROR / 0x09, "RESERVE from wrong direction";
    /// 3/0x0a.
    UNKNOWN_VALUE = PROTOCOL_ERROR / 0x0a, "Unknown object field value";
    /// 3/0x0b.
    DUPLICATE_OBJECT = PROTOCOL_ERROR / 0x0b, "Duplicate object present";
    /// 3/0x0c.
    MALFORMED_QSPEC = PROTOCOL_ERROR / 0x0c, "Malformed QSPEC";
    /// 3/0x0d.
    UNKNOWN_MRI = PROTOCOL_ERROR / 0x0d, "Unknown MRI";
    /// 3/0x0e.
    BAD_VALUE = PROTOCOL_ERROR / 0x0e, "Erroneous value";
    /// 3/0x0f.
    INCOMPATIBLE_QSPEC = PROTOCOL_ERROR / 0x0f, "Incompatible QSPEC";
    /// 4/0x01.
    NO_REVERSE_STATE = TRANSIENT_FAILURE / 0x01, "No GIST reverse-path forwarding state";
    /// 4/0x02.
    NO_PATH_STATE = TRANSIENT_FAILURE / 0x02, "No path state for RESERVE";
    /// 4/0x03.
    RII_CONFLICT = TRANSIENT_FAILURE / 0x03, "RII conflict";
    /// 4/0x04.
    FULL_QSPEC_REQUIRED = TRANSIENT_FAILURE / 0x04, "Full QSPEC required";
    /// 4/0x05.
    SYNCHRONISATION = TRANSIENT_FAILURE / 0x05, "Mismatch synchronization of RESERVEs";
    /// 4/0x06. RFC 5974 §5.4.4 has 0x07 for preemption. The list of codes and the registry have 0x06, which is used
    /// here.
    PREEMPTED = TRANSIENT_FAILURE / 0x06, "Reservation preempted";
    /// 4/0x07.
    RESERVATION_FAILURE = TRANSIENT_FAILURE / 0x07, "Reservation failure";
    /// 4/0x08.
    PATH_TRUNCATED = TRANSIENT_FAILURE / 0x08, "Path truncated - Next peer dead";
    /// 5/0x01.
    INTERNAL = PERMANENT_FAILURE / 0x01, "Internal or system error";
    /// 5/0x02.
    AUTHORISATION = PERMANENT_FAILURE / 0x02, "Authorization failure";
}

impl Info {
    /// Whether the class reports an error, which is forwarded towards the QNI (RFC 5974 §5.4.3).
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(self.class.0, 3..=7)
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{}: {name}", self.class),
            None => write!(f, "{} {:#04x}", self.class, self.code),
        }
    }
}

signalbox_wire::flags! {
    /// Flags that mean the same in every message (§5.1.1).
    pub struct GenericFlags(pub u16) {
        /// S: as far as the next QNE only.
        SCOPING = 0x0001, "SCOPING";
        /// P: as far as the P-QNE only.
        PROXY = 0x0002, "PROXY";
        /// A: the peer acknowledges; refreshes and QUERYs without RII only.
        ACK_REQ = 0x0004, "ACK-REQ";
        /// B: there are routers on the path that cannot provide QoS.
        BREAK = 0x0008, "BREAK";
    }
}

impl GenericFlags {
    /// All defined flags. Others are sent as 0 and ignored.
    pub const DEFINED: Self = Self(0x000f);
}

signalbox_wire::flags! {
    /// Flags of a RESERVE (§5.1.2.1) or, for the last one, a QUERY (§5.1.2.2).
    pub struct MessageFlags(pub u8) {
        /// R of a RESERVE: replaces what the session had on another flow or branch.
        REPLACE = 0x01, "REPLACE";
        /// T of a RESERVE: removes the reservation.
        TEAR = 0x02, "TEAR";
        /// R of a QUERY: the far end is to reserve. The same bit as REPLACE.
        RESERVE_INIT = 0x01, "RESERVE-INIT";
    }
}

impl MessageFlags {
    /// The flags that are defined for a type of message; others are sent as 0 and ignored.
    #[must_use]
    pub const fn defined(kind: MessageType) -> Self {
        match kind {
            MessageType::RESERVE => Self(0x03),
            MessageType::QUERY => Self(0x01),
            _ => Self(0),
        }
    }
}

/// Smallest and largest NSLPID of the aggregation levels 0–31, in the registry of GIST. The RFC assigns "32 NSLPID
/// values" without saying which (§6.6): level 0 is the one of the QoS NSLP itself, the others are configured.
pub const AGGREGATION_LEVELS: u8 = 32;

/// Value of the Router Alert Option of an aggregation level (§6.6, IANA): 33–64 with IPv4, 36–67 with IPv6.
#[must_use]
pub const fn router_alert_value(level: u8, ipv6: bool) -> Option<u16> {
    if level >= AGGREGATION_LEVELS {
        return None;
    }
    let first = if ipv6 { 36 } else { 33 };
    Some(first + level as u16)
}
