//! Octets of the NATFW NSLP: the test vectors of `docs/wire/natfw.md`, each fault, and messages that are cut or changed.

mod corpus;
mod damaged;
mod faults;
mod vectors;
