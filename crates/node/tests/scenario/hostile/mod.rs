//! Adversaries: what leaves a node because of packets of strangers, and what honest sessions lose.

mod adversary;
mod amplification;
pub(crate) mod catalogue;
mod circle;
mod dependents;
mod errors;
mod named;
pub(crate) mod net;
