//! What became of requests: a record for each decision about a reservation, a passage or a session, of every protocol.
//!
//! Admission control makes most records itself. A protocol adds those that it decides before it asks, or that another node decided
//! ([`Resources::decide`](crate::Resources::decide)). A refresh that changes nothing is no decision, and costs one comparison.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use signalbox_core::pinhole::OpenerId;
use signalbox_core::shares::{RateShares, source};
use signalbox_core::traffic::{FlowFilter, ServiceClass};
use signalbox_core::{KeyedHasher, ReserverId, SessionId, Time};

use crate::admission::group::holder;
use crate::config::Opening;
use crate::refusal::{Refusal, RuleName};
use crate::request::{GrantId, LostWhy, Owner};
use crate::requester::Requester;

/// Decisions that wait for the driver, at most. It takes them after each input.
const QUEUE: usize = 8192;
/// Refusals of one source in a second: a stranger causes each of them by one message.
const REFUSALS: u32 = 80;
/// Other decisions of one source in a second: each has taken or given back a place in a table.
const OTHERS: u32 = 8192;
/// Flows of a decision, at most.
const FLOWS: usize = 16;
/// Reservations that were lost of late, to find out that one was restored.
const LOST: usize = 4096;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A new request was granted.
    Granted,
    /// What stands is different now: its amount, its packets, its place or its rule.
    Changed,
    /// A request was refused. What stood before stands.
    Refused,
    /// A stronger request took it.
    Preempted,
    /// It ended, and neither its requester nor an administrator wanted that.
    Lost,
    /// A request was granted for packets whose reservation was lost before, or what the daemon before this one allowed stands again.
    Restored,
    /// It ended.
    Ended,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Granted => "granted",
            Self::Changed => "changed",
            Self::Refused => "refused",
            Self::Preempted => "preempted",
            Self::Lost => "lost",
            Self::Restored => "restored",
            Self::Ended => "ended",
        })
    }
}

/// What was decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A reservation for flows.
    Reservation,
    /// A reservation for all packets of a code point, or for many flows together.
    Aggregate,
    /// A passage of a flow through a firewall or NAT.
    Pinhole,
    /// An external address for a host inside, or its announcement as a receiver.
    Binding,
    /// A flow towards the inside that is blocked.
    Block,
    /// A session, before it asked for one of the others.
    Session,
}

impl From<Opening> for Subject {
    fn from(opening: Opening) -> Self {
        match opening {
            Opening::Outward | Opening::Inward | Opening::Between | Opening::Publish => Self::Pinhole,
            Opening::Reserve => Self::Binding,
            Opening::Block => Self::Block,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reservation => "reservation",
            Self::Aggregate => "aggregate",
            Self::Pinhole => "pinhole",
            Self::Binding => "binding",
            Self::Block => "block",
            Self::Session => "session",
        })
    }
}

/// The protocol that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// One that reserves.
    Reserver(ReserverId),
    /// One that opens pinholes.
    Opener(OpenerId),
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserver(id) => id.fmt(f),
            Self::Opener(id) => id.fmt(f),
        }
    }
}

/// The reason why something ended that was not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum End {
    /// The protocol gave it back, for no reason of the following.
    #[default]
    Released,
    /// Its requester tore it down.
    TornDown,
    /// Nothing refreshed it in time.
    Expired,
    /// Another request took its place.
    Replaced,
    /// Its packets take another way.
    Rerouted,
    /// A user of this host ended it.
    User,
    /// Another node refused the request; the address of that node, if it is known.
    RefusedBeyond(Option<IpAddr>),
    /// The daemon stopped.
    Stopped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("released by the protocol"),
            Self::TornDown => f.write_str("torn down by the requester"),
            Self::Expired => f.write_str("not refreshed in time"),
            Self::Replaced => f.write_str("replaced by another request"),
            Self::Rerouted => f.write_str("its packets take another way"),
            Self::User => f.write_str("ended by a user of this host"),
            Self::RefusedBeyond(Some(node)) => write!(f, "refused further on by {node}"),
            Self::RefusedBeyond(None) => f.write_str("refused further on"),
            Self::Stopped => f.write_str("the daemon stopped"),
        }
    }
}

