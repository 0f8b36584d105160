//! Octets: by hand from the RFCs, cut, changed, and made at random.

mod nslp;
mod qspec;
