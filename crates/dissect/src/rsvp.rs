//! RSVP messages. Each object is a list of fields, printed as text or as JSON.

use core::fmt::Write as _;
use core::net::IpAddr;

use serde_json::{Map, Value, json};
use signalbox_rsvp::wire::{
    AdmissionValue, Adspec, Class, DecodeError, DiagErrors, DiagResponse, Diagnostic, ErrorCode, ErrorFlags,
    ErrorSpec, Fault, Filter, HeaderFlags, Message, MessageType, Object, ObjectType, Objects, Overrides,
    PolicyData, PolicyValue, RawObject, Selector, Session, SessionKind, SpecFault, TrafficControlValue,
};
use signalbox_wire::hex;

/// IP protocol of RSVP.
pub(crate) const IP_PROTOCOL: u8 = 46;

type Fields = Vec<(&'static str, Value)>;

/// A message to be printed: one that a node takes or refuses, or one that it drops for an unknown object, as those of RSVP-TE
/// (RFC 3209) are.
pub(crate) struct Decoded<'a> {
    message: Result<Message<'a>, Dropped<'a>>,
}

/// The header of a message whose objects a node does not take.
struct Dropped<'a> {
    kind: MessageType,
    flags: HeaderFlags,
    send_ttl: u8,
    octets: &'a [u8],
    why: DecodeError,
}

impl<'a> Decoded<'a> {
    /// Reads a message that fills `octets`.
    ///
    /// # Errors
    /// Why its objects cannot be found.
    pub(crate) fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let why = match Message::parse(octets) {
            Ok(message) => return Ok(Self { message: Ok(message) }),
            Err(error) => error,
        };
        let unknown = matches!(why.fault, Fault::UnknownClass | Fault::UnknownCType);
        let framed = Objects::of(octets).all(|object| object.is_ok());
        let Some(&[version_flags, kind, _, _, send_ttl, ..]) = octets.first_chunk::<8>() else {
            return Err(why);
        };
        if !unknown || !framed {
            return Err(why);
        }
        let flags = HeaderFlags(version_flags & 0x0f);
        Ok(Self { message: Err(Dropped { kind: MessageType(kind), flags, send_ttl, octets, why }) })
    }

    const fn head(&self) -> (MessageType, HeaderFlags, u8, &'a [u8]) {
        match &self.message {
            Ok(message) => (message.kind, message.flags, message.send_ttl, message.octets),
            Err(dropped) => (dropped.kind, dropped.flags, dropped.send_ttl, dropped.octets),
        }
    }

    fn objects(&self) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
        Objects::of(self.head().3).map_while(Result::ok)
    }

    fn sub_messages(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.message.as_ref().ok().map(Message::sub_messages).into_iter().flatten()
    }
}

/// Encodes a decoded message again, in hexadecimal. Of a message that a node drops, nothing is decoded, and its octets are copied.
pub(crate) fn reencode(message: &Decoded<'_>) -> Result<String, String> {
    let message = match &message.message {
        Ok(message) => message,
        Err(dropped) => return Ok(hex(dropped.octets)),
    };
    let mut octets = Vec::new();
    message.compose(&mut octets).map_err(|error| format!("cannot be encoded again: {error}"))?;
    Ok(hex(&octets))
}

/// Returns an RSVP message (RFC 2205 §3.1) as a JSON object.
pub(crate) fn json(message: &Decoded<'_>) -> Value {
    let objects: Vec<Value> = message
        .objects()
        .map(|object| {
            let mut all = Map::new();
            all.insert("object".into(), name(&object).into());
            all.insert("class".into(), object.kind.class.0.into());
            all.insert("c_type".into(), object.kind.c_type.into());
            all.extend(fields(&object).into_iter().map(|(name, value)| (name.to_owned(), value)));
            Value::Object(all)
        })
        .collect();
    let inside: Vec<Value> = message
        .sub_messages()
        .map(|octets| match Decoded::parse(octets) {
            Ok(message) => json(&message),
            Err(error) => json!({ "error": error.to_string(), "octets": hex(octets) }),
        })
        .collect();
    let (kind, flags, send_ttl, octets) = message.head();
    let refusal = message.message.as_ref().ok().and_then(|message| message.refusal);
    let mut value = json!({
        "type": kind.0,
        "type_name": kind.name(),
        "flags": flags.0,
        "send_ttl": send_ttl,
        "octets": octets.len(),
        "refused": refusal.map(|refusal| json!({
            "code": refusal.code.0,
            "name": refusal.code.name(),
            "value": refusal.value,
        })),
    });
    if octets.get(2..4) == Some(&[0, 0]) {
        value["checksum"] = "none".into();
    }
    if let Err(dropped) = &message.message {
        value["dropped"] = dropped.why.to_string().into();
    }
    if inside.is_empty() {
        value["objects"] = objects.into();
    } else {
        value["messages"] = inside.into();
    }
    value
}

