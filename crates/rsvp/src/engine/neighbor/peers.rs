//! RSVP neighbors, by address.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::rng::Random;
use signalbox_core::shares::Shares;
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{IfIndex, Time, invariant};

use super::bundle::Bundle;
use super::hello;
use super::traffic::PeerTraffic;
use crate::engine::shared::Recent;
use crate::wire::{HeaderFlags, MessageId};

/// A neighbor without state is removed after this silence.
const IDLE: Duration = Duration::from_secs(60);

/// A neighbor.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its address in RSVP_HOP.
    pub(crate) addr: IpAddr,
    /// Interface of its last message.
    pub(crate) ifindex: IfIndex,
    /// Interface of its first message, in whose share it counts.
    appeared: IfIndex,
    /// Its last message had the refresh-reduction-capable bit (RFC 2961 §2).
    capable: bool,
    /// Nodes without RSVP lie between, by the TTL of its last message. A Path may then be routed past it.
    far: bool,
    /// It has sent a MESSAGE_ID, an acknowledgment or a Bundle.
    names: bool,
    /// Whether it handles MESSAGE_IDs, and its interface, when that changed last.
    shown: Option<(bool, IfIndex)>,
    /// It has received a message of this node.
    proved: bool,
    /// Epoch of its last MESSAGE_ID.
    epoch: Option<u32>,
    /// The largest identifier of that epoch.
    largest: u32,
    /// Number of MESSAGE_IDs that refer to it.
    pub(crate) refs: u32,
    /// Acknowledgments that wait for it.
    pub(crate) acks: Vec<(MessageId, bool)>,
    pub(crate) acks_due: Option<Time>,
    /// Messages that wait for others in a Bundle.
    pub(crate) bundle: Bundle,
    pub(crate) bundle_due: Option<Time>,
    pub(crate) hello: Option<hello::State>,
    last_received: Time,
    /// It has sent no message but Hellos since it was forgotten ([`Peer::forget`]).
    unheard: bool,
    pub(crate) traffic: PeerTraffic,
    /// Time when it was last found silent, with state.
    kept: Time,
    link: Link,
}

impl Timed for Peer {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// Order of a MESSAGE_ID among those of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// The epoch is new.
    NewEpoch,
    /// The identifier is the largest so far.
    Newest,
    /// A larger identifier came before: the message may be out of order.
    Older,
}

impl Peer {
    /// Whether Bundles and summary refreshes may go to it (RFC 2961 §3.3, §5.6).
    pub(crate) const fn is_capable(&self) -> bool {
        self.capable && !self.far
    }

    /// Whether its last message had the refresh-reduction-capable bit.
    pub(crate) const fn says_capable(&self) -> bool {
        self.capable
    }

    /// Whether it has shown that it handles MESSAGE_IDs: by the bit, or by what it sent.
    pub(crate) const fn is_able(&self) -> bool {
        self.capable || self.names
    }

    /// Takes what its last message shows: `names`: it has a MESSAGE_ID, an acknowledgment, or came in a Bundle. Returns
    /// whether the neighbor handles MESSAGE_IDs, if that is news.
    pub(crate) fn shows(&mut self, names: bool) -> Option<bool> {
        self.names |= names;
        let new = (self.is_able(), self.ifindex);
        (self.shown.replace(new) != Some(new)).then_some(new.0)
    }

    /// Whether nodes without RSVP lie between.
    pub(crate) const fn is_far(&self) -> bool {
        self.far
    }

    /// Whether it has received a message of this node.
    pub(crate) const fn is_proved(&self) -> bool {
        self.proved
    }

    /// Notes that it has received a message of this node.
    pub(crate) const fn prove(&mut self) {
        self.proved = true;
    }

    /// Time of its last message; `None`: it was forgotten, and has sent no message but Hellos since.
    pub(crate) fn last_received(&self) -> Option<Time> {
        (!self.unheard).then_some(self.last_received)
    }

    /// Forgets what its messages have shown. No MESSAGE_ID refers to it any more.
    pub(crate) fn forget(&mut self, now: Time) {
        (self.capable, self.far, self.names, self.proved) = (false, false, false, false);
        (self.shown, self.epoch, self.largest) = (None, None, 0);
        (self.refs, self.unheard) = (0, true);
        if let Some(hello) = &mut self.hello {
            hello.forget(now);
        }
    }

    /// Notes that it sent a message.
    pub(crate) const fn received(&mut self, now: Time) {
        self.last_received = now;
    }

    /// Records a MESSAGE_ID; its order among the sender's.
    pub(crate) fn record_id(&mut self, name: MessageId) -> Age {
        if self.epoch != Some(name.epoch) {
            (self.epoch, self.largest) = (Some(name.epoch), name.id);
            Age::NewEpoch
        } else if MessageId::is_before(name.id, self.largest) {
            Age::Older
        } else {
            self.largest = name.id;
            Age::Newest
        }
    }

    /// The first deadline of the neighbor.
    fn deadline(&self) -> Time {
        let idle = self.last_received.max(self.kept) + IDLE;
        let soon = [self.acks_due, self.bundle_due, self.hello.and_then(|hello| hello.due())];
        soon.into_iter().flatten().fold(idle, Time::min)
    }

    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.refs == 0
            && now.since(self.last_received) >= IDLE
            && self.acks.is_empty()
            && self.bundle.is_empty()
    }

    /// Notes that a silent neighbor still has state; it is checked again later.
    pub(crate) fn touch_if_silent(&mut self, now: Time) {
        if now.since(self.last_received) >= IDLE {
            self.kept = now;
        }
    }
}

