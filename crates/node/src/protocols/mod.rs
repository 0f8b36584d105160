//! The protocols of the suite. A new one takes its `mod` line here, and its lines in `names.rs`, `settings.rs` and `suite.rs`.

mod names;
mod settings;
mod suite;

#[cfg(feature = "test-protocol")]
pub(crate) mod beacon;
mod boomerang;
pub(crate) mod casp;
mod gist;
mod gist_nat;
pub(crate) mod mapping;
mod natfw;
mod ping;
mod qos;
mod rsvp;

pub use gist::{ApplicationCommand, ApplicationEvent, ApplicationView, GistConfig, RegisterError};
pub use mapping::MappingConfig;
pub use names::{Command, Event, ProtocolId};
pub use settings::Config;
pub use suite::Suite;
