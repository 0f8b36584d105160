//! Octets of RSVP messages: vectors composed by hand from the RFCs, orders and combinations, all lengths cut, all
//! octets changed, the fuzz corpus.

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
