//! A whole message (RFC 5971 §5.1): which objects it may, must and must not have.

use signalbox_core::{Direction, Mri, NslpId, SessionId};

use super::code_points::{MessageType, ObjectType};
use super::error_object::ErrorObject;
use super::header::{Encapsulation, HEADER_LENGTH, Header};
use super::mri::{MriObject, mri_parse};
use super::nat::NatTraversal;
use super::nli::Nli;
use super::object::{Extensibility, Objects, RawObject, Unknown, find_object};
use super::stack::{StackConfiguration, StackProposal};
use crate::error::{DecodeError, Problem};

/// A GIST message, decoded or to be encoded. It borrows all parts that are longer than a few octets.
///
/// Two messages are equal if their fields are equal; lengths, reserved bits and padding are not compared.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The common header.
    pub header: Header,
    /// All octets from the common header on; empty when composing.
    pub octets: &'a [u8],
    /// The NAT-Traversal object, which is the first object of a message.
    pub nat_traversal: Option<NatTraversal<'a>>,
    /// The flow.
    pub mri: Option<MriObject<'a>>,
    /// The session.
    pub session: Option<SessionId>,
    /// The sender.
    pub nli: Option<Nli<'a>>,
    /// Query-Cookie: whole words that the Response repeats.
    pub query_cookie: Option<&'a [u8]>,
    /// Responder-Cookie: whole words that the Confirm repeats.
    pub responder_cookie: Option<&'a [u8]>,
    /// Stacks for a messaging association.
    pub stack_proposal: Option<StackProposal<'a>>,
    /// Stack-Configuration-Data of these stacks.
    pub stack_configuration: Option<StackConfiguration<'a>>,
    /// Whole words of the application.
    pub nslp_data: Option<&'a [u8]>,
    /// The Error object of an Error message.
    pub error: Option<ErrorObject<'a>>,
    /// The Hello-ID of an MA-Hello message; 0 unless it requests a reply or is a reply.
    pub hello_id: Option<u32>,
    /// Objects to be carried along.
    pub unknown: Unknown<'a>,
}

impl PartialEq for Message<'_> {
    fn eq(&self, other: &Self) -> bool {
        let header = |m: &Self| Header { length_words: 0, ..m.header };
        header(self) == header(other)
            && self.nat_traversal == other.nat_traversal
            && self.mri == other.mri
            && self.session == other.session
            && self.nli == other.nli
            && self.query_cookie == other.query_cookie
            && self.responder_cookie == other.responder_cookie
            && self.stack_proposal == other.stack_proposal
            && self.stack_configuration == other.stack_configuration
            && self.nslp_data == other.nslp_data
            && self.error == other.error
            && self.hello_id == other.hello_id
            && self.unknown == other.unknown
    }
}

/// A set of object types, by number.
const fn set(kinds: &[ObjectType]) -> u16 {
    let (mut bits, mut i) = (0, 0);
    while i < kinds.len() {
        #[expect(clippy::indexing_slicing, reason = "bounded by the loop; iterators are not const")]
        let kind = kinds[i];
        bits |= 1 << kind.0;
        i += 1;
    }
    bits
}

/// Object types in the order of every grammar in §5.1.
const ORDER: [ObjectType; 11] = [
    ObjectType::NAT_TRAVERSAL,
    ObjectType::MRI,
    ObjectType::SESSION_ID,
    ObjectType::NLI,
    ObjectType::QUERY_COOKIE,
    ObjectType::RESPONDER_COOKIE,
    ObjectType::STACK_PROPOSAL,
    ObjectType::STACK_CONFIGURATION,
    ObjectType::ERROR,
    ObjectType::HELLO_ID,
    ObjectType::NSLP_DATA,
];

/// For each object type the set of types that must not precede it.
const AFTER: [u16; 11] = {
    let mut after = [0; 11];
    let mut i = 0;
    #[expect(clippy::indexing_slicing, reason = "constant indexes below 11, checked at compile time")]
    while i < 11 {
        let mut j = i + 1;
        while j < 11 {
            after[ORDER[i].0 as usize] |= 1 << ORDER[j].0;
            j += 1;
        }
        i += 1;
    }
    after
};

