//! A whole message: parsing, and the grammars of RFC 2205 §3.1 and its successors.

use core::net::IpAddr;

use super::RawAdspec;
use super::bundle::SubMessages;
use super::checksum::checksum_is_valid;
use super::code_points::{Class, ErrorCode, HeaderFlags, MessageType, UnknownClass};
use super::diagnostic::{DiagResponse, Diagnostic, Route};
use super::grammar::{Place, Rules, bit, has_style, is_diagnostic, missing};
use super::intserv::{RawFlowSpec, RawTspec};
use super::object::{HEADER_OCTETS, Objects, RawObject};
use super::policy::PolicyData;
use super::reduction::{IdList, MessageId};
use super::security::{Challenge, Hello, Integrity};
use super::values::{self, ErrorSpec, Filter, RsvpHop, Scope, Selector, Session, SessionKind, Style};
use crate::error::{DecodeError, Fault, Refusal};

/// A received message: a view over its octets.
///
/// Objects that a message has once are fields, others are iterators. Objects of unknown class are ignored, kept for
/// forwarding ([`Message::kept`]), or reject the message ([`Message::refusal`]), by the bits of their class (RFC 2205
/// §3.10).
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Message type.
    pub kind: MessageType,
    /// Flags of the common header.
    pub flags: HeaderFlags,
    /// Send_TTL. A smaller TTL on arrival shows nodes without RSVP in between (RFC 2205 §3.8).
    pub send_ttl: u8,
    /// The whole message.
    pub octets: &'a [u8],
    /// INTEGRITY, not verified.
    pub integrity: Option<Integrity<'a>>,
    /// MESSAGE_ID.
    pub message_id: Option<MessageId>,
    /// The session. `None` only in messages without one, and together with [`Message::refusal`].
    pub session: Option<Session>,
    /// The E_Police flag of the SESSION: no node policed the flow so far (RFC 2205 §3.8).
    pub e_police: bool,
    /// RSVP_HOP: the RSVP node that sent the message.
    pub hop: Option<RsvpHop>,
    /// TIME_VALUES: refresh period R of the sender, milliseconds.
    pub refresh_period: Option<u32>,
    /// ERROR_SPEC.
    pub error: Option<ErrorSpec>,
    /// SCOPE: the senders of a wildcard message.
    pub scope: Option<Scope<'a>>,
    /// Reservation style.
    pub style: Option<Style>,
    /// RESV_CONFIRM: the receiver that requests a confirmation.
    pub confirm: Option<IpAddr>,
    /// SENDER_TEMPLATE of a Path, PathErr or PathTear.
    pub sender: Option<Filter>,
    /// SENDER_TSPEC, not parsed.
    pub sender_tspec: Option<RawTspec<'a>>,
    /// ADSPEC, not parsed.
    pub adspec: Option<RawAdspec<'a>>,
    /// CHALLENGE of an Integrity Challenge or Response.
    pub challenge: Option<Challenge>,
    /// HELLO of a Hello.
    pub hello: Option<Hello>,
    /// Error with which a Path or Resv is rejected as a whole (PathErr or ResvErr to its RSVP_HOP). All fields but
    /// [`Message::hop`] may be missing then; [`Message::object`] has what was received.
    pub refusal: Option<Refusal>,
    /// Classes in the message, as bits.
    seen: u64,
    /// There are objects of unknown class to be forwarded.
    keeps: bool,
    /// The node does not support refresh reduction: MESSAGE_ID_LIST is of an unknown class to it (RFC 2961 §4.8).
    pub(crate) without_reduction: bool,
    /// Where the flow descriptors start.
    flows_at: usize,
}

