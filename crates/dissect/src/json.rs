//! Messages as JSON. Field names are documented in `docs/decode.md` and do not change.

use serde_json::{Map, Value, json};
use signalbox_core::{Mri, NslpId};
use signalbox_gist::wire::{
    DecodeError, ErrorObject, Extensibility, GistError, Header, Info, MaOptions, Message, MrmId, Nli,
    ObjectType, Objects, RawObject, StackProposal, mri_parse,
};
use signalbox_ping::wire as ping;
use signalbox_wire::hex;

/// A node of a list of those that granted a request.
pub(crate) fn hop(hop: signalbox_wire::hops::Hop) -> Value {
    use signalbox_wire::hops::Part;
    let mut fields =
        json!({ "address": hop.address.to_string(), "after_gap": hop.after_gap, "routers": hop.routers });
    let did = match hop.part {
        Part::Rate(rate) => ("rate", rate.into()),
        part @ (Part::End
        | Part::Opened
        | Part::Translated
        | Part::Reserved
        | Part::Blocked
        | Part::Passed) => ("part", part.to_string().into()),
    };
    if let Some(fields) = fields.as_object_mut() {
        fields.insert(did.0.to_owned(), did.1);
    }
    fields
}

/// The common header.
pub(crate) fn header(header: &Header) -> Value {
    json!({
        "version": signalbox_gist::wire::VERSION,
        "hops": header.hops,
        "length_words": header.length_words,
        "nslpid": header.nslp.0,
        "nslp": header.nslp.name(),
        "type": header.kind.0,
        "type_name": header.kind.name(),
        "c": header.c,
        "s": header.s,
        "r": header.r,
        "e": header.e,
    })
}

/// An error with its code and subcode (RFC 5971 A.4.4).
pub(crate) fn gist_error(error: GistError) -> Value {
    json!({
        "class": error.class.0,
        "class_name": error.class.name(),
        "code": error.code.0,
        "code_name": error.code.name(),
        "subcode": error.subcode,
        "name": error.name(),
    })
}

/// The reason why octets are not a message.
pub(crate) fn decode_error(error: &DecodeError) -> Value {
    json!({
        "text": error.to_string(),
        "object": error.object.map(|o| o.to_string()),
        "object_type": error.object.map(|o| o.0),
        "field": error.field,
        "offset": error.offset,
        "object_offset": error.object_start,
        "value": error.value,
        "problem": error.problem.text(),
        "fault": error.fault().to_string(),
        "gist": error.gist_error().map(gist_error),
    })
}

/// All objects of a message in the order of the grammar; objects of unknown type last.
pub(crate) fn objects(message: &Message<'_>) -> Value {
    let mut list = Vec::new();
    let mut add = |kind: ObjectType, fields: Value| list.push(object(kind, fields));
    if let Some(nat) = &message.nat_traversal {
        add(
            ObjectType::NAT_TRAVERSAL,
            json!({
                "original_mri": hex(nat.original_mri),
                "mri": nat.mri().as_ref().map(mri),
                "translated": nat.translated.iter().map(|t| t.kind().0).collect::<Vec<_>>(),
                "replaced": nat.replaced.iter().map(|r| hex(r.0)).collect::<Vec<_>>(),
            }),
        );
    }
    if let Some(object) = &message.mri {
        add(ObjectType::MRI, mri(&object.mri));
    }
    if let Some(session) = message.session {
        add(ObjectType::SESSION_ID, json!({ "session": session.to_string() }));
    }
    if let Some(object) = &message.nli {
        add(ObjectType::NLI, nli(object));
    }
    if let Some(cookie) = message.query_cookie {
        add(ObjectType::QUERY_COOKIE, json!({ "cookie": hex(cookie) }));
    }
    if let Some(cookie) = message.responder_cookie {
        add(ObjectType::RESPONDER_COOKIE, json!({ "cookie": hex(cookie) }));
    }
    if let Some(proposal) = &message.stack_proposal {
        add(ObjectType::STACK_PROPOSAL, json!({ "profiles": profiles(proposal) }));
    }
    if let Some(configuration) = &message.stack_configuration {
        let options: Vec<_> = configuration.options.iter().map(|o| ma_options(&o)).collect();
        add(
            ObjectType::STACK_CONFIGURATION,
            json!({ "hold_time_ms": configuration.hold_time_ms, "options": options }),
        );
    }
    if let Some(error) = &message.error {
        add(ObjectType::ERROR, error_object(error));
    }
    if let Some(id) = message.hello_id {
        add(ObjectType::HELLO_ID, json!({ "hello_id": id }));
    }
    if let Some(data) = message.nslp_data {
        add(ObjectType::NSLP_DATA, nslp_data(message.header.nslp, data));
    }
    list.extend(unknown(message).map(|o| {
        let extensibility = o.extensibility.to_string();
        object(o.kind, json!({ "extensibility": extensibility, "value": hex(o.value) }))
    }));
    Value::Array(list)
}

/// Objects of unknown type, ignored ones included.
pub(crate) fn unknown<'a>(message: &Message<'a>) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
    let mut objects = Objects::of(message.octets);
    core::iter::from_fn(move || objects.next()?.ok())
        .filter(|o| o.kind.name().is_none() && o.extensibility != Extensibility::Mandatory)
}

fn object(kind: ObjectType, fields: Value) -> Value {
    let mut all = Map::new();
    all.insert("object".into(), kind.name().unwrap_or("unknown").into());
    all.insert("type".into(), kind.0.into());
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    Value::Object(all)
}