/// The objects that a message of this type may have and must have (RFC 5971 §5.1).
const fn grammar(kind: MessageType, datagram: bool) -> (u16, u16) {
    use ObjectType as O;
    const ROUTE: u16 = set(&[O::MRI, O::SESSION_ID]);
    const NLI: u16 = set(&[O::NLI]);
    const NAT: u16 = set(&[O::NAT_TRAVERSAL]);
    const QUERY: u16 = ROUTE | NLI | set(&[O::QUERY_COOKIE]);
    const STACK: u16 = set(&[O::STACK_PROPOSAL, O::STACK_CONFIGURATION]);
    const RESPONDER: u16 = set(&[O::RESPONDER_COOKIE]);
    const PAYLOAD: u16 = set(&[O::NSLP_DATA]);
    const ERROR: u16 = set(&[O::ERROR]);
    let nli = if datagram { NLI } else { 0 };
    match kind {
        MessageType::QUERY => (QUERY | NAT | STACK | PAYLOAD, QUERY),
        MessageType::RESPONSE => (QUERY | NAT | RESPONDER | STACK | PAYLOAD, QUERY),
        MessageType::CONFIRM => (ROUTE | NLI | RESPONDER | STACK | PAYLOAD, ROUTE | NLI),
        MessageType::DATA => (ROUTE | nli | NAT | PAYLOAD, ROUTE | nli | PAYLOAD),
        MessageType::ERROR => (NAT | NLI | ERROR, nli | ERROR),
        _ => (set(&[O::HELLO_ID]), set(&[O::HELLO_ID])),
    }
}

impl<'a> Message<'a> {
    /// A message to be composed: header flags as [`Header::new`] sets them, no objects.
    #[must_use]
    pub const fn new(kind: MessageType, nslp: NslpId, hops: u8) -> Self {
        Self::empty(Header::new(kind, nslp, hops), &[])
    }

    const fn empty(header: Header, octets: &'a [u8]) -> Self {
        Self {
            header,
            octets,
            nat_traversal: None,
            mri: None,
            session: None,
            nli: None,
            query_cookie: None,
            responder_cookie: None,
            stack_proposal: None,
            stack_configuration: None,
            nslp_data: None,
            error: None,
            hello_id: None,
            unknown: Unknown::within(&[], 0),
        }
    }

    /// Parses one message (RFC 5971 Appendix A). `octets` start at the common header, after the magic number (see
    /// [`strip_magic`](super::strip_magic)), and end with the message.
    ///
    /// It checks the header (A.1), the encapsulation (§5.5), the presence, order and number of the objects (§5.1) and the
    /// contents of each. It does not check the hop count, the sender, and conditions that depend on state.
    ///
    /// # Errors
    /// The first error in this order: header fields, the length, each object, missing or contradictory objects.
    pub fn parse(octets: &'a [u8], encapsulation: Encapsulation) -> Result<Self, DecodeError> {
        let mut message = Self::behind(Header::parse(octets)?, octets);
        message.read(encapsulation)?;
        Ok(message)
    }

    /// A received message whose common header was parsed, without the objects that follow it. [`Message::read`] adds them in its
    /// place: a message is large, and to copy it costs as much as to parse an object.
    pub(crate) const fn behind(header: Header, octets: &'a [u8]) -> Self {
        Self::empty(header, octets)
    }

    /// Checks header and length, and parses the objects (RFC 5971 §5.1).
    pub(crate) fn read(&mut self, encapsulation: Encapsulation) -> Result<(), DecodeError> {
        let Self { header, octets, .. } = *self;
        header.check(encapsulation)?;
        if octets.len() != header.message_octets() {
            return Err(message_length(octets, &header));
        }
        let (allowed, required) = grammar(header.kind, encapsulation.is_datagram());
        let (mut seen, mut forward) = (0, 0);
        let mut objects = Objects::of(octets);
        while let Some(object) = objects.next() {
            let object = object.map_err(|_| message_length(octets, &header))?;
            let place = |problem| object.error(problem, "Type", object.start, object.kind.0.into());
            if object.extensibility == Extensibility::Reserved {
                return Err(object.error(Problem::ExtensibilityFlags, "A/B", object.start, 3));
            }
            let Some(after) = AFTER.get(usize::from(object.kind.0)) else {
                match object.extensibility {
                    Extensibility::Mandatory => return Err(place(Problem::Unrecognised)),
                    Extensibility::Forward => forward += 1,
                    Extensibility::Ignore | Extensibility::Reserved => {}
                }
                continue;
            };
            let bit = 1 << object.kind.0;
            if seen & bit != 0 {
                return Err(place(Problem::Duplicate));
            }
            // An object at a wrong place has no subcode of its own: it is an object that the grammar does not
            // allow *there*, so 9/3.
            if allowed & bit == 0 || seen & after != 0 {
                return Err(place(Problem::NotAllowed));
            }
            seen |= bit;
            self.take(&object, encapsulation)?;
        }
        self.unknown = Unknown::within(octets, forward);
        self.complete(seen, required)
    }

