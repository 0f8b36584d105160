//! Octets: written by hand from the RFCs, truncated, changed, and random.

mod nslp;
mod qspec;
