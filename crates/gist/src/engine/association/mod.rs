//! Messaging associations (RFC 5971 §4.4.3, §4.4.5, §5.4, §5.7, §6.4; RFC 6084).
//!
//! [`Associations`] owns the table of associations, its queues and its limits. Other rooms name an association by its place in
//! the table. A session takes one in its handshake (`associate`, `answer`, `settle_mode`) and sends over it (`send_along`).
//!
//! * `state`: what is stored in each state of §6.4, and by who opened the association.
//! * `stack`: proposal and choice of protocol stacks.
//! * `handshake`: selection of the association of a session, at both nodes. `loss`: what its end means for a session.
//! * `machine`: the state machine of §6.4, one function per rule. `channels`: inputs of channels as events of it.
//! * `transfer`: sending of messages, queues and back-pressure. `reception`: reception of messages.
//! * `bindings`: bindings between sessions and associations.
//! * `authorise`: authorisation of peers (§4.4.2). `retry`: delay of the next attempt after a failed one.
//!
//! Sessions in datagram mode do not use these tables: their records have one flag, and the tables are empty until there is
//! an association.

mod authorise;
mod bindings;
mod channels;
mod config;
mod handshake;
mod loss;
mod machine;
mod reception;
mod retry;
mod stack;
mod state;
mod transfer;
mod view;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use signalbox_core::bucket::TokenBucket;
use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::metrics::Table;
use signalbox_core::rng::Random;
use signalbox_core::security::Identity;
use signalbox_core::service::SiiHandle;
use signalbox_core::shares::{RateShares, Shares, source};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{Changes, IfIndex, Mri, NslpId, SessionId, Time, invariant};

use super::io::{ChannelId, Transport};
use super::limits;
use super::routing::NONE;
use crate::wire::Nli;
use bindings::Binding;
use retry::RetryDelays;
use state::{Ended, Opened, Origin, Reached, State};
use transfer::Waiting;

pub use config::AssociationConfig;
pub(super) use handshake::Answer;
pub(super) use stack::{Stacks, configuration};
use transfer::LEAST_WINDOW;
pub(super) use transfer::{MAX_DATA, Need, Outcome, Owner};
pub use view::{AssociationState, AssociationView};

/// The longest wait for another attempt with a transport that gave no answer, as a multiple of `retry_max`.
const RAREST: u32 = 64;

/// An attempt without an answer for this time is replaced when a new message needs it: the packets of a new one follow each
/// other sooner, and what was in the way may be gone.
const STALE: Duration = Duration::from_secs(7);

/// Peer identity and interface address of a peer, by which associations are found for sharing (RFC 5971 §4.4.3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerKey {
    pub(super) identity: Box<[u8]>,
    pub(super) interface: IpAddr,
}

/// One messaging association.
#[derive(Debug)]
pub(super) struct Association {
    link: Link,
    /// The time for which the timer is armed.
    armed: Time,
    channel: ChannelId,
    transport: Transport,
    /// When it was created.
    since: Time,
    state: State,
    origin: Origin,
    /// The SII handle of the peer.
    sii: Option<SiiHandle>,
    /// The address of this node, and its interface.
    local: IpAddr,
    ifindex: IfIndex,
    remote: IpAddr,
    identity: Option<Arc<Identity>>,
    /// MA-Hold-Time of the peer, within which it must receive a message.
    hold_time: Duration,

    /// When it becomes Idle, since no session uses it.
    unused: Option<Time>,
    /// The first session that uses it, and the number of sessions.
    first: u32,
    sessions: u32,
    /// Sessions that moved to another association and wait until this one is drained, with the Hello-ID that they wait for.
    held: Vec<(Key, signalbox_core::Direction, u32)>,
    /// Applications and their sessions whose reliable messages to this peer were explicitly routed: they have no routing state
    /// that uses the association.
    explicit: Vec<(NslpId, SessionId, Mri)>,

