//! Messages and captures as text and JSON.
//!
//! [`decode`] is the command `signalbox decode`: hexadecimal lines or a pcap in, text or JSON lines out.
//! [`describe`] prints one message, [`capture`] finds UDP datagrams in captured packets.
//!
//! Of the engines only the `wire` modules are used.

pub mod capture;
mod decode;
pub mod fuzz;
mod json;
mod text;

pub use decode::{Error, Options, Summary, decode};
pub use text::describe;
