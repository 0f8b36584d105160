//! Code points of the client for firewalls and NATs. All numbers but the names are of this suite.

signalbox_wire::code_points! {
    /// Type of a message.
    pub struct NatfwType(u16) {
        /// Lays the chain; opens nothing.
        PATH = 1, "PATH";
        /// Creates, changes or refreshes rules and bindings.
        CREATE = 2, "CREATE";
        /// Removes them.
        RELEASE = 3, "RELEASE";
        /// The result of a request.
        RESPONSE = 4, "RESPONSE";
        /// Asks for the state.
        QUERY = 5, "QUERY";
        /// Makes its target send something.
        TRIGGER = 6, "TRIGGER";
    }
}

impl NatfwObject {
    /// Within STATUS: what the node that refused adds for people, UTF-8. It has no meaning for the protocol, so it is sent on like an object
    /// of unknown type.
    pub const NOTE: Self = Self(0x20);
    /// The nodes that opened the path. Nothing depends on it, so that it is sent on like an object of unknown type, too.
    pub const HOPS: Self = Self(0x21);
}

impl NatfwType {
    /// Whether the receiver of this message may be asked by NEXT to send a message of type `next`.
    #[must_use]
    pub const fn may_be_followed_by(self, next: Self) -> bool {
        match self {
            Self::PATH => matches!(next, Self::CREATE | Self::RESPONSE),
            Self::CREATE => matches!(next, Self::PATH | Self::CREATE | Self::RESPONSE),
            Self::RELEASE | Self::QUERY => matches!(next, Self::RESPONSE),
            Self::TRIGGER => matches!(next, Self::PATH | Self::CREATE),
            _ => false,
        }
    }
}

signalbox_wire::code_points! {
    /// Type of an object.
    pub struct NatfwObject(u16) {
        /// Filters whose packets are logged.
        LOGGING_ACTION = 0x11, "LOGGING_ACTION";
        /// Name of an application.
        APPLICATION_ID = 0x12, "APPLICATION_ID";
        /// The message that the receiver sends next.
        NEXT = 0x13, "NEXT";
        /// An authorization token.
        AUTH_TOKEN = 0x14, "AUTH_TOKEN";
        /// A CMS object.
        CMS_CREDENTIAL = 0x15, "CMS_CREDENTIAL";
        /// When the rules begin.
        TIME = 0x16, "TIME";
        /// Stamp of a rule.
        AGE = 0x17, "AGE";
        /// Result of a request at one node.
        STATUS = 0x18, "STATUS";
        /// Packets.
        PACKET_FILTER = 0x19, "PACKET_FILTER";
        /// Packets behind the NATs of the path.
        NAT_OBJECT = 0x1a, "NAT_OBJECT";
        /// Lifetime of the rules.
        LIFETIME = 0x1b, "LIFETIME";
        /// How far the message goes.
        SCOPE = 0x1c, "SCOPE";
        /// Number of a request.
        MSG_ID = 0x1d, "MSG_ID";
        /// Identity of a node.
        NODE_ID = 0x1e, "NODE_ID";
        /// Octets that a credential has to contain.
        CHALLENGE = 0x1f, "CHALLENGE";
    }
}

signalbox_wire::code_points! {
    /// Result of a request: the code of STATUS.
    pub struct NatfwStatus(u16) {
        /// The request was carried out.
        DONE = 0, "done";
        /// A credential is needed.
        AUTHENTICATION_REQUIRED = 1, "authentication required";
        /// A policy rule.
        POLICY = 2, "security policy violated";
        /// APPLICATION_ID is needed.
        APPLICATION_ID_REQUIRED = 3, "application id required";
        /// The filter cannot be interpreted.
        FILTER = 4, "packet filter cannot be interpreted";
        /// The filter is too fine or too coarse.
        GRANULARITY = 5, "packet filter cannot be installed with this granularity";
        /// There is no next node.
        NOT_DELIVERED = 6, "not delivered end to end";
        /// A token is needed.
        TOKEN_REQUIRED = 7, "authorization token required";
        /// The token is not valid.
        TOKEN = 8, "token invalid, expired or used";
        /// The credentials are not accepted.
        CREDENTIALS = 9, "credentials not accepted";
        /// The traffic is not what the application id says.
        TRAFFIC = 10, "traffic does not match the application id";
        /// No such state.
        NO_STATE = 11, "no such state";
        /// The sender is not the owner.
        NOT_OWNER = 12, "not the owner";
        /// The binding that was asked for is not available.
        BINDING = 13, "NAT binding not available";
        /// No resources.
        RESOURCES = 14, "no resources";
        /// A field is wrong.
        MALFORMED = 15, "malformed message";
        /// The type of the message is unknown.
        TYPE = 16, "unknown message type";
        /// The start time is not possible.
        TIME = 17, "start time not possible";
        /// The scope is unknown.
        SCOPE = 18, "scope unknown";
        /// Logging is not permitted.
        LOGGING = 19, "logging not permitted";
        /// NEXT asks for a message that may not follow.
        NEXT = 20, "NEXT not permitted here";
        /// The administrator of a node ended the session.
        ADMINISTRATOR = 21, "ended by the administrator";
        /// The receiver of the data released the session. No message has this code: the host that asked learns it by RELEASE.
        RECEIVER = 22, "ended by the receiver";
    }
}

signalbox_wire::code_points! {
    /// Kind of an identity.
    pub struct IdentityKind(u8) {
        /// Left out.
        OMITTED = 0, "omitted";
        /// IPv4 address.
        IPV4 = 1, "IPv4";
        /// IPv6 address.
        IPV6 = 2, "IPv6";
        /// Domain name.
        FQDN = 3, "FQDN";
        /// URI.
        URI = 4, "URI";
        /// A name in ASCII.
        ASCII = 5, "ASCII id";
        /// A name in UTF-8.
        UNICODE = 6, "Unicode id";
    }
}

signalbox_wire::code_points! {
    /// Algorithm of a token's HMAC.
    pub struct TokenAlgorithm(u8) {
        /// HMAC-MD5, 16 octets and four zeros.
        MD5 = 1, "HMAC-MD5";
        /// HMAC-SHA-1.
        SHA1 = 2, "HMAC-SHA-1";
        /// HMAC-SHA-256, its first 20 octets.
        SHA256 = 3, "HMAC-SHA-256-160";
    }
}