    /// Received octets: an incomplete message, or messages that wait for a blocked application.
    incoming: Vec<u8>,
    /// Whether the channel is read.
    reading: bool,
    queue: VecDeque<Waiting>,
    queued: usize,
    /// No queued message is given up before; `None`: there is no timeout in the queue. It saves looking through the queue
    /// for each message.
    expires: Option<Time>,
    /// Octets that the channel buffered at its last report, and those given to it since then.
    reported: usize,
    written: usize,
    /// The MA-Hello of the peer whose reply waits until the channel takes messages again.
    reply: Option<u32>,
}

impl Association {
    /// A new association. The caller sets the fields with other values.
    fn new(
        channel: ChannelId,
        transport: Transport,
        (local, remote): (IpAddr, IpAddr),
        origin: Origin,
        state: State,
    ) -> Self {
        Self {
            link: Link::default(),
            armed: Time::ZERO,
            channel,
            transport,
            since: Time::ZERO,
            state,
            origin,
            sii: None,
            local,
            ifindex: IfIndex::NONE,
            remote,
            identity: None,
            hold_time: Duration::ZERO,
            unused: None,
            first: NONE,
            sessions: 0,
            held: Vec::new(),
            explicit: Vec::new(),
            incoming: Vec::new(),
            reading: true,
            queue: VecDeque::new(),
            expires: None,
            queued: 0,
            reported: 0,
            written: 0,
            reply: None,
        }
    }

    /// Whether its channel is established, or was when it ended.
    const fn is_up(&self) -> bool {
        !matches!(self.state, State::AwaitingConnection { .. })
    }

    const fn has_ended(&self) -> bool {
        self.state.ended().is_some()
    }

    /// Whether it becomes Idle when no session uses it. Without the first Confirm of the peer it ends instead.
    const fn may_become_idle(&self) -> bool {
        !matches!(self.state, State::AwaitingConfirm { .. } | State::Ended(_))
    }

    /// Whether this node opened it, as the Querying node.
    const fn is_opened(&self) -> bool {
        matches!(self.origin, Origin::Opened(_))
    }

    /// Whether an attempt that still goes on had its time.
    fn is_stale(&self, now: Time) -> bool {
        now >= self.since + STALE
    }

    /// `None`: a peer opened it and has not sent a Confirm.
    const fn peer(&self) -> Option<&PeerKey> {
        self.origin.peer()
    }

    /// What this node knows of a peer that it tried to reach and that has sent no message over it; `None`: it has, or it opened it.
    const fn unanswered(&self) -> Option<&Opened> {
        match &self.origin {
            Origin::Opened(opened) if !matches!(opened.reached, Reached::Yes) => Some(opened),
            Origin::Opened(_) | Origin::Accepted { .. } => None,
        }
    }

    /// Octets that the channel buffers, as far as known: what it has sent since its last report still counts.
    const fn unsent(&self) -> usize {
        self.reported + self.written
    }

    /// The first of its timers.
    fn deadline(&self) -> Option<Time> {
        [self.state.deadline(), self.unused, self.expires].into_iter().flatten().min()
    }
}

