//! Numbers that IANA keeps for the QSPEC (RFC 5975 §7, RFC 5976 §5).

use signalbox_wire::code_points;

code_points! {
    /// The QoS model of a QSPEC (5 bits). 3–12 are unassigned, 13–16 for local and experimental use,
    /// 17–31 reserved.
    pub struct QspecType(u8) {
        /// No particular model.
        DEFAULT = 0, "default";
        /// RFC 5976.
        Y1541 = 1, "Y.1541-QOSM";
        /// RFC 5977.
        RMD = 2, "RMD-QOSM";
    }
}

code_points! {
    /// The upper half of a [`Procedure`].
    pub struct MessageSequence(u8) {
        /// RESERVE and RESPONSE (§4.3.1).
        SENDER_INITIATED = 0, "sender-initiated";
        /// QUERY, RESERVE and RESPONSE (§4.3.2).
        RECEIVER_INITIATED = 1, "receiver-initiated";
        /// QUERY and RESPONSE (§4.3.3).
        RESOURCE_QUERY = 2, "resource query";
    }
}

code_points! {
    /// Message sequence and object combination (§4.3). Combinations count from 0, as in the tables and in the
    /// registry; the text of §5.1.1 that has them between 1 and 3 is a slip.
    pub struct Procedure(u8) {
        /// Exactly QoS Desired.
        DESIRED = 0x00, "sender-initiated, desired";
        /// QoS Available, up to QoS Desired.
        AVAILABLE = 0x01, "sender-initiated, desired and available";
        /// QoS Available, between Minimum QoS and QoS Desired.
        MINIMUM = 0x02, "sender-initiated, desired, available and minimum";
        /// Receiver-initiated, exactly what the sender desires.
        RECEIVER_DESIRED = 0x10, "receiver-initiated, desired";
        /// Receiver-initiated; what is available is collected by the RESERVE.
        RECEIVER_AVAILABLE = 0x11, "receiver-initiated, available in RESERVE";
        /// Receiver-initiated; what is available is collected by the QUERY.
        RECEIVER_COLLECTED = 0x12, "receiver-initiated, available in QUERY";
        /// A query for QoS Available.
        QUERY = 0x20, "resource query";
    }
}

impl Procedure {
    /// The upper four bits.
    #[must_use]
    pub const fn sequence(self) -> MessageSequence {
        MessageSequence(self.0 >> 4)
    }

    /// The lower four bits.
    #[must_use]
    pub const fn combination(self) -> u8 {
        self.0 & 0x0f
    }

    /// Whether it is one of the seven of §4.3.
    #[must_use]
    pub const fn is_assigned(self) -> bool {
        self.name().is_some()
    }
}

code_points! {
    /// Type of an object of a QSPEC (12 bits). 4–63 are unassigned, 64–67 for private use, the rest reserved.
    pub struct ObjectType(u16) {
        /// QoS Desired: the request of the initiator; never overwritten.
        DESIRED = 0, "QoS Desired";
        /// QoS Available: the resources of the path; lowered by the nodes.
        AVAILABLE = 1, "QoS Available";
        /// QoS Reserved; never overwritten.
        RESERVED = 2, "QoS Reserved";
        /// Minimum QoS: the least that the initiator accepts; never overwritten.
        MINIMUM = 3, "Minimum QoS";
    }
}

impl ObjectType {
    /// Whether it is for private or experimental use: carried along, never judged.
    #[must_use]
    pub const fn is_private(self) -> bool {
        matches!(self.0, 64..=67)
    }
}

code_points! {
    /// Identifier of a parameter (12 bits). 17–255 are unassigned, 256–259 for private use, the rest
    /// reserved.
    pub struct ParameterId(u16) {
        /// §5.2.1; always there, always to be understood.
        TMOD_1 = 1, "TMOD-1";
        /// §5.2.2.
        TMOD_2 = 2, "TMOD-2";
        /// §5.2.3.
        PATH_LATENCY = 3, "Path Latency";
        /// §5.2.4.
        PATH_JITTER = 4, "Path Jitter";
        /// §5.2.5.
        PATH_PLR = 5, "Path PLR";
        /// §5.2.6.
        PATH_PER = 6, "Path PER";
        /// §5.2.7.
        SLACK_TERM = 7, "Slack Term";
        /// §5.2.8, both priorities.
        PREEMPTION_PRIORITY = 8, "Preemption and Defending Priority";
        /// §5.2.9.
        ADMISSION_PRIORITY = 9, "Admission Priority";
        /// §5.2.10.
        RPH_PRIORITY = 10, "RPH Priority";
        /// §5.2.11.
        EXCESS_TREATMENT = 11, "Excess Treatment";
        /// §5.2.12.
        PHB_CLASS = 12, "PHB Class";
        /// §5.2.13.
        DSTE_CLASS_TYPE = 13, "DSTE Class Type";
        /// §5.2.14.
        Y1541_CLASS = 14, "Y.1541 QoS Class";
        /// RFC 5976 §3.1.
        TMOD_EXTENSION = 15, "TMOD Extension";
        /// RFC 5976 §3.2.
        RESTORATION_PRIORITY = 16, "Restoration Priority";
    }
}

code_points! {
    /// Treatment of traffic beyond the TMOD (§5.2.11). 4–63 are unassigned, the rest reserved.
    pub struct ExcessTreatment(u8) {
        /// It is dropped.
        DROP = 0, "drop";
        /// It is delayed until it conforms.
        SHAPE = 1, "shape";
        /// It is marked with another DSCP.
        RE_MARK = 2, "re-mark";
        /// No node may meter or police it.
        NO_METERING = 3, "no metering or policing";
    }
}

code_points! {
    /// Priority of Y.2171 (§5.2.9). 3–63 are unassigned, the rest reserved.
    pub struct AdmissionPriority(u8) {
        /// Best effort.
        BEST_EFFORT = 0, "best effort";
        /// Normal: the default.
        NORMAL = 1, "normal";
        /// High.
        HIGH = 2, "high";
        /// The priority is a local one of RSVP's emergency style, not one of Y.2171.
        LOCAL = 0xff, "local";
    }
}

code_points! {
    /// Urgency of restoration (RFC 5976 §3.2). 3–255 are unassigned.
    pub struct RestorationPriority(u8) {
        /// Best effort.
        BEST_EFFORT = 0, "best effort";
        /// Normal.
        NORMAL = 1, "normal";
        /// High.
        HIGH = 2, "high";
    }
}
