//! RSVP (RFC 2205 and its family).

pub(crate) mod fields;
pub(crate) mod message;

use crate::protocols::fields::{Message, described};
use crate::protocols::frame::Frame;
use crate::protocols::packet::Ip;
use crate::protocols::{Observer, Protocol, says};
use message::RsvpMessage;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Rsvp;

impl Protocol for Rsvp {
    fn name(&self) -> &'static str {
        "rsvp"
    }

    fn title(&self) -> &'static str {
        "RSVP"
    }

    fn reserves(&self) -> bool {
        true
    }

    /// The table leads messages with a Router Alert to the daemon. With IPv4 the kernel itself does, where there is no such table.
    fn needs_owned_tables(&self, config: &toml::Table) -> bool {
        let without = [
            ("node", "families", vec!["ipv4"].into()),
            ("rsvp", "router_alert", false.into()),
            ("kernel", "intercept", false.into()),
        ];
        !without.iter().any(|(section, key, value)| says(config, section, key, value))
    }

    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        described(fields::FIELDS)
    }

    fn alters(&self) -> bool {
        true
    }

    fn alter(&self, frame: &mut [u8]) -> Option<()> {
        message::alter(frame)
    }

    fn observer(&self) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen::default()))
    }
}

/// What passed a link.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) messages: Vec<RsvpMessage>,
}

impl Observer for Seen {
    fn take(&mut self, frame: &Frame, ip: Ip<'_>) {
        self.messages.extend(message::messages(frame, &ip));
    }

    fn protocol(&self) -> &'static str {
        "rsvp"
    }

    fn messages(&self) -> Vec<&dyn Message> {
        self.messages.iter().map(|message| message as &dyn Message).collect()
    }
}
