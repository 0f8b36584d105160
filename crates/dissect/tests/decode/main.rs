//! The command `signalbox decode` from its input to what it prints.

mod boomerang;
mod captures;
mod casp;
mod corpus;
mod lines;
mod mapping;
mod natfw;
mod packets;
mod qos;
mod rsvp;
mod support;