/// Why it was decided so.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// Nothing but the rule that allows it.
    Allowed,
    /// A rule or a limit of this node.
    Refusal(Refusal),
    /// A protocol refused the request before it asked admission control.
    Protocol(&'static str),
    /// Another node refused it; the address of that node, if it is known.
    Beyond(Option<IpAddr>),
    /// It ended.
    End(End),
    /// It was lost.
    Lost(LostWhy),
    /// A stronger request took a part of it.
    Reduced,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed => f.write_str("allowed"),
            Self::Refusal(refusal) => refusal.fmt(f),
            Self::Protocol(what) => f.write_str(what),
            Self::Beyond(node) => End::RefusedBeyond(*node).fmt(f),
            Self::End(end) => end.fmt(f),
            Self::Lost(why) => why.fmt(f),
            Self::Reduced => f.write_str("a stronger request took a part of it"),
        }
    }
}

/// How much was asked for, or is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Rate in octets a second; `None`: a passage has none.
    pub rate: Option<u64>,
    /// The service; `None`: a passage has none.
    pub service: Option<ServiceClass>,
    /// What a passage opens.
    pub opening: Option<Opening>,
    /// Lifetime without a refresh, if the protocol gives one.
    pub lifetime: Option<Duration>,
}

/// One decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// When it was made.
    pub at: Time,
    /// What happened.
    pub outcome: Outcome,
    /// What it is about.
    pub subject: Subject,
    /// The protocol.
    pub by: By,
    /// The reservation. All decisions about one have the same; a refused one that is new has none.
    pub grant: Option<GrantId>,
    /// The session, of a protocol whose sessions have identifiers.
    pub session: Option<SessionId>,
    /// Who asked.
    pub requester: Arc<Requester>,
    /// The claim of the requester counts: the policy trusts the neighbor, or a user of this host asked.
    pub speaks: bool,
    /// The outgoing interface.
    pub interface: Option<Arc<str>>,
    /// The packets; the first ones, if there are many.
    pub flows: Vec<FlowFilter>,
    /// How much.
    pub extent: Extent,
    /// The rule that allowed or refused; `None`: the default, or no rule.
    pub rule: Option<RuleName>,
    /// The reason.
    pub why: Why,
    /// How long it stood.
    pub lasted: Option<Duration>,
}

/// The decisions that the driver has not taken yet. While they are switched off, one costs a comparison.
#[derive(Debug)]
pub(crate) struct Decisions {
    on: bool,
    queue: VecDeque<(Decision, u64)>,
    refusals: RateShares,
    others: RateShares,
    /// Sessions of grants, of the protocols whose sessions have identifiers.
    sessions: HashMap<GrantId, SessionId, KeyedHasher>,
    /// Passages that stand, by their session: since when, and the hash of their first packets. That of no packets: it stood at the daemon
    /// before this one.
    passages: HashMap<(By, SessionId), (Time, u64), KeyedHasher>,
    /// Packets whose reservation was lost, and is not restored yet.
    lost: HashMap<(ReserverId, FlowFilter), (), KeyedHasher>,
    /// The time of the input.
    pub(crate) now: Time,
    /// Why grants and passages end that an engine gives back from now on.
    pub(crate) end: End,
}

impl Decisions {
    pub(crate) fn new(hasher: &mut impl FnMut() -> KeyedHasher) -> Self {
        Self {
            on: false,
            queue: VecDeque::new(),
            refusals: RateShares::new(REFUSALS, hasher()),
            others: RateShares::new(OTHERS, hasher()),
            sessions: HashMap::with_hasher(hasher()),
            passages: HashMap::with_hasher(hasher()),
            lost: HashMap::with_hasher(hasher()),
            now: Time::ZERO,
            end: End::default(),
        }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) const fn switch(&mut self, on: bool) {
        self.on = on;
    }

    /// The session of a grant that stands from now on.
    pub(crate) fn name(&mut self, grant: GrantId, session: SessionId) {
        self.sessions.insert(grant, session);
    }

