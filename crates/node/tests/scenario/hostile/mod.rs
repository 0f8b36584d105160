//! Adversaries: what leaves a node because of packets of strangers, and what honest sessions lose.

mod adversary;
mod amplification;
mod catalogue;
mod circle;
mod errors;
mod named;
mod net;
