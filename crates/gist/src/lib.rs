//! GIST, the General Internet Signalling Transport (RFC 5971).
//!
//! [`wire`] is the octets of all messages and objects, [`error`] what can be wrong with them. The state machines are
//! behind the feature `engine`, which a dissector does not need.
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use signalbox_core::mri::PathCoupled;
//! use signalbox_core::service::{Request, SendMessage, TransferAttributes};
//! use signalbox_core::{Mri, NslpId, SessionId, Time};
//! use signalbox_gist::engine::{Config, Gist, Input, Output, Registration};
//!
//! let mut gist = Gist::new(Config::default(), [7; 32]).unwrap();
//! gist.register(NslpId::PING, Registration::default());
//! let flow = PathCoupled::between([192, 0, 2, 1].into(), [203, 0, 113, 9].into());
//! let message = SendMessage {
//!     data: b"data",
//!     handle: None,
//!     nslp: NslpId::PING,
//!     session: SessionId([1; 16]),
//!     mri: Mri::PathCoupled(flow),
//!     state: None,
//!     sii: None,
//!     attributes: TransferAttributes::default(),
//!     timeout: None,
//!     ip_ttl: None,
//!     hops: None,
//! };
//! gist.handle(Time::ZERO, Input::Request(Request::SendMessage(message)));
//! // The Query is sent as soon as the driver answers with the route.
//! assert!(matches!(gist.poll(), Some(Output::RouteLookup { .. })));
//! assert!(gist.poll().is_none());
//! # }
//! ```

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod wire;

#[cfg(feature = "engine")]
pub mod apd;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "engine")]
pub mod gateway;

#[cfg(feature = "engine")]
pub use engine::Counters;