    /// The session of a grant.
    pub(crate) fn session(&self, grant: GrantId) -> Option<SessionId> {
        self.sessions.get(&grant).copied()
    }

    /// The session of a grant that ends.
    pub(crate) fn unname(&mut self, grant: GrantId) {
        if !self.sessions.is_empty() {
            self.sessions.remove(&grant);
        }
    }

    /// What is decided about the passages of a session: a request for the same packets again is no decision, one for others is a
    /// change, and the end has the time that they stood. `None`: nothing was decided.
    pub(crate) fn passage(&mut self, mut decision: Decision) -> Option<Decision> {
        let Some(session) = decision.session else { return Some(decision) };
        let key = (decision.by, session);
        let stands = self.passages.get(&key).copied();
        decision.lasted = stands.map(|(since, _)| decision.at.since(since));
        match decision.outcome {
            Outcome::Granted => {
                let packets = self.packets(&decision.flows);
                match stands {
                    Some((_, before)) if before == packets => return None,
                    Some((_, before)) if before == self.packets(&[]) => decision.outcome = Outcome::Restored,
                    Some(_) => decision.outcome = Outcome::Changed,
                    None => {}
                }
                let since = stands.map_or(decision.at, |(since, _)| since);
                self.passages.insert(key, (since, packets));
            }
            Outcome::Preempted | Outcome::Lost | Outcome::Ended => {
                // What never stood does not end.
                self.passages.remove(&key)?;
            }
            Outcome::Changed | Outcome::Refused | Outcome::Restored => {}
        }
        Some(decision)
    }

    /// A passage stood at the daemon before this one. Without packets it is told from one that stands.
    pub(crate) fn stood(&mut self, by: By, session: SessionId) {
        let none = (self.now, self.packets(&[]));
        self.passages.entry((by, session)).or_insert(none);
    }

    /// What packets of a passage are compared by.
    fn packets(&self, flows: &[FlowFilter]) -> u64 {
        self.passages.hasher().hash_one(flows)
    }

    /// A reservation for these packets was lost.
    pub(crate) fn note_lost(&mut self, protocol: ReserverId, flow: Option<&FlowFilter>) {
        if let Some(flow) = flow.filter(|_| self.lost.len() < LOST) {
            self.lost.insert((protocol, *flow), ());
        }
    }

    /// Whether a reservation for these packets was lost and is restored now.
    pub(crate) fn restores(&mut self, protocol: ReserverId, flow: Option<&FlowFilter>) -> bool {
        !self.lost.is_empty() && flow.is_some_and(|flow| self.lost.remove(&(protocol, *flow)).is_some())
    }

    /// Adds a decision about a reservation of `owner`, or about something else. False: it was left out.
    pub(crate) fn push(&mut self, owner: Option<Owner>, decision: Decision) -> bool {
        let key = owner.map_or(0, |owner| owner.key);
        // A protocol that is refused may ask for less at once: the result is one decision.
        let asks_again = |(before, of): &(Decision, u64)| {
            owner.is_some()
                && *of == key
                && before.by == decision.by
                && before.at == decision.at
                && before.outcome == Outcome::Refused
        };
        if self.queue.back().is_some_and(asks_again) {
            self.queue.pop_back();
        }
        let from = source(holder(&decision.requester));
        let rates = match decision.outcome {
            Outcome::Refused => &mut self.refusals,
            Outcome::Granted
            | Outcome::Changed
            | Outcome::Preempted
            | Outcome::Lost
            | Outcome::Restored
            | Outcome::Ended => &mut self.others,
        };
        // No stranger causes the end of the daemon.
        let stops = decision.why == Why::End(End::Stopped);
        if self.queue.len() >= QUEUE || !stops && !rates.allow(decision.at, &from) {
            return false;
        }
        self.queue.push_back((decision, key));
        true
    }

    pub(crate) fn take(&mut self) -> Option<Decision> {
        self.queue.pop_front().map(|(decision, _)| decision)
    }
}

/// The flows that a decision keeps.
pub(crate) fn first_flows(flows: impl Iterator<Item = FlowFilter>) -> Vec<FlowFilter> {
    flows.take(FLOWS).collect()
}
