//! The record of a sender: path state (the PSB of RFC 2209).

use std::sync::Arc;

use signalbox_core::Time;
use signalbox_core::stamp::{Since, Stamp};
use signalbox_core::wheel::{Link, Timed};
use signalbox_resources::intserv::TSpec;

use super::overdue::Pace;
use crate::engine::carried::Carried;
use crate::engine::interfaces::Iface;
use crate::engine::output::Stage;
use crate::engine::session::NONE;
use crate::wire::Selector;

/// Path state of one sender in a session.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) link: Link,
    pub(crate) session: u32,
    /// Previous and next sender in the list of the session.
    pub(crate) siblings: [u32; 2],
    /// Previous and next sender in the list of those that leave by the same interface.
    pub(crate) leaving: [u32; 2],
    /// First of its reservations, with FF.
    pub(crate) branches: u32,
    /// Source address, packed.
    pub(crate) src: u32,
    /// Port, flow label or SPI, according to `flags`.
    selector: u32,
    /// Senders with equal Tspecs share it.
    pub(crate) tspec: Arc<TSpec>,
    /// Previous hop with its handle, shared; [`NONE`]: the sender is an application of this node.
    pub(crate) hop: u32,
    /// Contents of the ADSPEC, shared; [`NONE`]: there is no ADSPEC.
    pub(crate) adspec: u32,
    /// Time of its first Path, or of its announcement here. It fits into what alignment left free.
    pub(crate) since: Since,
    /// Time when the state ends without a refresh.
    pub(crate) expires: Stamp,
    /// Time of the next Path, if [`PATH`] is set.
    pub(crate) path_at: Stamp,
    /// Time of the next Resv to the previous hop, if [`RESV`] is set.
    pub(crate) resv_at: Stamp,
    /// Incoming interface of its Paths.
    pub(crate) iif: Iface,
    /// The interface that has its place in the table; [`Iface::NONE`]: it is not counted.
    pub(crate) held_by: Iface,
    /// Outgoing interface of its Paths and data; the first if there are several.
    pub(crate) oif: Iface,
    pub(crate) flags: u16,
    /// Hash of the next router of its data; 0: there is none, or it is not known.
    pub(crate) gateway: u32,
    /// TTL of the last Path.
    pub(crate) ttl: u8,
    /// The refresh period of the last Path.
    pub(crate) pace: Pace,
    /// Stage of its Paths, if it leaves by one interface.
    pub(crate) path_stage: Stage,
    /// Stage of the Resvs to the previous hop.
    pub(crate) resv_stage: Stage,
    pub(crate) extra: Option<Box<SenderExtra>>,
}

/// The selector is a flow label.
const LABEL: u16 = 1;
/// The selector is an SPI.
const GPI: u16 = 2;
/// [`Sender::path_at`] is set.
pub(crate) const PATH: u16 = 4;
/// [`Sender::resv_at`] is set: this record has the refresh timer of all senders of its previous hop.
pub(crate) const RESV: u16 = 8;
/// No node before this one policed the flow (E_Police, RFC 2205 §3.8).
pub(crate) const E_POLICE: u16 = 16;
/// Hops without RSVP lie between the previous hop and this one.
pub(crate) const NON_RSVP: u16 = 32;
/// The route is being looked up.
pub(crate) const RESOLVING: u16 = 64;
/// The Path was not sent yet, because the route is not known.
pub(crate) const UNSENT: u16 = 128;
/// The route changed; the Path is sent after *W* (RFC 2205 §3.6).
pub(crate) const REPAIR: u16 = 256;
/// The sender is an application of this node.
pub(crate) const LOCAL: u16 = 512;

/// Path state of a group for applications of this node only (Local_Only of RFC 2209; RFC 2205 §3.9).
pub(crate) const LOCAL_ONLY: u16 = 1024;

/// A Path was due while the incoming interface was down, or along a new route while its previous hop was silent. It is sent as soon as a
/// Path arrives again.
pub(crate) const HELD: u16 = 2048;

/// The Paths desire local protection.
pub(crate) const PROTECTED: u16 = 4096;

/// The Paths are standby copies: they could desire local protection and do not.
pub(crate) const STANDBY: u16 = 8192;
/// No Path has gone by [`Sender::oif`] since the data take their present way there.
const UNANNOUNCED: u16 = 16384;