    /// Parses one object.
    fn take(&mut self, object: &RawObject<'a>, encapsulation: Encapsulation) -> Result<(), DecodeError> {
        let words = (object.value.len() / 4) as u64;
        let fixed = |_| object.error(Problem::ObjectLength, "Length", object.start + 2, words);
        match object.kind {
            ObjectType::MRI => self.mri = Some(mri(object, encapsulation)?),
            ObjectType::SESSION_ID => {
                self.session = Some(SessionId(object.value.try_into().map_err(fixed)?));
            }
            ObjectType::NLI => self.nli = Some(Nli::parse(object)?),
            ObjectType::STACK_PROPOSAL => self.stack_proposal = Some(StackProposal::parse(object)?),
            ObjectType::STACK_CONFIGURATION => {
                self.stack_configuration = Some(StackConfiguration::parse(object)?);
            }
            ObjectType::QUERY_COOKIE => self.query_cookie = Some(object.value),
            ObjectType::RESPONDER_COOKIE => self.responder_cookie = Some(object.value),
            ObjectType::NAT_TRAVERSAL => self.nat_traversal = Some(NatTraversal::parse(object)?),
            ObjectType::NSLP_DATA => self.nslp_data = Some(object.value),
            ObjectType::ERROR => self.error = Some(ErrorObject::parse(object)?),
            _ => {
                let id = u32::from_be_bytes(object.value.try_into().map_err(fixed)?);
                if id == 0 && self.header.r {
                    return Err(object.error(Problem::Value, "Hello-ID", object.start + 4, 0));
                }
                self.hello_id = Some(id);
            }
        }
        Ok(())
    }

    /// Checks that all required objects are there and do not contradict each other (RFC 5971 §5.1).
    fn complete(&self, seen: u16, required: u16) -> Result<(), DecodeError> {
        let has = |kind: ObjectType| seen & 1 << kind.0 != 0;
        let (proposal, configuration) = (ObjectType::STACK_PROPOSAL, ObjectType::STACK_CONFIGURATION);
        let kind = self.header.kind;
        let mut needed = required;
        if has(configuration) {
            needed |= set(&[ObjectType::STACK_PROPOSAL]);
        }
        if has(proposal) {
            needed |= match kind {
                MessageType::QUERY => set(&[ObjectType::STACK_CONFIGURATION]),
                MessageType::RESPONSE => {
                    set(&[ObjectType::RESPONDER_COOKIE, ObjectType::STACK_CONFIGURATION])
                }
                _ => set(&[ObjectType::RESPONDER_COOKIE]),
            };
        }
        if needed & !seen != 0 {
            let missing = ORDER.into_iter().find(|k| needed & !seen & 1 << k.0 != 0);
            let end = self.octets.len();
            let mut error = DecodeError::header(Problem::Missing, "Type", end, 0);
            error.object = missing;
            error.value = missing.map_or(0, |k| k.0.into());
            return Err(error);
        }
        if has(ObjectType::RESPONDER_COOKIE) && kind == MessageType::RESPONSE && !self.header.r {
            return Err(DecodeError::header(Problem::RFlag, "R-flag", 7, 0));
        }
        if let (Some(p), Some(c)) = (&self.stack_proposal, &self.stack_configuration)
            && c.contradicts(p, kind != MessageType::CONFIRM)
        {
            let start = find_object(self.octets, configuration).map_or(0, |o| o.start);
            return Err(DecodeError {
                object: Some(configuration),
                field: "MA-protocol-options",
                offset: start + 12,
                object_start: start,
                value: c.options.len() as u64,
                problem: Problem::StackMismatch,
            });
        }
        Ok(())
    }
}

fn mri<'a>(object: &RawObject<'a>, encapsulation: Encapsulation) -> Result<MriObject<'a>, DecodeError> {
    let mri = mri_parse(object.value).map_err(|e| DecodeError {
        offset: e.offset + object.start,
        object_start: object.start,
        ..e
    })?;
    // §5.8.2: Q-mode is towards the edge only. The RFC has no subcode for it; 10/2 is for the
    // path-coupled method, so 10/1.
    if encapsulation == Encapsulation::QMode
        && matches!(mri, Mri::LooseEnd(l) if l.direction == Direction::Upstream)
    {
        return Err(object.error(Problem::Value, "D-flag", object.start + 6, 1));
    }
    Ok(MriObject { mri, octets: object.value })
}

/// The error for a length in the header that the objects or the number of octets contradict.
fn message_length(octets: &[u8], header: &Header) -> DecodeError {
    let mut objects = Objects::of(octets);
    let mut beyond = 0;
    while let Some(object) = objects.next() {
        beyond = object.err().unwrap_or(0);
    }
    let words = (octets.len().saturating_sub(HEADER_LENGTH) + beyond) / 4;
    let calculated = u16::try_from(words).unwrap_or(u16::MAX);
    let value = header.length_words.into();
    DecodeError::header(Problem::MessageLength { calculated }, "Message Length", 2, value)
}
