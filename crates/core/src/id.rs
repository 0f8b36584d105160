//! Identifiers that more than one crate uses.

use core::fmt;

/// The 128-bit session identifier of RFC 5971 §3.7. Any value is legal; ours come from a CSPRNG.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

signalbox_wire::code_points! {
    /// Identifier of a signaling application (NSIS Signaling Layer Protocol) in the GIST common header.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct NslpId(u16) {
        /// MA-Hello messages belong to no application (RFC 5971 §5.2.2).
        NONE = 0, "none";
        /// QoS signaling (RFC 5974).
        QOS = 1, "QoS";
        /// NAT and firewall signaling (RFC 5973 §7.5).
        NATFW = 33, "NATFW";
        /// Our Ping application: first value of the range for private and experimental use
        /// (RFC 5971 §9), configurable.
        PING = 32704, "Ping";
        /// The format of the NSIS Ping tool (draft-juchem-nsis-ping-tool-02), which gives no number: a value of the same
        /// range, configurable.
        NSIS_PING = 32705, "NSIS Ping";
    }
}

impl NslpId {
    /// Router Alert values of an application's Q-mode messages with IPv4 and with IPv6: those that are registered for
    /// NATFW (RFC 5973 §7.5), and 0 for others.
    #[must_use]
    pub const fn router_alert(self) -> (u16, u16) {
        match self {
            Self::NATFW => (65, 68),
            _ => (0, 0),
        }
    }
}

signalbox_wire::code_points! {
    /// A signaling protocol that makes reservations. Values from 240 are for tests and experiments.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct ReserverId(u8) {
        /// QoS signaling (RFC 5974).
        QOS = 1, "qos";
        /// RSVP (RFC 2205).
        RSVP = 2, "rsvp";
        /// Boomerang (draft-bergkvist-boomerang-spec-00).
        BOOMERANG = 3, "boomerang";
        /// CASP (draft-schulzrinne-nsis-casp-qos-01).
        CASP = 4, "casp";
    }
}

/// The kernel's number of a network interface; 0 stands for no interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IfIndex(pub u32);

impl IfIndex {
    /// The number that stands for no interface.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "if{}", self.0)
    }
}
