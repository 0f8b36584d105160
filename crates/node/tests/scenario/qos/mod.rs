//! Reservations over GIST as it is: datagrams and associations between whole nodes, and a kernel that is told what to
//! hold.

mod campaign;
mod change;
mod net;
mod path;
mod reroute;
