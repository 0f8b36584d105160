//! Objects one by one as values, for dissectors. The engine uses [`Message::parse`](super::Message::parse).

use core::net::IpAddr;

use super::adspec::RawAdspec;
use super::code_points::Class;
use super::diagnostic::{DiagResponse, DiagSelect, Diagnostic, Route};
use super::intserv::{RawFlowSpec, RawTspec};
use super::object::RawObject;
use super::policy::PolicyData;
use super::reduction::{IdList, MessageId};
use super::security::{Challenge, Hello, Integrity};
use super::values::{self, ErrorSpec, Filter, RsvpHop, Scope, Session, Style};
use crate::error::DecodeError;

/// An object's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Object<'a> {
    /// SESSION, with its E_Police flag.
    Session(Session, bool),
    /// RSVP_HOP.
    Hop(RsvpHop),
    /// INTEGRITY.
    Integrity(Integrity<'a>),
    /// TIME_VALUES: refresh period, milliseconds.
    TimeValues(u32),
    /// ERROR_SPEC.
    Error(ErrorSpec),
    /// SCOPE.
    Scope(Scope<'a>),
    /// STYLE, by its option vector; `None`: the style is unknown.
    Style(u32, Option<Style>),
    /// FLOWSPEC.
    FlowSpec(RawFlowSpec<'a>),
    /// FILTER_SPEC or SENDER_TEMPLATE.
    Filter(Filter),
    /// SENDER_TSPEC.
    Tspec(RawTspec<'a>),
    /// ADSPEC.
    Adspec(RawAdspec<'a>),
    /// POLICY_DATA.
    Policy(PolicyData<'a>),
    /// RESV_CONFIRM: the receiver.
    Confirm(IpAddr),
    /// HELLO.
    Hello(Hello),
    /// MESSAGE_ID, or one that is acknowledged, with C-Type 2 negatively.
    MessageId(MessageId),
    /// MESSAGE_ID LIST, SRC_LIST or MCAST_LIST.
    IdList(IdList<'a>),
    /// CHALLENGE.
    Challenge(Challenge),
    /// DIAGNOSTIC.
    Diagnostic(Diagnostic),
    /// DIAG_SELECT.
    DiagSelect(DiagSelect<'a>),
    /// ROUTE.
    Route(Route<'a>),
    /// DIAG_RESPONSE.
    DiagResponse(DiagResponse<'a>),
    /// NULL, an unknown class or C-Type, or an object that is not parsed here.
    Other,
}

impl<'a> RawObject<'a> {
    /// Parses the object (RFC 2205 Appendix A and its successors).
    ///
    /// # Errors
    /// The faults that [`Message::parse`](super::Message::parse) finds in the object alone.
    pub fn read(&self) -> Result<Object<'a>, DecodeError> {
        if !values::is_known(self.kind) {
            return Ok(Object::Other);
        }
        Ok(match self.kind.class {
            Class::SESSION => {
                Session::parse(self).map(|(session, e_police)| Object::Session(session, e_police))?
            }
            Class::RSVP_HOP => Object::Hop(RsvpHop::parse(self)?),
            Class::INTEGRITY => Object::Integrity(Integrity::parse(self)?),
            Class::TIME_VALUES => Object::TimeValues(u32::from_be_bytes(self.array()?)),
            Class::ERROR_SPEC => Object::Error(ErrorSpec::parse(self)?),
            Class::SCOPE => Object::Scope(Scope::parse(self)?),
            Class::STYLE => {
                let [_, v2, v1, v0] = self.array()?;
                let vector = u32::from_be_bytes([0, v2, v1, v0]);
                Object::Style(vector, Style::from_option_vector(vector))
            }
            Class::FLOWSPEC => Object::FlowSpec(RawFlowSpec::of(self)),
            Class::FILTER_SPEC | Class::SENDER_TEMPLATE => Object::Filter(Filter::parse(self)?),
            Class::SENDER_TSPEC => Object::Tspec(RawTspec::of(self)),
            Class::ADSPEC => Object::Adspec(RawAdspec::of(self)),
            Class::POLICY_DATA => Object::Policy(PolicyData::of(*self)),
            Class::RESV_CONFIRM => Object::Confirm(values::confirm(self)?),
            Class::HELLO => Object::Hello(Hello::parse(self)?),
            Class::MESSAGE_ID | Class::MESSAGE_ID_ACK => Object::MessageId(MessageId::parse(self)?),
            Class::MESSAGE_ID_LIST => Object::IdList(IdList::parse(self)?),
            Class::CHALLENGE => Object::Challenge(Challenge::parse(self)?),
            Class::DIAGNOSTIC => Object::Diagnostic(Diagnostic::parse(self)?),
            Class::DIAG_SELECT => Object::DiagSelect(DiagSelect::of(self)),
            Class::ROUTE => Object::Route(Route::parse(self)?),
            Class::DIAG_RESPONSE => Object::DiagResponse(DiagResponse::parse(self)?),
            _ => Object::Other,
        })
    }
}
