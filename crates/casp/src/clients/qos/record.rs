//! The state of a session at a node.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_resources::GrantId;

use super::NO_USER;
use super::amount::{Amount, Range};
use super::grant::Asker;
use super::period::Period;
use super::segment::Marks;
use crate::wire::FlowId;
use crate::wire::qos::{Partial, QosFlags, QosType};

/// Most branches of a session that are kept on each side. The oldest one is removed first.
const BRANCHES: usize = 8;

/// The grants of one amount, for the directions of [`Record::data`].
pub(super) type Grants = [Option<GrantId>; 2];

/// The interfaces by which the data of each direction leave; [`IfIndex::NONE`]: they end here.
pub(super) type Places = [IfIndex; 2];

/// A reservation: what was reserved or committed under one AGE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub(super) age: u64,
    pub(super) amount: Amount,
    /// For each direction of [`Record::data`]; `None`: the data end here, so there is no interface to reserve at.
    pub(super) grants: Grants,
    pub(super) until: Time,
}

/// The number of a request, and what it replaced, if anything.
pub(super) type Before = (u32, Option<Level>);

/// Reserve state or Commit state.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) now: Option<Level>,
    /// What a request with this number replaced, if anything. It comes back if the request fails further on.
    pub(super) before: Option<Box<Before>>,
}

/// The request that was sent on last, for failures that this node notices itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    pub(super) sequence: u32,
    /// The request travels against the data.
    pub(super) reverse: bool,
    /// There was no reservation before it.
    pub(super) first: bool,
    pub(super) partial: Option<Partial>,
}

/// A branch of the session on one side of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) id: u16,
    pub(super) peer: IpAddr,
}

impl Branch {
    /// A branch to a new hop, which has not answered yet.
    pub(super) const fn to_new_hop(id: u16) -> Self {
        Self { id, peer: IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
    }

    /// Whether its hop has not answered yet.
    pub(super) const fn is_new(&self) -> bool {
        self.peer.is_unspecified()
    }
}

/// What the node waits for as originator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The answer to a Query.
    Query,
    /// The answer to a Reserve.
    Reserve,
    /// The answer to a Commit.
    Commit,
    /// The answer to a Release.
    Release,
    /// Nothing: the reservation stands.
    Standing,
}

/// The part of a record that only the originator has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Originator {
    /// The user's identifier.
    pub(super) id: u64,
    /// The originator is the receiver of the data.
    pub(super) reverse: bool,
    /// The originator only asks the receiver of the data to reserve.
    pub(super) suggests: bool,
    pub(super) range: Range,
    pub(super) age: u64,
    /// AGE and bounds of the reservation that stood before a change.
    pub(super) before: Option<(u64, Range)>,
    /// [`QosFlags::COMMIT`], [`QosFlags::PARTIAL`].
    pub(super) flags: QosFlags,
    pub(super) partial: Option<Partial>,
    pub(super) stage: Stage,
    /// The Reserve of the other end that the next Reserve answers.
    pub(super) answers: Option<u32>,
    /// Number of the request that waits for its answer.
    pub(super) waits: Option<u32>,
    /// When the wait ends, or the next refresh is due.
    pub(super) due: Time,
    /// The user was informed that the reservation stands.
    pub(super) reported: bool,
    /// When the path answered last.
    pub(super) answered: Time,
    /// The identifier that the new session gets, which the path may know; `None`: the messaging layer draws it.
    pub(super) kept: Option<SessionId>,
}

impl Originator {
    /// A Reserve that the receiver of the data makes without a user.
    pub(super) fn of_receiver(
        range: Range,
        age: u64,
        partial: Option<Partial>,
        now: Time,
        due: Time,
    ) -> Self {
        Self {
            id: NO_USER,
            reverse: true,
            suggests: false,
            range,
            age,
            before: None,
            flags: if partial.is_some() { QosFlags::PARTIAL } else { QosFlags::NONE },
            partial,
            stage: Stage::Reserve,
            answers: None,
            waits: None,
            due,
            reported: false,
            answered: now,
            kept: None,
        }
    }
}

/// The state of one session.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) link: Link,
    /// `None`: the messaging layer has not named it yet.
    pub(super) session: Option<SessionId>,
    pub(super) flow: FlowId,
    /// Who asked last.
    pub(super) asker: Asker,
    /// Whose share of the table the record takes.
    pub(super) holder: Option<IpAddr>,
    /// Where the data of [`Record::data`] leave.
    pub(super) places: Places,
    /// The opposite flow, which is reserved too, or instead.
    pub(super) opposite: Option<Box<FlowId>>,
    /// The record is for the opposite flow only. The session has another one for its flow.
    pub(super) instead: bool,
    pub(super) reserve: Part,
    pub(super) commit: Part,
    /// DSCPs that the packets get when they leave; `None`: they keep theirs.
    pub(super) marks: Marks,
    /// Scope and DSCP of each segment into which the last request went.
    pub(super) local: Box<[(u8, u8)]>,
    /// PRIORITY of the last request.
    pub(super) priority: Option<u32>,
    /// The time of a reservation in advance.
    pub(super) period: Option<Box<Period>>,
    /// AGE of a partial reservation in which this node has no part.
    pub(super) skipped: Option<u64>,
    pub(super) lifetime: Duration,
    /// When a request was handled last.
    pub(super) used: Time,
    pub(super) last: Option<Last>,
    /// Branches towards the source of the data, and towards their destination; the newest last.
    pub(super) sides: [Vec<Branch>; 2],
    /// Number of the next request of this node.
    pub(super) next_sequence: u32,
    /// No Error leaves before this time.
    pub(super) errors_from: Time,
    /// What the other end suggested.
    pub(super) suggested: Option<Box<Range>>,
    pub(super) own: Option<Box<Originator>>,
    /// The flow that the source of the data has left. It is torn down as soon as the path has answered for the present one.
    pub(super) former: Option<Box<FlowId>>,
}

