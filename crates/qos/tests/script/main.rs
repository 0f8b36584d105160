//! Packet scripts: one node, the messages that it gets, and those that it sends.

mod again;
mod answers;
mod decided;
mod ends;
mod faults;
mod hostile;
mod relay;
mod report;
mod requests;
mod reroute;
mod rig;
mod storm;
mod summary;
mod token;
