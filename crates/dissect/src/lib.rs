//! Messages and captures as text and JSON.
//!
//! [`decode`] is the command `signalbox decode`: hexadecimal lines or a pcap in, text or JSON lines out.
//! [`describe`] prints one message, [`summary`] does so in one line, [`capture`] finds UDP datagrams and IP packets in
//! captured packets.
//!
//! ```
//! use signalbox_dissect::{Options, decode};
//!
//! // A GIST Confirm (RFC 5971 A.1) of NSLP 32704 without objects, with the magic number of a datagram.
//! let line = "4e04bda5 011e0000 7fc00200\n";
//! let mut text = Vec::new();
//! let summary = decode(line.as_bytes(), &mut text, &Options::default())?;
//! assert_eq!((summary.messages, summary.failed), (1, 1));
//! assert!(String::from_utf8(text)?.starts_with("line 1: "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Of the engines only the `wire` modules are used.

pub mod capture;
mod decode;
pub mod fuzz;
mod json;
mod line;
mod qos;
mod rsvp;
mod text;

pub use decode::{Error, Options, Protocol, Summary, decode};
pub use line::summary;
pub use rsvp::rsvp_response;
pub use signalbox_wire::hex;
pub use text::describe;
