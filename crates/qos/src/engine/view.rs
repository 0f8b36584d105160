//! What `show reservations` tells of this application.

use core::time::Duration;

use signalbox_core::{Direction, IfIndex, Mri, SessionId, Time};
use signalbox_resources::GrantId;

use super::Qos;
use super::session::{Marks, Session, Stage};
use crate::wire::{BoundSession, Carried};

/// What a node is in a session (RFC 5974 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Role {
    /// QNI: RESERVEs begin here.
    Initiator,
    /// QNE: they pass.
    Relay,
    /// QNR: they end here.
    Responder,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its identifier.
    pub session: SessionId,
    /// Its flow; the direction is that of RESERVEs.
    pub mri: Mri,
    /// What this node is in it.
    pub role: Role,
    /// Something is reserved, or was granted at the flow's end; else only a QUERY passed, or it is torn down.
    pub reserved: bool,
    /// The far end confirmed it.
    pub confirmed: bool,
    /// What is held here.
    pub grant: Option<GrantId>,
    /// Where the packets leave.
    pub ifindex: Option<IfIndex>,
    /// Octets a second held here.
    pub rate: u64,
    /// The receiver reserves.
    pub receiver_initiated: bool,
    /// Routers on the path provide no QoS.
    pub gaps: bool,
    /// Nobody further on has the application.
    pub last_node: bool,
    /// The user's name for it, where it began here.
    pub command: Option<u64>,
    /// Time until it ends without a refresh.
    pub expires_in: Option<Duration>,
    /// Own sequence number.
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
            mri: session.mri,
            role,
            reserved: session.stage == Stage::Reserved,
            confirmed: marks.has(Marks::CONFIRMED),
            grant: session.grant,
            ifindex: session.ifindex,
            rate: session.rate,
            receiver_initiated: session.mri.direction() == Direction::Upstream,
            gaps: marks.has(Marks::BREAK),
            last_node: marks.has(Marks::LAST_NODE),
            command: session.local.as_ref().and_then(|local| local.command),
            expires_in: session.expires.map(|at| at.since(now)),
            rsn: session.rsn_out,
            bound: Carried::bound_sessions(&session.bound).sessions().collect(),
        }
    }
}

impl Qos {
    /// All sessions, by rising place in the table.
    pub fn view(&self, now: Time) -> impl Iterator<Item = SessionView> {
        self.sessions.iter().map(move |(_, session)| SessionView::of(session, now))
    }

    /// One session.
    #[must_use]
    pub fn view_of(&self, now: Time, session: SessionId) -> Option<SessionView> {
        let key = self.find(session)?;
        self.sessions.get(key).map(|session| SessionView::of(session, now))
    }
}
