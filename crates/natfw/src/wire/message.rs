//! A whole message: parsing it, and checking it by the formats of RFC 5973 §4.3.

use signalbox_wire::Reader;
use signalbox_wire::hops::Hops;

use super::code_points::{Info, InfoClass, MessageType, ObjectType};
use super::object::{Forwarded, HEADER_OCTETS, Object, Treatment};
use super::publication::Publication;
use super::values::{Bindings, DataTerminal, ExternalAddress, FlowInfo, IcmpTypes, Information};
use crate::error::DecodeError;

/// A message, received or to be sent. It borrows the buffer that it was parsed from, or the state that it is composed
/// of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message<'a> {
    /// The type.
    pub kind: MessageType,
    /// P: proxy mode. False in types other than CREATE and EXTERNAL.
    pub proxy: bool,
    /// E: in proxy mode the edge also sends the message on. False without `proxy`.
    pub extend: bool,
    /// NATFW_LT in seconds; 0 deletes the session.
    pub lifetime: Option<u32>,
    /// NATFW_MSN.
    pub msn: Option<u32>,
    /// NATFW_EFI.
    pub efi: Option<FlowInfo>,
    /// NATFW_INFO.
    pub info: Option<Information>,
    /// NATFW_DTINFO.
    pub terminal: Option<DataTerminal>,
    /// NATFW_NONCE.
    pub nonce: Option<u32>,
    /// NATFW_ICMP_TYPES.
    pub icmp_types: Option<IcmpTypes<'a>>,
    /// NATFW_EXTERNAL_IP.
    pub external: Option<ExternalAddress>,
    /// NATFW_EXTERNAL_BINDING.
    pub bindings: Option<Bindings<'a>>,
    /// Private to Signalbox: the receiver is to be reached at once, by all senders that are meant.
    pub publication: Option<Publication<'a>>,
    /// Private to Signalbox: the nodes that granted the request. A request with a list asks for one in its RESPONSE.
    pub hops: Option<Hops<'a>>,
    /// Private to Signalbox: the node that sent the message takes part in the list.
    pub neighbor: bool,
    /// An object of the type of the list was left out, because its contents are not a list: types of the range for private use can have another meaning
    /// for nodes of other makes.
    pub foreign: bool,
    /// Objects of unknown type with AB=10. A forwarded message keeps them.
    pub forwarded: Forwarded<'a>,
}

impl<'a> Message<'a> {
    /// A message of this type without objects.
    #[must_use]
    pub const fn new(kind: MessageType) -> Self {
        Self {
            kind,
            proxy: false,
            extend: false,
            lifetime: None,
            msn: None,
            efi: None,
            info: None,
            terminal: None,
            nonce: None,
            icmp_types: None,
            external: None,
            bindings: None,
            publication: None,
            hops: None,
            neighbor: false,
            foreign: false,
            forwarded: Forwarded::NONE,
        }
    }

