//! The application.

mod event;

pub use event::{Hop, LostReason, MIN_INTERVAL, PingEvent, PingRequest, Refusal, Reply};
