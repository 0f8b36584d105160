//! Code points of PCP and NAT-PMP.

signalbox_wire::code_points! {
    /// Opcode of a PCP message without the bit of responses (RFC 6887 §19.2).
    pub struct Opcode(u8) {
        /// State was lost, or a question whether the server is there.
        ANNOUNCE = 0, "ANNOUNCE";
        /// A mapping for any sender, or for those of its filters.
        MAP = 1, "MAP";
        /// A mapping for a flow to one remote peer.
        PEER = 2, "PEER";
    }
}

signalbox_wire::code_points! {
    /// Result of a PCP request (RFC 6887 §7.4). Every value but 0 is an error.
    pub struct ResultCode(u8) {
        /// The only code of success.
        SUCCESS = 0, "SUCCESS";
        /// The version is not supported.
        UNSUPP_VERSION = 1, "UNSUPP_VERSION";
        /// The policy does not allow the request, or the mapping belongs to another nonce.
        NOT_AUTHORIZED = 2, "NOT_AUTHORIZED";
        /// The request cannot be read.
        MALFORMED_REQUEST = 3, "MALFORMED_REQUEST";
        /// The opcode is unknown or switched off.
        UNSUPP_OPCODE = 4, "UNSUPP_OPCODE";
        /// An option that is mandatory to process is unknown or switched off.
        UNSUPP_OPTION = 5, "UNSUPP_OPTION";
        /// An option cannot be read, or does not fit the request.
        MALFORMED_OPTION = 6, "MALFORMED_OPTION";
        /// The network is not ready, for example without an external address.
        NETWORK_FAILURE = 7, "NETWORK_FAILURE";
        /// The server has no resources at the moment.
        NO_RESOURCES = 8, "NO_RESOURCES";
        /// The transport protocol is not supported.
        UNSUPP_PROTOCOL = 9, "UNSUPP_PROTOCOL";
        /// The subscriber has used up its share.
        USER_EX_QUOTA = 10, "USER_EX_QUOTA";
        /// The suggested external address and port cannot be had.
        CANNOT_PROVIDE_EXTERNAL = 11, "CANNOT_PROVIDE_EXTERNAL";
        /// The packet's source is not the client address of the header.
        ADDRESS_MISMATCH = 12, "ADDRESS_MISMATCH";
        /// More filters than the server can keep.
        EXCESSIVE_REMOTE_PEERS = 13, "EXCESSIVE_REMOTE_PEERS";
    }
}

impl ResultCode {
    /// How long a client has to expect the same error, in seconds (RFC 6887 §7.4): 30 for errors that pass, 1,800 for the
    /// others, 0 for success. An error that ends with a mapping of somebody else has the rest of that mapping instead.
    #[must_use]
    pub const fn usual_lifetime(self) -> u32 {
        match self {
            Self::SUCCESS => 0,
            Self::NETWORK_FAILURE
            | Self::NO_RESOURCES
            | Self::USER_EX_QUOTA
            | Self::CANNOT_PROVIDE_EXTERNAL => 30,
            _ => 1_800,
        }
    }
}

signalbox_wire::code_points! {
    /// Code of a PCP option. From 128 on a server may ignore it (RFC 6887 §7.3).
    pub struct OptionCode(u8) {
        /// The request is for another host than its sender (RFC 6887 §13.1).
        THIRD_PARTY = 1, "THIRD_PARTY";
        /// Exactly the suggested external place, or an error (RFC 6887 §13.2).
        PREFER_FAILURE = 2, "PREFER_FAILURE";
        /// Who may send to a mapping (RFC 6887 §13.3).
        FILTER = 3, "FILTER";
        /// What the mapping is for, in words (RFC 7220).
        DESCRIPTION = 128, "DESCRIPTION";
    }
}

impl OptionCode {
    /// Whether a server that does not know the option has to refuse the request.
    #[must_use]
    pub const fn is_mandatory(self) -> bool {
        self.0 < 128
    }
}

signalbox_wire::code_points! {
    /// Opcode of a NAT-PMP request (RFC 6886 §3). A response has 128 more.
    pub struct NatPmpOpcode(u8) {
        /// The external address.
        ADDRESS = 0, "external address";
        /// A mapping for UDP.
        MAP_UDP = 1, "map UDP";
        /// A mapping for TCP.
        MAP_TCP = 2, "map TCP";
    }
}

signalbox_wire::code_points! {
    /// Result of a NAT-PMP request (RFC 6886 §3.5).
    pub struct NatPmpResult(u16) {
        /// The only code of success.
        SUCCESS = 0, "success";
        /// The version is not supported.
        UNSUPPORTED_VERSION = 1, "unsupported version";
        /// The policy does not allow the request.
        NOT_AUTHORIZED = 2, "not authorized";
        /// The gateway has no external address, or no path.
        NETWORK_FAILURE = 3, "network failure";
        /// The gateway has no resources at the moment.
        OUT_OF_RESOURCES = 4, "out of resources";
        /// The opcode is unknown.
        UNSUPPORTED_OPCODE = 5, "unsupported opcode";
    }
}
