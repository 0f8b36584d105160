//! Numbers of RFC 5973 §4 and §7.

use core::fmt;

signalbox_wire::code_points! {
    /// Type of a message (RFC 5973 §4.1).
    pub struct MessageType(u8) {
        /// Requests a policy rule from the data sender's side; refreshes, changes and deletes it.
        CREATE = 1, "CREATE";
        /// Reserves an external address, announces a data receiver, or blocks traffic, from the data receiver's side.
        EXTERNAL = 2, "EXTERNAL";
        /// Answers a CREATE or EXTERNAL.
        RESPONSE = 3, "RESPONSE";
        /// Reports an event without a request.
        NOTIFY = 4, "NOTIFY";
    }
}

signalbox_wire::code_points! {
    /// Type of an object (RFC 5973 §4.2), 12 bits, of the registry that all signaling applications share.
    pub struct ObjectType(u16) {
        /// Lifetime of the signaling session.
        LT = 0x00c, "NATFW_LT";
        /// External address of an edge-NAT.
        EXTERNAL_IP = 0x00d, "NATFW_EXTERNAL_IP";
        /// External addresses of the other NATs.
        EXTERNAL_BINDING = 0x00e, "NATFW_EXTERNAL_BINDING";
        /// Action of the policy rule, and a second port.
        EFI = 0x00f, "NATFW_EFI";
        /// Success, error or event.
        INFO = 0x010, "NATFW_INFO";
        /// Relates a CREATE to an EXTERNAL in proxy mode.
        NONCE = 0x011, "NATFW_NONCE";
        /// Message sequence number.
        MSN = 0x012, "NATFW_MSN";
        /// Ports, protocol and sender of the data.
        DTINFO = 0x013, "NATFW_DTINFO";
        /// Types of ICMP messages.
        ICMP_TYPES = 0x014, "NATFW_ICMP_TYPES";
    }
}

signalbox_wire::code_points! {
    /// Action of a policy rule (RFC 5973 §4.2.4).
    pub struct RuleAction(u16) {
        /// Data and signaling pass.
        ALLOW = 1, "allow";
        /// Data and signaling do not pass.
        DENY = 2, "deny";
    }
}

signalbox_wire::code_points! {
    /// Class of a NATFW_INFO (RFC 5973 §4.2.5), 4 bits.
    pub struct InfoClass(u8) {
        /// An event, in NOTIFY only.
        INFORMATIONAL = 1, "Informational";
        /// Success.
        SUCCESS = 2, "Success";
        /// The message has an error.
        PROTOCOL_ERROR = 3, "Protocol error";
        /// A later request may succeed.
        TRANSIENT_FAILURE = 4, "Transient failure";
        /// No request of this kind can succeed.
        PERMANENT_FAILURE = 5, "Permanent failure";
        /// The signaling session fails.
        SESSION_FAILURE = 7, "Signaling session failure";
    }
}