impl<'a> Message<'a> {
    /// Parses a message that fills `octets` exactly (RFC 2205 §3.1): version, length and checksum first, then its
    /// objects, in any order that the grammars permit. Nothing is copied. A checksum of zero means "no checksum".
    /// INTEGRITY is not verified.
    ///
    /// # Errors
    /// [`DecodeError`]: the message is counted and dropped, never answered.
    #[inline]
    pub fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let mut message = Self::NOTHING;
        message.read(octets)?;
        Ok(message)
    }

    /// The initial value for [`Self::read`].
    pub(crate) const NOTHING: Self = Self {
        kind: MessageType(0),
        flags: HeaderFlags(0),
        send_ttl: 0,
        octets: &[],
        integrity: None,
        message_id: None,
        session: None,
        e_police: false,
        hop: None,
        refresh_period: None,
        error: None,
        scope: None,
        style: None,
        confirm: None,
        sender: None,
        sender_tspec: None,
        adspec: None,
        challenge: None,
        hello: None,
        refusal: None,
        seen: 0,
        keeps: false,
        without_reduction: false,
        flows_at: 0,
    };

    /// [`Self::parse`] in place: a message has some 300 octets and is not moved.
    pub(crate) fn read(&mut self, octets: &'a [u8]) -> Result<(), DecodeError> {
        let length = DecodeError::header(Fault::MessageLength, 6);
        let Some(&[version_flags, kind, c1, c0, send_ttl, _, l1, l0]) = octets.first_chunk() else {
            return Err(length);
        };
        if version_flags >> 4 != 1 {
            return Err(DecodeError::header(Fault::Version, 0));
        }
        if usize::from(u16::from_be_bytes([l1, l0])) != octets.len() || !octets.len().is_multiple_of(4) {
            return Err(length);
        }
        if [c1, c0] != [0, 0] && !checksum_is_valid(octets) {
            return Err(DecodeError::header(Fault::Checksum, 2));
        }
        let kind = MessageType(kind);
        if kind.name().is_none() {
            return Err(DecodeError::header(Fault::MessageType, 1));
        }
        self.kind = kind;
        self.flags = HeaderFlags(version_flags & 0x0f);
        self.send_ttl = send_ttl;
        self.octets = octets;
        self.flows_at = octets.len();
        if kind == MessageType::BUNDLE {
            return SubMessages::check(octets).map(|_| ());
        }
        let mut descriptors = Descriptors::default();
        let mut place = Place::Start;
        for object in Objects::of(octets) {
            let object = object?;
            if object.kind.class == Class::NULL {
                continue;
            }
            self.take(&object, &mut place, &mut descriptors)?;
        }
        self.judge(&descriptors)
    }

    fn take(
        &mut self,
        object: &RawObject<'a>,
        place: &mut Place,
        descriptors: &mut Descriptors,
    ) -> Result<(), DecodeError> {
        let class = object.kind.class;
        let rules = Rules::of(class);
        if !rules.known {
            *place = (*place).max(Place::Body);
            match class.if_unknown() {
                UnknownClass::Reject => self.refuse(object, ErrorCode::UNKNOWN_CLASS, Fault::UnknownClass)?,
                UnknownClass::Ignore => {}
                UnknownClass::Forward => self.keeps = true,
            }
            return Ok(());
        }
        if !rules.allowed(self.kind) {
            if class == Class::MESSAGE_ID_LIST && self.without_reduction {
                *place = (*place).max(Place::Body);
                return self.refuse(object, ErrorCode::UNKNOWN_CLASS, Fault::UnknownClass);
            }
            return Err(object.error(Fault::NotAllowed));
        }
        // INTEGRITY "must immediately follow the common header": not even NULL may come between.
        let late = class == Class::INTEGRITY && object.offset != HEADER_OCTETS;
        if !rules.fits(*place) || late {
            return Err(object.error(Fault::Order));
        }
        *place = rules.then;
        let again = self.seen & bit(class) != 0;
        self.seen |= bit(class);
        if again && !rules.list {
            return Err(object.error(Fault::Duplicate));
        }
        if !rules.is_known(object.kind.c_type) {
            if is_opaque(class) && !matches!(self.kind, MessageType::PATH | MessageType::RESV) {
                // Traffic control checks these C-Types in Path and Resv (§3.10); in other messages nothing does.
                if class == Class::FLOWSPEC {
                    descriptors.flowspec();
                }
                return Ok(());
            }
            return self.refuse(object, ErrorCode::UNKNOWN_C_TYPE, Fault::UnknownCType);
        }
        match class {
            Class::SESSION => {
                let (session, e_police) = Session::parse(object)?;
                (self.session, self.e_police) = (Some(session), e_police);
            }
            Class::RSVP_HOP => self.hop = Some(RsvpHop::parse(object)?),
            Class::INTEGRITY => self.integrity = Some(Integrity::parse(object)?),
            Class::TIME_VALUES => self.refresh_period = Some(u32::from_be_bytes(object.array()?)),
            Class::ERROR_SPEC => self.error = Some(ErrorSpec::parse(object)?),
            Class::SCOPE => self.scope = Some(Scope::parse(object)?),
            Class::STYLE => {
                let [_, v2, v1, v0] = object.array()?;
                self.style = Style::from_option_vector(u32::from_be_bytes([0, v2, v1, v0]));
                self.flows_at = object.offset + object.octets.len();
                if self.style.is_none() {
                    self.refuse(object, ErrorCode::UNKNOWN_STYLE, Fault::UnknownStyle)?;
                }
            }
            Class::FLOWSPEC => descriptors.flowspec(),
            Class::FILTER_SPEC => {
                let filter = Filter::parse(object)?;
                self.goes_with_session(object, &filter)?;
                descriptors.filter();
            }
            Class::SENDER_TEMPLATE => {
                let filter = Filter::parse(object)?;
                self.goes_with_session(object, &filter)?;
                self.sender = Some(filter);
            }
            Class::SENDER_TSPEC => self.sender_tspec = Some(RawTspec::of(object)),
            Class::ADSPEC => self.adspec = Some(RawAdspec::of(object)),
            Class::RESV_CONFIRM => self.confirm = Some(values::confirm(object)?),
            Class::MESSAGE_ID => self.message_id = Some(MessageId::parse(object)?),
            Class::MESSAGE_ID_ACK => {
                MessageId::parse(object)?;
            }
            Class::MESSAGE_ID_LIST => {
                IdList::parse(object)?;
            }
            Class::HELLO => self.hello = Some(Hello::parse(object)?),
            Class::CHALLENGE => self.challenge = Some(Challenge::parse(object)?),
            Class::DIAGNOSTIC => {
                Diagnostic::parse(object)?;
            }
            Class::ROUTE => {
                Route::parse(object)?;
            }
            Class::DIAG_RESPONSE => {
                DiagResponse::parse(object)?;
            }
            _ => {} // POLICY_DATA is for policy control; DIAG_SELECT may have any pairs
        }
        Ok(())
    }

    /// Rejects a Path or Resv with an error; the first one counts. In other messages it is a format error (RFC 2205
    /// §3.10).
    fn refuse(&mut self, object: &RawObject<'a>, code: ErrorCode, fault: Fault) -> Result<(), DecodeError> {
        if !matches!(self.kind, MessageType::PATH | MessageType::RESV) {
            return Err(object.error(fault));
        }
        let value = if code == ErrorCode::UNKNOWN_STYLE { 0 } else { object.kind.number() };
        self.refusal.get_or_insert(Refusal { code, value });
        Ok(())
    }

    /// Checks that a filter has the address family and kind of the session, and no SrcPort without a DstPort. Filters
    /// before the SESSION are checked in [`Message::judge`].
    fn goes_with_session(&self, object: &RawObject<'_>, filter: &Filter) -> Result<(), DecodeError> {
        match self.session {
            Some(session) => goes_with(&session, filter).map_err(|fault| object.error(fault)),
            None => Ok(()),
        }
    }

    /// Checks rules about several objects.
    fn judge(&self, descriptors: &Descriptors) -> Result<(), DecodeError> {
        let end = self.octets.len();
        if let Some(class) = missing(self.kind, self.seen) {
            return Err(DecodeError::missing(class, end));
        }
        if self.refusal.is_some() {
            // The answer needs a destination.
            return if self.hop.is_some() { Ok(()) } else { Err(DecodeError::missing(Class::RSVP_HOP, end)) };
        }
        if let (Some(session), Some(hop)) = (self.session, self.hop)
            && session.dest.is_ipv4() != hop.addr.is_ipv4()
        {
            return Err(DecodeError::header(Fault::HopAddress, HEADER_OCTETS));
        }
        if let (Some(session), Some(sender)) = (self.session, self.sender) {
            goes_with(&session, &sender).map_err(|fault| DecodeError::header(fault, HEADER_OCTETS))?;
        }
        if self.kind == MessageType::SREFRESH {
            self.judge_lists()?;
        }
        if is_diagnostic(self.kind) {
            self.judge_diagnostic()?;
            if let (Some(session), Some(asked)) = (self.session, self.diagnostic()) {
                goes_with(&session, &asked.sender)
                    .map_err(|fault| DecodeError::header(fault, HEADER_OCTETS))?;
            }
        }
        match self.style {
            Some(style) if has_style(self.kind) && !descriptors.fit(style, self.kind) => {
                Err(DecodeError { offset: self.flows_at, ..DecodeError::header(Fault::DescriptorCount, 0) })
            }
            _ => Ok(()),
        }
    }

    /// Checks that an SRC_LIST has no other list beside it (RFC 2961 §5.2).
    fn judge_lists(&self) -> Result<(), DecodeError> {
        let sources = self.lists().filter(IdList::is_source_list).count();
        if sources == 0 || sources == self.lists().count() {
            Ok(())
        } else {
            Err(DecodeError::header(Fault::MixedTypes, HEADER_OCTETS))
        }
    }

    /// All objects in their order, NULL and unknown ones too.
    pub fn objects(&self) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
        Objects::of(self.octets).map_while(Result::ok)
    }

    /// The first object of a class.
    #[must_use]
    pub fn object(&self, class: Class) -> Option<RawObject<'a>> {
        self.objects().find(|object| object.kind.class == class)
    }

    /// Objects of unknown class 11bbbbbb, to be forwarded unexamined (RFC 2205 §3.10).
    pub fn kept(&self) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
        let octets = if self.keeps { self.octets } else { &[] };
        Objects::of(octets).map_while(Result::ok).filter(|object| {
            object.kind.class.name().is_none() && object.kind.class.if_unknown() == UnknownClass::Forward
        })
    }

    /// Whether there is any object of [`Self::policy`] or [`Self::kept`].
    #[cfg(feature = "engine")]
    pub(crate) const fn carries(&self) -> bool {
        self.keeps || self.seen & bit(Class::POLICY_DATA) != 0
    }

    /// The POLICY_DATA objects.
    pub fn policy(&self) -> impl Iterator<Item = PolicyData<'a>> + use<'a> {
        self.of_class(Class::POLICY_DATA).map(PolicyData::of)
    }

    /// Acknowledgments: MESSAGE_ID_ACKs, and with `true` MESSAGE_ID_NACKs (RFC 2961 §4.3).
    pub fn acks(&self) -> impl Iterator<Item = (MessageId, bool)> + use<'a> {
        self.of_class(Class::MESSAGE_ID_ACK)
            .filter_map(|object| MessageId::parse(&object).ok().map(|id| (id, object.kind.c_type == 2)))
    }

    /// The lists of an Srefresh (RFC 2961 §5.1).
    pub fn lists(&self) -> impl Iterator<Item = IdList<'a>> + use<'a> {
        self.of_class(Class::MESSAGE_ID_LIST).filter_map(|object| IdList::parse(&object).ok())
    }

    pub(super) fn of_class(&self, class: Class) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
        let there = self.seen & bit(class) != 0;
        let octets = if there { self.octets } else { &[] };
        Objects::of(octets).map_while(Result::ok).filter(move |object| object.kind.class == class)
    }

    /// The flow descriptors of a Resv, ResvErr, ResvTear or ResvConf (RFC 2205 §3.1.4): with explicit styles each
    /// filter with the last FLOWSPEC before it, with WF the FLOWSPEC alone.
    #[must_use]
    pub fn flows(&self) -> Flows<'a> {
        Flows {
            objects: Objects::at(self.octets.get(self.flows_at..).unwrap_or_default(), self.flows_at),
            style: self.style,
            flowspec: None,
        }
    }

    /// The messages of a Bundle (RFC 2961 §3.1); none in other messages.
    #[must_use]
    pub fn sub_messages(&self) -> SubMessages<'a> {
        SubMessages::of(if self.kind == MessageType::BUNDLE { self.octets } else { &[] })
    }
}

