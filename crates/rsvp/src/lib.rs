//! RSVP (RFC 2205, processing rules of RFC 2209) and its family: integrated services (RFC 2210), IPsec flows (2207),
//! integrity (2747, 3097), policy data (2750), refresh reduction (2961), Hello (3209), partial preemption (4495).
//!
//! [`wire`] parses and composes messages, [`error`] has their faults, [`client`] is a diagnostic client. The node itself,
//! [`engine`], is behind the feature `engine`; a dissector leaves it off.
//!
#![cfg_attr(feature = "engine", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod client;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
pub mod fuzz;
#[cfg(feature = "kit")]
#[cfg_attr(not(test), expect(clippy::expect_used, reason = "a kit of tests fails by a panic"))]
pub mod kit;
pub mod wire;
