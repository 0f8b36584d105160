//! What happened, observed from outside the daemons: the packets on each link.

pub(crate) mod capture;
pub(crate) mod dissect;
pub(crate) mod passed;
pub(crate) mod trace;
