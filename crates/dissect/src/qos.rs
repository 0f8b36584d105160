//! Messages of QoS NSLP, and the QSPECs in them.

use core::fmt::{self, Write as _};

use serde_json::{Map, Value, json};
use signalbox_qos::wire::qspec::{Field, Parameter, Qspec};
use signalbox_qos::wire::{
    Classifier, GenericFlags, InfoSpec, Message, MessageFlags, MessageId, MessageType, Source,
};
use signalbox_wire::hex;

/// Returns the names of the flags that are set, those of the message's type first.
fn flags(message: &Message<'_>) -> Vec<&'static str> {
    let flags: &[_] = match message.kind {
        MessageType::RESERVE => &[(MessageFlags::REPLACE, "REPLACE"), (MessageFlags::TEAR, "TEAR")],
        MessageType::QUERY => &[(MessageFlags::RESERVE_INIT, "RESERVE-INIT")],
        _ => &[],
    };
    let generic = [
        (GenericFlags::SCOPING, "SCOPING"),
        (GenericFlags::PROXY, "PROXY"),
        (GenericFlags::ACK_REQ, "ACK-REQ"),
        (GenericFlags::BREAK, "BREAK"),
    ];
    let flags = flags.iter().filter(|(flag, _)| message.flags.contains(*flag)).map(|(_, name)| *name);
    let generic = generic.iter().filter(|(flag, _)| message.generic.contains(*flag)).map(|(_, name)| *name);
    flags.chain(generic).collect()
}

/// The fields that classify packets, by the letters of RFC 5974 §5.1.3.5.
fn classifier(classifier: Classifier) -> String {
    (0_u8..)
        .zip("XYPTFSAB".chars())
        .filter(|(n, _)| classifier.contains(Classifier(0x80 >> n)))
        .map(|(_, c)| c)
        .collect()
}

fn source(source: &Source<'_>) -> Option<String> {
    match source {
        Source::None => None,
        Source::Address(address) => Some(address.to_string()),
        Source::Name(name) => Some((*name).to_owned()),
        Source::Other { octets, .. } => Some(hex(octets)),
    }
}

/// Returns a message of QoS NSLP (RFC 5974 §5.1) as a JSON object. Absent objects have no field.
pub(crate) fn json(message: &Message<'_>) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    add("kind", Some(message.kind.to_string().into()));
    add("flags", Some(flags(message).into()));
    add("rsn", message.rsn.map(|rsn| json!({ "number": rsn.number, "epoch": rsn.epoch })));
    add("rii", message.rii.map(Value::from));
    add("refresh_period_ms", message.refresh_period.map(Value::from));
    let bound: Vec<_> = message
        .bound_sessions
        .sessions()
        .map(|b| json!({ "session": b.session.to_string(), "code": b.code.0, "code_name": b.code.name() }))
        .collect();
    add("bound_sessions", (!bound.is_empty()).then(|| bound.into()));
    add(
        "sessions",
        message.session_ids.map(|ids| ids.iter().map(|id| id.to_string()).collect::<Vec<_>>().into()),
    );
    let rsns =
        message.rsns.map(|list| json!({ "epoch": list.epoch, "numbers": list.iter().collect::<Vec<_>>() }));
    add("rsns", rsns);
    let id = |id: MessageId| json!({ "id": hex(&id.id), "bidirectional": id.bidirectional });
    add("message_id", message.msg_id.map(id));
    add("bound_message_id", message.bound_msg_id.map(id));
    add("info", message.info.as_ref().map(info));
    add("classifier", message.classifier.map(|c| classifier(c).into()));
    add("qspec", message.qspec.map(qspec));
    add("second_qspec", message.second_qspec.map(qspec));
    let auth: Vec<_> = message.auth.iter().map(|o| hex(o.value)).collect();
    add("authorization", (!auth.is_empty()).then(|| auth.into()));
    add("hops", message.hops.map(|hops| hops.iter().map(crate::json::hop).collect::<Vec<_>>().into()));
    add("note", message.note.map(Value::from));
    add("available_octets_per_s", message.available.map(Value::from));
    Value::Object(fields)
}

fn info(info: &InfoSpec<'_>) -> Value {
    json!({
        "class": info.info.class.0,
        "class_name": info.info.class.name(),
        "code": info.info.code,
        "name": info.info.name(),
        "source": source(&info.source),
        "specific": hex(info.specific),
    })
}

/// Returns a QSPEC (RFC 5975 §4) as far as it can be decoded, with all its errors.
pub(crate) fn qspec(octets: &[u8]) -> Value {
    let qspec = match Qspec::frame(octets) {
        Ok(qspec) => qspec,
        Err(error) => return json!({ "error": error.to_string(), "octets": hex(octets) }),
    };
    let objects: Vec<_> = qspec
        .objects()
        .map(|object| {
            json!({
                "object": object.kind.name(),
                "type": object.kind.0,
                "e": object.error,
                "parameters": object.parameters().map(|p| parameter(&p)).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "local": qspec.header.local,
        "type": qspec.header.qspec_type.0,
        "type_name": qspec.header.qspec_type.name(),
        "procedure": qspec.header.procedure.0,
        "procedure_name": qspec.header.procedure.name(),
        "objects": objects,
        "encapsulated": qspec.encapsulated().map(self::qspec),
        "faults": qspec.faults().map(|fault| fault.to_string()).collect::<Vec<_>>(),
    })
}

fn parameter(parameter: &Parameter<'_>) -> Value {
    let mut fields = Map::new();
    if let Ok(value) = parameter.value() {
        value.fields(|name, field| {
            fields.insert(name.to_owned(), self::field(field));
        });
    }
    json!({
        "parameter": parameter.id.name(),
        "id": parameter.id.0,
        "m": parameter.flags.mandatory,
        "e": parameter.flags.error,
        "n": parameter.flags.not_supported,
        "fields": fields,
        "octets": hex(parameter.octets),
    })
}

fn field(field: Field<'_>) -> Value {
    match field {
        Field::Number(n) | Field::Named(n, None) => n.into(),
        Field::Named(_, Some(name)) => name.into(),
        // JSON has no infinity. The shortest digits that parse to the same float are easier to read than all of them.
        Field::Real(x) if x.is_infinite() => "infinite".into(),
        Field::Real(x) => x.to_string().parse::<f64>().map_or(Value::Null, Value::from),
        Field::Flag(flag) => flag.into(),
        Field::Octets(octets) => hex(octets).into(),
    }
}

/// Returns a message as indented lines.
pub(crate) fn text(f: &mut String, message: &Message<'_>) -> fmt::Result {
    write!(f, "    QoS {}", message.kind)?;
    flags(message).iter().try_for_each(|flag| write!(f, " {flag}"))?;
    if let Some(rsn) = message.rsn {
        write!(f, ", RSN {} of epoch {:08x}", rsn.number, rsn.epoch)?;
    }
    if let Some(rii) = message.rii {
        write!(f, ", RII {rii:08x}")?;
    }
    if let Some(period) = message.refresh_period {
        write!(f, ", refresh period {period} ms")?;
    }
    if let Some(fields) = message.classifier {
        write!(f, ", classifier {}", classifier(fields))?;
    }
    f.push('\n');
    if let Some(info) = &message.info {
        let by = source(&info.source).map_or(String::new(), |source| format!(" at {source}"));
        writeln!(f, "    {}/{:#04x} {}{by}", info.info.class.0, info.info.code, info.info)?;
    }
    if let Some(note) = message.note {
        writeln!(f, "    note {note:?}")?;
    }
    for bound in message.bound_sessions.sessions() {
        writeln!(f, "    bound to session {} ({})", bound.session, bound.code)?;
    }
    for session in message.session_ids.iter().flat_map(|ids| ids.iter()) {
        writeln!(f, "    session {session}")?;
    }
    for number in message.rsns.iter().flat_map(|rsns| rsns.iter()) {
        writeln!(f, "    RSN {number}")?;
    }
    for (what, id) in [("message", message.msg_id), ("bound to message", message.bound_msg_id)] {
        if let Some(id) = id {
            writeln!(f, "    {what} {}", hex(&id.id))?;
        }
    }
    for object in message.auth.iter() {
        writeln!(f, "    authorization: {} octets", object.value.len())?;
    }
    for hop in message.hops.iter().flat_map(|hops| hops.iter()) {
        let gap = if hop.after_gap { ", behind routers without QoS" } else { "" };
        writeln!(f, "    {} {}{gap}", hop.address, hop.part)?;
    }
    for octets in [message.qspec, message.second_qspec].into_iter().flatten() {
        match Qspec::frame(octets) {
            Ok(qspec) => qspec.to_string().lines().try_for_each(|line| writeln!(f, "    {line}"))?,
            Err(error) => writeln!(f, "    {error}: {}", hex(octets))?,
        }
    }
    Ok(())
}
