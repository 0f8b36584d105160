//! Applications of this node (RFC 2205 §3.11.1).
//!
//! [`Clients`] owns them.
//!
//! * `application`: their commands, and what they are told.
//! * `local_only`: the interface by which an application receives a group (§3.9).

mod application;
mod local_only;

use std::collections::BTreeMap;

use application::Application;

use super::io::ReserveRequest;

/// The applications of a node.
#[derive(Debug, Default)]
pub(in crate::engine) struct Clients {
    applications: BTreeMap<u64, Application>,
    /// Applications whose reservation has to be made again.
    pending: Vec<u64>,
}

impl Clients {
    /// Whether there is no application.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.applications.is_empty()
    }

    /// The reservation that an application asks for.
    pub(in crate::engine) fn request_of(&mut self, id: u64) -> Option<&mut ReserveRequest> {
        self.applications.get_mut(&id)?.reserve_mut()
    }

    /// The reservation of an application has to be made again.
    pub(in crate::engine) fn renew(&mut self, id: u64) {
        self.pending.push(id);
    }

    /// The next application whose reservation has to be made again.
    pub(in crate::engine) fn next_to_renew(&mut self) -> Option<u64> {
        self.pending.pop()
    }
}
