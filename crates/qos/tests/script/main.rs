//! Packet scripts: one node, and what it says to what it is told.

mod answers;
mod relay;
mod requests;
mod reroute;
mod rig;
mod storm;
mod summary;
