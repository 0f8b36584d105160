//! Messages of the QoS client: the header and the objects that each type has.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_wire::{Reader, Writer};

use super::code_points::{QosClass, QosErrorCode, QosFlags, QosType, QosVersion};
use super::values::{Bandwidth, Flowspec, Local, Partial, Refusal};
use crate::error::EncodeError;
use crate::wire::code_points::{Class, FlowForm};
use crate::wire::flow_id::FlowId;
use crate::wire::listed::Listed;
use crate::wire::object::{Object, Objects, write};

/// Octets of the header in front of the flow identifier.
const HEADER: usize = 8;

/// Why octets are no message of the QoS client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{code} ({detail})")]
pub struct QosFault {
    /// Number of the message, to which an Error can refer. `None`: it cannot be read, and nothing is answered.
    pub sequence: Option<u32>,
    /// The reason.
    pub code: QosErrorCode,
    /// Detail of the reason: an offset, a class, a version, or class and C-Type.
    pub detail: u16,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QosMessage<'a> {
    /// Flags.
    pub flags: QosFlags,
    /// Type.
    pub kind: QosType,
    /// The data flow. That of the messaging layer counts, if they differ.
    pub flow: FlowId,
    /// Number of this request.
    pub sequence: Option<u32>,
    /// Number of the request that this message answers.
    pub echo: Option<u32>,
    /// Stamp of the reservation, compared for equality only.
    pub age: Option<u64>,
    /// Kind of resource.
    pub version: Option<QosVersion>,
    /// Nodes that failed, and nodes that may.
    pub partial: Option<Partial>,
    /// The least flowspec that is accepted.
    pub minimum: Option<Flowspec>,
    /// The most that is wanted; of an answer what was granted.
    pub desired: Option<Flowspec>,
    /// Two rates.
    pub bandwidth: Option<Bandwidth>,
    /// Per-hop behaviour, as RFC 3140 writes it.
    pub phb: Option<u16>,
    /// The node that failed.
    pub error_node: Option<IpAddr>,
    /// Reason of an error, and its detail.
    pub error: Option<(QosErrorCode, u16)>,
    /// What the node that failed adds to an Error.
    pub refusal: Option<Refusal<'a>>,
    /// Priority: a higher one is more important.
    pub priority: Option<u32>,
    /// Start and end, NTP timestamps.
    pub time: Option<(u64, u64)>,
    /// The flow of the opposite direction; true: in addition to the flow of the header, false: instead of it.
    pub reverse_flow: Option<(FlowId, bool)>,
    /// The nodes that granted the request.
    pub listed: Option<Listed<'a>>,
    /// An object of the class of this list was left out, because its contents are not a list.
    pub foreign: bool,
    /// All objects of a received message; those to be sent in addition.
    pub objects: Objects<'a>,
}

/// A fault that was found, before the number of the message is known.
type Found = (QosErrorCode, u16);

const fn small(offset: usize) -> u16 {
    if offset > u16::MAX as usize {
        u16::MAX
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "it was compared")]
        let small = offset as u16;
        small
    }
}

impl<'a> QosMessage<'a> {
    /// A message without objects.
    #[must_use]
    pub const fn new(kind: QosType, flow: FlowId) -> Self {
        Self {
            flags: QosFlags::NONE,
            kind,
            flow,
            sequence: None,
            echo: None,
            age: None,
            version: None,
            partial: None,
            minimum: None,
            desired: None,
            bandwidth: None,
            phb: None,
            error_node: None,
            error: None,
            refusal: None,
            priority: None,
            time: None,
            reverse_flow: None,
            listed: None,
            foreign: false,
            objects: Objects::NONE,
        }
    }

