//! Packet scripts: a node among hand-made neighbours, one message at a time.

mod admission;
mod blockade;
mod confirm;
mod figures;
mod keys;
mod local;
mod path;
mod ports;
mod reduction;
mod resv;
mod rig;
mod route;
mod sessions;
mod soft;
