//! CASP in networks of nodes, routers and plain hosts.

mod again;
mod campaign;
mod dns;
mod field;
mod held;
mod moved;
mod opened;
mod opening;
mod passage;
mod path;
mod reserve;
mod reserving;
mod restarted;
mod world;