/// One flow descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow<'a> {
    /// FLOWSPEC; a ResvTear may lack it.
    pub flowspec: Option<RawFlowSpec<'a>>,
    /// FILTER_SPEC; `None`: all senders (WF).
    pub filter: Option<Filter>,
}

/// Iterator of [`Message::flows`].
#[derive(Debug, Clone)]
pub struct Flows<'a> {
    objects: Objects<'a>,
    style: Option<Style>,
    flowspec: Option<RawFlowSpec<'a>>,
}

impl<'a> Iterator for Flows<'a> {
    type Item = Flow<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let style = self.style?;
        for object in self.objects.by_ref().map_while(Result::ok) {
            match object.kind.class {
                Class::FLOWSPEC => {
                    self.flowspec = Some(RawFlowSpec::of(&object));
                    if !style.is_explicit() {
                        return Some(Flow { flowspec: self.flowspec, filter: None });
                    }
                }
                Class::FILTER_SPEC => {
                    let filter = Filter::parse(&object).ok()?;
                    return Some(Flow { flowspec: self.flowspec, filter: Some(filter) });
                }
                _ => {}
            }
        }
        None
    }
}

/// Counts of the objects after STYLE.
#[derive(Debug, Default)]
struct Descriptors {
    flowspecs: usize,
    filters: usize,
    /// A FILTER_SPEC without a FLOWSPEC before it.
    bare_filter: bool,
    /// The last object is a FLOWSPEC.
    open: bool,
    /// A FLOWSPEC follows a FLOWSPEC.
    unused: bool,
}

