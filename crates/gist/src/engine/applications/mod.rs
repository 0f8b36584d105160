//! The service interface of signaling applications (RFC 5971 §4.1, Appendix B).
//!
//! [`Applications`] owns the registrations, and the walks over all sessions that requests of applications start.
//!
//! * `registration`: which applications this node has, and what happens to the state of one that leaves.
//! * `requests`: all requests; those about messages go to `send` (B.1, §4.3.3), which uses the routing state of a session.
//! * `sweep`: requests for all sessions of a flow (B.5, B.6).

mod registration;
mod requests;
mod send;
mod sweep;

use std::collections::VecDeque;

use signalbox_core::NslpId;

use crate::engine::io::Registration;
use registration::Departed;
use sweep::Sweep;

pub(in crate::engine) use send::{Outgoing, Stateless, q_mode, unsent};

/// The signaling applications of a node.
#[derive(Debug, Default)]
pub(in crate::engine) struct Applications {
    registered: Vec<(NslpId, Registration)>,
    /// Applications that were unregistered, while their routing state is removed.
    departed: VecDeque<Departed>,
    /// Requests for all sessions of a flow.
    sweeps: VecDeque<Sweep>,
}

impl Applications {
    /// The registration of an application, if this node has it.
    pub(in crate::engine) fn registration(&self, nslp: NslpId) -> Option<Registration> {
        self.registered.iter().find(|(known, _)| *known == nslp).map(|(_, registration)| *registration)
    }

    /// Whether sessions are being visited.
    pub(in crate::engine) fn is_walking(&self) -> bool {
        !self.sweeps.is_empty() || !self.departed.is_empty()
    }
}