/// The next Path by one of several interfaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathTime {
    pub(crate) iface: Iface,
    pub(crate) at: Stamp,
    pub(crate) stage: Stage,
}

/// Fields that few senders need.
#[derive(Debug)]
pub(crate) struct SenderExtra {
    /// Outgoing interfaces beside the first.
    pub(crate) oifs: Vec<Iface>,
    /// Those of them by which no Path has gone since the data take their present way there.
    pub(crate) unannounced: Vec<Iface>,
    /// The next Path by each of several interfaces: each has its own refresh period.
    pub(crate) path_times: Vec<PathTime>,
    /// POLICY_DATA and unknown objects of its Paths.
    pub(crate) carried: Carried,
    /// The application that announced it.
    pub(crate) application: Option<u64>,
    /// Path state of the same sender from other interfaces (multicast, standby copies). None of it is forwarded.
    pub(crate) unexpected: Vec<UnexpectedPath>,
    /// The incoming interface that multicast routing expects; [`Iface::NONE`]: it expects none.
    pub(crate) expected: Iface,
    /// The outgoing interfaces of multicast routing.
    pub(crate) routed: Vec<Iface>,
    /// Hash of the next router of the standby copies; 0 if the route has no next router.
    pub(crate) standby_gateway: u32,
}

impl Default for SenderExtra {
    fn default() -> Self {
        Self {
            oifs: Vec::new(),
            unannounced: Vec::new(),
            path_times: Vec::new(),
            carried: Carried::default(),
            application: None,
            unexpected: Vec::new(),
            expected: Iface::NONE,
            routed: Vec::new(),
            standby_gateway: 0,
        }
    }
}

/// Path state from an interface that multicast routing does not expect. It is used when routing changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnexpectedPath {
    pub(crate) iif: Iface,
    pub(crate) hop: u32,
    pub(crate) tspec: TSpec,
    pub(crate) adspec: u32,
    pub(crate) expires: Stamp,
    pub(crate) ttl: u8,
    /// [`E_POLICE`] and [`NON_RSVP`].
    pub(crate) flags: u16,
}

impl Timed for Sender {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// A selector as a number, with the flag of its kind.
const fn packed(selector: Selector) -> (u32, u16) {
    match selector {
        Selector::Port(port) => (port as u32, 0),
        Selector::FlowLabel(label) => (label, LABEL),
        Selector::Gpi(gpi) => (gpi, GPI),
    }
}

impl Sender {
    pub(crate) fn new(now: Time, (session, src, selector): (u32, u32, Selector), tspec: Arc<TSpec>) -> Self {
        let (selector, flags) = packed(selector);
        Self {
            link: Link::default(),
            session,
            siblings: [NONE; 2],
            leaving: [NONE; 2],
            branches: NONE,
            src,
            selector,
            tspec,
            hop: NONE,
            adspec: NONE,
            since: Since::of(now),
            expires: Stamp::default(),
            path_at: Stamp::default(),
            resv_at: Stamp::default(),
            iif: Iface::NONE,
            held_by: Iface::NONE,
            oif: Iface::NONE,
            flags,
            gateway: 0,
            ttl: 0,
            pace: Pace::default(),
            path_stage: Stage::OVER,
            resv_stage: Stage::OVER,
            extra: None,
        }
    }

    pub(crate) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u16, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    pub(crate) const fn selector(&self) -> Selector {
        match self.flags & (LABEL | GPI) {
            LABEL => Selector::FlowLabel(self.selector),
            GPI => Selector::Gpi(self.selector),
            #[expect(clippy::cast_possible_truncation, reason = "it was a port")]
            _ => Selector::Port(self.selector as u16),
        }
    }

    /// Whether the record is of this source, packed, and selector.
    pub(crate) const fn is(&self, src: u32, selector: Selector) -> bool {
        let (word, flag) = packed(selector);
        self.src == src && self.selector == word && self.flags & (LABEL | GPI | LOCAL_ONLY) == flag
    }

