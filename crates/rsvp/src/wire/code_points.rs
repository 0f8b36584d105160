//! Numbers with names.

use core::fmt;

use signalbox_wire::code_points;

code_points! {
    /// What a message is (RFC 2205 §3.1.1, 2745 §3.1, 2961, 3209 §5, 3097 §2).
    pub struct MessageType(u8) {
        /// A sender's announcement, downstream.
        PATH = 1, "Path";
        /// A receiver's reservation, upstream.
        RESV = 2, "Resv";
        /// An error of a Path, upstream.
        PATH_ERR = 3, "PathErr";
        /// An error of a Resv, downstream.
        RESV_ERR = 4, "ResvErr";
        /// The end of a sender, downstream.
        PATH_TEAR = 5, "PathTear";
        /// The end of a reservation, upstream.
        RESV_TEAR = 6, "ResvTear";
        /// A reservation was made, downstream.
        RESV_CONF = 7, "ResvConf";
        /// A diagnostic request (RFC 2745).
        DREQ = 8, "DREQ";
        /// A diagnostic reply (RFC 2745).
        DREP = 9, "DREP";
        /// Several messages to one neighbour (RFC 2961 §3).
        BUNDLE = 12, "Bundle";
        /// Acknowledgments alone (RFC 2961 §4.4).
        ACK = 13, "Ack";
        /// Summary refresh (RFC 2961 §5.2).
        SREFRESH = 15, "Srefresh";
        /// Is the neighbour there, and the same one still (RFC 3209 §5.1)?
        HELLO = 20, "Hello";
        /// Who are you (RFC 2747 §4.3, number of RFC 3097)?
        INTEGRITY_CHALLENGE = 25, "Integrity Challenge";
        /// The answer (RFC 2747 §4.3, number of RFC 3097).
        INTEGRITY_RESPONSE = 26, "Integrity Response";
    }
}

code_points! {
    /// Class of an object, its Class-Num.
    pub struct Class(u8) {
        /// Nothing, anywhere, of any length.
        NULL = 0, "NULL";
        /// The session.
        SESSION = 1, "SESSION";
        /// Who sent the message on this hop.
        RSVP_HOP = 3, "RSVP_HOP";
        /// Keyed digest (RFC 2747 §2.1).
        INTEGRITY = 4, "INTEGRITY";
        /// Refresh period.
        TIME_VALUES = 5, "TIME_VALUES";
        /// An error, or none in a confirmation.
        ERROR_SPEC = 6, "ERROR_SPEC";
        /// The senders that a wildcard message is for.
        SCOPE = 7, "SCOPE";
        /// Reservation style.
        STYLE = 8, "STYLE";
        /// What is asked for.
        FLOWSPEC = 9, "FLOWSPEC";
        /// For which sender.
        FILTER_SPEC = 10, "FILTER_SPEC";
        /// A sender.
        SENDER_TEMPLATE = 11, "SENDER_TEMPLATE";
        /// Its traffic.
        SENDER_TSPEC = 12, "SENDER_TSPEC";
        /// What the path can do.
        ADSPEC = 13, "ADSPEC";
        /// For policy control (RFC 2750).
        POLICY_DATA = 14, "POLICY_DATA";
        /// Who wants a confirmation.
        RESV_CONFIRM = 15, "RESV_CONFIRM";
        /// Neighbour instances (RFC 3209 §5.2).
        HELLO = 22, "HELLO";
        /// Name of a message (RFC 2961 §4.2).
        MESSAGE_ID = 23, "MESSAGE_ID";
        /// It arrived, or its state is unknown (RFC 2961 §4.3).
        MESSAGE_ID_ACK = 24, "MESSAGE_ID_ACK";
        /// Names of states that are refreshed (RFC 2961 §5.1).
        MESSAGE_ID_LIST = 25, "MESSAGE_ID_LIST";
        /// What a diagnosis asks (RFC 2745 §3.3).
        DIAGNOSTIC = 30, "DIAGNOSTIC";
        /// Nodes on the way (RFC 2745 §3.5).
        ROUTE = 31, "ROUTE";
        /// What a node found (RFC 2745 §3.6).
        DIAG_RESPONSE = 32, "DIAG_RESPONSE";
        /// Objects to be reported (RFC 2745 §3.4).
        DIAG_SELECT = 33, "DIAG_SELECT";
        /// A challenge (RFC 2747 §4.3).
        CHALLENGE = 64, "CHALLENGE";
    }
}

