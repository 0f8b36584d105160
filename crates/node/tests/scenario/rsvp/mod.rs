//! RSVP over many nodes.

mod campaign;
mod net;
mod oracle;
mod spec;
mod world;
