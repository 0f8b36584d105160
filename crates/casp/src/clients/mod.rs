//! Clients of the messaging layer. A client takes [`Indication`](crate::engine::Indication)s and makes
//! [`Request`](crate::engine::Request)s; the messaging layer depends on none of them.

mod hop;
mod lookups;
pub mod natfw;
mod ntp;
pub mod ping;
pub mod qos;
mod queue;
