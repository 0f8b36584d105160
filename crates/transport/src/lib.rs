//! The transport protocols of messaging associations (RFC 5971 §5.7, RFC 6084), without sockets: octets and time are
//! inputs, octets and events are outputs.
//!
//! * [`stream`] makes a channel of a reliable byte stream (TCP), plain or under TLS. The driver owns the socket. The
//!   channel reports the identity of the peer and how it ended, and its buffers are bounded.
//! * [`sctp`] is SCTP over IP protocol 132.
//!
//! Framing, stack negotiation and hold times of GIST are in the crate of GIST, not here.
//!
//! ```
//! use signalbox_core::Time;
//! use signalbox_transport::Channel;
//! use signalbox_transport::stream::{Event, Limits};
//!
//! // Both ends of a TCP connection without TLS.
//! let (mut near, mut far) = (Channel::plain(Limits::default()), Channel::plain(Limits::default()));
//! assert_eq!(near.poll_event(), Some(Event::Connected { peer: None }));
//! near.send(b"a GIST message").unwrap();
//! let mut octets = Vec::new();
//! near.poll_transmit(&mut octets); // to be written to the socket
//! far.receive(Time::ZERO, &octets).unwrap();
//! assert_eq!(far.received(), b"a GIST message");
//! ```

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod der;
#[doc(hidden)]
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod identity;
pub mod sctp;
pub mod stream;

pub use stream::Channel;
