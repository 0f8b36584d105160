//! Messages: the Common Header and the objects that each type has (sections 4.2 to 4.6 of the draft).

use signalbox_core::SessionId;
use signalbox_wire::{Reader, Writer};

use super::code_points::{Class, ClientType, ErrorCode, Flags, FlowForm, MessageType, ONLY};
use super::flow_id::FlowId;
use super::object::{Object, Objects, write};
use super::route::Routing;
use crate::error::{DecodeError, EncodeError};

/// Octets of the Common Header.
pub const HEADER: usize = 20;
/// The TTD of a new message.
pub const FIRST_TTD: u8 = 64;

/// A cookie of scout: 64 bits.
pub type Cookie = [u8; 8];

/// The Common Header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Flags.
    pub flags: Flags,
    /// Time to deliver: how many further nodes may take the message.
    pub ttd: u8,
    /// Number of nodes that the message has passed.
    pub hops: u8,
    /// Type.
    pub kind: MessageType,
    /// Session identifier.
    pub session: SessionId,
}

impl Header {
    fn parse(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let short = |short| DecodeError::Short { field: "Common Header", short };
        let [flags, ttd, hops, kind] = r.array().map_err(short)?;
        let session = SessionId(r.array().map_err(short)?);
        Ok(Self { flags: Flags::from_octet(flags), ttd, hops, kind: MessageType(kind), session })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&[self.flags.octet(), self.ttd, self.hops, self.kind.0]);
        w.bytes(&self.session.0);
    }
}

/// A SCOUT_COOKIE_R of a signaling message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The cookie.
    Cookie(Cookie),
    /// An object of another C-Type. It is no cookie of this node.
    Unknown,
}

/// What a signaling message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// State only: it is set up, refreshed or removed.
    Empty,
    /// A message of a client.
    Client {
        /// The client.
        client: ClientType,
        /// Its octets.
        data: &'a [u8],
    },
    /// An error. One of unknown C-Type is [`ErrorCode::UNKNOWN`].
    Error(ErrorCode),
}

/// A signaling message, received or to be sent, without Length Header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signaling<'a> {
    /// Flags.
    pub flags: Flags,
    /// Time to deliver.
    pub ttd: u8,
    /// Number of nodes that the message has passed.
    pub hops: u8,
    /// Session identifier.
    pub session: SessionId,
    /// The data flow.
    pub flow: FlowId,
    /// Lifetime of the state without refresh, seconds.
    pub timeout: Option<u32>,
    /// Cookie of the node that receives the message.
    pub proof: Option<Proof>,
    /// What the message is about.
    pub body: Body<'a>,
    /// RECORD_ROUTE or ROUTE, the first one of the message: it is delivered without state.
    pub route: Option<Routing<'a>>,
    /// All objects of a received message; those to be sent in addition.
    pub objects: Objects<'a>,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// A signaling message.
    Signaling(Signaling<'a>),
    /// A Scout Request with SCOUT_COOKIE_I.
    ScoutRequest(Cookie),
    /// A Scout Response.
    ScoutResponse {
        /// SCOUT_COOKIE_I of the request.
        initiator: Cookie,
        /// SCOUT_COOKIE_R of the node that answers.
        responder: Cookie,
    },
}

/// The objects of known classes, as they are found.
#[derive(Default)]
struct Found<'a> {
    flow: Option<Object<'a>>,
    timeout: Option<Object<'a>>,
    data: Option<Object<'a>>,
    error: Option<Object<'a>>,
    initiator: Option<Object<'a>>,
    responder: Option<Object<'a>>,
    route: Option<Object<'a>>,
    /// There are others.
    others: bool,
}

impl<'a> Found<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut found = Self::default();
        while let Some(object) = Object::next(r)? {
            let place = match object.class {
                Class::FLOW_ID => &mut found.flow,
                Class::CASP_TIMEOUT => &mut found.timeout,
                Class::CLIENT_DATA => &mut found.data,
                Class::ERROR => &mut found.error,
                Class::SCOUT_COOKIE_I => &mut found.initiator,
                Class::SCOUT_COOKIE_R => &mut found.responder,
                _ => {
                    if found.route.is_none() && routing(&object).is_some() {
                        found.route = Some(object);
                    } else {
                        found.others = true;
                    }
                    continue;
                }
            };
            if place.replace(object).is_some() {
                return Err(DecodeError::Duplicate { class: object.class, offset: object.offset });
            }
        }
        Ok(found)
    }
}

