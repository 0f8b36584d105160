//! Views for `show reservations`.

use core::time::Duration;

use signalbox_core::metrics::Table;
use signalbox_core::{Direction, IfIndex, Key, Mri, SessionId, Time};
use signalbox_resources::GrantId;

use super::Qos;
use super::session::{Marks, Session, Stage};
use crate::wire::{BoundSession, Carried};

/// The role of a node in a session (RFC 5974 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Role {
    /// QNI: RESERVEs begin here.
    Initiator,
    /// QNE: RESERVEs are forwarded.
    Relay,
    /// QNR: RESERVEs end here.
    Responder,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its identifier.
    pub session: SessionId,
    /// Its flow, in the direction of RESERVEs.
    pub mri: Mri,
    /// The role of this node.
    pub role: Role,
    /// A reservation exists, or was granted at the end of the flow. Otherwise only a QUERY passed, or it is torn down.
    pub reserved: bool,
    /// The rest of the path confirmed it.
    pub confirmed: bool,
    /// The grant of admission control.
    pub grant: Option<GrantId>,
    /// The egress interface.
    pub ifindex: Option<IfIndex>,
    /// Reserved rate in octets a second.
    pub rate: u64,
    /// The reservation is receiver-initiated.
    pub receiver_initiated: bool,
    /// Routers on the path provide no QoS.
    pub gaps: bool,
    /// No next node has the application.
    pub last_node: bool,
    /// The user's identifier, if it began here.
    pub command: Option<u64>,
    /// Time until it ends without a refresh.
    pub expires_in: Option<Duration>,
    /// RSN of this node.
    pub rsn: Option<u32>,
    /// The sessions it is bound to.
    pub bound: Vec<BoundSession>,
}

impl SessionView {
    fn of(session: &Session, now: Time) -> Self {
        let marks = session.marks;
        let role = if marks.has(Marks::QNI) {
            Role::Initiator
        } else if session.is_end() {
            Role::Responder
        } else {
            Role::Relay
        };
        Self {
            session: session.id,
            mri: session.mri(),
            role,
            reserved: session.stage == Stage::Reserved,
            confirmed: marks.has(Marks::CONFIRMED),
            grant: session.grant.get(),
            ifindex: session.ifindex,
            rate: session.rate,
            receiver_initiated: session.direction == Direction::Upstream,
            gaps: session.has_gaps(),
            last_node: marks.has(Marks::LAST_NODE),
            command: session.local.as_ref().and_then(|local| local.command),
            expires_in: session.expires.get().map(|at| at.since(now)),
            rsn: session.rsn_out,
            bound: Carried::bound_sessions(&session.rare.bound).sessions().collect(),
        }
    }
}

impl Qos {
    /// The tables that peers can fill.
    #[must_use]
    pub const fn tables(&self) -> [Table; 3] {
        [
            Table::new("sessions", self.sessions.len(), self.sessions.limit()),
            Table::new("waiting_messages", self.waiting.len(), self.waiting.limit()),
            Table::new("contents_octets", self.holders.contents(), self.config.max_contents),
        ]
    }

    /// All sessions, in the order of the table.
    pub fn view(&self, now: Time) -> impl Iterator<Item = SessionView> {
        self.sessions.iter().map(move |(_, session)| SessionView::of(session, now))
    }

    /// Visits sessions from a place in the table on; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn walk(&self, now: Time, from: u32, mut visit: impl FnMut(SessionView) -> bool) -> Option<u32> {
        self.sessions.walk(from, |_, session| visit(SessionView::of(session, now)))
    }

    /// The session of this key, which is the key of the owner of its grant.
    #[must_use]
    pub fn session_of(&self, key: u64) -> Option<SessionId> {
        self.sessions.get(Key::from_u64(key)).map(|session| session.id)
    }

    /// Number of sessions.
    #[must_use]
    pub const fn session_count(&self) -> u32 {
        self.sessions.len()
    }

    /// One session.
    #[must_use]
    pub fn view_of(&self, now: Time, session: SessionId) -> Option<SessionView> {
        let key = self.find(session)?;
        self.sessions.get(key).map(|session| SessionView::of(session, now))
    }
}