/// The interface, for addresses that are unique on a link only.
fn scope(addr: IpAddr, ifindex: IfIndex) -> IfIndex {
    match addr {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => ifindex,
        _ => IfIndex::NONE,
    }
}

fn hash_of(hasher: &KeyedHasher, addr: IpAddr, ifindex: IfIndex) -> u64 {
    match addr {
        IpAddr::V4(v4) => hasher.hash_octets(&v4.octets()),
        IpAddr::V6(v6) => hasher.hash_one(&(v6.octets(), scope(addr, ifindex).0)),
    }
}

/// All neighbors. A quarter of the table is for those behind interfaces with few of them: the address of a neighbor that
/// sends Paths is not proved, so one link could otherwise fill the table.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) slab: Slab<Peer>,
    by_interface: Shares<IfIndex>,
    index: Index,
    hasher: KeyedHasher,
    wheel: Wheel,
    recent: Recent,
}

impl Peers {
    pub(crate) fn new(limit: u32, rng: &mut Random) -> Self {
        let hasher = KeyedHasher::new(rng);
        Self {
            slab: Slab::new(limit),
            by_interface: Shares::new(limit, hasher),
            index: Index::new(),
            hasher,
            wheel: Wheel::new(Duration::from_millis(1)),
            recent: Recent::new(),
        }
    }

    /// Keeps at most `limit` neighbors from now on. Those that are there stay.
    pub(crate) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
        self.by_interface.set_limit(limit);
    }

    fn hash(&self, addr: IpAddr, ifindex: IfIndex) -> u64 {
        hash_of(&self.hasher, addr, ifindex)
    }

    pub(crate) fn find(&self, addr: IpAddr, ifindex: IfIndex) -> Option<Key> {
        let wanted = (addr, scope(addr, ifindex));
        let is = |at| self.slab.get_index(at).is_some_and(|p| (p.addr, scope(p.addr, p.ifindex)) == wanted);
        let recent = self.recent.get(addr);
        if is(recent) {
            return self.slab.key_of(recent);
        }
        self.slab.key_of(self.index.find(self.hash(addr, ifindex), is)?)
    }

    /// Finds or creates the neighbor that sent a message; `None`: the table is full. `far`: nodes without RSVP lie
    /// between.
    pub(crate) fn received_from(
        &mut self,
        now: Time,
        addr: IpAddr,
        ifindex: IfIndex,
        (flags, far): (HeaderFlags, bool),
    ) -> Option<Key> {
        let capable = flags.contains(HeaderFlags::REFRESH_REDUCTION);
        if let Some(key) = self.find(addr, ifindex) {
            self.recent.set(addr, key.index());
            if let Some(peer) = self.slab.get_mut(key) {
                // Without the bit, what it did with it counts no more.
                peer.names &= capable || !peer.capable;
                (peer.capable, peer.far, peer.ifindex, peer.last_received) = (capable, far, ifindex, now);
                peer.unheard = false;
                peer.traffic.received += 1;
            }
            return Some(key);
        }
        let peer = Peer {
            addr,
            ifindex,
            appeared: ifindex,
            capable,
            far,
            names: false,
            shown: None,
            proved: false,
            epoch: None,
            largest: 0,
            refs: 0,
            acks: Vec::new(),
            acks_due: None,
            bundle: Bundle::default(),
            bundle_due: None,
            hello: None,
            last_received: now,
            unheard: false,
            traffic: PeerTraffic { received: 1, ..PeerTraffic::default() },
            kept: now,
            link: Link::default(),
        };
        self.by_interface.check(&ifindex, 1).ok()?;
        let key = self.slab.insert(peer).ok()?;
        self.by_interface.hold(ifindex);
        let hash = self.hash(addr, ifindex);
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.index.insert(hash, key.index(), |at| {
            slab.get_index(at).map_or(0, |p| hash_of(hasher, p.addr, p.ifindex))
        });
        self.rearm(key);
        Some(key)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Peer> {
        self.slab.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Peer> {
        self.slab.get_mut(key)
    }

    /// The neighbor in a slot, to which a MESSAGE_ID refers.
    pub(crate) fn at(&self, slot: u32) -> Option<&Peer> {
        self.slab.get_index(slot)
    }

    /// The same to change it.
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Peer> {
        self.slab.get_index_mut(slot)
    }

    /// Restarts the timer for the first deadline.
    pub(crate) fn rearm(&mut self, key: Key) {
        if let Some(deadline) = self.slab.get(key).map(Peer::deadline) {
            self.wheel.arm(&mut self.slab, key.index(), deadline);
        }
    }

    /// The next neighbor whose deadline is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Key> {
        let at = self.wheel.pop_due(&mut self.slab, now)?;
        self.slab.key_of(at)
    }

    pub(crate) fn remove(&mut self, key: Key) {
        let Some(peer) = invariant!(self.slab.get(key), "a neighbor is removed once") else { return };
        self.by_interface.release(peer.appeared);
        let hash = self.hash(peer.addr, peer.ifindex);
        self.wheel.cancel(&mut self.slab, key.index());
        self.index.remove(hash, |at| at == key.index());
        self.slab.remove(key);
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }
}