fn mri(mri: &Mri) -> Value {
    let direction = mri.direction().to_string();
    match mri {
        Mri::PathCoupled(p) => json!({
            "method": MrmId::PATH_COUPLED.to_string(),
            "mrm_id": MrmId::PATH_COUPLED.0,
            "direction": direction,
            "src": p.src.to_string(),
            "dst": p.dst.to_string(),
            "src_prefix": p.src_prefix,
            "dst_prefix": p.dst_prefix,
            "protocol": p.protocol,
            "dscp": p.dscp,
            "flow_label": p.flow_label,
            "spi": p.spi,
            "src_port": p.src_port,
            "dst_port": p.dst_port,
        }),
        Mri::LooseEnd(l) => json!({
            "method": MrmId::LOOSE_END.to_string(),
            "mrm_id": MrmId::LOOSE_END.0,
            "direction": direction,
            "src": l.src.to_string(),
            "dst": l.dst.to_string(),
        }),
    }
}

fn nli(nli: &Nli<'_>) -> Value {
    json!({
        "peer_identity": hex(nli.peer_identity),
        "interface": nli.interface.to_string(),
        "ip_ttl": nli.ip_ttl,
        "validity_ms": nli.validity_ms,
    })
}

fn profiles(proposal: &StackProposal<'_>) -> Vec<Vec<u8>> {
    proposal.profiles.iter().map(|p| p.0.to_vec()).collect()
}

fn ma_options(options: &MaOptions<'_>) -> Value {
    json!({
        "protocol": options.protocol.0,
        "protocol_name": options.protocol.name(),
        "profile": options.profile,
        "disabled": options.disabled,
        "data": hex(options.data),
        "port": options.port(),
    })
}

fn error_object(error: &ErrorObject<'_>) -> Value {
    let infos: Vec<_> = error.infos.iter().map(|i| info(&i)).collect();
    json!({
        "error": gist_error(error.error),
        "d_mode": error.d_mode,
        "q_mode": error.q_mode,
        "original_header": hex(&error.header),
        "original": error.original().as_ref().map(header),
        "session": error.session.map(|s| s.to_string()),
        "original_mri": error.mri_octets.map(hex),
        "mri": error.mri_octets.and_then(|o| mri_parse(o).ok()).as_ref().map(mri),
        "infos": infos,
        "comment": error.comment,
    })
}

fn info(info: &Info<'_>) -> Value {
    let (kind, name) = (info.kind().0, info.kind().name());
    match *info {
        Info::MessageLength(words) => json!({ "info": name, "type": kind, "length_words": words }),
        Info::Mtu(mtu) => json!({ "info": name, "type": kind, "mtu": mtu }),
        Info::ObjectType(object) => {
            json!({ "info": name, "type": kind, "object_type": object.0, "object": object.name() })
        }
        Info::ObjectValue { offset, object } => {
            json!({ "info": name, "type": kind, "offset": offset, "octets": hex(object) })
        }
        Info::Other { value, .. } => json!({ "info": name, "type": kind, "value": hex(value) }),
    }
}

fn nslp_data(nslp: NslpId, data: &[u8]) -> Value {
    let mut fields = json!({ "octets": data.len(), "data": hex(data) });
    if nslp == NslpId::PING && !data.is_empty() {
        match ping::Message::parse(data) {
            Ok(message) => fields["ping"] = ping_message(&message),
            Err(error) => fields["ping_error"] = error.to_string().into(),
        }
    }
    if nslp == NslpId::NSIS_PING && !data.is_empty() {
        match ping::nsis::Message::parse(data) {
            Ok(message) => fields["nsis_ping"] = nsis_ping_message(&message),
            Err(error) => fields["nsis_ping_error"] = error.to_string().into(),
        }
    }
    if nslp == NslpId::QOS && !data.is_empty() {
        match signalbox_qos::wire::Message::parse(data) {
            Ok(message) => fields["qos"] = crate::qos::json(&message),
            Err(error) => fields["qos_error"] = error.to_string().into(),
        }
    }
    if nslp == NslpId::NATFW && !data.is_empty() {
        match signalbox_natfw::wire::Message::parse(data) {
            Ok(message) => fields["natfw"] = crate::natfw::json(&message),
            Err(error) => fields["natfw_error"] = error.to_string().into(),
        }
    }
    fields
}

fn ping_message(message: &ping::Message<'_>) -> Value {
    let records = |records: ping::Records<'_>| -> Vec<Value> {
        let record = |r: ping::Record| {
            json!({
                "address": r.address.to_string(),
                "received_us": r.received_us,
                "held_us": r.held_us,
                "ip_distance": r.ip_distance,
            })
        };
        records.iter().map(record).collect()
    };
    json!({
        "kind": message.kind.to_string(),
        "flags": message.flags.names().collect::<Vec<_>>(),
        "sequence": message.sequence,
        "identifier": format!("{:016x}", message.identifier),
        "sent_us": message.sent_us,
        "there": records(message.there),
        "back": records(message.back),
        "padding": message.padding.map(<[u8]>::len),
    })
}

fn nsis_ping_message(message: &ping::nsis::Message<'_>) -> Value {
    let object = |object: ping::nsis::Object| json!({ "type": object.kind.0, "name": object.kind.name(), "octets": object.octets });
    let record = |record: ping::nsis::Record| json!({ "address": record.address.map(|a| a.to_string()), "time_us": record.time_us });
    json!({
        "hops": message.hops,
        "sequence": message.sequence,
        "octets": message.octets(),
        "objects": message.objects().map(object).collect::<Vec<_>>(),
        "records": message.records().map(record).collect::<Vec<_>>(),
    })
}
