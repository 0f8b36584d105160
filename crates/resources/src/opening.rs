//! What a request opens through a firewall or NAT, and from which zone to which.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use signalbox_core::IfIndex;

use crate::request::Requester;

/// The zone of interfaces that have no other one.
pub const OUTSIDE: &str = "outside";
/// The name that stands for all interfaces without an entry of their own.
const ANY: &str = "*";

/// What is opened through a firewall or NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Opening {
    /// A flow from the inside towards the outside.
    Outward,
    /// A flow that comes from the outside.
    Inward,
    /// A flow from the inside to the inside. Neither a host's own address nor an invitation replaces a rule.
    Between,
    /// An external address for a host inside, or its announcement as a receiver.
    Reserve,
    /// A flow towards the inside that is blocked.
    Block,
    /// A host inside that strangers may reach without an invitation. Only a rule opens it: neither a host's own address nor trust in the
    /// requester replaces one.
    Publish,
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outward => "outward",
            Self::Inward => "inward",
            Self::Between => "between",
            Self::Reserve => "reserve",
            Self::Block => "block",
            Self::Publish => "publish",
        })
    }
}

impl Opening {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Outward, Self::Inward, Self::Between, Self::Reserve, Self::Block, Self::Publish];

    /// Whether a receiver asks for it alone, for senders that are not known yet.
    #[must_use]
    pub const fn is_of_receiver(self) -> bool {
        matches!(self, Self::Reserve | Self::Block | Self::Publish)
    }
}

/// The zone of each interface, by the name of the interface. `"*"` is for those without an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Zones(pub BTreeMap<String, String>);

impl Zones {
    /// The zone of an interface. One without an entry is outside, where less is allowed.
    #[must_use]
    pub fn of(&self, interface: &str) -> &str {
        self.0.get(interface).or_else(|| self.0.get(ANY)).map_or(OUTSIDE, String::as_str)
    }

    /// Whether an interface can be in this zone.
    #[must_use]
    pub fn has(&self, zone: &str) -> bool {
        zone == OUTSIDE || self.0.values().any(|one| one == zone)
    }
}

/// The interfaces by which packets come in and leave; [`IfIndex::NONE`]: not known, or any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crossing {
    /// Where they come in.
    pub from: IfIndex,
    /// Where they leave.
    pub to: IfIndex,
}

/// The names of the interfaces of a [`Crossing`]. They stay if an interface gets another number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Crossed {
    pub(crate) from: Option<Arc<str>>,
    pub(crate) to: Option<Arc<str>>,
}

/// Who asked for a passage, and between which interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Party {
    pub(crate) requester: Requester,
    pub(crate) crossed: Crossed,
}