    /// The path state in use, as it is stored beside that of another previous hop.
    pub(crate) fn as_stored(&self) -> UnexpectedPath {
        UnexpectedPath {
            iif: self.iif,
            hop: self.hop,
            tspec: *self.tspec,
            adspec: self.adspec,
            expires: self.expires,
            ttl: self.ttl,
            flags: self.flags & (E_POLICE | NON_RSVP),
        }
    }

    pub(crate) fn extra(&mut self) -> &mut SenderExtra {
        self.extra.get_or_insert_default()
    }

    /// POLICY_DATA and unknown objects of its Paths, whole.
    pub(crate) fn carried(&self) -> &[u8] {
        self.extra.as_ref().map_or(&[], |extra| extra.carried.octets())
    }

    /// The outgoing interfaces of its Paths and data.
    pub(crate) fn egress(&self) -> impl Iterator<Item = Iface> + '_ {
        let first = Some(self.oif).filter(|oif| *oif != Iface::NONE);
        first.into_iter().chain(self.extra.iter().flat_map(|extra| extra.oifs.iter().copied()))
    }

    /// Whether its Paths leave by several interfaces.
    pub(crate) fn branches_out(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.oifs.iter().any(|iface| iface.is_real()))
            && self.oif.is_real()
    }

    /// The next Path by one of several interfaces.
    pub(crate) fn path_time(&self, iface: Iface) -> Option<PathTime> {
        self.extra.as_ref()?.path_times.iter().find(|one| one.iface == iface).copied()
    }

    /// Whether its data leave by this interface.
    pub(crate) fn leaves_by(&self, iface: Iface) -> bool {
        self.oif == iface && iface != Iface::NONE
            || self.extra.as_ref().is_some_and(|extra| extra.oifs.contains(&iface))
    }

    /// Whether a Path has gone by this outgoing interface since the data take their present way there. Without one the next hop has
    /// nothing to tear down, and a PathTear would end what the Paths of another way have set up.
    pub(crate) fn is_announced(&self, iface: Iface) -> bool {
        if self.oif == iface {
            return !self.has(UNANNOUNCED);
        }
        self.extra
            .as_ref()
            .is_some_and(|extra| extra.oifs.contains(&iface) && !extra.unannounced.contains(&iface))
    }

    /// Stores whether a Path has gone by this outgoing interface since the data take their present way there.
    pub(crate) fn set_announced(&mut self, iface: Iface, announced: bool) {
        if self.oif == iface {
            self.set(UNANNOUNCED, !announced);
        } else if let Some(extra) = &mut self.extra {
            extra.unannounced.retain(|one| *one != iface);
            if !announced {
                extra.unannounced.push(iface);
            }
        }
    }

    /// The first deadline of the record. A sender of this node does not expire.
    pub(crate) fn deadline(&self) -> Option<Stamp> {
        let mut first = (!self.has(LOCAL)).then_some(self.expires);
        let mut sooner = |at: Stamp| first = Some(first.map_or(at, |first| first.min(at)));
        if self.has(PATH) {
            sooner(self.path_at);
        }
        if self.has(RESV) {
            sooner(self.resv_at);
        }
        self.extra.iter().flat_map(|extra| &extra.unexpected).for_each(|path| sooner(path.expires));
        self.extra.iter().filter_map(|extra| extra.carried.deadline()).for_each(sooner);
        first
    }

    /// Reads a field of each part of the record that a refresh needs.
    pub(crate) fn is_read(&self, now: Time) -> bool {
        self.link.is_armed() ^ self.expires.is_due(now) ^ self.has(LOCAL)
    }

    /// Whether the state expired.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        !self.has(LOCAL) && self.expires.is_due(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::reservation::Branch;
    use crate::engine::session::Session;

    /// Path and reservation state of a unicast IPv4 session with FF takes at most 252 octets: the records with the
    /// slabs' generations, the entry in the index of sessions (at most 12 octets) and in the set of destinations (at
    /// most 20).
    #[test]
    fn a_session_fits_its_budget() {
        fn slot<T>() -> usize {
            4 + size_of::<Option<T>>()
        }
        let total = slot::<Session>() + slot::<Sender>() + slot::<Branch>() + 12 + 20;
        let each = [size_of::<Session>(), size_of::<Sender>(), size_of::<Branch>()];
        assert!(total <= 252, "{total} {each:?}");
    }
}