/// RECORD_ROUTE or ROUTE of the known C-Type.
fn routing<'a>(object: &Object<'a>) -> Option<Routing<'a>> {
    match (object.class, object.c_type) {
        (Class::RECORD_ROUTE, ONLY) => Some(Routing::Record(object.contents)),
        (Class::ROUTE, ONLY) => Some(Routing::Route(object.contents)),
        _ => None,
    }
}

/// The contents of an object of fixed size; `None`: its C-Type is unknown.
fn fixed<const N: usize>(object: &Object<'_>) -> Result<Option<[u8; N]>, DecodeError> {
    if object.c_type != ONLY {
        return Ok(None);
    }
    match object.contents.try_into() {
        Ok(contents) => Ok(Some(contents)),
        Err(_) => Err(DecodeError::Size {
            class: object.class,
            offset: object.offset,
            octets: object.contents.len(),
            wanted: N,
        }),
    }
}

/// A cookie that a scout message must have.
fn cookie(object: Option<Object<'_>>, class: Class) -> Result<Cookie, DecodeError> {
    let object = object.ok_or(DecodeError::Missing(class))?;
    fixed(&object)?.ok_or(DecodeError::Missing(class))
}

impl<'a> Message<'a> {
    /// Parses a message from its Common Header on. Objects may have any order; unknown classes are skipped.
    ///
    /// # Errors
    /// [`DecodeError`]: the message is discarded.
    pub fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(octets);
        let header = Header::parse(&mut r)?;
        let objects = Objects::new(r.peek_rest(), r.offset());
        match header.kind {
            MessageType::SIGNALING => Signaling::of(header, objects, &mut r).map(Self::Signaling),
            MessageType::SCOUT_REQUEST => {
                let found = Found::read(&mut r)?;
                cookie(found.initiator, Class::SCOUT_COOKIE_I).map(Self::ScoutRequest)
            }
            MessageType::SCOUT_RESPONSE => {
                let found = Found::read(&mut r)?;
                Ok(Self::ScoutResponse {
                    initiator: cookie(found.initiator, Class::SCOUT_COOKIE_I)?,
                    responder: cookie(found.responder, Class::SCOUT_COOKIE_R)?,
                })
            }
            other => Err(DecodeError::Type(other)),
        }
    }

    /// Appends the message without Length Header.
    ///
    /// # Errors
    /// What the draft does not allow to be sent. Nothing is appended then.
    pub fn encode(&self, octets: &mut Vec<u8>) -> Result<(), EncodeError> {
        let unused = |kind| Header { flags: Flags::NONE, ttd: 0, hops: 0, kind, session: SessionId([0; 16]) };
        match self {
            Self::Signaling(message) => message.encode(octets),
            Self::ScoutRequest(initiator) => {
                let mut w = Writer::new(octets);
                unused(MessageType::SCOUT_REQUEST).encode(&mut w);
                write(&mut w, Class::SCOUT_COOKIE_I, ONLY, |w| w.bytes(initiator))
            }
            Self::ScoutResponse { initiator, responder } => {
                let mut w = Writer::new(octets);
                unused(MessageType::SCOUT_RESPONSE).encode(&mut w);
                write(&mut w, Class::SCOUT_COOKIE_I, ONLY, |w| w.bytes(initiator))?;
                write(&mut w, Class::SCOUT_COOKIE_R, ONLY, |w| w.bytes(responder))
            }
        }
    }
}

impl<'a> Signaling<'a> {
    /// A new message that only concerns state.
    #[must_use]
    pub const fn new(session: SessionId, flow: FlowId) -> Self {
        Self {
            flags: Flags::NONE,
            ttd: FIRST_TTD,
            hops: 0,
            session,
            flow,
            timeout: None,
            proof: None,
            body: Body::Empty,
            route: None,
            objects: Objects::NONE,
        }
    }