    /// Parses the contents of CLIENT_DATA. Objects may have any order; unknown classes are skipped.
    ///
    /// # Errors
    /// [`QosFault`]: an Error answers it, if the number of the message could be read.
    pub fn parse(octets: &'a [u8]) -> Result<Self, QosFault> {
        let silent =
            |detail| QosFault { sequence: None, code: QosErrorCode::MALFORMED, detail: small(detail) };
        let mut r = Reader::new(octets);
        let length = r.u32().map_err(|_| silent(0))?;
        let [flags, kind, form, _] = r.array().map_err(|_| silent(4))?;
        let flow = FlowId::parse(&mut r, FlowForm(form)).ok().flatten().ok_or(silent(6))?;
        let mut message = Self::new(QosType(kind), flow);
        message.flags = QosFlags::from_octet(flags);
        message.objects = Objects::new(r.peek_rest(), r.offset());
        let whole = usize::try_from(length) == Ok(octets.len());
        let mut fault = (!whole).then_some((QosErrorCode::MALFORMED, 0));
        loop {
            match Object::next(&mut r) {
                Ok(None) => break,
                Ok(Some(object)) => {
                    let found = message.take(&object);
                    fault = fault.or(found.err());
                }
                Err(error) => {
                    fault = fault.or(Some((QosErrorCode::MALFORMED, small(error.offset()))));
                    break;
                }
            }
        }
        match fault.or_else(|| message.check().err()) {
            Some((code, detail)) => Err(QosFault { sequence: message.sequence, code, detail }),
            None => Ok(message),
        }
    }

    /// Takes an object over.
    fn take(&mut self, object: &Object<'a>) -> Result<(), Found> {
        fn one<T>(place: &mut Option<T>, value: Option<T>, offset: usize) -> Result<(), Found> {
            let malformed = (QosErrorCode::MALFORMED, small(offset));
            let value = value.ok_or(malformed)?;
            if place.replace(value).is_some() { Err(malformed) } else { Ok(()) }
        }
        fn fixed<const N: usize>(contents: &[u8]) -> Option<[u8; N]> {
            contents.try_into().ok()
        }
        let (class, at, contents) = (QosClass(object.class.0), object.offset, object.contents);
        let unknown = Err((QosErrorCode::C_TYPE, u16::from_be_bytes([class.0, object.c_type])));
        let word = || fixed(contents).map(u32::from_be_bytes);
        match (class, object.c_type) {
            (QosClass::ERROR_NODE, 1) => {
                one(&mut self.error_node, fixed(contents).map(|a: [u8; 4]| Ipv4Addr::from(a).into()), at)
            }
            (QosClass::ERROR_NODE, 2) => {
                one(&mut self.error_node, fixed(contents).map(|a: [u8; 16]| Ipv6Addr::from(a).into()), at)
            }
            (QosClass::VERSION, 1) => one(&mut self.version, word().map(QosVersion), at),
            (QosClass::MINIMUM_FLOWSPEC, 1) => one(&mut self.minimum, Flowspec::parse(contents), at),
            (QosClass::DESIRED_FLOWSPEC, 1) => one(&mut self.desired, Flowspec::parse(contents), at),
            (QosClass::PARTIAL_RESERVATION, 1) => one(&mut self.partial, Partial::parse(contents), at),
            (QosClass::BANDWIDTH, 1) => one(&mut self.bandwidth, Bandwidth::parse(contents), at),
            (QosClass::PHB, 1) => {
                let phb = fixed(contents).map(|[a, b, _, _]: [u8; 4]| u16::from_be_bytes([a, b]));
                one(&mut self.phb, phb, at)
            }
            (QosClass::SEQUENCE, 1) => one(&mut self.sequence, word(), at),
            (QosClass::SEQUENCE, 2) => one(&mut self.echo, word(), at),
            (QosClass::AGE, 1) => one(&mut self.age, fixed(contents).map(u64::from_be_bytes), at),
            (QosClass::ERROR_CODE, 1) => {
                let halves = fixed(contents).map(|[a, b, c, d]: [u8; 4]| {
                    (QosErrorCode(u16::from_be_bytes([a, b])), u16::from_be_bytes([c, d]))
                });
                one(&mut self.error, halves, at)
            }
            (QosClass::REFUSAL, 1) => one(&mut self.refusal, Refusal::parse(contents), at),
            (QosClass::PRIORITY, 1) => one(&mut self.priority, word(), at),
            (QosClass::TIME, 1) => {
                let mut r = object.reader();
                let times = r.u64().ok().zip(r.u64().ok()).filter(|_| r.is_empty());
                one(&mut self.time, times, at)
            }
            (QosClass::REVERSE_FLOW, c_type @ (1 | 2)) => {
                let mut r = object.reader();
                let form = r.array::<4>().ok().map(|[form, ..]| FlowForm(form));
                let flow = form.and_then(|form| FlowId::parse(&mut r, form).ok().flatten());
                let flow = flow.filter(|_| r.is_empty()).map(|flow| (flow, c_type == 1));
                one(&mut self.reverse_flow, flow, at)
            }
            (QosClass::LOCAL, 1) => {
                Local::parse(contents).map(|_| ()).ok_or((QosErrorCode::MALFORMED, small(at)))
            }
            // Nothing depends on it: what is no list goes, and the message stays.
            (QosClass::HOPS, c_type) => {
                let list = (c_type == 1 && self.listed.is_none()).then(|| Listed::parse(contents)).flatten();
                self.foreign |= list.is_none();
                self.listed = self.listed.or(list);
                Ok(())
            }
            (QosClass::CMS, 1) => Ok(()),
            // Not defined, and ignored.
            (QosClass::L2_PROPERTIES | QosClass::NEXT, _) => Ok(()),
            (class, _) if class.name().is_some() => unknown,
            _ => Ok(()),
        }
    }

