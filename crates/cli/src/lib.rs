//! What `signalbox` and `signalbox-lab` have in common.
//!
//! The commands of the lab are those of `signalbox` for its users, but a program of its own carries them out, so that the command
//! of a router is small. [`lab`] has their names. [`words`] takes the words of a command line to another program, for scripts that
//! complete them in a shell.

#[cfg(feature = "checks")]
pub mod checks;
pub mod exit;
pub mod lab;
mod program;
pub mod words;

pub use program::{Run, Version, asks_for_json, command_line, run};
