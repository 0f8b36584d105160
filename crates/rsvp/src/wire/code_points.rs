//! Numbers of the protocol with their names.

use core::fmt;

use signalbox_wire::code_points;

code_points! {
    /// Message type (RFC 2205 §3.1.1, 2745 §3.1, 2961, 3209 §5, 3097 §2).
    pub struct MessageType(u8) {
        /// Path: announces a sender, downstream.
        PATH = 1, "Path";
        /// Resv: reserves for a receiver, upstream.
        RESV = 2, "Resv";
        /// PathErr: reports an error of a Path, upstream.
        PATH_ERR = 3, "PathErr";
        /// ResvErr: reports an error of a Resv, downstream.
        RESV_ERR = 4, "ResvErr";
        /// PathTear: ends a sender, downstream.
        PATH_TEAR = 5, "PathTear";
        /// ResvTear: ends a reservation, upstream.
        RESV_TEAR = 6, "ResvTear";
        /// ResvConf: confirms a reservation, downstream.
        RESV_CONF = 7, "ResvConf";
        /// A diagnostic request (RFC 2745).
        DREQ = 8, "DREQ";
        /// A diagnostic reply (RFC 2745).
        DREP = 9, "DREP";
        /// Several messages to one neighbor (RFC 2961 §3).
        BUNDLE = 12, "Bundle";
        /// Acknowledgments alone (RFC 2961 §4.4).
        ACK = 13, "Ack";
        /// Summary refresh (RFC 2961 §5.2).
        SREFRESH = 15, "Srefresh";
        /// Hello: checks whether the neighbor is up (RFC 3209 §5.1).
        HELLO = 20, "Hello";
        /// Integrity Challenge (RFC 2747 §4.3, number of RFC 3097).
        INTEGRITY_CHALLENGE = 25, "Integrity Challenge";
        /// Integrity Response (RFC 2747 §4.3, number of RFC 3097).
        INTEGRITY_RESPONSE = 26, "Integrity Response";
    }
}

code_points! {
    /// Class of an object, its Class-Num.
    pub struct Class(u8) {
        /// An object to be ignored, of any length.
        NULL = 0, "NULL";
        /// The session.
        SESSION = 1, "SESSION";
        /// The node that sent the message.
        RSVP_HOP = 3, "RSVP_HOP";
        /// Keyed digest (RFC 2747 §2.1).
        INTEGRITY = 4, "INTEGRITY";
        /// Refresh period.
        TIME_VALUES = 5, "TIME_VALUES";
        /// An error; in a ResvConf none.
        ERROR_SPEC = 6, "ERROR_SPEC";
        /// The senders of a wildcard message.
        SCOPE = 7, "SCOPE";
        /// Reservation style.
        STYLE = 8, "STYLE";
        /// The requested quality of service.
        FLOWSPEC = 9, "FLOWSPEC";
        /// The packets that a reservation is for.
        FILTER_SPEC = 10, "FILTER_SPEC";
        /// A sender.
        SENDER_TEMPLATE = 11, "SENDER_TEMPLATE";
        /// Traffic of a sender.
        SENDER_TSPEC = 12, "SENDER_TSPEC";
        /// Services of the path.
        ADSPEC = 13, "ADSPEC";
        /// For policy control (RFC 2750).
        POLICY_DATA = 14, "POLICY_DATA";
        /// The receiver that requests a confirmation.
        RESV_CONFIRM = 15, "RESV_CONFIRM";
        /// Neighbor instances (RFC 3209 §5.2).
        HELLO = 22, "HELLO";
        /// Identifier of a message (RFC 2961 §4.2).
        MESSAGE_ID = 23, "MESSAGE_ID";
        /// Acknowledgment, or identifier of unknown state (RFC 2961 §4.3).
        MESSAGE_ID_ACK = 24, "MESSAGE_ID_ACK";
        /// Identifiers of state to be refreshed (RFC 2961 §5.1).
        MESSAGE_ID_LIST = 25, "MESSAGE_ID_LIST";
        /// Diagnostic request (RFC 2745 §3.3).
        DIAGNOSTIC = 30, "DIAGNOSTIC";
        /// Nodes of the path (RFC 2745 §3.5).
        ROUTE = 31, "ROUTE";
        /// Response of a node (RFC 2745 §3.6).
        DIAG_RESPONSE = 32, "DIAG_RESPONSE";
        /// Objects to be reported (RFC 2745 §3.4).
        DIAG_SELECT = 33, "DIAG_SELECT";
        /// A challenge (RFC 2747 §4.3).
        CHALLENGE = 64, "CHALLENGE";
    }
}

/// Treatment of an object of unknown class, by the two high bits of its number (RFC 2205 §3.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnknownClass {
    /// 0bbbbbbb: reject the whole message with error 13.
    Reject,
    /// 10bbbbbb: ignore the object and do not forward it.
    Ignore,
    /// 11bbbbbb: ignore the object and forward it in all messages that result.
    Forward,
}