    /// Checks what the type of the message requires.
    fn check(&self) -> Result<(), Found> {
        let need = |is_there: bool, class: QosClass| {
            if is_there { Ok(()) } else { Err((QosErrorCode::MISSING, class.0.into())) }
        };
        if self.kind.name().is_none() {
            return Err((QosErrorCode::TYPE, self.kind.0.into()));
        }
        if self.kind.is_request() {
            need(self.sequence.is_some(), QosClass::SEQUENCE)?;
        } else {
            need(self.echo.is_some(), QosClass::SEQUENCE)?;
        }
        if self.kind == QosType::RELEASE {
            return Ok(());
        }
        let version = self.version.ok_or((QosErrorCode::MISSING, QosClass::VERSION.0.into()))?;
        match self.kind {
            QosType::SUCCESS => return Ok(()),
            QosType::ERROR => {
                need(self.partial.is_some(), QosClass::PARTIAL_RESERVATION)?;
                return need(self.error_node.is_some(), QosClass::ERROR_NODE);
            }
            _ => {}
        }
        if self.flags.contains(QosFlags::REMOVE) {
            return Err((QosErrorCode::MALFORMED, 4));
        }
        if self.kind != QosType::QUERY {
            need(self.age.is_some(), QosClass::AGE)?;
        }
        let flowspec = self.minimum.is_some() || self.desired.is_some();
        let (is_there, class) = match version {
            QosVersion::FLOWSPEC => (flowspec, QosClass::MINIMUM_FLOWSPEC),
            QosVersion::BANDWIDTH => (self.bandwidth.is_some(), QosClass::BANDWIDTH),
            QosVersion::PHB => (self.phb.is_some(), QosClass::PHB),
            other => {
                return Err((QosErrorCode::VERSION, small(usize::try_from(other.0).unwrap_or(usize::MAX))));
            }
        };
        if !is_there && (flowspec || self.bandwidth.is_some() || self.phb.is_some()) {
            return Err((QosErrorCode::MALFORMED, small(HEADER)));
        }
        need(is_there, class)
    }

