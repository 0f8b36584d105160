//! Octets of RSVP: vectors by hand from the RFCs, orders and combinations, every length cut, every octet changed, the
//! fuzz corpus.

mod adspec;
mod corpus;
mod diagnostics;
mod family;
mod grammar;
mod messages;
mod objects;
mod specs;
mod support;
mod sweep;
