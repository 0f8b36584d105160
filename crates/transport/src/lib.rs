//! What messaging associations run over (RFC 5971 §5.7, RFC 6084), without sockets: octets in, octets out,
//! time in.
//!
//! * [`stream`] turns a reliable byte stream that somebody else owns (TCP) into a channel, plain or under
//!   TLS, that says who the peer is, ends orderly or says how it failed, and never buffers without bound.
//! * [`sctp`] is SCTP over raw IP protocol 132.
//!
//! Nothing here knows GIST messages: framing, stack negotiation and hold times are GIST's.

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod der;
#[doc(hidden)]
pub mod fuzz;
pub mod identity;
pub mod sctp;
pub mod stream;

pub use stream::Channel;
