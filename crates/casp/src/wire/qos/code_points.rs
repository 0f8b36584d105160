//! Code points and flags of the QoS client.

signalbox_wire::code_points! {
    /// Type of a message.
    pub struct QosType(u8) {
        /// Asks for resources.
        RESERVE = 1, "Reserve";
        /// Makes reserved resources usable.
        COMMIT = 2, "Commit";
        /// Drops all resources of the session.
        RELEASE = 3, "Release";
        /// A request worked.
        SUCCESS = 4, "Success";
        /// A request failed.
        ERROR = 5, "Error";
        /// Asks what is available. The number is of this suite.
        QUERY = 6, "Query";
    }
}

impl QosType {
    /// Whether the message asks for something, and gets an answer.
    #[must_use]
    pub const fn is_request(self) -> bool {
        matches!(self, Self::RESERVE | Self::COMMIT | Self::RELEASE | Self::QUERY)
    }
}

signalbox_wire::code_points! {
    /// Class of an object. The numbers are of this suite.
    pub struct QosClass(u8) {
        /// Address of the node that failed.
        ERROR_NODE = 1, "ERROR_NODE";
        /// Kind of resource.
        VERSION = 2, "VERSION";
        /// The least flowspec that is accepted.
        MINIMUM_FLOWSPEC = 3, "MINIMUM_FLOWSPEC";
        /// The most that is wanted.
        DESIRED_FLOWSPEC = 4, "DESIRED_FLOWSPEC";
        /// Nodes that failed, and nodes that may.
        PARTIAL_RESERVATION = 5, "PARTIAL_RESERVATION";
        /// Two rates.
        BANDWIDTH = 6, "BANDWIDTH";
        /// A per-hop behaviour.
        PHB = 7, "PHB";
        /// Named in the draft, not defined.
        L2_PROPERTIES = 8, "L2_PROPERTIES";
        /// Data for a segment of the path.
        LOCAL = 9, "LOCAL";
        /// Number of a request.
        SEQUENCE = 10, "SEQUENCE";
        /// Stamp of a reservation.
        AGE = 11, "AGE";
        /// Reason of an error.
        ERROR_CODE = 12, "ERROR_CODE";
        /// Never sent, ignored.
        NEXT = 13, "NEXT";
        /// Priority.
        PRIORITY = 14, "PRIORITY";
        /// Start and end of a reservation in advance.
        TIME = 15, "TIME";
        /// A CMS object.
        CMS = 16, "CMS";
        /// The flow of the opposite direction.
        REVERSE_FLOW = 17, "REVERSE_FLOW";
        /// What the node that failed adds to an Error.
        REFUSAL = 18, "REFUSAL";
        /// The nodes that granted a request.
        HOPS = 19, "HOPS";
    }
}

signalbox_wire::code_points! {
    /// Kind of resource: the value of VERSION.
    pub struct QosVersion(u32) {
        /// IntServ flowspecs.
        FLOWSPEC = 0, "flowspec";
        /// BANDWIDTH.
        BANDWIDTH = 1, "bandwidth";
        /// PHB.
        PHB = 2, "PHB";
    }
}

signalbox_wire::code_points! {
    /// Reason of an error: the code of ERROR_CODE. The numbers are of this suite.
    pub struct QosErrorCode(u16) {
        /// The lower bound cannot be met here.
        BELOW_MINIMUM = 1, "lower bound cannot be met";
        /// Too many nodes failed.
        TOO_MANY_FAILED = 2, "too many failed nodes";
        /// Too many nodes are indeterminate.
        TOO_MANY_INDETERMINATE = 3, "too many indeterminate nodes";
        /// Authentication failed.
        AUTHENTICATION = 4, "authentication failed";
        /// A policy rule.
        POLICY = 5, "refused by policy";
        /// A field is wrong.
        MALFORMED = 6, "malformed message";
        /// A required object is missing.
        MISSING = 7, "required object missing";
        /// The kind of resource is unknown.
        VERSION = 8, "unknown version";
        /// The C-Type is unknown.
        C_TYPE = 9, "unknown C-Type";
        /// The type of the message is unknown.
        TYPE = 10, "unknown message type";
        /// No such reservation.
        NO_RESERVATION = 11, "no such reservation";
        /// The reservation was preempted.
        PREEMPTED = 12, "preempted";
        /// No answer in time.
        NO_ANSWER = 13, "no answer in time";
        /// The time is not possible.
        TIME = 14, "time not possible";
        /// The sender is not the owner of the session.
        NOT_OWNER = 15, "not the owner of the session";
        /// The message crossed a hop without channel security.
        UNSECURE = 16, "insecure hop not accepted";
    }
}

signalbox_wire::flags! {
    /// Flags of the header. Unused bits are sent as zero and ignored.
    pub struct QosFlags(u8) {
        /// C: the receiver sends a Commit back.
        COMMIT = 0x80, "commit";
        /// R: all state of the session is removed.
        REMOVE = 0x40, "remove";
        /// P: a partial reservation is acceptable.
        PARTIAL = 0x20, "partial";
        /// U: the message crossed a hop without channel security.
        UNSECURE = 0x10, "unsecure";
        /// B: the branch that is no longer used is to be removed. A bit of this suite.
        BRANCH = 0x08, "remove-branch";
    }
}

impl QosFlags {
    /// No flag.
    pub const NONE: Self = Self(0);

    /// The flags of an octet.
    #[must_use]
    pub const fn from_octet(octet: u8) -> Self {
        Self(octet & 0xf8)
    }

    /// The octet of the flags.
    #[must_use]
    pub const fn octet(self) -> u8 {
        self.0
    }
}
