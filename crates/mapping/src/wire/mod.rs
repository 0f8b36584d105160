//! Octets of PCP (RFC 6887, RFC 7220) and of NAT-PMP (RFC 6886).
//!
//! `docs/wire/mapping.md` draws them.

mod address;
mod code_points;
mod message;
mod nat_pmp;
mod option;

pub use code_points::{NatPmpOpcode, NatPmpResult, Opcode, OptionCode, ResultCode};
pub use message::{Body, Header, Map, Peer, Request, Response, refusal};
pub use nat_pmp::{NatPmpMessage, NatPmpRequest, NatPmpResponse, Transport};
pub use option::{Filter, Known, Options, RawOption};

/// Version of PCP. Version 1 was never published; 0 is NAT-PMP.
pub const VERSION: u8 = 2;
/// UDP port to which requests go, and from which responses and announcements come.
pub const SERVER_PORT: u16 = 5351;
/// UDP port to which announcements go.
pub const CLIENT_PORT: u16 = 5350;
/// Most octets of a message, RFC 6887 §7.
pub const MAX_OCTETS: usize = 1_100;
/// Octets of the common header.
pub const HEADER_OCTETS: usize = 24;

/// The bit of the second octet that a response has, in both protocols.
const RESPONSE: u8 = 0x80;

/// Which of the two protocols a message on their port has, by its first octet (RFC 6886 §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// NAT-PMP.
    NatPmp,
    /// PCP, also of a version that is not known.
    Pcp,
}

impl Version {
    /// Returns the protocol of a message; nothing for an empty datagram.
    #[must_use]
    pub const fn of(octets: &[u8]) -> Option<Self> {
        match octets {
            [] => None,
            [0, ..] => Some(Self::NatPmp),
            [..] => Some(Self::Pcp),
        }
    }
}
