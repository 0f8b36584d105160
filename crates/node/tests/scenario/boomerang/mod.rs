//! Boomerang in networks of nodes, routers and plain hosts.

mod campaign;
mod net;
mod path;
mod world;
