//! Packet scripts: one node, explicit times, one test per transition of RFC 5971 §6 and per edge around it.

mod applications;
mod association;
mod cookies;
mod encapsulation;
mod errors;
mod explicit;
mod forward;
mod legacy_nat;
mod limits;
mod loose_end;
mod nat;
mod node;
mod querying;
mod refresh;
mod repair;
mod responding;
mod restart;
mod rfc5972;
mod rig;
mod robust;
mod routes;
mod send;
mod sender;
mod upstream;
mod watch;