impl Timed for Association {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// All associations of a node.
#[derive(Debug)]
pub(super) struct Associations {
    config: AssociationConfig,
    slab: Slab<Association>,
    /// Number of associations of each transport.
    counts: [u32; Transport::ALL.len()],
    wheel: Wheel,
    hasher: KeyedHasher,
    by_channel: Index,
    /// Associations by [`PeerKey`]; several may have the same key.
    by_peer: Index,
    bindings: Vec<Binding>,
    /// Applications that cannot take messages now.
    blocked: Vec<NslpId>,
    /// Transports whose port is not open.
    not_listening: Vec<Transport>,
    accepts: Option<TokenBucket>,
    /// The part of that rate that one source may take.
    accepts_of: RateShares,
    /// Associations that peers opened, by source: one source leaves places to others.
    shares: Shares<IpAddr>,
    retry_delays: RetryDelays<PeerKey>,
    /// Transports that failed with a peer while another one, or datagrams, can be used instead.
    avoided: RetryDelays<(PeerKey, Transport)>,
    /// Transports of peers that gave no answer. Messages that need no association do not wait for another attempt, which
    /// becomes rarer with each failure.
    filtered: RetryDelays<(PeerKey, Transport)>,
    /// Octets in all queues, by the peer: one that does not read leaves room for messages to others.
    queued: Shares<IpAddr>,
    /// Octets in all buffers of incoming messages, by source: a source that sends messages without their ends leaves room
    /// to others.
    unread: Shares<IpAddr>,
    /// Octets in all channels.
    unsent: usize,
    /// Associations that ended and have sessions that are not informed yet.
    withdrawn: VecDeque<Key>,
    next_channel: u64,
    next_hello_id: u32,
    /// Channels of associations that appeared, changed their state or disappeared, while somebody watches.
    changes: Changes<ChannelId>,
}

/// A number of octets as a number of rows of [`Shares`].
pub(super) fn octets(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Associations {
    pub(super) fn new(config: AssociationConfig, rng: &mut Random) -> Self {
        let rate = config.accept_rate;
        let hasher = KeyedHasher::new(rng);
        Self {
            slab: Slab::new(config.max),
            counts: [0; Transport::ALL.len()],
            wheel: Wheel::new(Duration::from_millis(10)),
            hasher,
            by_channel: Index::new(),
            by_peer: Index::new(),
            bindings: Vec::new(),
            blocked: Vec::new(),
            not_listening: Vec::new(),
            accepts: (rate > 0).then(|| TokenBucket::new(rate, rate)),
            accepts_of: RateShares::new(rate.div_ceil(4), KeyedHasher::new(rng)),
            shares: Shares::new(config.max, KeyedHasher::new(rng)),
            retry_delays: RetryDelays::new(config.retry_min, config.retry_max, config.max_waits),
            avoided: RetryDelays::new(config.retry_min, config.retry_max, config.max_waits),
            filtered: RetryDelays::of_rare(
                config.retry_max,
                config.retry_max.saturating_mul(RAREST),
                config.max_waits,
            ),
            queued: Shares::new(octets(config.max_queued_total), hasher),
            unread: Shares::new(octets(config.max_buffered), KeyedHasher::new(rng)),
            unsent: 0,
            withdrawn: VecDeque::new(),
            next_channel: 1,
            next_hello_id: rng.u32(),
            changes: Changes::default(),
            config,
        }
    }

    /// Takes the limits of other settings. What stands beyond a lower limit stays.
    pub(super) fn set_limits(&mut self, now: Time, new: &AssociationConfig) {
        self.config.take_limits(new);
        let AssociationConfig { max, accept_rate, max_buffered, max_queued_total, .. } = self.config;
        self.slab.set_limit(max);
        self.shares.set_limit(max);
        limits::limit(&mut self.accepts, now, accept_rate, accept_rate);
        self.accepts_of.set_rate(now, accept_rate.div_ceil(4));
        self.unread.set_limit(octets(max_buffered));
        self.queued.set_limit(octets(max_queued_total));
    }

    /// The list of channels whose association appears, changes its state or disappears, to watch and to take from.
    pub(super) const fn changes(&mut self) -> &mut Changes<ChannelId> {
        &mut self.changes
    }

    /// MA-Hold-Time of this node (RFC 5971 §4.4.5).
    pub(super) const fn hold_time(&self) -> Duration {
        self.config.hold_time
    }

    /// Whether messages use associations where no message needs one.
    pub(super) const fn are_preferred(&self) -> bool {
        self.enabled() && self.config.always
    }

    /// Whether this node has associations that protect messages.
    pub(super) const fn can_be_secure(&self) -> bool {
        self.config.tls_port.is_some()
    }

    /// Whether this node has connection mode.
    pub(super) const fn enabled(&self) -> bool {
        let AssociationConfig { tcp_port, tls_port, sctp_port, .. } = &self.config;
        tcp_port.is_some() || tls_port.is_some() || sctp_port.is_some()
    }

    /// The table of associations.
    pub(super) const fn table(&self) -> Table {
        Table::new("associations", self.slab.len(), self.slab.limit())
    }

    /// Whether the port of a transport is open.
    pub(super) fn is_listening(&self, transport: Transport) -> bool {
        !self.not_listening.contains(&transport)
    }

    pub(super) fn set_listening(&mut self, transport: Transport, on: bool) {
        self.not_listening.retain(|other| *other != transport);
        if !on {
            self.not_listening.push(transport);
        }
    }

    /// Whether an application cannot take messages now.
    pub(super) fn is_blocked(&self, nslp: NslpId) -> bool {
        self.blocked.contains(&nslp)
    }

    fn get(&self, index: u32) -> Option<&Association> {
        self.slab.get_index(index)
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Association> {
        self.slab.get_index_mut(index)
    }

    /// The association of a channel.
    fn of_channel(&self, channel: ChannelId) -> Option<Key> {
        let hash = self.hasher.hash_one(&channel.0);
        let is = |index| {
            invariant!(self.get(index), "the index of channels names associations")
                .is_some_and(|a| a.channel == channel)
        };
        self.slab.key_of(self.by_channel.find(hash, is)?)
    }

    /// Whether an association protects its messages; false if it does not exist.
    pub(super) fn is_secure(&self, index: u32) -> bool {
        self.get(index).is_some_and(|a| a.transport.is_secure())
    }

    /// Whether the peer of an association has this identity and interface address.
    pub(super) fn is_with(&self, index: u32, identity: &[u8], interface: IpAddr) -> bool {
        let name = self.get(index).and_then(Association::peer);
        name.is_some_and(|name| *name.identity == *identity && name.interface == interface)
    }

    /// Inserts a new association. `None`: the table is full.
    fn insert(&mut self, association: Association) -> Option<u32> {
        let (channel, transport) = (association.channel.0, association.transport);
        self.changes.note(|| association.channel);
        let index = self.slab.insert(association).ok()?.index();
        if let Some(count) = self.counts.get_mut(transport as usize) {
            *count += 1;
        }
        let Self { slab, hasher, by_channel, .. } = self;
        by_channel.insert(hasher.hash_one(&channel), index, |index| {
            invariant!(slab.get_index(index), "each channel of the index is that of an association")
                .map_or(0, |a| hasher.hash_one(&a.channel.0))
        });
        self.index_peer(index);
        self.arm(index);
        Some(index)
    }

    /// Sets the peer of an association.
    fn set_peer(&mut self, index: u32, name: PeerKey) {
        let association = invariant!(self.get_mut(index), "a peer is named in an association that stands");
        let Some(association) = association else { return };
        if let Origin::Accepted { peer: peer @ None } = &mut association.origin {
            *peer = Some(name);
            let channel = association.channel;
            self.changes.note(|| channel);
            self.index_peer(index);
        }
    }

    fn index_peer(&mut self, index: u32) {
        let Self { slab, hasher, by_peer, .. } = self;
        let hash = |index| {
            let name = slab.get_index(index)?.peer()?;
            Some(hasher.hash_one(&(&*name.identity, name.interface)))
        };
        if let Some(of_this) = hash(index) {
            by_peer.insert(of_this, index, |index| {
                invariant!(hash(index), "each peer of the index is that of an association").unwrap_or(0)
            });
        }
    }

    /// An association that has not ended.
    fn live(&self, key: Key) -> Option<&Association> {
        self.slab.get(key).filter(|association| !association.has_ended())
    }

    /// The same to change it.
    fn live_mut(&mut self, key: Key) -> Option<&mut Association> {
        self.slab.get_mut(key).filter(|association| !association.has_ended())
    }

    /// Whether an association has ended, and its sessions are being informed.
    fn has_ended(&self, index: u32) -> bool {
        !self.withdrawn.is_empty() && self.get(index).is_some_and(Association::has_ended)
    }

    /// Whether sessions have to be informed of the end of their association.
    pub(super) fn has_withdrawn(&self) -> bool {
        !self.withdrawn.is_empty()
    }

    /// An association ends: it is found no more. [`Associations::remove`] follows when no session uses it.
    fn withdraw(&mut self, key: Key, ended: Ended) {
        let association = invariant!(self.slab.get(key), "an association ends while it stands");
        let Some(association) = association else { return };
        let channel = association.channel;
        self.changes.note(|| channel);
        let index = key.index();
        let found =
            self.by_channel.remove(self.hasher.hash_one(&association.channel.0), |other| other == index);
        invariant!(found, "an association that ends is in the index of channels");
        if let Some(name) = association.peer() {
            let hash = self.hasher.hash_one(&(&*name.identity, name.interface));
            let found = self.by_peer.remove(hash, |other| other == index);
            invariant!(found, "an association with a peer is in the index of peers");
        }
        self.queued.release_many(source(association.remote), octets(association.queued));
        self.unsent -= association.unsent();
        self.unread.release_many(source(association.remote), octets(association.incoming.len()));
        if !association.is_opened() {
            self.shares.release(source(association.remote));
        }
        if let Some(count) = self.counts.get_mut(association.transport as usize) {
            *count -= 1;
        }
        self.wheel.cancel(&mut self.slab, index);
        let association =
            invariant!(self.slab.get_mut(key), "an association stays until its sessions know its end");
        let Some(association) = association else { return };
        association.state = State::Ended(ended);
        association.incoming = Vec::new();
        association.reading = true;
        (association.unused, association.expires) = (None, None);
    }

    /// Removes an association that was withdrawn, and that no session uses.
    fn remove(&mut self, key: Key) -> Option<Association> {
        let association = invariant!(self.slab.remove(key), "an association is removed once")?;
        debug_assert_eq!(association.first, NONE);
        Some(association)
    }

    /// The association for a peer (RFC 5971 §4.4.3), among those that `fits` accepts. An established one is preferred. If both
    /// nodes opened one at the same time, that of the node with the lower identity is used, so that both choose the same
    /// and the other one becomes Idle. (The RFC allows several and has no rule for this.) GIST-4.4.3-04, GIST-4.4.3-07, GIST-4.4.3-08.
    fn find(
        &self,
        own: &[u8],
        identity: &[u8],
        interface: IpAddr,
        fits: impl Fn(&Association) -> bool,
    ) -> Option<u32> {
        let is = |a: &Association| {
            let same = |name: &PeerKey| *name.identity == *identity && name.interface == interface;
            a.peer().is_some_and(same) && fits(a)
        };
        let hash = self.hasher.hash_one(&(identity, interface));
        let all = self.by_peer.candidates(hash).filter_map(|index| {
            Some((index, invariant!(self.get(index), "the index of peers names associations")?))
        });
        let lower = own < identity;
        all.filter(|(_, a)| is(a))
            .min_by_key(|(_, a)| (!a.is_up(), a.is_opened() != lower, a.channel))
            .map(|(index, _)| index)
    }

    /// Whether an association with a peer is established.
    pub(super) fn is_connected(&self, own: &[u8], nli: &Nli<'_>) -> bool {
        self.find(own, nli.peer_identity, nli.interface, Association::is_up).is_some()
    }

    /// Arms the timer for the first deadline of the association. If the deadline is later than the armed time, the timer
    /// stays: when it fires, nothing is due, and it is armed again.
    fn arm(&mut self, index: u32) {
        let association =
            invariant!(self.slab.get_index_mut(index), "a timer is set for an association that stands");
        let Some(association) = association else { return };
        let Some(deadline) = association.deadline() else {
            self.wheel.cancel(&mut self.slab, index);
            return;
        };
        if association.link.is_armed() && association.armed <= deadline {
            return;
        }
        association.armed = deadline;
        self.wheel.arm(&mut self.slab, index, deadline);
    }

    /// When the next timer of an association is due.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }
}
