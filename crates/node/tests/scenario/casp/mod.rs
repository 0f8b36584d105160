//! CASP in networks of nodes, routers and plain hosts.

mod campaign;
mod path;
mod world;
