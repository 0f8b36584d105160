//! Messages and captures as text and JSON.
//!
//! [`decode`] is the command `signalbox decode`: hexadecimal lines or a capture in, text or JSON lines out.
//! [`describe`] prints one message, [`summary`] does so in one line, [`capture`] finds UDP datagrams and IP packets in
//! captured packets, and [`stream`] puts the octets of TCP connections into order.
//!
//! ```
//! use signalbox_dissect::{Options, decode};
//!
//! // A GIST MA-Hello (RFC 5971 §5.1) with a Hello-ID, as it stands in a stream: without a magic number.
//! let line = "0101000200000500 000a000100000007\n";
//! let mut text = Vec::new();
//! let summary = decode(line.as_bytes(), &mut text, &Options::default())?;
//! assert_eq!((summary.messages, summary.failed), (1, 0));
//! let text = String::from_utf8(text)?;
//! assert!(text.starts_with("line 1: C-mode MA-Hello"), "{text}");
//! assert!(text.contains("Hello-ID: 7"), "{text}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Of the engines only the `wire` modules are used.

mod boomerang;
pub mod capture;
mod casp;
mod decode;
pub mod fuzz;
mod json;
mod line;
mod mapping;
mod natfw;
mod pcapng;
mod qos;
mod rsvp;
pub mod stream;
mod text;

pub use decode::{Error, Options, Protocol, Summary, decode};
pub use line::summary;
pub use rsvp::rsvp_response;
pub use signalbox_wire::hex;
pub use text::describe;
