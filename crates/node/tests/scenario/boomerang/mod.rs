//! Boomerang in networks of nodes, routers and plain hosts.

mod campaign;
mod groups;
pub(crate) mod net;
mod path;
mod world;
