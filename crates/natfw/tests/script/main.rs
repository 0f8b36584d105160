//! Packet scripts: one node, the messages that it gets, and those that it sends.

mod deletion;
mod edge;
mod ending;
mod firewall;
mod handover;
mod hops;
mod host;
mod hostile;
mod initiator;
mod judged;
mod nat;
mod notify;
mod parked;
mod proxy;
mod publish;
mod refused;
mod responder;
mod rig;
mod stop;
mod storm;
mod token;
mod zones;
