//! Octets of the Ping application: the test vectors of `docs/wire/ping.md`, round trips, and messages that
//! are cut or changed.

mod corpus;
mod damaged;
mod nsis;
mod vectors;