/// Returns an RSVP message as text: a line for the header, then one indented line for each object. The messages of a
/// Bundle are indented further. There is no line break at the end.
pub(crate) fn describe(message: &Decoded<'_>) -> String {
    let mut text = String::new();
    write(&mut text, message, 0);
    text.truncate(text.trim_end().len());
    text
}

fn write(text: &mut String, message: &Decoded<'_>, depth: usize) {
    let (kind, flags, ttl, octets) = message.head();
    let unsummed = if octets.get(2..4) == Some(&[0, 0]) { ", no checksum" } else { "" };
    let octets = octets.len();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "RSVP {kind}, TTL {ttl}, flags {:#x}, {octets} octets{unsummed}", flags.0);
    if let Err(dropped) = &message.message {
        let _ = writeln!(text, "{:1$}would be dropped: {2}", "", depth + 2, dropped.why);
    }
    if let Some(refusal) = message.message.as_ref().ok().and_then(|message| message.refusal) {
        let _ = writeln!(
            text,
            "{:1$}would be refused: {2} ({3:#06x})",
            "",
            depth + 2,
            refusal.code,
            refusal.value
        );
    }
    for octets in message.sub_messages() {
        let _ = write!(text, "{:1$}", "", depth + 2);
        match Decoded::parse(octets) {
            Ok(message) => write(text, &message, depth + 2),
            Err(error) => {
                let _ = writeln!(text, "not understood: {error}: {}", hex(octets));
            }
        }
    }
    if message.sub_messages().next().is_some() {
        return;
    }
    for object in message.objects() {
        let _ = write!(text, "{:1$}{2}", "", depth + 2, name(&object));
        let mut separator = ": ";
        for (name, value) in fields(&object) {
            let _ = write!(text, "{separator}{} {}", name.replace('_', " "), plain(&value));
            separator = ", ";
        }
        text.push('\n');
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields: Vec<_> = fields.map(|(name, value)| format!("{name} {}", plain(value))).collect();
            format!("({})", fields.join(", "))
        }
        Value::Null => "unknown".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the name of a C-Type.
fn name(object: &RawObject<'_>) -> String {
    let ObjectType { class, c_type } = object.kind;
    match (class, c_type) {
        (Class::MESSAGE_ID_ACK, 2) => "MESSAGE_ID_NACK".to_owned(),
        (Class::MESSAGE_ID_LIST, 2 | 3) => "MESSAGE_ID SRC_LIST".to_owned(),
        (Class::MESSAGE_ID_LIST, 4 | 5) => "MESSAGE_ID MCAST_LIST".to_owned(),
        (Class::HELLO, 1) => "HELLO REQUEST".to_owned(),
        (Class::HELLO, 2) => "HELLO ACK".to_owned(),
        _ => class.name().map_or_else(|| format!("class {}", class.0), str::to_owned),
    }
}

/// Returns the shortest digits that parse to the same float; JSON has no infinity.
fn real(value: f32) -> Value {
    if value.is_infinite() {
        "infinite".into()
    } else {
        value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
    }
}

