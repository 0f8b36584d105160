//! Views for `show pinholes`.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::metrics::Table;
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, SessionId, Time, invariant};
use signalbox_resources::{Passage, Requester};

use super::Natfw;
use super::response::rule;
use super::session::{Kind, Origin, Session, State, pinhole_id};

/// The role of a node in a session (RFC 5973 §1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Role {
    /// NI or NI+: the requests begin here.
    Initiator,
    /// NF: the requests are sent on.
    Forwarder,
    /// NR, or an edge: the requests end here.
    Responder,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its identifier.
    pub session: SessionId,
    /// CREATE or EXTERNAL.
    pub kind: Kind,
    /// The role of this node.
    pub role: Role,
    /// Its state.
    pub state: State,
    /// Its flow as it arrived here.
    pub mri: Mri,
    /// Its rule here, if it has one.
    pub rule: Option<Pinhole>,
    /// Identifier of the rule in the kernel.
    pub pinhole: PinholeId,
    /// The rule is in the kernel.
    pub active: bool,
    /// Address of the peer that asked, with IPv6 its /64 prefix; `None`: this node.
    pub peer: Option<IpAddr>,
    /// Who asked for what it opened; `None`: it opened nothing, or this node asked.
    pub requester: Option<Requester>,
    /// The policy rule that allowed it: its number and name.
    pub policy: Option<String>,
    /// External address that was reserved here.
    pub external: Option<(Ipv4Addr, Option<u16>)>,
    /// The user's identifier, if it began here.
    pub command: Option<u64>,
    /// Time until it ends without a refresh.
    pub expires_in: Duration,
    /// MSN of the newest request.
    pub msn: u32,
}

impl SessionView {
    fn of(key: Key, session: &Session, now: Time) -> Self {
        let plan = &session.plan;
        let external = plan.external.as_ref().and_then(|external| external.address.or(external.binding));
        let role = if session.begins_here() {
            Role::Initiator
        } else if plan.answers {
            Role::Responder
        } else {
            Role::Forwarder
        };
        let asked = matches!(session.origin(), Origin::Peer | Origin::Host(_));
        Self {
            session: session.id,
            kind: session.kind,
            role,
            state: session.state,
            mri: session.request.mri(),
            rule: if plan.installs { rule(&session.request, plan) } else { None },
            pinhole: pinhole_id(key),
            active: session.active,
            peer: asked.then(|| session.share()),
            requester: plan
                .passage
                .as_ref()
                .filter(|_| asked || !session.begins_here())
                .map(|passage| passage.requester().clone()),
            policy: plan.passage.as_ref().and_then(Passage::rule).map(ToString::to_string),
            external: external.map(|external| (external.address, external.port)),
            command: if let Origin::Command(id) = session.origin() { Some(id) } else { None },
            expires_in: session.expires.since(now),
            msn: session.msn,
        }
    }
}

impl Natfw {
    /// The tables that peers can fill.
    #[must_use]
    pub const fn tables(&self) -> [Table; 2] {
        [
            Table::new("sessions", self.sessions.len(), self.sessions.limit()),
            Table::new("ports", self.ports.len(), self.ports.limit()),
        ]
    }

    /// Visits sessions from a place in the table on; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn walk(&self, now: Time, from: u32, mut visit: impl FnMut(SessionView) -> bool) -> Option<u32> {
        self.sessions.walk(from, |key, session| visit(SessionView::of(key, session, now)))
    }

    /// Number of sessions.
    #[must_use]
    pub const fn session_count(&self) -> u32 {
        self.sessions.len()
    }

    /// Whether there is a session of this identifier.
    #[must_use]
    pub fn has_session(&self, session: SessionId) -> bool {
        self.find(session).is_some()
    }

    /// One session.
    #[must_use]
    pub fn view_of(&self, now: Time, session: SessionId) -> Option<SessionView> {
        let key = self.find(session)?;
        invariant!(self.sessions.get(key), "a found session exists")
            .map(|session| SessionView::of(key, session, now))
    }

    /// The session that a command made.
    #[must_use]
    pub fn view_of_command(&self, now: Time, id: u64) -> Option<SessionView> {
        let key = *self.commands.get(&id)?;
        invariant!(self.sessions.get(key), "a command has a session")
            .map(|session| SessionView::of(key, session, now))
    }
}