    /// The objects that are sent on as they came: LOCAL, CMS, and classes that this node does not know or use.
    pub fn kept(&self) -> impl Iterator<Item = Object<'a>> + use<'a> {
        let kept = |object: &Object<'_>| {
            let class = QosClass(object.class.0);
            class.name().is_none()
                || class == QosClass::LOCAL
                || class == QosClass::CMS
                || class == QosClass::L2_PROPERTIES
        };
        self.objects.iter().filter(kept)
    }

    /// Data for segments of the path.
    pub fn local(&self) -> impl Iterator<Item = Local<'a>> + use<'a> {
        let local = |object: &Object<'a>| {
            (QosClass(object.class.0) == QosClass::LOCAL).then(|| Local::parse(object.contents)).flatten()
        };
        self.objects.iter().filter_map(move |object| local(&object))
    }

    /// Appends the message, its objects in the order of the grammar and behind them the [`kept`](Self::kept) ones. A Release
    /// has no VERSION.
    ///
    /// # Errors
    /// An object is too long. Nothing is appended then.
    pub fn encode(&self, octets: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = octets.len();
        let result = self.write(&mut Writer::new(octets));
        let length = u32::try_from(octets.len() - start).unwrap_or(u32::MAX);
        match result {
            Ok(()) => {
                if let Some(place) = octets.get_mut(start..start + 4) {
                    place.copy_from_slice(&length.to_be_bytes());
                }
            }
            Err(_) => octets.truncate(start),
        }
        result
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        w.u32(0);
        w.bytes(&[self.flags.octet(), self.kind.0, self.flow.form().0, 0]);
        self.flow.encode(w);
        let w = &mut *w;
        let object = |w: &mut Writer<'_>, class: QosClass, c_type, contents: &dyn Fn(&mut Writer<'_>)| {
            write(w, Class(class.0), c_type, |w| contents(w))
        };
        if let Some(number) = self.sequence {
            object(w, QosClass::SEQUENCE, 1, &|w| w.u32(number))?;
        }
        if let Some(number) = self.echo {
            object(w, QosClass::SEQUENCE, 2, &|w| w.u32(number))?;
        }
        if let Some(age) = self.age {
            object(w, QosClass::AGE, 1, &|w| w.u64(age))?;
        }
        if let Some(version) = self.version.filter(|_| self.kind != QosType::RELEASE) {
            object(w, QosClass::VERSION, 1, &|w| w.u32(version.0))?;
        }
        if let Some(partial) = &self.partial {
            object(w, QosClass::PARTIAL_RESERVATION, 1, &|w| partial.encode(w))?;
        }
        if let Some(flowspec) = &self.minimum {
            object(w, QosClass::MINIMUM_FLOWSPEC, 1, &|w| flowspec.encode(w))?;
        }
        if let Some(flowspec) = &self.desired {
            object(w, QosClass::DESIRED_FLOWSPEC, 1, &|w| flowspec.encode(w))?;
        }
        if let Some(bandwidth) = &self.bandwidth {
            object(w, QosClass::BANDWIDTH, 1, &|w| bandwidth.encode(w))?;
        }
        if let Some(phb) = self.phb {
            object(w, QosClass::PHB, 1, &|w| w.u32(u32::from(phb) << 16))?;
        }
        match self.error_node {
            Some(IpAddr::V4(v4)) => object(w, QosClass::ERROR_NODE, 1, &|w| w.bytes(&v4.octets()))?,
            Some(IpAddr::V6(v6)) => object(w, QosClass::ERROR_NODE, 2, &|w| w.bytes(&v6.octets()))?,
            None => {}
        }
        if let Some((code, detail)) = self.error {
            object(w, QosClass::ERROR_CODE, 1, &|w| {
                w.u16(code.0);
                w.u16(detail);
            })?;
        }
        if let Some(refusal) = &self.refusal {
            object(w, QosClass::REFUSAL, 1, &|w| refusal.encode(w))?;
        }
        if let Some((flow, also)) = &self.reverse_flow {
            object(w, QosClass::REVERSE_FLOW, if *also { 1 } else { 2 }, &|w| {
                w.bytes(&[flow.form().0, 0, 0, 0]);
                flow.encode(w);
            })?;
        }
        if let Some(priority) = self.priority {
            object(w, QosClass::PRIORITY, 1, &|w| w.u32(priority))?;
        }
        if let Some((start, end)) = self.time {
            object(w, QosClass::TIME, 1, &|w| {
                w.u64(start);
                w.u64(end);
            })?;
        }
        if let Some(listed) = &self.listed {
            object(w, QosClass::HOPS, 1, &|w| listed.encode(w))?;
        }
        self.kept().try_for_each(|object| object.encode(w))
    }
}
