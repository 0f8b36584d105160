//! The ground of the lab: the signaling protocols by their names, and how their messages are read from frames. One file or
//! folder a protocol, and one line in [`PROTOCOLS`].
//!
//! Nothing here knows scenarios or kernels. The readers are written for the lab: what a check finds on the wire must not rest
//! on the code that is checked. What the report shows of a protocol is in `report::protocols`.

pub(crate) mod boomerang;
pub(crate) mod casp;
pub(crate) mod fields;
pub(crate) mod frame;
pub(crate) mod gist;
mod gist_nat;
mod mapping;
mod natfw;
pub(crate) mod packet;
mod ping;
mod qos;
pub(crate) mod rsvp;

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;

use fields::Message;
use frame::Frame;
use packet::Ip;

/// All protocols, in the order in which the report shows them.
const PROTOCOLS: &[&dyn Protocol] = &[
    &gist::Gist,
    &ping::Ping,
    &qos::Qos,
    &rsvp::Rsvp,
    &boomerang::Boomerang,
    &natfw::Natfw,
    &gist_nat::GistNat,
    &casp::Casp,
    &mapping::Mapping,
];

/// Names of protocols.
pub(crate) type Set = BTreeSet<&'static str>;

/// A protocol that daemons run.
pub(crate) trait Protocol: Debug + Sync {
    /// The name in the lab, as in `protocols` of a node.
    fn name(&self) -> &'static str;

    /// The name for people.
    fn title(&self) -> &'static str;

    /// Whether the protocol makes reservations, which the node's kernel keeps.
    fn reserves(&self) -> bool {
        false
    }

    /// Whether it makes reservations at a node whose daemon has this configuration.
    fn reserves_by(&self, _: &toml::Table) -> bool {
        self.reserves()
    }

    /// Whether a daemon with this configuration does not start on a kernel without tables of nftables that have an owner.
    fn needs_owned_tables(&self, _: &toml::Table) -> bool {
        false
    }

    /// Returns names and meanings of the fields of its messages, if the lab reads them.
    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Whether [`Protocol::alter`] can alter messages.
    fn alters(&self) -> bool {
        false
    }

    /// Alters the message in a frame, with a correct checksum; `None` if it has nothing that can be altered.
    fn alter(&self, _frame: &mut [u8]) -> Option<()> {
        None
    }

    /// Makes a reader of the protocol's messages on a link.
    fn observer(&self) -> Option<Box<dyn Observer>> {
        None
    }
}

/// Reads the messages of a protocol from the frames of a link.
pub(crate) trait Observer: Any + Debug {
    /// Reads a frame; `ip` is the IP packet in it.
    fn take(&mut self, frame: &Frame, ip: Ip<'_>);

    /// Completes what was read, after the last frame.
    fn finish(&mut self) {}

    /// Returns the name of the protocol.
    fn protocol(&self) -> &'static str;

    /// Returns the messages, for checks.
    fn messages(&self) -> Vec<&dyn Message>;
}

/// Whether a configuration has this value at a key of a section.
fn says(config: &toml::Table, section: &str, key: &str, value: &toml::Value) -> bool {
    config.get(section).and_then(|section| section.get(key)) == Some(value)
}

/// Returns all protocols.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Protocol> + Clone {
    PROTOCOLS.iter().copied()
}
