//! The record of a sender: path state (the PSB of RFC 2209).

use signalbox_core::Time;
use signalbox_core::stamp::Stamp;
use signalbox_core::wheel::{Link, Timed};
use signalbox_resources::intserv::TSpec;

use super::carried::Carried;
use super::interfaces::Iface;
use super::session::NONE;
use crate::wire::Selector;

/// Path state of a sender in a session.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) link: Link,
    pub(crate) session: u32,
    /// Neighbours in the session's list.
    pub(crate) siblings: [u32; 2],
    /// Neighbours in the list of senders that leave by the same interface.
    pub(crate) leaving: [u32; 2],
    /// First of its own reservations (FF).
    pub(crate) branches: u32,
    /// Source, packed.
    pub(crate) src: u32,
    /// Port, flow label or SPI, as `flags` say.
    selector: u32,
    pub(crate) tspec: TSpec,
    /// Previous hop and its handle, shared; [`NONE`]: an application of this node.
    pub(crate) hop: u32,
    /// Contents of the ADSPEC, shared; [`NONE`]: none.
    pub(crate) adspec: u32,
    /// When it ends without a refresh.
    pub(crate) expires: Stamp,
    /// When the next Path goes out, if [`PATH`].
    pub(crate) path_at: Stamp,
    /// When the next Resv goes to the previous hop, if [`RESV`].
    pub(crate) resv_at: Stamp,
    /// Interface by which Paths come.
    pub(crate) iif: Iface,
    /// Interface by which they go on; of several the first.
    pub(crate) oif: Iface,
    pub(crate) flags: u16,
    /// Router that its data go to next, hashed; 0: none, or not known.
    pub(crate) gateway: u32,
    /// TTL that the last Path came with.
    pub(crate) ttl: u8,
    /// How often the last change was said again: of Paths in the low four bits, of Resvs in the high ones.
    pub(crate) stages: u8,
    pub(crate) extra: Option<Box<SenderExtra>>,
}

/// The selector is a flow label.
const LABEL: u16 = 1;
/// The selector is an SPI.
const GPI: u16 = 2;
/// [`Sender::path_at`] runs.
pub(crate) const PATH: u16 = 4;
/// [`Sender::resv_at`] runs: this sender's record has the timer of all those of its previous hop.
pub(crate) const RESV: u16 = 8;
/// Nobody policed the flow before this node.
pub(crate) const E_POLICE: u16 = 16;
/// Hops without RSVP lie between the previous hop and this one.
pub(crate) const NON_RSVP: u16 = 32;
/// The route is being looked up.
pub(crate) const RESOLVING: u16 = 64;
/// Its Path waits for the route.
pub(crate) const UNSENT: u16 = 128;
/// The route changed; its Path waits *W*.
pub(crate) const REPAIR: u16 = 256;
/// Who is before it is an application of this node.
pub(crate) const LOCAL: u16 = 512;

/// Path state of the branch of a group that is for applications of this node only (RFC 2205 §3.9).
pub(crate) const LOCAL_ONLY: u16 = 1024;

/// A Path of it was due while nothing could come in by its interface: it goes out when Paths come in again.
pub(crate) const HELD: u16 = 2048;

/// What few senders have.
#[derive(Debug)]
pub(crate) struct SenderExtra {
    /// Interfaces by which Paths go on beside the first.
    pub(crate) oifs: Vec<Iface>,
    /// When the next Path leaves by each interface, if there are several: each has its own refresh period.
    pub(crate) path_times: Vec<(Iface, Stamp)>,
    /// POLICY_DATA and unknown objects of its Paths.
    pub(crate) carried: Carried,
    /// The application that announced it.
    pub(crate) application: Option<u64>,
    /// Path state of the same sender that came by other interfaces (multicast): none of it is forwarded.
    pub(crate) unexpected: Vec<UnexpectedPath>,
    /// The interface that multicast routing expects it by; [`Iface::NONE`]: it does not say.
    pub(crate) expected: Iface,
    /// The interfaces that multicast routing sends its data out by.
    pub(crate) routed: Vec<Iface>,
}

impl Default for SenderExtra {
    fn default() -> Self {
        Self {
            oifs: Vec::new(),
            path_times: Vec::new(),
            carried: Carried::default(),
            application: None,
            unexpected: Vec::new(),
            expected: Iface::NONE,
            routed: Vec::new(),
        }
    }
}

/// Path state that waits aside for the routing to turn to it.
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

/// A selector in a word, and the flag that tells its kind.
const fn packed(selector: Selector) -> (u32, u16) {
    match selector {
        Selector::Port(port) => (port as u32, 0),
        Selector::FlowLabel(label) => (label, LABEL),
        Selector::Gpi(gpi) => (gpi, GPI),
    }
}

impl Sender {
    pub(crate) fn new(session: u32, src: u32, selector: Selector, tspec: TSpec) -> Self {
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
            expires: Stamp::default(),
            path_at: Stamp::default(),
            resv_at: Stamp::default(),
            iif: Iface::NONE,
            oif: Iface::NONE,
            flags,
            gateway: 0,
            ttl: 0,
            stages: 0,
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

    /// Whether messages that name this source, packed, and selector are about it.
    pub(crate) const fn is(&self, src: u32, selector: Selector) -> bool {
        let (word, flag) = packed(selector);
        self.src == src && self.selector == word && self.flags & (LABEL | GPI | LOCAL_ONLY) == flag
    }

    pub(crate) fn extra(&mut self) -> &mut SenderExtra {
        self.extra.get_or_insert_default()
    }

    /// POLICY_DATA and unknown objects that go along.
    pub(crate) fn carried(&self) -> &[u8] {
        self.extra.as_ref().map_or(&[], |extra| extra.carried.octets())
    }

    /// Interfaces by which its Paths and its data go on.
    pub(crate) fn egress(&self) -> impl Iterator<Item = Iface> + '_ {
        let first = Some(self.oif).filter(|oif| *oif != Iface::NONE);
        first.into_iter().chain(self.extra.iter().flat_map(|extra| extra.oifs.iter().copied()))
    }

    /// Whether its Paths leave by several interfaces.
    pub(crate) fn branches_out(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.oifs.iter().any(|iface| iface.is_real()))
            && self.oif.is_real()
    }

    /// Whether its data leave by `iface`.
    pub(crate) fn leaves_by(&self, iface: Iface) -> bool {
        self.oif == iface && iface != Iface::NONE
            || self.extra.as_ref().is_some_and(|extra| extra.oifs.contains(&iface))
    }

    /// The first of its timers; a sender of this node has no end.
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

    /// Whether it ends now.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        !self.has(LOCAL) && self.expires.is_due(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::branch::Branch;
    use super::super::session::Session;
    use super::*;

    /// At most 300 octets for path and reservation state of a unicast IPv4 session, FF: its records with the slabs'
    /// generations, the entries in the session's index (at most 12 octets) and in the set of destinations (at most 20).
    #[test]
    fn a_session_fits_its_budget() {
        fn slot<T>() -> usize {
            4 + size_of::<Option<T>>()
        }
        let total = slot::<Session>() + slot::<Sender>() + slot::<Branch>() + 12 + 20;
        let each = [size_of::<Session>(), size_of::<Sender>(), size_of::<Branch>()];
        assert!(total <= 300, "{total} {each:?}");
    }
}
