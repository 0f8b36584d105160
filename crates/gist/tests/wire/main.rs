//! Octet tests of the GIST decoder and encoder against vectors written by hand from the drawings of
//! RFC 5971, Appendix A.

mod bad_header;
mod bad_object;
mod corpus;
mod error_object;
mod extensibility;
mod golden;
mod grammar;
mod mri;
mod objects;
mod random;
mod refused;
mod report;
mod reserved;
mod support;
mod sweep;
