//! Signaling applications outside of the node, in other processes: each speaks through commands and events under
//! a name that its driver chose (RFC 5971, Appendix B).

use signalbox_core::octets::Octets;
use signalbox_core::service::{Indication, OwnedIndication, OwnedRequest, RequestOf, SendMessageOf};
use signalbox_core::{NslpId, Time};
use signalbox_gist::engine::{self as gist, Registration};

use super::Instance;

/// Applications that a node takes from outside.
pub(crate) const MAX: usize = 64;

/// What an application outside asks.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ApplicationCommand {
    /// It begins. The answer is [`ApplicationEvent::Registered`] or [`ApplicationEvent::Refused`].
    Register {
        /// Its number.
        nslp: NslpId,
        /// How GIST shall treat it.
        registration: Registration,
    },
    /// Something of GIST; in its own name only.
    Request(OwnedRequest),
    /// It cannot take messages for a while, or can again (RFC 5971 §4.1.1): unreliable ones are dropped
    /// meanwhile, reliable ones wait with their sender.
    Blocked(bool),
    /// It ends. Its number is free at once, and its routing state goes.
    Leave,
}

/// What an application outside hears.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ApplicationEvent {
    /// GIST knows it from now on.
    Registered,
    /// GIST does not take it.
    Refused(RegisterError),
    /// GIST tells something.
    Indication(OwnedIndication),
}

/// Why an application is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RegisterError {
    /// Its number has an owner.
    #[error(
        "NSLPID {} is in use on this node: stop the application that has it, or take another; 32704 to 32767 are \
         for private use", .0.0
    )]
    InUse(NslpId),
    /// Its number is none (RFC 5971 §9).
    #[error("NSLPID {} is reserved (RFC 5971 section 9): take one from 1 to 32767; 32704 to 32767 are for private use", .0.0)]
    Reserved(NslpId),
    /// The node has as many as it takes.
    #[error("this node has {0} applications of other processes already, and takes no more: stop one")]
    TooMany(usize),
    /// The node does not run GIST.
    #[error("this node does not run GIST")]
    NotRunning,
    /// The driver gave the name of one that runs: its mistake, not the application's.
    #[error("an application of this name runs already")]
    NameInUse,
}

signalbox_core::counters! {
    /// What passes between a node and applications outside.
    pub struct Counters {
        /// Applications of other processes that registered.
        registered: u64,
        /// Registrations refused: the number was in use or reserved, or there were too many.
        refused: u64,
        /// Applications that left, or whose process ended.
        left: u64,
        /// Requests of applications, refused ones not counted.
        requests: u64,
        /// Requests refused: in the name of another application, or of none that is registered.
        requests_refused: u64,
        /// Indications given to applications.
        indications: u64,
    }
}

/// An application outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationView {
    /// The name that its driver gave it.
    pub id: u64,
    /// Its number.
    pub nslp: NslpId,
}

/// All of them: few, so that a list does.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    pub(crate) all: Vec<ApplicationView>,
    pub(crate) counters: Counters,
}

impl Applications {
    fn nslp(&self, id: u64) -> Option<NslpId> {
        self.all.iter().find(|application| application.id == id).map(|application| application.nslp)
    }

    /// Whether an application of this number is registered.
    pub(crate) fn contains(&self, nslp: NslpId) -> bool {
        self.all.iter().any(|application| application.nslp == nslp)
    }

    /// An indication as the event of its application, with the identifier of that; `None`: no application has the
    /// number.
    pub(crate) fn event(&mut self, indication: &Indication<'_>) -> Option<(u64, ApplicationEvent)> {
        let nslp = indication.nslp();
        let id = self.all.iter().find(|application| application.nslp == nslp)?.id;
        self.counters.indications += 1;
        Some((id, ApplicationEvent::Indication(indication.map(|data| Octets::from(*data)))))
    }
}

impl Instance {
    pub(super) fn application(&mut self, now: Time, id: u64, command: ApplicationCommand) {
        match command {
            ApplicationCommand::Register { nslp, registration } => {
                let event = match self.register(id, nslp, registration) {
                    Ok(()) => {
                        self.applications.counters.registered += 1;
                        ApplicationEvent::Registered
                    }
                    Err(error) => {
                        self.applications.counters.refused += 1;
                        ApplicationEvent::Refused(error)
                    }
                };
                self.events.push_back((id, event));
            }
            ApplicationCommand::Request(request) => {
                if self.applications.nslp(id).is_some_and(|nslp| is_of(&request, nslp)) {
                    self.applications.counters.requests += 1;
                    let request = request.map(Octets::as_slice);
                    self.engine.handle(now, gist::Input::Request(request));
                } else {
                    self.applications.counters.requests_refused += 1;
                }
            }
            ApplicationCommand::Blocked(blocked) => {
                if let Some(nslp) = self.applications.nslp(id) {
                    self.engine.handle(now, gist::Input::Blocked { nslp, blocked });
                }
            }
            ApplicationCommand::Leave => {
                if let Some(nslp) = self.applications.nslp(id) {
                    self.applications.counters.left += 1;
                    self.applications.all.retain(|application| application.id != id);
                    self.engine.unregister(now, nslp);
                }
            }
        }
    }

    fn register(&mut self, id: u64, nslp: NslpId, registration: Registration) -> Result<(), RegisterError> {
        // GIST-9-02: 0 belongs to no application, the upper half to nobody yet.
        if matches!(nslp.0, 0 | 32768..) {
            return Err(RegisterError::Reserved(nslp));
        }
        if self.inside.contains(&nslp) || self.applications.contains(nslp) {
            return Err(RegisterError::InUse(nslp));
        }
        if self.applications.nslp(id).is_some() {
            return Err(RegisterError::NameInUse);
        }
        if self.applications.all.len() >= MAX {
            return Err(RegisterError::TooMany(MAX));
        }
        self.applications.all.push(ApplicationView { id, nslp });
        self.engine.register(nslp, registration);
        Ok(())
    }
}

/// Whether a request is in the name of this application.
fn is_of(request: &OwnedRequest, own: NslpId) -> bool {
    match request {
        RequestOf::SendMessage(SendMessageOf { nslp, .. }) | RequestOf::SetStateLifetime { nslp, .. } => {
            *nslp == own
        }
        // B.6: it may speak for all.
        RequestOf::InvalidateRoutingState { nslp, .. } => nslp.is_none_or(|nslp| nslp == own),
        // The check's own name says whose it is.
        RequestOf::Peering { .. } => true,
    }
}
