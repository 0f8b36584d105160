//! What happened, seen from outside the daemons: the packets on each link and the state of each kernel.

pub(crate) mod capture;
pub(crate) mod packet;
pub(crate) mod rsvp;
mod sctp;
mod stream;
pub(crate) mod trace;
