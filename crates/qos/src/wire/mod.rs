//! The octets of QoS NSLP and of the QSPEC, both ways.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

pub mod qspec;