/// What to do about an object of unknown class, told by the two high bits of its number (RFC 2205 §3.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnknownClass {
    /// 0bbbbbbb: reject the whole message with error 13.
    Reject,
    /// 10bbbbbb: as if it were not there; not passed on.
    Ignore,
    /// 11bbbbbb: not looked at, passed on in all messages that result.
    Forward,
}

impl Class {
    /// What its number says to those who do not know it.
    #[must_use]
    pub const fn if_unknown(self) -> UnknownClass {
        match self.0 >> 6 {
            0 | 1 => UnknownClass::Reject,
            2 => UnknownClass::Ignore,
            _ => UnknownClass::Forward,
        }
    }
}

code_points! {
    /// Error Code of an ERROR_SPEC (RFC 2205 Appendix B).
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct ErrorCode(u8) {
        /// No error: a confirmation.
        CONFIRMATION = 0, "Confirmation";
        /// Refused for lack of resources; value: [`AdmissionValue`].
        ADMISSION = 1, "Admission Control failure";
        /// Refused for administrative reasons; value: [`PolicyValue`].
        POLICY = 2, "Policy Control failure";
        /// No path state for the session.
        NO_PATH = 3, "No path information";
        /// Path state, but none of such a sender.
        NO_SENDER = 4, "No sender information";
        /// Another style is in place; value: the low 16 bits of its option vector.
        CONFLICTING_STYLE = 5, "Conflicting reservation style";
        /// No such style.
        UNKNOWN_STYLE = 6, "Unknown reservation style";
        /// Zero and other DstPorts for the same destination and protocol.
        CONFLICTING_DEST_PORTS = 7, "Conflicting dest ports";
        /// Zero and other SrcPorts of the same sender in a session.
        CONFLICTING_SENDER_PORTS = 8, "Conflicting sender ports";
        /// Taken away for another's sake; value: [`ErrorValue`].
        PREEMPTED = 12, "Service preempted";
        /// An object of a class that must be known; value: its [`ObjectType`](super::ObjectType).
        UNKNOWN_CLASS = 13, "Unknown object class";
        /// A known class with a type that is not; value: its [`ObjectType`](super::ObjectType).
        UNKNOWN_C_TYPE = 14, "Unknown object C-Type";
        /// Found asynchronously, told by upcall only.
        API = 20, "Reserved for API";
        /// Parameters that are wrong in themselves; value: [`TrafficControlValue`].
        TRAFFIC_CONTROL = 21, "Traffic Control Error";
        /// Traffic control broke down.
        TRAFFIC_CONTROL_SYSTEM = 22, "Traffic Control System error";
        /// RSVP broke down.
        RSVP_SYSTEM = 23, "RSVP System error";
    }
}

/// Whose sub-code an Error Value holds: the bits *ss* of codes 01, 12 and 21.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueScope {
    /// 00: of RFC 2205.
    Global,
    /// 01, which has no meaning.
    Undefined,
    /// 10: of an organization.
    Organization,
    /// 11: of the service.
    Service,
}

/// Error Value of the form *ssur cccc cccc cccc* (RFC 2205 Appendix B, codes 01, 12 and 21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorValue(pub u16);

impl ErrorValue {
    /// Whose code it is.
    #[must_use]
    pub const fn scope(self) -> ValueScope {
        match self.0 >> 14 {
            0 => ValueScope::Global,
            1 => ValueScope::Undefined,
            2 => ValueScope::Organization,
            _ => ValueScope::Service,
        }
    }

    /// The bit *u*: the message is informational and may update state; else RSVP rejects it without.
    #[must_use]
    pub const fn informational(self) -> bool {
        self.0 & 0x2000 != 0
    }

    /// The sub-code, 12 bits.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0 & 0x0fff
    }
}

impl fmt::Display for ErrorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

code_points! {
    /// Global Error Values of [`ErrorCode::ADMISSION`].
    pub struct AdmissionValue(u16) {
        /// The delay bound cannot be met.
        DELAY_BOUND = 1, "Delay bound cannot be met";
        /// The bandwidth is not available.
        BANDWIDTH = 2, "Requested bandwidth unavailable";
        /// M of the flowspec is larger than the interface's MTU.
        MTU = 3, "MTU in flowspec larger than interface MTU";
    }
}

