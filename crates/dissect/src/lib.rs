//! Messages and captures as text and JSON.
//!
//! [`decode`] is the command `signalbox decode`: hexadecimal lines or a pcap in, text or JSON lines out.
//! [`describe`] prints one message, [`summary`] does so in one line, [`capture`] finds UDP datagrams and IP
//! packets in captured ones.
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
