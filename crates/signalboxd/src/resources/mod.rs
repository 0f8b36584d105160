//! What there is to reserve, and how the kernel keeps it. QoS and RSVP share it.

pub(crate) mod config;
