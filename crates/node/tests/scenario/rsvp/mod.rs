//! RSVP over many nodes.

mod campaign;
mod net;
mod oracle;
mod reroute;
mod restart;
mod spec;
mod world;