impl Class {
    /// Treatment of the class where it is unknown (RFC 2205 §3.10).
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
        /// Not enough resources; value: [`AdmissionValue`].
        ADMISSION = 1, "Admission Control failure";
        /// Administrative reasons; value: [`PolicyValue`].
        POLICY = 2, "Policy Control failure";
        /// No path state for the session.
        NO_PATH = 3, "No path information";
        /// Path state for the session, but not for the sender.
        NO_SENDER = 4, "No sender information";
        /// Another style is in place; value: the low 16 bits of its option vector.
        CONFLICTING_STYLE = 5, "Conflicting reservation style";
        /// Unknown style.
        UNKNOWN_STYLE = 6, "Unknown reservation style";
        /// A zero and a non-zero DstPort for the same destination and protocol.
        CONFLICTING_DEST_PORTS = 7, "Conflicting dest ports";
        /// A zero and a non-zero SrcPort of the same sender in a session.
        CONFLICTING_SENDER_PORTS = 8, "Conflicting sender ports";
        /// The reservation was preempted; value: [`ErrorValue`].
        PREEMPTED = 12, "Service preempted";
        /// An object of an unknown class; value: its [`ObjectType`](super::ObjectType).
        UNKNOWN_CLASS = 13, "Unknown object class";
        /// An object of a known class with an unknown C-Type; value: its [`ObjectType`](super::ObjectType).
        UNKNOWN_C_TYPE = 14, "Unknown object C-Type";
        /// An error of the application interface, for upcalls only.
        API = 20, "Reserved for API";
        /// Bad parameters; value: [`TrafficControlValue`].
        TRAFFIC_CONTROL = 21, "Traffic Control Error";
        /// Failure of traffic control.
        TRAFFIC_CONTROL_SYSTEM = 22, "Traffic Control System error";
        /// Failure of RSVP.
        RSVP_SYSTEM = 23, "RSVP System error";
    }
}

/// Origin of the sub-code in an Error Value: the bits *ss* of codes 01, 12 and 21 (RFC 2205 Appendix B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueScope {
    /// 00: defined in RFC 2205.
    Global,
    /// 01: undefined.
    Undefined,
    /// 10: defined by an organization.
    Organization,
    /// 11: defined by the service.
    Service,
}

/// Error Value of the form *ssur cccc cccc cccc* (RFC 2205 Appendix B, codes 01, 12 and 21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorValue(pub u16);

impl ErrorValue {
    /// Origin of the sub-code.
    #[must_use]
    pub const fn scope(self) -> ValueScope {
        match self.0 >> 14 {
            0 => ValueScope::Global,
            1 => ValueScope::Undefined,
            2 => ValueScope::Organization,
            _ => ValueScope::Service,
        }
    }

    /// The bit *u*: the message is informational and may update state; else state does not change.
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
        /// The services cannot be merged.
        SERVICE_CONFLICT = 1, "Service conflict";
        /// The service is not supported.
        SERVICE_UNSUPPORTED = 2, "Service unsupported";
        /// Bad contents of a FLOWSPEC.
        BAD_FLOWSPEC = 3, "Bad Flowspec value";
        /// Bad contents of a SENDER_TSPEC.
        BAD_TSPEC = 4, "Bad Tspec value";
        /// Bad contents of an ADSPEC.
        BAD_ADSPEC = 5, "Bad Adspec value";
    }
}

code_points! {
    /// Error Values of [`ErrorCode::POLICY`] (RFC 2750 §4.4, RFC 4495 §5); values from 0x8000 are defined by sites and
    /// vendors.
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
        /// Decision point cannot check RSVP objects.
        RSVP = 16, "ERR_RSVP";
        /// Service not allowed.
        SERVICE = 17, "ERR_SERVICE";
        /// Style not allowed.
        STYLE = 18, "ERR_STYLE";
        /// FlowSpec not allowed.
        FLOWSPEC = 19, "ERR_FL_SPEC";
        /// A part of the reservation was preempted: the FLOWSPEC is what is left (RFC 4495 §5).
        PARTIAL_PREEMPT = 102, "ERR_PARTIAL_PREEMPT";
    }
}

signalbox_wire::flags! {
    /// Flags of the common header, four bits; RFC 2205 has none.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct HeaderFlags(pub u8) {
        /// The sender supports Bundles, Srefreshes and MESSAGE_IDs (RFC 2961 §2).
        REFRESH_REDUCTION = 0x01, "refresh-reduction";
    }
}

signalbox_wire::flags! {
    /// Flags of an ERROR_SPEC.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct ErrorFlags(pub u8) {
        /// A former reservation is still in place; in a ResvErr only.
        IN_PLACE = 0x01, "InPlace";
        /// This receiver's FLOWSPEC was smaller than the one that failed; between RSVP and the receiver's application
        /// only.
        NOT_GUILTY = 0x02, "NotGuilty";
    }
}

signalbox_wire::flags! {
    /// R-error of a DIAG_RESPONSE, three bits (RFC 2745 §3.6).
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct DiagErrors(pub u8) {
        /// There is no path state.
        NO_PATH = 0x01, "no-path";
        /// Responses of other nodes were returned from here, because the message would be too big.
        TOO_BIG = 0x02, "too-big";
        /// The ROUTE was too big, and a new one starts here.
        ROUTE_TOO_BIG = 0x04, "route-too-big";
    }
}
