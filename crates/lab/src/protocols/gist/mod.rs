//! GIST (RFC 5971). A daemon runs it unless its configuration turns it off.

mod fields;
pub(crate) mod message;
mod qos;
mod sctp;
pub(crate) mod seen;
mod stream;

use super::{Observer, Protocol};
use seen::Seen;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Gist;

impl Protocol for Gist {
    fn name(&self) -> &'static str {
        "gist"
    }

    fn title(&self) -> &'static str {
        "GIST"
    }

    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        fields::described()
    }

    fn observer(&self) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen::default()))
    }
}
