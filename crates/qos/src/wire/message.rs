//! A whole message: parsing it, and checking it by the grammar of RFC 5974 §5.1.2.

use signalbox_wire::Reader;
use signalbox_wire::hops::Hops;

use super::code_points::{GenericFlags, Info, MessageFlags, MessageType, ObjectType};
use super::info_spec::InfoSpec;
use super::lists::{RsnList, SessionIds};
use super::object::{Carried, Extensibility, HEADER_OCTETS, Objects, RawObject};
use super::values::{BoundSession, Classifier, MessageId, Rsn};
use crate::error::DecodeError;

/// A message, received or to be sent. It borrows the buffer that it was parsed from, or the state that it is composed
/// of.
///
/// Objects of unknown type are handled by their A and B flags: mandatory ones make the message invalid, ignorable ones
/// are dropped, the others are in [`Message::forwarded`] and [`Message::refreshed`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message<'a> {
    /// The type.
    pub kind: MessageType,
    /// Flags of this type of message. Undefined ones are cleared.
    pub flags: MessageFlags,
    /// Flags of all types of message. Undefined ones are cleared.
    pub generic: GenericFlags,
    /// RSN: of a RESERVE its own, of a RESPONSE that of the RESERVE that it answers.
    pub rsn: Option<Rsn>,
    /// RII. A RESERVE or QUERY with an RII requests a RESPONSE with the same RII.
    pub rii: Option<u32>,
    /// Refresh period R in milliseconds, above 0; `None`: 30 s.
    pub refresh_period: Option<u32>,
    /// The sessions that the session of the message is bound to.
    pub bound_sessions: Carried<'a>,
    /// Further sessions that are refreshed, torn down or reported.
    pub session_ids: Option<SessionIds<'a>>,
    /// The RSNs of these sessions.
    pub rsns: Option<RsnList<'a>>,
    /// MSG-ID: other messages may be bound to this one.
    pub msg_id: Option<MessageId>,
    /// BOUND-MSG-ID: the message that this one is bound to.
    pub bound_msg_id: Option<MessageId>,
    /// Success, error or information.
    pub info: Option<InfoSpec<'a>>,
    /// Which fields of the MRI classify packets; `None`: all of them.
    pub classifier: Option<Classifier>,
    /// The QSPEC (RFC 5975), not interpreted.
    pub qspec: Option<&'a [u8]>,
    /// A second QSPEC, in a QUERY only.
    pub second_qspec: Option<&'a [u8]>,
    /// Authorisation (RFC 5981), not interpreted.
    pub auth: Carried<'a>,
    /// Private to Signalbox: grants of the nodes on the path.
    pub hops: Option<Hops<'a>>,
    /// Private to Signalbox: a text for people.
    pub note: Option<&'a str>,
    /// Private to Signalbox: the rate that the node which refused could still give, octets a second.
    pub available: Option<u64>,
    /// An object with a type that is private to Signalbox was left out, because it has another content: the types of the range for
    /// private use can have another meaning for nodes of other makes.
    pub foreign: bool,
    /// Objects of unknown type with AB=10. They are forwarded.
    pub forwarded: Carried<'a>,
    /// Objects of unknown type with AB=11. They are stored with the session and repeated in refreshes.
    pub refreshed: Carried<'a>,
}

impl<'a> Message<'a> {
    /// A message of this type without objects.
    #[must_use]
    pub const fn new(kind: MessageType) -> Self {
        Self {
            kind,
            flags: MessageFlags(0),
            generic: GenericFlags(0),
            rsn: None,
            rii: None,
            refresh_period: None,
            bound_sessions: Carried::bound_sessions(&[]),
            session_ids: None,
            rsns: None,
            msg_id: None,
            bound_msg_id: None,
            info: None,
            classifier: None,
            qspec: None,
            second_qspec: None,
            auth: Carried::auth(&[]),
            hops: None,
            note: None,
            available: None,
            foreign: false,
            forwarded: Carried::forwarded(&[]),
            refreshed: Carried::refreshed(&[]),
        }
    }

