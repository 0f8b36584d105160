//! Packet scripts: a node among hand-made neighbours, one message at a time.

mod blockade;
mod confirm;
mod figures;
mod keys;
mod local;
mod path;
mod reduction;
mod resv;
mod rig;
mod route;
