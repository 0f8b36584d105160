//! The arithmetic of integrated services: RFC 2211 (controlled load), 2212 (guaranteed service), 2215 (general
//! parameters) and what RFC 2210 says of their use in signaling.
//!
//! Rates are octets a second, sizes octets of IP packets with their header, times microseconds. A value that exists is
//! valid: [`TSpec::new`] and its like refuse NaN, infinities where none may be, zeros, negatives and what is beyond
//! the ranges of RFC 2215, so nothing here has to look again. On the wire rates are IEEE single floats; they are kept
//! as such, so that merging and comparing are exact.

mod delay;
mod path;
mod rspec;
mod tspec;

pub use delay::{ErrorTerms, LocalTerms, buffer, delay_bound, rate_for_delay};
pub use path::{Bandwidth, Latency, Path, compose_override};
pub use rspec::RSpec;
pub use tspec::{MAX_BUCKET, MAX_RATE, SpecError, TSpec};
pub(crate) use tspec::{float_down, whole};
