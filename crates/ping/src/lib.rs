//! The Ping signaling application. A Ping message visits every node of a flow's path that has the application, up to
//! the end of the flow and back. Each node adds its address and times to it.
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). The engine (feature `engine`) uses GIST by the
//! data types of [`signalbox_core::service`] only, so it runs over any implementation of that interface. Nodes on the
//! path keep no state of a session: all results are in the message.
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use signalbox_core::Time;
//! use signalbox_core::service::Request;
//! use signalbox_ping::engine::{Command, Config, Input, Output, Ping, PingEvent, PingRequest};
//!
//! let mut ping = Ping::new(Config::default(), [7; 32]);
//! let request = PingRequest { src: Some([192, 0, 2, 1].into()), ..PingRequest::to([203, 0, 113, 9].into()) };
//! ping.handle(Time::ZERO, Input::Command { id: 1, command: Command::Start(request) });
//! let started = ping.poll();
//! assert!(matches!(started, Some(Output::Event { id: 1, event: PingEvent::Started { .. } })));
//! // GIST is asked to send the first message.
//! assert!(matches!(ping.poll(), Some(Output::Request(Request::SendMessage(_)))));
//! assert!(ping.poll().is_none());
//! # }
//! ```

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