    /// Parses a message that fills `octets` exactly, without copying (RFC 5974 §5.1.2). Objects may be in any order.
    ///
    /// # Errors
    /// [`DecodeError`] names the field that is wrong and the Protocol Error of RFC 5974 §5.1.3.6 for it.
    pub fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(octets);
        let short = |_| DecodeError::message(Info::MESSAGE_LENGTH, "common header", 0);
        let [kind, flags, g1, g0] = r.array().map_err(short)?;
        let kind = MessageType(kind);
        if kind.name().is_none() {
            return Err(DecodeError::message(Info::ILLEGAL_MESSAGE_TYPE, "Msg Type", 0));
        }
        let mut message = Self {
            flags: MessageFlags(flags & MessageFlags::defined(kind).0),
            generic: GenericFlags(u16::from_be_bytes([g1, g0]) & GenericFlags::DEFINED.0),
            bound_sessions: Carried::bound_sessions(r.peek_rest()),
            auth: Carried::auth(r.peek_rest()),
            forwarded: Carried::forwarded(r.peek_rest()),
            refreshed: Carried::refreshed(r.peek_rest()),
            ..Self::new(kind)
        };
        for object in Objects::of(octets) {
            message.take(&object?)?;
        }
        message.judge(octets.len())?;
        Ok(message)
    }

    fn take(&mut self, object: &RawObject<'a>) -> Result<(), DecodeError> {
        if object.kind.name().is_none() {
            return match object.extensibility {
                Extensibility::Mandatory => Err(object.error(Info::UNKNOWN_OBJECT, "Type", 0)),
                _ => Ok(()),
            };
        }
        if !allowed(self.kind, object.kind) {
            return Err(object.error(Info::ILLEGAL_OBJECT, "Type", 0));
        }
        let duplicate = || object.error(Info::DUPLICATE_OBJECT, "Type", 0);
        macro_rules! once {
            ($slot:ident, $value:expr) => {{
                let value = $value;
                if self.$slot.replace(value).is_some() {
                    return Err(duplicate());
                }
            }};
        }
        match object.kind {
            ObjectType::RII => once!(rii, object.word()?),
            ObjectType::RSN => once!(rsn, Rsn::parse(object)?),
            ObjectType::REFRESH_PERIOD => {
                let period = object.word()?;
                if period == 0 {
                    return Err(object.error(Info::BAD_VALUE, "Refresh Period", 0));
                }
                once!(refresh_period, period);
            }
            ObjectType::BOUND_SESSION_ID => {
                BoundSession::parse(object)?;
            }
            ObjectType::PACKET_CLASSIFIER => once!(classifier, Classifier::parse(object)?),
            ObjectType::INFO_SPEC => once!(info, InfoSpec::parse(object)?),
            ObjectType::SESSION_ID_LIST => once!(session_ids, SessionIds::parse(object)?),
            ObjectType::RSN_LIST => once!(rsns, RsnList::parse(object)?),
            ObjectType::MSG_ID => once!(msg_id, MessageId::parse(object)?),
            ObjectType::BOUND_MSG_ID => once!(bound_msg_id, MessageId::parse(object)?),
            ObjectType::QSPEC if self.qspec.is_some() && self.kind == MessageType::QUERY => {
                once!(second_qspec, object.value);
            }
            ObjectType::QSPEC => once!(qspec, object.value),
            ObjectType::HOPS => self.foreign |= !keep(&mut self.hops, Hops::from_octets(object.value)),
            ObjectType::NOTE => self.foreign |= !keep(&mut self.note, note(object)),
            ObjectType::AVAILABLE => self.foreign |= !keep(&mut self.available, available(object)),
            _ => {} // SESSION-AUTH: any number, not interpreted
        }
        Ok(())
    }

    /// Checks the rules that concern several objects (RFC 5974 §5.1.2).
    fn judge(&self, end: usize) -> Result<(), DecodeError> {
        let missing = |object: ObjectType, field| {
            Err(DecodeError {
                object: Some(object),
                ..DecodeError::message(Info::MISSING_OBJECT, field, end)
            })
        };
        let illegal = |object: ObjectType, field| {
            Err(DecodeError {
                object: Some(object),
                ..DecodeError::message(Info::ILLEGAL_OBJECT, field, HEADER_OCTETS)
            })
        };
        match self.kind {
            MessageType::RESERVE if self.rsn.is_none() => return missing(ObjectType::RSN, "RSN"),
            MessageType::QUERY if self.qspec.is_none() => return missing(ObjectType::QSPEC, "QSPEC"),
            MessageType::RESPONSE | MessageType::NOTIFY if self.info.is_none() => {
                return missing(ObjectType::INFO_SPEC, "INFO-SPEC");
            }
            _ => {}
        }
        if self.kind == MessageType::RESERVE && self.classifier.is_some() && self.qspec.is_none() {
            return illegal(ObjectType::PACKET_CLASSIFIER, "PACKET-CLASSIFIER without QSPEC");
        }
        if self.msg_id.is_some() && self.bound_msg_id.is_some() {
            return illegal(ObjectType::BOUND_MSG_ID, "BOUND-MSG-ID beside MSG-ID");
        }
        match (self.session_ids, self.rsns) {
            (None, Some(_)) => return illegal(ObjectType::RSN_LIST, "RSN-LIST without SESSION-ID-LIST"),
            // §5.1.2.1 has the RSN-LIST optional, §5.3.7 demands it in a RESERVE.
            (Some(_), None) if self.kind == MessageType::RESERVE => {
                return missing(ObjectType::RSN_LIST, "RSN-LIST");
            }
            (Some(sessions), Some(rsns)) if sessions.len() != rsns.len() => {
                return Err(DecodeError {
                    object: Some(ObjectType::RSN_LIST),
                    ..DecodeError::message(Info::BAD_VALUE, "RSN-LIST", HEADER_OCTETS)
                });
            }
            _ => {}
        }
        // "Bad flags value: an undefined … combination of flags": the one that §5.1.1 forbids. Bits that are not
        // defined are ignored, as §5.1.1 demands, although 3/0x03 and 3/0x04 name them too.
        if self.generic.contains(GenericFlags::ACK_REQ) && self.rii.is_some() {
            return Err(DecodeError::message(Info::GENERIC_FLAGS, "ACK-REQ with RII", 2));
        }
        Ok(())
    }

    /// Whether it is a RESERVE with the TEAR flag.
    #[must_use]
    pub fn is_tear(&self) -> bool {
        self.kind == MessageType::RESERVE && self.flags.contains(MessageFlags::TEAR)
    }

    /// Whether it is a QUERY with the RESERVE-INIT flag.
    #[must_use]
    pub fn is_reserve_init(&self) -> bool {
        self.kind == MessageType::QUERY && self.flags.contains(MessageFlags::RESERVE_INIT)
    }
}