fn fields(object: &RawObject<'_>) -> Fields {
    let value = match object.read() {
        Ok(value) => value,
        Err(error) => {
            return vec![("error", error.to_string().into()), ("octets", hex(object.content()).into())];
        }
    };
    match value {
        Object::Session(session, e_police) => of_session(&session, e_police),
        Object::Hop(hop) => vec![("address", hop.addr.to_string().into()), ("lih", hop.lih.into())],
        Object::Integrity(integrity) => vec![
            ("key", integrity.key_id.into()),
            ("sequence", format!("{:016x}", integrity.sequence).into()),
            ("handshake", integrity.handshake.into()),
            ("digest", hex(integrity.digest).into()),
        ],
        Object::TimeValues(period) => vec![("refresh_ms", period.into())],
        Object::Error(error) => of_error(&error),
        Object::Scope(scope) => {
            vec![("senders", scope.senders().map(|addr| addr.to_string()).collect::<Vec<_>>().into())]
        }
        Object::Style(vector, style) => {
            vec![("style", style.map_or_else(|| format!("{vector:#08x}"), |style| style.to_string()).into())]
        }
        Object::FlowSpec(raw) => match raw.read() {
            Ok(flowspec) => {
                let t = flowspec.tspec;
                let mut fields = vec![("service", flowspec.service().to_string().into())];
                fields.extend(traffic([t.rate(), t.bucket(), t.peak()], [t.min_policed(), t.max_packet()]));
                if let Some(rspec) = flowspec.rspec {
                    fields.push(("R", real(rspec.rate())));
                    fields.push(("S_us", rspec.slack().into()));
                }
                fields
            }
            Err(fault) => bad(&fault, object),
        },
        Object::Tspec(raw) => match raw.read() {
            Ok(t) => traffic([t.rate(), t.bucket(), t.peak()], [t.min_policed(), t.max_packet()]),
            Err(fault) => bad(&fault, object),
        },
        Object::Adspec(raw) => match raw.read() {
            Ok(adspec) => of_adspec(&adspec),
            Err(fault) => bad(&fault, object),
        },
        Object::Filter(filter) => of_filter(&filter),
        Object::Policy(policy) => of_policy(&policy),
        Object::Confirm(receiver) => vec![("receiver", receiver.to_string().into())],
        Object::Hello(hello) => {
            vec![("src_instance", hello.src_instance.into()), ("dst_instance", hello.dst_instance.into())]
        }
        Object::MessageId(id) => {
            let mut fields = vec![("id", id.id.into()), ("epoch", id.epoch.into())];
            if object.kind.class == Class::MESSAGE_ID {
                fields.push(("ack_desired", id.ack_desired.into()));
            }
            fields
        }
        Object::IdList(list) => {
            let ids: Vec<Value> = list
                .ids()
                .map(|listed| {
                    let addresses = [listed.source, listed.group].into_iter().flatten();
                    let addresses =
                        addresses.fold(listed.id.to_string(), |text, addr| format!("{text}/{addr}"));
                    if listed.source.is_some() { addresses.into() } else { listed.id.into() }
                })
                .collect();
            vec![("epoch", list.epoch.into()), ("ids", ids.into())]
        }
        Object::Challenge(challenge) => {
            vec![("key", challenge.key_id.into()), ("cookie", format!("{:016x}", challenge.cookie).into())]
        }
        Object::Diagnostic(asked) => of_diagnostic(&asked),
        Object::DiagSelect(select) => {
            let kinds = select.kinds().map(|kind| match (kind.class.name(), kind.c_type) {
                (Some(name), 0) => name.to_owned(),
                _ => kind.to_string(),
            });
            vec![("objects", kinds.collect::<Vec<_>>().into())]
        }
        Object::Route(route) => {
            let nodes: Vec<String> = route.nodes().map(|node| node.to_string()).collect();
            vec![("pointer", route.pointer.into()), ("nodes", nodes.into())]
        }
        Object::DiagResponse(found) => of_response(&found),
        Object::Other => vec![("octets", hex(object.content()).into())],
    }
}

fn of_diagnostic(asked: &Diagnostic) -> Fields {
    vec![
        ("max_hops", asked.max_hops.into()),
        ("hops", asked.hops.into()),
        ("more_fragments", asked.more.into()),
        ("request", format!("{:08x}", asked.request_id).into()),
        ("path_mtu", asked.path_mtu.into()),
        ("offset", asked.offset.into()),
        ("last_hop", asked.last_hop.to_string().into()),
        ("sender", group(of_filter(&asked.sender))),
        ("requester", asked.requester.to_string().into()),
    ]
}

/// Returns the DIAG_RESPONSE object of one node (RFC 2745 §3.6), as in the JSON of a DREP.
#[must_use]
pub fn rsvp_response(found: &DiagResponse<'_>) -> Value {
    group(of_response(found))
}

fn of_response(found: &DiagResponse<'_>) -> Fields {
    let known = |address: IpAddr| match address {
        address if address.is_unspecified() => Value::Null,
        address => address.to_string().into(),
    };
    let errors: Vec<&str> = [
        (DiagErrors::NO_PATH, "no path state"),
        (DiagErrors::TOO_BIG, "packet too big"),
        (DiagErrors::ROUTE_TOO_BIG, "ROUTE too big"),
    ]
    .into_iter()
    .filter(|(error, _)| found.errors.contains(*error))
    .map(|(_, name)| name)
    .collect();
    let mut all = vec![
        ("arrival_ntp", format!("{:04x}.{:04x}", found.arrival >> 16, found.arrival & 0xffff).into()),
        ("incoming", known(found.incoming)),
        ("outgoing", known(found.outgoing)),
        ("previous_hop", known(found.previous)),
        ("ip_hops", found.d_ttl.into()),
        ("merged", found.merged.into()),
        ("errors", errors.into()),
        ("k", found.cleanup.into()),
        ("refresh_s", found.refresh.into()),
    ];
    let inside: Vec<Value> = found
        .objects()
        .map(|object| {
            let mut inside = vec![("object", Value::from(name(&object)))];
            inside.extend(fields(&object));
            group(inside)
        })
        .collect();
    all.push(("objects", inside.into()));
    all
}

