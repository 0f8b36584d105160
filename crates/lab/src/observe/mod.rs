//! What happened, seen from outside the daemons: the packets on each link and the state of each kernel.

pub(crate) mod capture;
pub(crate) mod packet;
mod sctp;
mod stream;
pub(crate) mod trace;
