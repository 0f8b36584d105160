//! Signaling applications in other processes (RFC 5971 Appendix B). The driver carries their requests as commands and
//! their indications as events, under an identifier that it chose for each application.

use signalbox_core::metrics::Family;
use signalbox_core::octets::Octets;
use signalbox_core::service::{Indication, OwnedIndication, OwnedRequest, RequestOf, SendMessageOf};
use signalbox_core::{NslpId, Time};
use signalbox_gist::engine::{self as gist, Registration};

use super::Instance;

/// Most applications of other processes at one time.
pub(crate) const MAX: usize = 64;

/// A request of an application in another process.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ApplicationCommand {
    /// Register. The answer is [`ApplicationEvent::Registered`] or [`ApplicationEvent::Refused`].
    Register {
        /// The number of the application.
        nslp: NslpId,
        /// How GIST treats the application.
        registration: Registration,
    },
    /// A request to GIST, for the application's own number only.
    Request(OwnedRequest),
    /// The application takes no messages from now on, or takes them again (RFC 5971 §4.1.1). Meanwhile unreliable
    /// messages are dropped, and reliable ones wait with their sender.
    Blocked(bool),
    /// The application ends. Its number is free at once, and its routing state is removed.
    Leave,
}

/// A report to an application in another process.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ApplicationEvent {
    /// The application is registered.
    Registered,
    /// The application is not registered.
    Refused(RegisterError),
    /// An indication of GIST.
    Indication(OwnedIndication),
}

/// Why an application is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RegisterError {
    /// The number is in use.
    #[error(
        "NSLPID {} is in use on this node: stop the application that has it, or take another; 32704 to 32767 are \
         for private use", .0.0
    )]
    InUse(NslpId),
    /// The number is reserved (RFC 5971 §9).
    #[error("NSLPID {} is reserved (RFC 5971 section 9): take one from 1 to 32767; 32704 to 32767 are for private use", .0.0)]
    Reserved(NslpId),
    /// The limit of applications is reached.
    #[error("this node has {0} applications of other processes already, and takes no more: stop one")]
    TooMany(usize),
    /// The node does not run GIST.
    #[error("this node does not run GIST")]
    NotRunning,
    /// The driver gave the identifier of an application that is registered: an error of the driver.
    #[error("an application of this name runs already")]
    NameInUse,
}

/// Changes of applications in other processes.
const APPLICATION_EVENTS: Family = Family::counter(
    "application_events",
    &["event"],
    "Changes of signaling applications of other processes.",
);

signalbox_core::counters! {
    /// Counters of applications in other processes.
    pub struct Counters {
        /// Applications of other processes that registered.
        registered: u64 => APPLICATION_EVENTS { event: "registered" },
        /// Registrations refused: the NSLPID was in use or reserved, or there were too many applications.
        refused: u64 => APPLICATION_EVENTS { event: "refused" },
        /// Applications that left, or whose process ended.
        left: u64 => APPLICATION_EVENTS { event: "left" },
        /// Requests of applications that were accepted.
        requests: u64,
        /// Requests refused, because they name another application or no registered one.
        requests_refused: u64,
        /// Indications passed to applications.
        indications: u64,
    }
}

/// An application in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationView {
    /// The identifier that the driver chose.
    pub id: u64,
    /// The number of the application.
    pub nslp: NslpId,
}

/// All registered applications. They are few: a list is enough.
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
                        tracing::info!(nslp = nslp.0, "application registered");
                        self.applications.counters.registered += 1;
                        ApplicationEvent::Registered
                    }
                    Err(error) => {
                        tracing::debug!(nslp = nslp.0, reason = %error, "application refused");
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
                    tracing::debug!(id, reason = "not the application's number", "request discarded");
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
                    tracing::info!(nslp = nslp.0, "application left");
                    self.applications.counters.left += 1;
                    self.applications.all.retain(|application| application.id != id);
                    self.engine.unregister(now, nslp);
                }
            }
        }
    }

    fn register(&mut self, id: u64, nslp: NslpId, registration: Registration) -> Result<(), RegisterError> {
        // GIST-9-02: 0 belongs to no application, the upper half is not assigned.
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

/// Whether an application with this number may make the request.
fn is_of(request: &OwnedRequest, own: NslpId) -> bool {
    match request {
        RequestOf::SendMessage(SendMessageOf { nslp, .. }) | RequestOf::SetStateLifetime { nslp, .. } => {
            *nslp == own
        }
        // RFC 5971 B.6: without a number it stands for all applications.
        RequestOf::InvalidateRoutingState { nslp, .. } => nslp.is_none_or(|nslp| nslp == own),
        // The identifier of the check belongs to one application.
        RequestOf::Peering { .. } => true,
    }
}
