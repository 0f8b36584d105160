//! Networks of nodes in virtual time. What is asserted is what a person at the wire would see: packets, and
//! what the nodes tell their users and operators.

mod applications;
#[cfg(feature = "test-protocol")]
mod beacon;
mod bypass;
mod campaign;
mod chain;
mod cmode;
mod expiry;
mod failure;
mod impaired;
mod kernel;
mod large;
mod limits;
mod net;
mod qos;
mod rsvp;
mod seeds;
mod spoofed;
mod subset;
mod transit;
mod wire;
