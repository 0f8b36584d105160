//! The command `signalbox decode` from its input to what it prints.

mod captures;
mod corpus;
mod lines;
mod packets;
mod qos;
mod rsvp;
mod support;
