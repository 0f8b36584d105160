//! Octets of Boomerang: the test vectors of `docs/wire/boomerang.md`, code points, and messages that are cut or changed.

mod corpus;
mod damaged;
mod formats;
mod options;
mod support;
mod vectors;