impl Descriptors {
    fn flowspec(&mut self) {
        self.unused |= self.open;
        self.flowspecs += 1;
        self.open = true;
    }

    fn filter(&mut self) {
        self.bare_filter |= self.flowspecs == 0;
        self.filters += 1;
        self.open = false;
    }

    /// Whether they follow the grammar of the style (RFC 2205 §3.1.4).
    fn fit(&self, style: Style, message: MessageType) -> bool {
        let empty = self.flowspecs == 0 && self.filters == 0;
        match (message, style) {
            // A ResvErr may lack its flow descriptor, and has at most one.
            (MessageType::RESV_ERR, _) if empty => true,
            (MessageType::RESV_ERR, Style::Ff) => self.flowspecs == 1 && self.filters == 1 && !self.open,
            // FLOWSPECs of a ResvTear are ignored and may be missing.
            (MessageType::RESV_TEAR, Style::Wf) => self.flowspecs <= 1 && self.filters == 0,
            (MessageType::RESV_TEAR, _) => self.filters > 0,
            (_, Style::Wf) => self.flowspecs == 1 && self.filters == 0,
            // "<flow descriptor list> ::= <empty>": there is no request.
            (_, Style::Ff) => empty || (!self.bare_filter && !self.unused && !self.open),
            (_, Style::Se) => empty || (self.flowspecs == 1 && self.filters > 0 && !self.bare_filter),
        }
    }
}

/// Whether traffic control checks the contents of the class.
const fn is_opaque(class: Class) -> bool {
    matches!(class, Class::FLOWSPEC | Class::SENDER_TSPEC | Class::ADSPEC)
}

fn goes_with(session: &Session, filter: &Filter) -> Result<(), Fault> {
    let gpi = matches!(filter.selector, Selector::Gpi(_));
    if session.dest.is_ipv4() != filter.src.is_ipv4() || gpi != (session.kind == SessionKind::Gpi) {
        return Err(Fault::MixedTypes);
    }
    if session.port == 0 && filter.port() != 0 {
        return Err(Fault::SourcePort);
    }
    Ok(())
}