fn group(fields: Fields) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn bad(fault: &SpecFault, object: &RawObject<'_>) -> Fields {
    vec![("error", fault.to_string().into()), ("octets", hex(object.content()).into())]
}

fn traffic([r, b, p]: [f32; 3], [m, max]: [u32; 2]) -> Fields {
    vec![("r", real(r)), ("b", real(b)), ("p", real(p)), ("m", m.into()), ("M", max.into())]
}

fn of_session(session: &Session, e_police: bool) -> Fields {
    let port = match session.kind {
        SessionKind::Ports => "port",
        SessionKind::Gpi => "virtual_port",
    };
    let mut fields = vec![
        ("destination", session.dest.to_string().into()),
        ("protocol", session.protocol.into()),
        (port, session.port.into()),
    ];
    if e_police {
        fields.push(("e_police", true.into()));
    }
    fields
}

fn of_filter(filter: &Filter) -> Fields {
    let selector = match filter.selector {
        Selector::Port(port) => ("port", port.into()),
        Selector::FlowLabel(label) => ("flow_label", label.into()),
        Selector::Gpi(gpi) => ("spi", format!("{gpi:08x}").into()),
    };
    vec![("source", filter.src.to_string().into()), selector]
}

fn of_error(error: &ErrorSpec) -> Fields {
    let meaning = match error.code {
        ErrorCode::ADMISSION => AdmissionValue(error.value).name().map(str::to_owned),
        ErrorCode::TRAFFIC_CONTROL => TrafficControlValue(error.value).name().map(str::to_owned),
        ErrorCode::POLICY => PolicyValue(error.value).name().map(str::to_owned),
        ErrorCode::UNKNOWN_CLASS | ErrorCode::UNKNOWN_C_TYPE => {
            let [class, c_type] = error.value.to_be_bytes();
            Some(ObjectType::new(Class(class), c_type).to_string())
        }
        _ => None,
    };
    let flags: Vec<&str> = [(ErrorFlags::IN_PLACE, "InPlace"), (ErrorFlags::NOT_GUILTY, "NotGuilty")]
        .into_iter()
        .filter(|(flag, _)| error.flags.contains(*flag))
        .map(|(_, name)| name)
        .collect();
    let mut fields = vec![
        ("code", error.code.0.into()),
        ("name", error.code.name().map_or(Value::Null, Value::from)),
        ("value", error.value.into()),
    ];
    if let Some(meaning) = meaning {
        fields.push(("meaning", meaning.into()));
    }
    fields.push(("node", error.node.to_string().into()));
    if !flags.is_empty() {
        fields.push(("flags", flags.into()));
    }
    fields
}

fn of_policy(policy: &PolicyData<'_>) -> Fields {
    match policy.elements() {
        Ok(elements) => {
            let elements: Vec<Value> =
                elements.map(|element| format!("{}:{}", element.p_type, hex(element.data)).into()).collect();
            vec![("elements", elements.into())]
        }
        Err(error) => {
            let octets = hex(policy.octets());
            vec![("error", error.to_string().into()), ("octets", octets.into())]
        }
    }
}

fn of_adspec(adspec: &Adspec) -> Fields {
    let general = &adspec.general;
    let mut fields = vec![
        ("broken", general.broken.into()),
        ("hops", general.hops.into()),
        ("bandwidth", real(general.bandwidth.value())),
        ("latency_us", general.latency.0.into()),
        ("mtu", general.mtu.into()),
    ];
    if let Some(guaranteed) = &adspec.guaranteed {
        let mut service = overrides(guaranteed.broken, &guaranteed.overrides);
        if let Some(terms) = guaranteed.terms {
            service["Ctot"] = terms.c_tot.into();
            service["Dtot_us"] = terms.d_tot.into();
            service["Csum"] = terms.c_sum.into();
            service["Dsum_us"] = terms.d_sum.into();
        }
        fields.push(("guaranteed", service));
    }
    if let Some(controlled) = &adspec.controlled_load {
        fields.push(("controlled_load", overrides(controlled.broken, &controlled.overrides)));
    }
    fields
}

/// Parameters of one service.
fn overrides(broken: bool, overrides: &Overrides) -> Value {
    let mut value = json!({ "broken": broken });
    if let Some(hops) = overrides.hops {
        value["hops"] = hops.into();
    }
    if let Some(bandwidth) = overrides.bandwidth {
        value["bandwidth"] = real(bandwidth.value());
    }
    if let Some(latency) = overrides.latency {
        value["latency_us"] = latency.0.into();
    }
    if let Some(mtu) = overrides.mtu {
        value["mtu"] = mtu.into();
    }
    value
}