    /// Parses a message that fills `octets` exactly, without copying (RFC 5973 §4.3). Objects may be in any order.
    ///
    /// # Errors
    /// [`DecodeError`] names the field that is wrong and the code of RFC 5973 §4.2.5 for it.
    pub fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(octets);
        let error = |info, field, offset| DecodeError { info, object: None, field, offset };
        let [kind, flags, ..] =
            r.array::<HEADER_OCTETS>().map_err(|_| error(Info::MESSAGE_LENGTH, "header", 0))?;
        let kind = MessageType(kind);
        if kind.name().is_none() {
            return Err(error(Info::ILLEGAL_MESSAGE_TYPE, "Message type", 0));
        }
        let mut message = Self { forwarded: Forwarded::among(r.peek_rest()), ..Self::new(kind) };
        if matches!(kind, MessageType::CREATE | MessageType::EXTERNAL) {
            message.proxy = flags & 0x80 != 0;
            message.extend = message.proxy && flags & 0x40 != 0;
        }
        while let Some(object) = Object::next(&mut r)? {
            message.take(&object)?;
        }
        message.complete(octets.len())?;
        Ok(message)
    }

    fn take(&mut self, object: &Object<'a>) -> Result<(), DecodeError> {
        if object.is_hops() && object.treatment != Treatment::Mandatory {
            let hops = Hops::from_octets(object.value).filter(|_| self.hops.is_none());
            self.foreign |= hops.is_none();
            self.hops = hops.or(self.hops);
            return Ok(());
        }
        if object.is_publication() {
            if !matches!(self.kind, MessageType::EXTERNAL | MessageType::RESPONSE) {
                return Err(object.error(Info::ILLEGAL_OBJECT, "Object Type", 0));
            }
            let again = self.publication.replace(Publication::parse(object)?).is_some();
            return if again { Err(object.error(Info::DUPLICATE_OBJECT, "Object Type", 0)) } else { Ok(()) };
        }
        if object.kind.name().is_none() {
            self.neighbor |= object.is_neighbor();
            return match object.treatment {
                Treatment::Mandatory => Err(object.error(Info::UNKNOWN_OBJECT, "Object Type", 0)),
                Treatment::Optional | Treatment::Forward => Ok(()),
            };
        }
        if !allowed(self.kind, object.kind) {
            return Err(object.error(Info::ILLEGAL_OBJECT, "Object Type", 0));
        }
        let again = match object.kind {
            ObjectType::LT => self.lifetime.replace(object.word()?).is_some(),
            ObjectType::MSN => self.msn.replace(object.word()?).is_some(),
            ObjectType::NONCE => self.nonce.replace(object.word()?).is_some(),
            ObjectType::EFI => self.efi.replace(FlowInfo::parse(object)?).is_some(),
            ObjectType::INFO => self.info.replace(Information::parse(object)?).is_some(),
            ObjectType::DTINFO => self.terminal.replace(DataTerminal::parse(object)?).is_some(),
            ObjectType::ICMP_TYPES => self.icmp_types.replace(IcmpTypes::parse(object)?).is_some(),
            ObjectType::EXTERNAL_IP => self.external.replace(ExternalAddress::parse(object)?).is_some(),
            _ => self.bindings.replace(Bindings::parse(object)?).is_some(),
        };
        if again { Err(object.error(Info::DUPLICATE_OBJECT, "Object Type", 0)) } else { Ok(()) }
    }

    /// Checks that all mandatory objects are there (RFC 5973 §4.3.1–4.3.4).
    fn complete(&self, end: usize) -> Result<(), DecodeError> {
        let request = matches!(self.kind, MessageType::CREATE | MessageType::EXTERNAL);
        let external = self.kind == MessageType::EXTERNAL;
        let response = self.kind == MessageType::RESPONSE;
        let success = response && self.info.is_some_and(|info| info.info.class == InfoClass::SUCCESS);
        let mandatory = [
            (ObjectType::LT, "NATFW_LT", request || success, self.lifetime.is_some()),
            (ObjectType::EFI, "NATFW_EFI", request, self.efi.is_some()),
            (ObjectType::MSN, "NATFW_MSN", request || response, self.msn.is_some()),
            (ObjectType::DTINFO, "NATFW_DTINFO", external, self.terminal.is_some()),
            (ObjectType::NONCE, "NATFW_NONCE", request && self.proxy, self.nonce.is_some()),
            (ObjectType::INFO, "NATFW_INFO", !request, self.info.is_some()),
        ];
        let missing = mandatory.into_iter().find(|(_, _, wanted, present)| *wanted && !present);
        missing.map_or(Ok(()), |(object, field, ..)| {
            Err(DecodeError { info: Info::MISSING_OBJECT, object: Some(object), field, offset: end })
        })
    }

    /// Whether it is a CREATE or EXTERNAL that deletes its session (RFC 5973 §3.7.4).
    #[must_use]
    pub fn deletes(&self) -> bool {
        matches!(self.kind, MessageType::CREATE | MessageType::EXTERNAL) && self.lifetime == Some(0)
    }
}

/// NATFW_MSN of a message that does not parse, for its RESPONSE (RFC 5973 §3.5).
#[must_use]
pub fn sequence_number(octets: &[u8]) -> Option<u32> {
    let mut r = Reader::at(octets.get(HEADER_OCTETS..)?, HEADER_OCTETS);
    while let Ok(Some(object)) = Object::next(&mut r) {
        if object.kind == ObjectType::MSN {
            return object.word().ok();
        }
    }
    None
}

/// The objects that a message may have (RFC 5973 §4.3.1–4.3.4). `object` is a known one.
pub(super) const fn allowed(message: MessageType, object: ObjectType) -> bool {
    use ObjectType as O;
    match message {
        MessageType::CREATE => matches!(object, O::LT | O::EFI | O::MSN | O::NONCE | O::ICMP_TYPES),
        MessageType::EXTERNAL => matches!(
            object,
            O::LT | O::EFI | O::MSN | O::NONCE | O::ICMP_TYPES | O::DTINFO | O::EXTERNAL_BINDING
        ),
        MessageType::RESPONSE => {
            matches!(object, O::LT | O::MSN | O::INFO | O::EXTERNAL_IP | O::EXTERNAL_BINDING)
        }
        _ => matches!(object, O::INFO),
    }
}
