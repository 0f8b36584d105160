//! State of an M-session: one session with one flow (section 1 of the draft).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::stamp::Moment;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Key, SessionId, Slab, Time, invariant};

use super::branch::Side;
use super::search::Answer;
use crate::wire::{ClientType, FlowId};

/// Lifetime of state whose messages have no CASP_TIMEOUT, seconds.
pub(super) const DEFAULT_TIMEOUT: u32 = 30;
/// Most messages that wait for one next hop or connection of one session, and their octets.
const MAX_WAITING: usize = 16;
const MAX_WAITING_OCTETS: usize = 64 << 10;

/// The client of this node that took part in a session, in one octet: no client has the number 0 or 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct User(u8);

impl User {
    /// No client took part.
    const NONE: Self = Self(0);
    /// Several clients took part: [`Sessions::several`] has them.
    const SEVERAL: Self = Self(u8::MAX);
}

/// A set of clients.
#[derive(Debug, Clone, Copy, Default)]
struct Clients([u128; 2]);

impl Clients {
    const fn add(&mut self, ClientType(number): ClientType) {
        let [low, high] = &mut self.0;
        *(if number < 128 { low } else { high }) |= 1 << (number % 128);
    }

    const fn has(&self, ClientType(number): ClientType) -> bool {
        let [low, high] = self.0;
        (if number < 128 { low } else { high }) >> (number % 128) & 1 == 1
    }
}

/// What is noted about a session, each in one bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Messages contain the lifetime.
    Explicit = 1,
    /// A client of this node holds the session.
    Held = 2,
    /// A client keeps old branches.
    Kept = 4,
    /// The next message starts a discovery.
    Rediscover = 8,
    /// The last discovery was because of a change of routes.
    Repaired = 16,
    /// The next hops see another flow.
    Translated = 32,
    /// The client that opens passages here knows the session, or it is one of another client. At a NAT: its flow stays as it is.
    Known = 64,
}

/// A message that waits, without Length Header and cookie.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) octets: Box<[u8]>,
    /// The client of this node that is informed if the message cannot be sent on.
    pub(super) client: Option<ClientType>,
    /// It only concerns state.
    pub(super) refresh: bool,
}

/// Messages of a session that wait for its next hop, or for a connection.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) down: VecDeque<Queued>,
    pub(super) up: VecDeque<Queued>,
    pub(super) octets: usize,
    /// A search has this session on its list.
    pub(super) searching: bool,
    /// The next hop that is tried: a connection to it has this session on its list.
    pub(super) candidate: Option<IpAddr>,
    /// A connection to the previous hop has this session on its list.
    pub(super) connecting_up: bool,
    /// The next hop that was found, with the cookie for the first message to it.
    pub(super) answer: Option<Answer>,
    /// The first message to a hop that scout found, until the hop has accepted it.
    pub(super) unproved: Option<Queued>,
    /// A cookie was refused once already.
    pub(super) retried: bool,
    /// Another session that is torn down as soon as a message left for this one.
    pub(super) replaces: Option<Key>,
}

impl Waiting {
    /// Whether a message fits.
    pub(super) fn fits(&self, queue_length: usize, octets: usize) -> bool {
        queue_length < MAX_WAITING && self.octets + octets <= MAX_WAITING_OCTETS
    }

    pub(super) fn is_idle(&self) -> bool {
        self.down.is_empty()
            && self.up.is_empty()
            && !self.searching
            && self.candidate.is_none()
            && !self.connecting_up
            && self.answer.is_none()
            && self.unproved.is_none()
            && !self.retried
            && self.replaces.is_none()
    }
}

/// State of one session with one flow.
#[derive(Debug)]
pub(super) struct Session {
    link: Link,
    pub(super) id: SessionId,
    pub(super) flow: FlowId,
    pub(super) previous: Side,
    pub(super) next: Side,
    /// Who made the state: a node, or the key of a client of this node. Its share pays for it.
    pub(super) owner: Key,
    /// Lifetime without refresh, seconds.
    pub(super) timeout: u32,
    /// When this node makes a refresh, unless a message is sent on before.
    pub(super) refresh_at: Moment,
    /// No discovery before this time.
    pub(super) discover_at: Moment,
    /// No error before this time.
    pub(super) error_at: Moment,
    marks: u8,
    user: User,
    pub(super) waiting: Option<Box<Waiting>>,
}