macro_rules! infos {
    ($($(#[$meta:meta])* $name:ident = $class:ident / $code:literal, $text:expr;)*) => {
        impl Info {
            $($(#[$meta])* pub const $name: Self = Self { class: InfoClass::$class, code: $code };)*

            /// All codes of §4.2.5, in its order.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}

/// Class and code of a NATFW_INFO (RFC 5973 §4.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Info {
    /// The class, 4 bits.
    pub class: InfoClass,
    /// The code. Its meaning depends on the class.
    pub code: u8,
}

infos! {
    /// 1/0x01.
    ROUTE_CHANGE = INFORMATIONAL / 0x01, "Route change: possible route change on the outbound path";
    /// 1/0x02.
    REAUTHENTICATE = INFORMATIONAL / 0x02, "Re-authentication required";
    /// 1/0x03.
    GOING_DOWN = INFORMATIONAL / 0x03, "NATFW node is going down soon";
    /// 1/0x04.
    EXPIRED = INFORMATIONAL / 0x04, "NATFW signaling session lifetime expired";
    /// 1/0x05.
    TERMINATED = INFORMATIONAL / 0x05, "NATFW signaling session terminated";
    /// 2/0x01.
    PROCESSED = SUCCESS / 0x01, "All successfully processed";
    /// 3/0x01.
    ILLEGAL_MESSAGE_TYPE = PROTOCOL_ERROR / 0x01, "Illegal message type";
    /// 3/0x02.
    MESSAGE_LENGTH = PROTOCOL_ERROR / 0x02, "Wrong message length";
    /// 3/0x03. It is never sent, because undefined flags are ignored (RFC 5973 §4.1).
    BAD_FLAGS = PROTOCOL_ERROR / 0x03, "Bad flags value";
    /// 3/0x04.
    MISSING_OBJECT = PROTOCOL_ERROR / 0x04, "Mandatory object missing";
    /// 3/0x05.
    ILLEGAL_OBJECT = PROTOCOL_ERROR / 0x05, "Illegal object present";
    /// 3/0x06.
    UNKNOWN_OBJECT = PROTOCOL_ERROR / 0x06, "Unknown object present";
    /// 3/0x07.
    OBJECT_LENGTH = PROTOCOL_ERROR / 0x07, "Wrong object length";
    /// 3/0x08.
    UNKNOWN_VALUE = PROTOCOL_ERROR / 0x08, "Unknown object field value";
    /// 3/0x09.
    FLAG_COMBINATION = PROTOCOL_ERROR / 0x09, "Invalid Flag-Field combination";
    /// 3/0x0a.
    DUPLICATE_OBJECT = PROTOCOL_ERROR / 0x0a, "Duplicate object present";
    /// 3/0x0b.
    EXTERNAL_SIDE = PROTOCOL_ERROR / 0x0b, "Received EXTERNAL request message on external side";
    /// 4/0x01.
    NO_RESOURCES = TRANSIENT_FAILURE / 0x01, "Requested resources temporarily not available";
    /// 5/0x01.
    AUTHENTICATION = PERMANENT_FAILURE / 0x01, "Authentication failed";
    /// 5/0x02.
    AUTHORIZATION = PERMANENT_FAILURE / 0x02, "Authorization failed";
    /// 5/0x04.
    INTERNAL = PERMANENT_FAILURE / 0x04, "Internal or system error";
    /// 5/0x06.
    NO_EDGE = PERMANENT_FAILURE / 0x06, "No edge-device here";
    /// 5/0x07.
    NR_NOT_REACHED = PERMANENT_FAILURE / 0x07, "Did not reach the NR";
    /// 7/0x01.
    SESSION_TERMINATED = SESSION_FAILURE / 0x01, "Session terminated asynchronously";
    /// 7/0x02.
    LIFETIME_TOO_BIG = SESSION_FAILURE / 0x02, "Requested lifetime is too big";
    /// 7/0x03.
    NO_RESERVATION = SESSION_FAILURE / 0x03, "No reservation found matching the MRI of the CREATE request";
    /// 7/0x04.
    POLICY_CONFLICT = SESSION_FAILURE / 0x04, "Requested policy rule denied due to policy conflict";
    /// 7/0x05.
    UNKNOWN_ACTION = SESSION_FAILURE / 0x05, "Unknown policy rule action";
    /// 7/0x06. The text of §3.7.2 has class 3; the list of codes and the registry have class 7, which is used here.
    ACTION_NOT_APPLICABLE = SESSION_FAILURE / 0x06, "Requested rule action not applicable";
    /// 7/0x07.
    DTINFO_REQUIRED = SESSION_FAILURE / 0x07, "NATFW_DTINFO object is required";
    /// 7/0x08.
    SUB_PORTS = SESSION_FAILURE / 0x08, "Requested value in sub_ports field in NATFW_EFI not permitted";
    /// 7/0x09.
    PROTOCOL_NOT_SUPPORTED = SESSION_FAILURE / 0x09, "Requested IP protocol not supported";
    /// 7/0x0a.
    PLAIN_IP = SESSION_FAILURE / 0x0a, "Plain IP policy rules not permitted -- need transport layer information";
    /// 7/0x0b.
    ICMP_TYPE = SESSION_FAILURE / 0x0b, "ICMP type value not permitted";
    /// 7/0x0c.
    SOURCE_RANGE = SESSION_FAILURE / 0x0c, "Source IP address range is too large";
    /// 7/0x0d.
    DESTINATION_RANGE = SESSION_FAILURE / 0x0d, "Destination IP address range is too large";
    /// 7/0x0e.
    SOURCE_PORTS = SESSION_FAILURE / 0x0e, "Source L4-port range is too large";
    /// 7/0x0f.
    DESTINATION_PORTS = SESSION_FAILURE / 0x0f, "Destination L4-port range is too large";
    /// 7/0x10.
    LIFETIME_TOO_SMALL = SESSION_FAILURE / 0x10, "Requested lifetime is too small";
    /// 7/0x11.
    MODIFIED_TOO_BIG = SESSION_FAILURE / 0x11, "Modified lifetime is too big";
    /// 7/0x12.
    MODIFIED_TOO_SMALL = SESSION_FAILURE / 0x12, "Modified lifetime is too small";
}

impl Info {
    /// The registered name; `None` if there is none.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Self::ALL.iter().find(|(info, _)| *info == self).map(|(_, name)| *name)
    }

    /// Whether the class is Success.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.class == InfoClass::SUCCESS
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