code_points! {
    /// Global Error Values of [`ErrorCode::TRAFFIC_CONTROL`].
    pub struct TrafficControlValue(u16) {
        /// Services that cannot be merged.
        SERVICE_CONFLICT = 1, "Service conflict";
        /// No such service here.
        SERVICE_UNSUPPORTED = 2, "Service unsupported";
        /// Contents of a FLOWSPEC.
        BAD_FLOWSPEC = 3, "Bad Flowspec value";
        /// Contents of a SENDER_TSPEC.
        BAD_TSPEC = 4, "Bad Tspec value";
        /// Contents of an ADSPEC.
        BAD_ADSPEC = 5, "Bad Adspec value";
    }
}

code_points! {
    /// Error Values of [`ErrorCode::POLICY`] (RFC 2750 §4.4, RFC 4495 §5); 0x8000 and up are a site's or vendor's own.
    pub struct PolicyValue(u16) {
        /// Information.
        INFO = 0, "ERR_INFO";
        /// A warning.
        WARN = 1, "ERR_WARN";
        /// Reason unknown.
        UNKNOWN = 2, "ERR_UNKNOWN";
        /// Rejected.
        REJECT = 3, "ERR_REJECT";
        /// Quota or account exceeded.
        EXCEED = 4, "ERR_EXCEED";
        /// Preempted.
        PREEMPT = 5, "ERR_PREEMPT";
        /// Policy expired.
        EXPIRED = 6, "ERR_EXPIRED";
        /// Policy replaced.
        REPLACED = 7, "ERR_REPLACED";
        /// Policies could not be merged.
        MERGE = 8, "ERR_MERGE";
        /// Decision point down.
        PDP = 9, "ERR_PDP";
        /// Third party server down.
        SERVER = 10, "ERR_SERVER";
        /// POLICY_DATA with bad syntax.
        PD_SYNTAX = 11, "ERR_PD_SYNTX";
        /// POLICY_DATA with bad integrity.
        PD_INTEGRITY = 12, "ERR_PD_INTGR";
        /// Bad policy element.
        BAD_ELEMENT = 13, "ERR_PE_BAD";
        /// Mandatory element missing.
        MISSING_ELEMENT = 14, "ERR_PD_MISS";
        /// Decision point out of resources.
        NO_RESOURCES = 15, "ERR_NO_RSC";
        /// Decision point cannot judge RSVP objects.
        RSVP = 16, "ERR_RSVP";
        /// Service not allowed.
        SERVICE = 17, "ERR_SERVICE";
        /// Style not allowed.
        STYLE = 18, "ERR_STYLE";
        /// FlowSpec not allowed.
        FLOWSPEC = 19, "ERR_FL_SPEC";
        /// Less is granted than was: the FLOWSPEC says how much (RFC 4495 §5).
        PARTIAL_PREEMPT = 102, "ERR_PARTIAL_PREEMPT";
    }
}

macro_rules! bits {
    ($(#[$meta:meta])* $name:ident { $($(#[$bmeta:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$bmeta])* pub const $bit: Self = Self($value);)*

            /// Whether all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Only those bits that `other` has too.
            #[must_use]
            pub const fn only(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// With the bits of `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

bits! {
    /// Flags of the common header, four bits; RFC 2205 has none.
    HeaderFlags {
        /// The sender takes Bundles, Srefreshes and MESSAGE_IDs (RFC 2961 §2).
        REFRESH_REDUCTION = 0x01;
    }
}

bits! {
    /// Flags of an ERROR_SPEC.
    ErrorFlags {
        /// The reservation that was in place still is; in a ResvErr only.
        IN_PLACE = 0x01;
        /// The FLOWSPEC that failed was larger than this receiver's; between RSVP and the receiver's application only.
        NOT_GUILTY = 0x02;
    }
}

bits! {
    /// R-error of a DIAG_RESPONSE, three bits (RFC 2745 §3.6).
    DiagErrors {
        /// There is no path state.
        NO_PATH = 0x01;
        /// What nodes before this one found was returned from here: with more the message would be too big.
        TOO_BIG = 0x02;
        /// The ROUTE was too big and starts anew here.
        ROUTE_TOO_BIG = 0x04;
    }
}
