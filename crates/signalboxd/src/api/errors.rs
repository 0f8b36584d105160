//! Errors of calls. Each has a reason for programs, and a text for people that says what to do.
//!
//! The details of a status are those of `google.rpc`: an `ErrorInfo` with [`DOMAIN`] and the name of the [`Reason`], and
//! for a wrong field a `BadRequest`. `docs/api.md` lists the reasons.

use std::fmt;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of all reasons.
pub(crate) const DOMAIN: &str = "signalbox";

/// Makes the enumeration, its names and its codes from one table.
macro_rules! reasons {
    ($( $(#[doc = $doc:literal])* $variant:ident, $name:literal, $code:ident; )*) => {
        /// Why a call failed, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Reason {
            $( $(#[doc = $doc])* $variant, )*
        }

        impl Reason {
            /// All reasons.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// The name in `ErrorInfo`.
            pub(crate) const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// The code of the status.
            pub(crate) const fn code(self) -> Code {
                match self { $( Self::$variant => Code::$code, )* }
            }
        }
    };
}

reasons! {
    /// A field has a value that cannot be, or is missing.
    InvalidField, "INVALID_FIELD", InvalidArgument;
    /// The first message of a call is not the one that opens it, or a second one opens it again.
    WrongMessage, "WRONG_MESSAGE", InvalidArgument;
    /// The node does not run the protocol.
    ProtocolNotRunning, "PROTOCOL_NOT_RUNNING", FailedPrecondition;
    /// The node has no route to the destination.
    NoRoute, "NO_ROUTE", FailedPrecondition;
    /// The node keeps no state of sessions, so it starts none.
    Stateless, "STATELESS", FailedPrecondition;
    /// Another application of this node has the NSLPID.
    NslpIdTaken, "NSLP_ID_TAKEN", AlreadyExists;
    /// Another client of this node has the number.
    ClientTypeTaken, "CLIENT_TYPE_TAKEN", AlreadyExists;
    /// Another call of this node reserves for the flow, with a protocol that names reservations by their flow.
    FlowTaken, "FLOW_TAKEN", AlreadyExists;
    /// Another reservation or passage of the user has the `request_id`.
    RequestIdTaken, "REQUEST_ID_TAKEN", AlreadyExists;
    /// Another call took the reservation or passage over.
    TakenOver, "TAKEN_OVER", Aborted;
    /// Too many connections or calls are open.
    TooMany, "TOO_MANY", ResourceExhausted;
    /// A table of the node has no room.
    TableFull, "TABLE_FULL", ResourceExhausted;
    /// The client did not read what the call gave it.
    ClientTooSlow, "CLIENT_TOO_SLOW", ResourceExhausted;
    /// There is no such reservation, or it ended.
    NoReservation, "NO_RESERVATION", NotFound;
    /// RSVP has no such path state of other nodes.
    NoSender, "NO_SENDER", NotFound;
    /// RSVP knows nothing of such a neighbor.
    NoNeighbor, "NO_NEIGHBOR", NotFound;
    /// There is no such session of the NATFW application, or it ended.
    NoPinhole, "NO_PINHOLE", NotFound;
    /// No host has such a mapping, or it ended.
    NoMapping, "NO_MAPPING", NotFound;
    /// The configuration file cannot be read.
    ConfigUnreadable, "CONFIG_UNREADABLE", FailedPrecondition;
    /// The user has no role that allows the call.
    NoRole, "NO_ROLE", PermissionDenied;
    /// The daemon stops.
    Stopping, "STOPPING", Unavailable;
    /// A mistake of the daemon.
    Internal, "INTERNAL", Internal;
}

impl Reason {
    /// A status with this reason.
    pub(crate) fn status(self, text: impl fmt::Display) -> Status {
        self.with(text, [])
    }

    /// A status with this reason and values that the text contains.
    pub(crate) fn with<const N: usize>(
        self,
        text: impl fmt::Display,
        metadata: [(&str, String); N],
    ) -> Status {
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value));
        let details = ErrorDetails::with_error_info(self.name(), DOMAIN, metadata);
        Status::with_error_details(self.code(), text.to_string(), details)
    }
}

/// A field of a request that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The field, with dots.
    pub(crate) field: String,
    /// What is wrong, and what would be right.
    pub(crate) what: String,
}

impl FieldError {
    /// A wrong field.
    pub(crate) fn new(field: impl Into<String>, what: impl fmt::Display) -> Self {
        Self { field: field.into(), what: what.to_string() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)
    }
}

impl From<FieldError> for Status {
    fn from(wrong: FieldError) -> Self {
        let reason = Reason::InvalidField;
        let metadata = [("field".to_owned(), wrong.field.clone())];
        let mut details = ErrorDetails::with_error_info(reason.name(), DOMAIN, metadata);
        details.add_bad_request_violation(&wrong.field, &wrong.what);
        Self::with_error_details(reason.code(), wrong.to_string(), details)
    }
}

/// What every client is answered when the event loop has ended.
pub(crate) fn stopping() -> Status {
    Reason::Stopping.status("the daemon is stopping")
}

/// Refuses a call for a protocol that does not run here.
pub(crate) fn not_running(protocol: &str) -> Status {
    let text =
        format!("this node does not run {protocol}: add it to the configuration and restart the daemon");
    Reason::ProtocolNotRunning.with(text, [("protocol", protocol.to_owned())])
}

/// Refuses a call whose first message is another one than `message`.
pub(crate) fn must_open(message: &str) -> Status {
    Reason::WrongMessage.status(format!("the first message of this call is `{message}`"))
}

/// Refuses a call that is opened twice.
pub(crate) fn already_open(message: &str) -> Status {
    Reason::WrongMessage.status(format!("`{message}` opens a call and comes once; use a call of its own"))
}

/// Ends a call whose client does not read.
pub(crate) fn too_slow(what: &str) -> Status {
    Reason::ClientTooSlow.status(format!("the client did not read its events: {what} ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named_for_people_and_for_programs() {
        let status = Status::from(FieldError::new("flow.destination", "missing"));
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "flow.destination: missing"));
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!((info.domain.as_str(), info.reason.as_str()), ("signalbox", "INVALID_FIELD"));
        let violation = &details.bad_request().unwrap().field_violations[0];
        assert_eq!(
            (violation.field.as_str(), violation.description.as_str()),
            ("flow.destination", "missing")
        );
    }

    #[test]
    fn every_reason_is_documented() {
        let document = include_str!("../../../../docs/api.md");
        for reason in Reason::ALL {
            let line = format!("| `{}` |", reason.name());
            assert!(document.contains(&line), "docs/api.md lacks a row that begins with {line}");
        }
    }
}
