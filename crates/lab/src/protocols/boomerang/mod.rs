//! Boomerang: reservations in ICMP Echo.

mod fields;
mod message;

use crate::protocols::fields::{Message, described};
use crate::protocols::frame::Frame;
use crate::protocols::packet::Ip;
use crate::protocols::{Observer, Protocol, says};
use message::BoomerangMessage;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Boomerang;

impl Protocol for Boomerang {
    fn name(&self) -> &'static str {
        "boomerang"
    }

    fn title(&self) -> &'static str {
        "Boomerang"
    }

    fn reserves(&self) -> bool {
        true
    }

    /// The table leads its messages to a queue of the daemon.
    fn needs_owned_tables(&self, config: &toml::Table) -> bool {
        !says(config, "kernel", "intercept", &false.into())
    }

    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        described(fields::FIELDS)
    }

    fn observer(&self) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen::default()))
    }
}

/// What passed a link.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    messages: Vec<BoomerangMessage>,
}

impl Observer for Seen {
    fn take(&mut self, frame: &Frame, ip: Ip<'_>) {
        self.messages.extend(message::read(frame, &ip));
    }

    fn protocol(&self) -> &'static str {
        "boomerang"
    }

    fn messages(&self) -> Vec<&dyn Message> {
        self.messages.iter().map(|message| message as &dyn Message).collect()
    }
}

impl Seen {
    /// Returns the numbers of requests, replies and refused ones of both.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let count =
            |which: fn(&BoomerangMessage) -> bool| self.messages.iter().filter(|one| which(one)).count();
        [count(|one| !one.reply), count(|one| one.reply), count(BoomerangMessage::is_refused)]
    }
}
