//! The sans-IO whole of a node: GIST and its signaling applications behind one door, the contract of
//! [`signalbox_core::node`].
//!
//! [`Node`] passes what applications ask to GIST and what GIST tells to applications, until neither has
//! anything left to say, and gives out what remains: datagrams, route lookups, and events for users. The
//! daemon, the simulator, a replay and a benchmark all drive the same [`Node`].

mod command;
mod config;
mod node;
mod starts;
mod view;

pub use command::{Command, Event};
pub use config::{Config, ConfigError};
pub use node::Node;
pub use view::Counter;

/// What this crate's users need of GIST.
pub mod gist {
    pub use signalbox_gist::engine::{
        Config, ConfigError, DirectionView, IngressFilter, Installation, PeerView, SessionView, Validity,
    };
}

/// What this crate's users need of the Ping application.
pub mod ping {
    pub use signalbox_ping::engine::{
        Config, Hop, LostReason, MIN_INTERVAL, PingEvent, PingRequest, Refusal, Reply,
    };
}
