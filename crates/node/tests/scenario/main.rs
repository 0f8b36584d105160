//! Networks of nodes in virtual time. The tests assert what is visible from outside: packets, and the reports of the
//! nodes to their users and operators.

mod after_end;
mod applications;
#[cfg(feature = "test-protocol")]
mod beacon;
mod boomerang;
mod bypass;
mod campaign;
mod casp;
mod chain;
mod cmode;
mod cost;
mod dates;
mod expiry;
mod extension;
mod failure;
mod filtered;
mod gist_nat;
mod hostile;
mod impaired;
mod kernel;
mod large;
mod limits;
mod natfw;
mod net;
mod nsis_ping;
mod one_hop;
mod parts;
mod qos;
mod rsvp;
mod seeds;
mod shares;
mod spoofed;
mod subset;
mod transit;
mod wire;