impl Timed for Record {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Part {
    /// All grants of the part.
    pub(super) fn levels(&self) -> impl Iterator<Item = &Level> {
        self.now.iter().chain(self.before.iter().filter_map(|before| before.1.as_ref()))
    }

    /// All grants of the part.
    pub(super) fn levels_mut(&mut self) -> impl Iterator<Item = &mut Level> {
        self.now.iter_mut().chain(self.before.iter_mut().filter_map(|before| before.1.as_mut()))
    }
}

/// The flows that a session reserves: that of the session, and the opposite one or that one instead.
pub(super) const fn data(flow: FlowId, opposite: Option<FlowId>, instead: bool) -> [Option<FlowId>; 2] {
    if instead { [opposite, None] } else { [Some(flow), opposite] }
}

impl Record {
    pub(super) fn new(session: Option<SessionId>, flow: FlowId, holder: Option<IpAddr>, now: Time) -> Self {
        Self {
            link: Link::default(),
            session,
            flow,
            asker: None,
            holder,
            places: [IfIndex::NONE; 2],
            opposite: None,
            instead: false,
            reserve: Part::default(),
            commit: Part::default(),
            marks: [None; 2],
            local: Box::default(),
            priority: None,
            period: None,
            skipped: None,
            lifetime: Duration::from_secs(90),
            used: now,
            last: None,
            sides: [Vec::new(), Vec::new()],
            next_sequence: 1,
            errors_from: Time::ZERO,
            suggested: None,
            own: None,
            former: None,
        }
    }

    /// Reserve state or Commit state.
    pub(super) const fn part(&mut self, kind: QosType) -> &mut Part {
        match kind {
            QosType::COMMIT => &mut self.commit,
            _ => &mut self.reserve,
        }
    }

    /// The flows that are reserved.
    pub(super) fn data(&self) -> [Option<FlowId>; 2] {
        data(self.flow, self.opposite.as_deref().copied(), self.instead)
    }

    /// REVERSE_FLOW of the requests: the flow, and whether it is reserved too, not instead.
    pub(super) fn reverse_flow(&self) -> Option<(FlowId, bool)> {
        self.opposite.as_deref().map(|flow| (*flow, !self.instead))
    }

    pub(super) fn set_opposite(&mut self, flow: Option<FlowId>) {
        // Each refresh says it again: the memory stays.
        match (&mut self.opposite, flow) {
            (Some(known), Some(flow)) => **known = flow,
            (known, flow) => *known = flow.map(Box::new),
        }
    }

    /// The flow gets what is committed at the start of its time, which is to come.
    pub(super) fn is_early(&self) -> bool {
        self.period.as_deref().is_some_and(|period| period.start.is_some())
    }

    pub(super) fn set_period(&mut self, period: Option<Period>) {
        match (&mut self.period, period) {
            (Some(known), Some(period)) => **known = period,
            (known, period) => *known = period.map(Box::new),
        }
    }

    /// What the originator has.
    pub(super) fn own(&self) -> Option<Originator> {
        self.own.as_deref().copied()
    }

    /// The identifier that the session of this node's request shall have.
    pub(super) fn kept(&self) -> Option<SessionId> {
        self.own.as_ref()?.kept
    }

    pub(super) fn has_state(&self) -> bool {
        self.reserve.now.is_some() || self.commit.now.is_some()
    }

    /// The branches on the side that messages of this direction come from.
    pub(super) const fn side(&mut self, reverse: bool) -> &mut Vec<Branch> {
        let [near, far] = &mut self.sides;
        if reverse { far } else { near }
    }

    /// The next node towards the source of the data.
    pub(super) fn previous(&self) -> Option<IpAddr> {
        let [near, _] = &self.sides;
        near.last().map(|branch| branch.peer)
    }

    /// Whether a message by this branch comes from a hop of the session. On a side without messages up to now, the first
    /// one shows the hop. Branches of another flow have numbers of their own; the hop is what they have in common.
    pub(super) fn knows(&mut self, flow: &FlowId, reverse: bool, branch: Branch) -> bool {
        let same = self.flow == *flow;
        let side = self.side(reverse);
        let is_it = |one: &Branch| if same { one.id == branch.id } else { one.peer == branch.peer };
        side.is_empty() || side.iter().any(is_it)
    }

    /// Enters a branch as the most recent one. The result is the others.
    pub(super) fn enter(&mut self, reverse: bool, branch: Branch) -> Vec<Branch> {
        let side = self.side(reverse);
        side.retain(|one| one.id != branch.id);
        let others = side.clone();
        if side.len() >= BRANCHES {
            side.remove(0);
        }
        // Few sessions have more than one branch on a side.
        side.reserve_exact(1);
        side.push(branch);
        others
    }

    /// The number of the next request: from 1, and 1 again after the largest.
    pub(super) const fn number(&mut self) -> u32 {
        let number = self.next_sequence;
        self.next_sequence = match number.wrapping_add(1) {
            0 => 1,
            next => next,
        };
        number
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        let parts = self.reserve.levels().chain(self.commit.levels()).map(|level| level.until);
        let own = self.own.as_ref().map(|own| own.due);
        // What the other end suggested is kept like a reservation, so that a record never stays.
        let rest = parts.chain(own).min().unwrap_or(self.used + self.lifetime);
        let period = self.period.as_deref().map(Period::next);
        Some(period.map_or(rest, |period| period.min(rest)))
    }
}
