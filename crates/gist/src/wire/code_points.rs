//! The registries of RFC 5971 §9.

signalbox_wire::code_points! {
    /// Message types, 7 bits (RFC 5971 §9): 6–55 unassigned, 56–63 private use, 64–127 reserved.
    pub struct MessageType(u8) {
        /// Requests a Response from the next GIST node (RFC 5971 §5.1).
        QUERY = 0, "Query";
        /// Answers a Query.
        RESPONSE = 1, "Response";
        /// Completes the handshake.
        CONFIRM = 2, "Confirm";
        /// Carries application data.
        DATA = 3, "Data";
        /// Reports an error found by GIST.
        ERROR = 4, "Error";
        /// Keeps a messaging association.
        MA_HELLO = 5, "MA-Hello";
    }
}

signalbox_wire::code_points! {
    /// Object types, 12 bits (RFC 5971 §9): 2000–2047 private use, 2048–4095 reserved.
    pub struct ObjectType(u16) {
        /// A.3.1.
        MRI = 0, "Message-Routing-Information";
        /// A.3.2.
        SESSION_ID = 1, "Session-Identifier";
        /// A.3.3.
        NLI = 2, "Network-Layer-Information";
        /// A.3.4.
        STACK_PROPOSAL = 3, "Stack-Proposal";
        /// A.3.5.
        STACK_CONFIGURATION = 4, "Stack-Configuration-Data";
        /// A.3.6.
        QUERY_COOKIE = 5, "Query-Cookie";
        /// A.3.7.
        RESPONDER_COOKIE = 6, "Responder-Cookie";
        /// A.3.9.
        NAT_TRAVERSAL = 7, "NAT-Traversal";
        /// A.3.10.
        NSLP_DATA = 8, "NSLP-Data";
        /// A.4.1.
        ERROR = 9, "Error";
        /// A.3.8.
        HELLO_ID = 10, "Hello-ID";
    }
}

signalbox_wire::code_points! {
    /// Message routing methods (RFC 5971 §9): 120–127 private use, 128–255 reserved.
    pub struct MrmId(u8) {
        /// Along the flow (§5.8.1).
        PATH_COUPLED = 0, "path-coupled";
        /// Towards the edge of the network (§5.8.2).
        LOOSE_END = 1, "loose-end";
    }
}

signalbox_wire::code_points! {
    /// Protocols of messaging associations (RFC 5971 §9): 0 reserved, 120–127 private use, 128–255 reserved.
    pub struct MaProtocolId(u8) {
        /// TCP opened in the forwards direction (§5.7.2).
        FORWARDS_TCP = 1, "Forwards-TCP";
        /// TLS initiated in the forwards direction (§5.7.3).
        FORWARDS_TLS = 2, "Forwards-TLS";
        /// SCTP opened in the forwards direction (RFC 6084 §3).
        FORWARDS_SCTP = 3, "Forwards-SCTP";
        /// DTLS initiated in the forwards direction (RFC 6084 §7); not used here.
        DTLS = 4, "DTLS";
    }
}

signalbox_wire::code_points! {
    /// Severity of an error (RFC 5971 A.4.3).
    pub struct ErrorClass(u8) {
        /// Changes nothing.
        INFORMATIONAL = 0, "Informational";
        /// Processed.
        SUCCESS = 1, "Success";
        /// Rejected: the message breaks the protocol.
        PROTOCOL_ERROR = 2, "Protocol-Error";
        /// Rejected: it may work later.
        TRANSIENT_FAILURE = 3, "Transient-Failure";
        /// Rejected: it will not work without a change of the node.
        PERMANENT_FAILURE = 4, "Permanent-Failure";
    }
}

signalbox_wire::code_points! {
    /// Error codes (RFC 5971 A.4.4).
    pub struct ErrorCode(u16) {
        /// A.4.4.1.
        COMMON_HEADER_PARSE = 1, "Common Header Parse Error";
        /// A.4.4.2.
        HOP_LIMIT_EXCEEDED = 2, "Hop Limit Exceeded";
        /// A.4.4.3.
        INCORRECT_ENCAPSULATION = 3, "Incorrect Encapsulation";
        /// A.4.4.4.
        INCORRECTLY_DELIVERED = 4, "Incorrectly Delivered Message";
        /// A.4.4.5.
        NO_ROUTING_STATE = 5, "No Routing State";
        /// A.4.4.6.
        UNKNOWN_NSLPID = 6, "Unknown NSLPID";
        /// A.4.4.7.
        ENDPOINT_FOUND = 7, "Endpoint Found";
        /// A.4.4.8.
        MESSAGE_TOO_LARGE = 8, "Message Too Large";
        /// A.4.4.9.
        OBJECT_TYPE = 9, "Object Type Error";
        /// A.4.4.10.
        OBJECT_VALUE = 10, "Object Value Error";
        /// A.4.4.11.
        INVALID_IP_TTL = 11, "Invalid IP-Layer TTL";
        /// A.4.4.12.
        MRI_VALIDATION = 12, "MRI Validation Failure";
    }
}

signalbox_wire::code_points! {
    /// Additional information in an Error object (RFC 5971 A.4.2).
    pub struct InfoType(u16) {
        /// Length of the message, computed from its objects.
        MESSAGE_LENGTH = 1, "Message Length Info";
        /// MTU of the link, which is less than the message.
        MTU = 2, "MTU Info";
        /// The type of the object at fault.
        OBJECT_TYPE = 3, "Object Type Info";
        /// The object at fault.
        OBJECT_VALUE = 4, "Object Value Info";
    }
}
