//! What a Path changes in path state that this node has. It is decided as a value before anything of the Path is stored. Only whether
//! protection is desired anew is known after the objects are stored.

use signalbox_core::{Key, invariant};

use super::arrival::{PathContents, usable};
use super::sender::{E_POLICE, LOCAL, STANDBY, Sender};
use crate::engine::Rsvp;
use crate::engine::carried::{Carried, Compared, Renewal};
use crate::wire::{Message, RawAdspec};

/// What a Path is for path state of its sender.
#[derive(Debug)]
pub(super) enum KnownPath {
    /// The sender is an application of this node.
    Own,
    /// It is to a group, and came by another interface than the path state in use.
    Elsewhere,
    /// It is a standby copy from another previous hop.
    Standby,
    /// It repeats the path state in use.
    Refresh(Refresh),
    /// It changes the path state in use.
    Change(Change),
}

/// A Path with nothing that other nodes have to learn at once (RFC 2205 §2.3).
#[derive(Debug)]
pub(in crate::engine) struct Refresh {
    /// Other nodes get a new one with the next refresh.
    pub(in crate::engine) adspec: Part,
    /// Whether a node before this one polices the flow.
    pub(in crate::engine) police: Part,
    pub(in crate::engine) objects: Renewal,
}

/// A Path of which at least the previous hop, the Tspec or an object is new. It goes on at once.
#[derive(Debug)]
pub(super) struct Change {
    pub(in crate::engine) hop: PreviousHop,
    pub(in crate::engine) tspec: Part,
    pub(in crate::engine) adspec: Part,
    /// Whether a node before this one polices the flow.
    pub(in crate::engine) police: Part,
    pub(in crate::engine) objects: Compared,
}

/// Whether a part of a Path equals that of the path state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Part {
    Same,
    New,
}

impl Part {
    pub(in crate::engine) const fn new_if(differs: bool) -> Self {
        if differs { Self::New } else { Self::Same }
    }
}

/// Whether the previous hop of a Path, with its interface, is that of the path state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreviousHop {
    Same,
    New {
        /// The Paths of the former one were standby copies.
        after_standby: bool,
    },
}

impl Rsvp {
    /// What a Path is for a sender that this node has.
    pub(super) fn compare_path(
        &mut self,
        key: Key,
        contents: &PathContents<'_>,
        message: &Message<'_>,
    ) -> Option<KnownPath> {
        let sender = invariant!(self.senders.get(key), "a Path refreshes a sender that stands")?;
        if sender.has(LOCAL) {
            return Some(KnownPath::Own);
        }
        if contents.session.dest.is_multicast() && sender.iif != contents.iface {
            return Some(KnownPath::Elsewhere);
        }
        if self.is_standby(sender, contents) {
            return Some(KnownPath::Standby);
        }
        let known_hop = self.hops.lookup(sender.hop) == Some(&contents.hop) && sender.iif == contents.iface;
        let hop = if known_hop {
            PreviousHop::Same
        } else {
            PreviousHop::New { after_standby: sender.has(STANDBY) }
        };
        let tspec = Part::new_if(*sender.tspec != contents.tspec);
        let police = Part::new_if((sender.flags ^ contents.flags) & E_POLICE != 0);
        let adspec = self.compare_adspec(sender, contents.adspec.as_ref());
        let objects = self.compare_objects(key, contents, message);
        Some(match (hop, tspec, objects) {
            (PreviousHop::Same, Part::Same, Compared::Same(objects)) => {
                KnownPath::Refresh(Refresh { adspec, police, objects })
            }
            (hop, tspec, objects) => KnownPath::Change(Change { hop, tspec, adspec, police, objects }),
        })
    }

    /// The ADSPEC of a Path beside that of a sender, of which only the part is stored that can be used.
    fn compare_adspec(&self, sender: &Sender, adspec: Option<&RawAdspec<'_>>) -> Part {
        Part::new_if(match (adspec, self.adspecs.lookup(sender.adspec)) {
            (None, None) => false,
            (Some(new), Some(old)) => **old != *new.octets() && Some(&**old) != usable(new).as_deref(),
            (Some(new), None) => usable(new).is_some(),
            (None, Some(_)) => true,
        })
    }

    /// POLICY_DATA and unknown objects of a Path beside those of a sender.
    fn compare_objects(&mut self, key: Key, contents: &PathContents<'_>, message: &Message<'_>) -> Compared {
        let carried = self.carried_of(message);
        match self.senders.get(key).and_then(|sender| sender.extra.as_ref()) {
            Some(extra) => extra.carried.compare(&carried, contents.received),
            None if carried.is_empty() => Compared::Same(Renewal::Repeated),
            None => Compared::Changed(Carried::of(&carried, contents.received)),
        }
    }
}