/// RII and RSN of a malformed message, for its RESPONSE (RFC 5974 §5.4.3).
#[must_use]
pub fn identify(octets: &[u8]) -> (Option<u32>, Option<Rsn>) {
    let (mut rii, mut rsn) = (None, None);
    for object in Objects::of(octets).map_while(Result::ok) {
        match object.kind {
            ObjectType::RII => rii = rii.or(object.word().ok()),
            ObjectType::RSN => rsn = rsn.or(Rsn::parse(&object).ok()),
            _ => {}
        }
    }
    (rii, rsn)
}

/// Keeps the value of a private object, if it is one and the first.
fn keep<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    let first = slot.is_none() && value.is_some();
    if first {
        *slot = value;
    }
    first
}

fn note<'a>(object: &RawObject<'a>) -> Option<&'a str> {
    let end = object.value.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    core::str::from_utf8(object.value.get(..end)?).ok()
}

fn available(object: &RawObject<'_>) -> Option<u64> {
    object.value.try_into().map(u64::from_be_bytes).ok()
}

/// The grammars of RFC 5974 §5.1.2. SESSION-AUTH is allowed in all but NOTIFY (RFC 5981 §6.2), private objects in any.
pub(crate) fn allowed(message: MessageType, object: ObjectType) -> bool {
    use ObjectType as O;
    match object {
        O::HOPS | O::NOTE | O::AVAILABLE => true,
        _ => match message {
            MessageType::RESERVE => true,
            MessageType::QUERY => matches!(
                object,
                O::RII
                    | O::BOUND_SESSION_ID
                    | O::PACKET_CLASSIFIER
                    | O::INFO_SPEC
                    | O::QSPEC
                    | O::SESSION_AUTH
            ),
            MessageType::RESPONSE => matches!(
                object,
                O::RII
                    | O::RSN
                    | O::INFO_SPEC
                    | O::SESSION_ID_LIST
                    | O::RSN_LIST
                    | O::QSPEC
                    | O::SESSION_AUTH
                    // §5.3.3 copies it "into all messages it sends for the same session", the grammar has no place.
                    | O::BOUND_SESSION_ID
            ),
            _ => matches!(object, O::INFO_SPEC | O::QSPEC | O::BOUND_SESSION_ID),
        },
    }
}