    fn of(header: Header, objects: Objects<'a>, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let Header { flags, ttd, hops, session, .. } = header;
        if flags.contains(Flags::REVERSE.with(Flags::DISCOVER)) {
            return Err(DecodeError::ReverseDiscovery);
        }
        let found = Found::read(r)?;
        let flow = found.flow.ok_or(DecodeError::Missing(Class::FLOW_ID))?;
        let timeout = found.timeout.map(|object| fixed(&object)).transpose()?.flatten();
        let unused = found.others || found.timeout.is_some() != timeout.is_some();
        let proof = match found.responder {
            None => None,
            Some(object) => Some(fixed(&object)?.map_or(Proof::Unknown, Proof::Cookie)),
        };
        let body = match (found.data, found.error) {
            (Some(_), Some(_)) => return Err(DecodeError::DataAndError),
            (Some(data), None) => Body::Client { client: ClientType(data.c_type), data: data.contents },
            (None, Some(error)) => Body::Error(
                fixed(&error)?.map_or(ErrorCode::UNKNOWN, |code| ErrorCode(u32::from_be_bytes(code))),
            ),
            (None, None) => Body::Empty,
        };
        Ok(Self {
            flags,
            ttd,
            hops,
            session,
            flow: flow_of(&flow)?,
            timeout: timeout.map(u32::from_be_bytes),
            proof,
            body,
            route: found.route.and_then(|object| routing(&object)),
            objects: objects.with_unused(unused),
        })
    }

    /// The objects that this node does not use and sends on behind those that it uses: unknown classes, and a
    /// CASP_TIMEOUT of unknown C-Type.
    pub fn kept(&self) -> impl Iterator<Item = Object<'a>> + use<'a> {
        let mut has_route = self.route.is_some();
        let kept = move |object: &Object<'_>| {
            if has_route && routing(object).is_some() {
                has_route = false;
                return false;
            }
            !object.class.is_known() || (object.class == Class::CASP_TIMEOUT && object.c_type != ONLY)
        };
        // Nothing is looked for in a message that has none, like nearly all: that would be a twentieth of its cost.
        let objects = if self.objects.unused { self.objects } else { Objects::NONE };
        objects.iter().filter(kept)
    }

    /// Whether the message has a RECORD_ROUTE or ROUTE beside [`route`](Self::route).
    #[must_use]
    pub fn has_second_route(&self) -> bool {
        self.route.is_some() && self.kept().any(|object| routing(&object).is_some())
    }

    /// Appends the message without Length Header, its objects in the order of the grammar, and behind them the
    /// [`kept`](Self::kept) ones. A cookie of unknown C-Type is left out.
    ///
    /// # Errors
    /// What the draft does not allow to be sent. Nothing is appended then.
    pub fn encode(&self, octets: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.flags.contains(Flags::REVERSE.with(Flags::DISCOVER)) {
            return Err(EncodeError::ReverseDiscovery);
        }
        self.flow.checked()?;
        let start = octets.len();
        let result = self.objects_to(&mut Writer::new(octets));
        if result.is_err() {
            octets.truncate(start);
        }
        result
    }

    fn objects_to(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let Self { flags, ttd, hops, session, .. } = *self;
        Header { flags, ttd, hops, kind: MessageType::SIGNALING, session }.encode(w);
        write(w, Class::FLOW_ID, self.flow.form().0, |w| self.flow.encode(w))?;
        if let Some(timeout) = self.timeout {
            write(w, Class::CASP_TIMEOUT, ONLY, |w| w.u32(timeout))?;
        }
        if let Some(Proof::Cookie(cookie)) = self.proof {
            write(w, Class::SCOUT_COOKIE_R, ONLY, |w| w.bytes(&cookie))?;
        }
        match self.body {
            Body::Empty => {}
            Body::Client { client, data } => write(w, Class::CLIENT_DATA, client.0, |w| w.bytes(data))?,
            Body::Error(code) => write(w, Class::ERROR, ONLY, |w| w.u32(code.0))?,
        }
        if let Some(route) = self.route {
            write(w, route.class(), ONLY, |w| w.bytes(route.contents()))?;
        }
        self.kept().try_for_each(|object| object.encode(w))
    }
}

fn flow_of(object: &Object<'_>) -> Result<FlowId, DecodeError> {
    let form = FlowForm(object.c_type);
    let unknown = DecodeError::FlowForm { c_type: object.c_type, offset: object.offset };
    let wanted = FlowId::octets_of(form).ok_or(unknown)?;
    if object.contents.len() != wanted {
        let (class, offset, octets) = (object.class, object.offset, object.contents.len());
        return Err(DecodeError::Size { class, offset, octets, wanted });
    }
    let parsed = FlowId::parse(&mut object.reader(), form);
    parsed.map_err(|short| DecodeError::Short { field: "FLOW_ID", short })?.ok_or(unknown)
}
