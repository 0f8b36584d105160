//! The arithmetic of integrated services: RFC 2211 (controlled load), RFC 2212 (guaranteed service), RFC 2215 (general
//! parameters), and their use in signaling by RFC 2210.
//!
//! Rates are octets a second, sizes are octets of IP packets with their header, times are microseconds. Every value is
//! valid: [`TSpec::new`] and similar functions refuse NaN, forbidden infinities, zeros, negative numbers and numbers
//! beyond the ranges of RFC 2215. On the wire rates are IEEE single floats. They are kept as such, so that merging and
//! comparing are exact.

mod delay;
mod given;
mod path;
mod rspec;
mod tspec;

pub use delay::{ErrorTerms, LocalTerms, buffer, delay_bound, rate_for_delay};
pub use given::Given;
pub use path::{Bandwidth, Latency, Path, compose_override};
pub use rspec::RSpec;
pub use tspec::{MAX_BUCKET, MAX_RATE, SpecError, TSpec};
pub(crate) use tspec::{float_down, whole};
