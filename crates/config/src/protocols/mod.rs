//! The sections of the protocols: one file or folder for each, and one line in [`protocols!`].

#[cfg(feature = "test-protocol")]
mod beacon;
mod boomerang;
mod casp;
pub(crate) mod gist;
mod gist_nat;
mod mapping;
mod natfw;
mod ping;
mod qos;
pub(crate) mod rsvp;
mod sides;
mod tls;

use std::path::{Path, PathBuf};

use signalbox_core::{EntryRequest, NslpId, ReserverId};
use signalbox_linux::IoConfig;

use crate::keys::Keys;
use crate::secrets::Secrets;
pub(crate) use sides::Sides;

/// What a protocol opens in the kernel of a firewall or NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Openings {
    Nothing,
    /// Passages of flows.
    Passages,
    /// Passages, and bindings that translate flows.
    Bindings,
}

/// The section of a protocol.
pub(crate) trait Protocol {
    /// The keys of the section.
    fn declare(&mut self, keys: &mut Keys<'_>);

    /// Takes what a running daemon can of `new`: limits and rates, keys, certificates and revocation lists.
    fn reload(&mut self, _new: &Self)
    where
        Self: Sized,
    {
    }

    /// Whether tables of interfaces have a part of the protocol.
    fn has_parts(&self) -> bool {
        false
    }

    /// Whether the table of this interface has a part of the protocol.
    fn has_part(&self, _interface: &str) -> bool {
        false
    }

    /// The keys of the part of an interface. The section is read before.
    fn interface(&mut self, _name: &str, _keys: &mut Keys<'_>) {}

    /// Takes its keys out of `[[keys]]`.
    fn take_keys(&mut self, _secrets: &Secrets) {}

    /// Checks what concerns several tables, if the protocol runs. `keys` are those of the whole file.
    fn check(&self, _all: &Protocols, _keys: &mut Keys<'_>) {}

    /// Warns about what it opens to strangers, if the protocol runs. `keys` are those of the whole file.
    fn openings(&self, _keys: &mut Keys<'_>) {}

    /// Reads the files that the section names, if the protocol runs; their paths are relative to `directory`.
    fn read_files(&mut self, _directory: &Path, _keys: &mut Keys<'_>) {}

    /// The files that the section names.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Puts the settings of the protocol's engine into those of the node.
    fn install(&self, node: &mut signalbox_node::Config);

    /// Changes the settings of the sockets as the section demands.
    fn adapt(&self, _io: &mut IoConfig, _entries: &mut [EntryRequest]) {}

    /// Whether it is a signaling application of GIST.
    fn needs_gist(&self) -> bool {
        false
    }

    /// Whether it asks NATFW for what it opens. NATFW stands before it in [`protocols!`].
    fn needs_natfw(&self) -> bool {
        false
    }

    /// NSLPIDs that the protocol owns.
    fn nslps(&self) -> Vec<NslpId> {
        Vec::new()
    }

    /// What it opens in the kernel of a firewall or NAT.
    fn opens(&self) -> Openings {
        Openings::Nothing
    }

    /// Whether users of this host can ask it for passages through firewalls and NATs of others.
    fn asks_for_passages(&self) -> bool {
        false
    }

    /// The sides of the interfaces, if it opens passages between them.
    fn sides(&self) -> Option<&Sides> {
        None
    }

    /// The hooks of netfilter that do not judge what the node takes of the protocol's packets that pass by and sends on, what that
    /// is, and what to write instead. `older`: the kernel itself takes IPv4 packets, in front of the hook forward.
    fn unjudged(&self, _older: bool) -> Option<(&'static str, &'static str, &'static str)> {
        None
    }

    /// What to write instead, if addresses of its senders count that every node on their link can forge.
    fn forgeable(&self) -> Option<&'static str> {
        None
    }

    /// How admission control names the protocol, if it reserves resources.
    fn reserver(&self) -> Option<ReserverId> {
        None
    }
}

macro_rules! protocols {
    ($($(#[$cfg:meta])? $name:ident: $section:ty, $meaning:expr;)*) => {
        /// The sections of all protocols.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub(crate) struct Protocols {
            $($(#[$cfg])? pub(crate) $name: $section,)*
        }

        /// Names in `node.protocols`, which are the names of the sections.
        pub(crate) const NAMES: &[(&str, &str)] = &[$($(#[$cfg])? (stringify!($name), stringify!($name)),)*];

        impl Protocols {
            /// Each protocol's name, the meaning of its section, and the section.
            pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = (&'static str, &'static str, &mut dyn Protocol)> {
                let all: Vec<(_, _, &mut dyn Protocol)> =
                    Vec::from([$($(#[$cfg])? (stringify!($name), $meaning, &mut self.$name as _),)*]);
                all.into_iter()
            }

            /// Takes what a running daemon can of `new`.
            pub(crate) fn reload(&mut self, new: &Self) {
                $($(#[$cfg])? self.$name.reload(&new.$name);)*
            }

            /// Each protocol's name and section.
            pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &dyn Protocol)> {
                let all: Vec<(_, &dyn Protocol)> =
                    Vec::from([$($(#[$cfg])? (stringify!($name), &self.$name as _),)*]);
                all.into_iter()
            }
        }
    };
}

protocols! {
    gist: gist::Gist, gist::MEANING;
    ping: ping::Ping, ping::MEANING;
    qos: qos::Qos, qos::MEANING;
    rsvp: rsvp::Rsvp, rsvp::MEANING;
    boomerang: boomerang::Boomerang, boomerang::MEANING;
    natfw: natfw::Natfw, natfw::MEANING;
    gist_nat: gist_nat::GistNat, gist_nat::MEANING;
    casp: casp::Casp, casp::MEANING;
    mapping: mapping::Mapping, mapping::MEANING;
    #[cfg(feature = "test-protocol")]
    beacon: beacon::Beacon, beacon::MEANING;
}
