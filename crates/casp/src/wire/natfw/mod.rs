//! Octets of the client for firewalls and NATs (draft-tschofenig-nsis-casp-midcom-01): the contents of CLIENT_DATA of
//! C-Type 2. `docs/wire/casp-natfw.md` has drawings and test vectors.

mod code_points;
mod filter;
mod message;
mod token;

pub use code_points::{IdentityKind, NatfwObject, NatfwStatus, NatfwType, TokenAlgorithm};
pub use filter::NatfwFilter;
#[cfg(feature = "engine")]
pub(crate) use filter::WITH_PORTS;
pub use message::{
    NatfwFault, NatfwMessage, NatfwResult, NatfwTooLong, NatfwValue, REACHED, REMOVED, Tlv, Tlvs,
};
pub use token::{HMAC, NatfwIdentity, NatfwToken};
