//! The state and the events of a node as messages of the API.
//!
//! The daemon answers its clients with these messages, and the simulator compares them with what a scenario expects. Requests of
//! clients are read in the daemon only.

pub mod casp;
pub mod decision;
pub mod gist;
pub mod held;
pub mod ping;
pub mod qos;
pub mod requester;
pub mod types;
