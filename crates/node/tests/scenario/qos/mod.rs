//! Reservations over the real GIST: datagrams and associations between complete nodes, and a kernel that receives
//! requests for reservations.

mod campaign;
mod change;
mod held;
mod net;
mod path;
mod reroute;
mod restart;
mod stale;