impl Timed for Session {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Session {
    pub(super) fn new(id: SessionId, flow: FlowId, owner: Key) -> Self {
        Self {
            link: Link::default(),
            id,
            flow,
            previous: Side::default(),
            next: Side::default(),
            owner,
            timeout: DEFAULT_TIMEOUT,
            refresh_at: Moment::NEVER,
            discover_at: Moment::default(),
            error_at: Moment::default(),
            marks: 0,
            user: User::NONE,
            waiting: None,
        }
    }

    pub(super) const fn is(&self, mark: Mark) -> bool {
        self.marks & mark as u8 != 0
    }

    pub(super) const fn note(&mut self, mark: Mark, on: bool) {
        self.marks = if on { self.marks | mark as u8 } else { self.marks & !(mark as u8) };
    }

    /// The lifetime, if messages contain it.
    pub(super) fn explicit_timeout(&self) -> Option<u32> {
        self.is(Mark::Explicit).then_some(self.timeout)
    }

    /// Lifetime without refresh.
    pub(super) fn lifetime(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Interval of refreshes: a third of the lifetime.
    pub(super) fn interval(&self) -> Duration {
        self.lifetime() / 3
    }

    /// The same in microseconds: whole numbers save a message two hundred instructions.
    pub(super) fn interval_us(&self) -> u64 {
        u64::from(self.timeout) * 1_000_000 / 3
    }

    /// Whether a client of this node opened the session.
    pub(super) fn is_own(&self) -> bool {
        self.previous.last().is_some_and(super::branch::Branch::is_local)
    }

    pub(super) fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }

    /// Frees what is not needed while nothing waits.
    pub(super) fn settle(&mut self) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.is_idle()) {
            self.waiting = None;
        }
    }

    /// When something is due.
    pub(super) fn due(&self) -> Time {
        let last = self.previous.last().map_or(Time::from_micros(u64::MAX), |branch| branch.until.time());
        let older = self.previous.others().chain(self.next.others());
        older.fold(self.refresh_at.time().min(last), |due, branch| due.min(branch.until.time()))
    }
}

/// All sessions, found by identifier and flow.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) slab: Slab<Session>,
    index: Index,
    /// The flows that the next hops of translated sessions see, by the place of the session, and the index of them.
    outer: BTreeMap<u32, FlowId>,
    translated: Index,
    /// The clients of sessions in which several took part, by the place of the session.
    several: BTreeMap<u32, Clients>,
    hasher: KeyedHasher,
}

impl Sessions {
    pub(super) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        let (index, translated) = (Index::new(), Index::new());
        let (outer, several) = (BTreeMap::new(), BTreeMap::new());
        Self { slab: Slab::new(limit), index, outer, translated, several, hasher }
    }

    /// A client of this node takes part in a session: it opened it, or got a message of it.
    pub(super) fn join(&mut self, key: Key, client: ClientType) {
        let Some(session) = invariant!(self.slab.get_mut(key), "a joined session stands") else { return };
        match session.user {
            User::NONE => session.user = User(client.0),
            User(one) if one == client.0 => {}
            user => {
                let several = self.several.entry(key.index()).or_default();
                if user != User::SEVERAL {
                    several.add(ClientType(user.0));
                }
                several.add(client);
                session.user = User::SEVERAL;
            }
        }
    }

    /// Whether a client of this node took part in a session.
    pub(super) fn takes_part(&self, key: Key, client: ClientType) -> bool {
        self.slab.get(key).is_some_and(|session| match session.user {
            User::NONE => false,
            User::SEVERAL => self.several.get(&key.index()).is_some_and(|several| several.has(client)),
            User(one) => one == client.0,
        })
    }

    /// The clients that took part in one session take part in another one.
    pub(super) fn join_all_of(&mut self, key: Key, former: Key) {
        let user = self.slab.get(former).map(|session| session.user);
        let Some(user) = invariant!(user, "a session that moves has a former one") else { return };
        let Some(session) = invariant!(self.slab.get_mut(key), "a session that moved stands") else { return };
        session.user = user;
        if let Some(several) = self.several.get(&former.index()).copied() {
            self.several.insert(key.index(), several);
        }
    }

    fn hash(hasher: &KeyedHasher, id: SessionId, flow: &FlowId) -> u64 {
        // Packed: hashing field by field takes four times as many instructions.
        let last = flow.protocol().unwrap_or(0);
        let selector = match flow.ports() {
            Some((src, dst)) => u32::from(src) << 16 | u32::from(dst),
            None => flow.spi().unwrap_or(flow.label()),
        };
        match (flow.src(), flow.dst()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut octets = [0; 30];
                octets[..16].copy_from_slice(&id.0);
                octets[16..20].copy_from_slice(&src.octets());
                octets[20..24].copy_from_slice(&dst.octets());
                octets[24..28].copy_from_slice(&selector.to_be_bytes());
                octets[28..].copy_from_slice(&[last, flow.form().0]);
                hasher.hash_octets(&octets)
            }
            (src, dst) => {
                let mut octets = [0; 54];
                octets[..16].copy_from_slice(&id.0);
                octets[16..32].copy_from_slice(&mapped(src));
                octets[32..48].copy_from_slice(&mapped(dst));
                octets[48..52].copy_from_slice(&selector.to_be_bytes());
                octets[52..].copy_from_slice(&[last, flow.form().0]);
                hasher.hash_octets(&octets)
            }
        }
    }

    pub(super) fn find(&self, id: SessionId, flow: &FlowId) -> Option<Key> {
        let is_it = |index| self.slab.get_index(index).is_some_and(|one| one.id == id && one.flow == *flow);
        let found = self.index.find(Self::hash(&self.hasher, id, flow), is_it)?;
        self.slab.key_of(found)
    }

    /// The session whose next hops see this flow instead of its own.
    pub(super) fn find_translated(&self, id: SessionId, outer: &FlowId) -> Option<Key> {
        if self.outer.is_empty() {
            return None;
        }
        let is_it = |index| {
            self.outer.get(&index) == Some(outer)
                && self.slab.get_index(index).is_some_and(|one| one.id == id)
        };
        let found = self.translated.find(Self::hash(&self.hasher, id, outer), is_it)?;
        self.slab.key_of(found)
    }

    /// The session of a message from a next hop.
    pub(super) fn find_reverse(&self, id: SessionId, flow: &FlowId) -> Option<Key> {
        let untranslated = |key: &Key| self.get(*key).is_some_and(|session| !session.is(Mark::Translated));
        self.find_translated(id, flow).or_else(|| self.find(id, flow).filter(untranslated))
    }

    /// The flow that the next hops of a session see, if that is another one.
    pub(super) fn outer(&self, key: Key) -> Option<FlowId> {
        let session = self.get(key)?;
        if session.is(Mark::Translated) { self.outer.get(&key.index()).copied() } else { None }
    }

    /// The flow in messages of a session, against the flow or along it.
    pub(super) fn flow_in(&self, key: Key, reverse: bool) -> Option<FlowId> {
        let own = self.get(key)?.flow;
        Some(if reverse { own } else { self.outer(key).unwrap_or(own) })
    }

    /// Whether messages with this flow are of a session, from previous or from next hops.
    pub(super) fn has(&self, id: SessionId, flow: &FlowId) -> bool {
        self.find(id, flow).is_some() || self.find_translated(id, flow).is_some()
    }

    /// Notes the flow that the next hops of a session see. `None`: its own.
    pub(super) fn translate(&mut self, key: Key, outer: Option<FlowId>) {
        let Self { slab, translated, outer: all, hasher, .. } = self;
        let Some(session) = slab.get_mut(key).filter(|one| one.is(Mark::Translated) || outer.is_some())
        else {
            return;
        };
        let id = session.id;
        session.note(Mark::Translated, outer.is_some());
        if let Some(former) = all.remove(&key.index()) {
            translated.remove(Self::hash(hasher, id, &former), |index| index == key.index());
        }
        if let Some(outer) = outer {
            all.insert(key.index(), outer);
            translated.insert(Self::hash(hasher, id, &outer), key.index(), |at| {
                match (slab.get_index(at), all.get(&at)) {
                    (Some(one), Some(outer)) => Self::hash(hasher, one.id, outer),
                    (Some(_) | None, _) => 0,
                }
            });
        }
    }

    /// Stores a session that is not in the table; `None`: the table is full.
    pub(super) fn insert(&mut self, session: Session) -> Option<Key> {
        let hash = Self::hash(&self.hasher, session.id, &session.flow);
        let key = self.slab.insert(session).ok()?;
        let Self { slab, index, hasher, .. } = self;
        index.insert(hash, key.index(), |at| {
            slab.get_index(at).map_or(0, |one| Self::hash(hasher, one.id, &one.flow))
        });
        Some(key)
    }

    /// Removes a session whose timer is not armed.
    pub(super) fn remove(&mut self, key: Key) -> Option<Session> {
        self.translate(key, None);
        let session = self.slab.remove(key)?;
        if session.user == User::SEVERAL {
            self.several.remove(&key.index());
        }
        let hash = Self::hash(&self.hasher, session.id, &session.flow);
        self.index.remove(hash, |index| index == key.index());
        Some(session)
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&Session> {
        self.slab.get(key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Session> {
        self.slab.get_mut(key)
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows that differ in one field have different hashes. Otherwise one peer could make many sessions with the same hash.
    #[test]
    fn the_hash_has_every_field_of_a_flow() {
        let hasher = KeyedHasher::with_key([7; 16]);
        let hash = |flow: FlowId| Sessions::hash(&hasher, SessionId([1; 16]), &flow);
        let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let (c, d) = (core::net::Ipv6Addr::from_bits(1), core::net::Ipv6Addr::from_bits(2));
        let mut hashes = vec![Sessions::hash(
            &hasher,
            SessionId([2; 16]),
            &FlowId::V4Spi { src: a, dst: b, spi: 7, protocol: 50 },
        )];
        for spi in [7, 8] {
            for protocol in [50, 51] {
                hashes.push(hash(FlowId::V4Spi { src: a, dst: b, spi, protocol }));
                hashes.push(hash(FlowId::V6Spi { src: c, dst: d, spi, protocol }));
                for src_port in [0, 7] {
                    let dst_port = u16::try_from(spi).unwrap();
                    for [src, dst] in [[a, b], [b, a]] {
                        hashes.push(hash(FlowId::V4Ports { src, dst, src_port, dst_port, protocol }));
                    }
                    for [src, dst] in [[c, d], [d, c]] {
                        hashes.push(hash(FlowId::V6Ports { src, dst, src_port, dst_port, protocol }));
                    }
                }
            }
            hashes.push(hash(FlowId::V6Label { src: c, dst: d, label: spi }));
        }
        let all = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all);
    }

    /// CASP-P-30: among 65,536 sessions the one that is looked for is nearly always the only one that is compared.
    #[test]
    fn a_session_is_found_by_looking_at_it_alone() {
        const NUMBER: u32 = 1 << 16;
        let mut sessions = Sessions::new(NUMBER, KeyedHasher::with_key([7; 16]));
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let flow = FlowId::V4Ports { src, dst, src_port: 1, dst_port: 2, protocol: 17 };
        let id = |number: u32| SessionId((u128::from(number) << 64).to_be_bytes());
        for number in 0..NUMBER {
            assert!(sessions.insert(Session::new(id(number), flow, Key::default())).is_some());
        }
        let mut compared = 0;
        for number in 0..NUMBER {
            let hash = Sessions::hash(&sessions.hasher, id(number), &flow);
            compared += sessions.index.candidates(hash).count();
            assert!(sessions.find(id(number), &flow).is_some_and(|key| key.index() == number), "{number}");
        }
        assert!(compared < NUMBER as usize * 11 / 10, "{compared} records were compared");
    }

    /// CASP-P-25: a record without what waits for it, and without the four octets of its place in the table.
    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Session>() <= 176, "{}", size_of::<Session>());
    }
}
