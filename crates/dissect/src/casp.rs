//! CASP messages: datagrams at the ports of messages and of scout, and hexadecimal lines.

use core::fmt::Write as _;

use serde_json::{Map, Value, json};
use signalbox_casp::wire::natfw::{NatfwFilter, NatfwMessage, NatfwValue};
use signalbox_casp::wire::ping::Ping;
use signalbox_casp::wire::qos::{Flowspec, QosMessage};
use signalbox_casp::wire::route::{Hop, Route, Routing};
use signalbox_casp::wire::{Body, ClientType, FlowId, Message, Object, Proof, Signaling, frame, framed};
use signalbox_wire::hex;

/// The port of messages, over UDP and over TCP.
const MESSAGES: u16 = 50003;
/// The port of scout.
const SCOUT: u16 = 50004;

/// Whether a datagram between these ports is one of CASP.
pub(crate) fn is_casp(src: u16, dst: u16) -> bool {
    [MESSAGES, SCOUT].iter().any(|port| src == *port || dst == *port)
}

/// Whether a connection between these ports is one of CASP.
pub(crate) const fn is_stream(src: u16, dst: u16) -> bool {
    src == MESSAGES || dst == MESSAGES
}

/// A message, and whether it has a Length Header.
#[derive(Debug)]
pub(crate) struct Decoded<'a> {
    message: Message<'a>,
    framed: bool,
}

/// Reads a message. One whose first 32 bits are the number of all octets has a Length Header.
pub(crate) fn parse(octets: &[u8]) -> Result<Decoded<'_>, String> {
    let length = frame(octets, u32::MAX).ok().flatten();
    let framed = length == Some(octets.len());
    let message = if framed { octets.get(4..).unwrap_or_default() } else { octets };
    match Message::parse(message) {
        Ok(message) => Ok(Decoded { message, framed }),
        Err(error) => Err(error.to_string()),
    }
}

/// Encodes a decoded message again, in hexadecimal.
pub(crate) fn reencode(decoded: &Decoded<'_>) -> Result<String, String> {
    let mut again = Vec::new();
    let result = if decoded.framed {
        framed(&mut again, |octets| decoded.message.encode(octets))
    } else {
        decoded.message.encode(&mut again)
    };
    result.map(|()| hex(&again)).map_err(|error| format!("cannot be encoded again: {error}"))
}

fn flow(flow: &FlowId) -> Value {
    let mut value = json!({
        "form": flow.form().to_string(),
        "source": flow.src().to_string(),
        "destination": flow.dst().to_string(),
    });
    if let Some((src, dst)) = flow.ports() {
        value["source_port"] = src.into();
        value["destination_port"] = dst.into();
    }
    if let Some(protocol) = flow.protocol() {
        value["protocol"] = protocol.into();
    }
    if let Some(spi) = flow.spi() {
        value["spi"] = spi.into();
    }
    if let FlowId::V6Label { label, .. } = flow {
        value["flow_label"] = (*label).into();
    }
    value
}

fn proof(proof: Proof) -> Value {
    match proof {
        Proof::Cookie(cookie) => hex(&cookie).into(),
        Proof::Unknown => "unknown C-Type".into(),
    }
}

/// The nodes of RECORD_ROUTE or ROUTE; `None`: they cannot be read.
fn hops(routing: &Routing<'_>) -> Option<impl Iterator<Item = Hop>> {
    Route::parse(routing.contents()).map(|route| route.iter())
}

fn route(routing: &Routing<'_>) -> Value {
    let hop = |hop: Hop| {
        let (address, port) = (hop.address.ip().to_string(), hop.address.port());
        json!({ "address": address, "port": port, "transport": hop.transport })
    };
    match hops(routing) {
        Some(hops) => hops.map(hop).collect(),
        None => json!({ "fault": "entries that cannot be read", "octets": hex(routing.contents()) }),
    }
}

fn other(object: &Object<'_>) -> Value {
    json!({ "class": object.class.to_string(), "c_type": object.c_type, "octets": hex(object.contents) })
}

/// The message of a client that is known; with `fault` if it cannot be read.
fn client_message(client: ClientType, data: &[u8]) -> Option<Value> {
    Some(match client {
        ClientType::QOS => match QosMessage::parse(data) {
            Ok(message) => qos(&message),
            Err(fault) => json!({ "fault": fault.to_string() }),
        },
        ClientType::NATFW => match NatfwMessage::parse(data) {
            Ok(message) => json!({
                "type": message.kind.to_string(),
                "objects": message.values().map(|value| natfw(&value)).collect::<Vec<_>>(),
            }),
            Err(fault) => json!({ "fault": fault.to_string() }),
        },
        ClientType::PING => match Ping::parse(data) {
            Ok(ping) => ping_json(&ping),
            Err(error) => json!({ "fault": error.to_string() }),
        },
        _ => return None,
    })
}

fn ping_json(ping: &Ping) -> Value {
    let nodes = ping.entries.iter().map(
        |entry| json!({ "address": entry.address.to_string(), "hops": entry.hops, "time_us": entry.time_us }),
    );
    json!({ "type": ping.kind.to_string(), "token": ping.token, "nodes": nodes.collect::<Vec<_>>() })
}

/// An object of the client for firewalls and NATs; of those nested in it the names.
fn natfw(value: &NatfwValue<'_>) -> Value {
    let kind = value.kind().to_string();
    let text = |octets: &[u8]| Value::from(String::from_utf8_lossy(octets).into_owned());
    let filter = |filter: &NatfwFilter| {
        json!({
            "source": filter.src.to_string(),
            "destination": filter.dst.to_string(),
            "flow_label": filter.flow_label,
            "protocols": filter.protocols,
            "source_ports": filter.src_ports,
            "destination_ports": filter.dst_ports,
            "spis": filter.spis,
        })
    };
    let inner = match value {
        NatfwValue::Logging(filters) => json!(filters),
        NatfwValue::ApplicationId(octets) => text(octets),
        NatfwValue::Next(next, nested) => json!({
            "message": next.to_string(),
            "objects": nested.iter().map(|tlv| tlv.kind.to_string()).collect::<Vec<_>>(),
        }),
        NatfwValue::Token(token) => json!({
            "id": token.id,
            "algorithm": token.algorithm.to_string(),
            "filter": token.filter.as_ref().map(filter),
        }),
        NatfwValue::Cms(octets) | NatfwValue::Challenge(octets) | NatfwValue::Unknown(_, octets) => {
            hex(octets).into()
        }
        NatfwValue::Time(value) | NatfwValue::Age(value) | NatfwValue::MsgId(value) => {
            format!("{value:016x}").into()
        }
        NatfwValue::Status(result) => json!({
            "status": result.status.to_string(),
            "flags": result.flags,
            "request": result.request,
            "msg_id": format!("{:016x}", result.msg_id),
            "objects": result.nested.iter().map(|tlv| tlv.kind.to_string()).collect::<Vec<_>>(),
        }),
        NatfwValue::Filter(one) => filter(one),
        NatfwValue::Nat(one) => one.as_ref().map_or(Value::Null, filter),
        NatfwValue::Lifetime(seconds) => (*seconds).into(),
        NatfwValue::Scope(kind, domain) => json!({ "kind": kind, "domain": text(domain) }),
        NatfwValue::Node(identity) => {
            json!({ "kind": identity.kind.to_string(), "octets": hex(identity.value) })
        }
    };
    json!({ "object": kind, "value": inner })
}

fn flowspec(spec: &Flowspec) -> Value {
    let peak = spec.peak.is_finite().then_some(spec.peak);
    let mut value = json!({
        "rate": spec.rate,
        "bucket": spec.bucket,
        "peak": peak,
        "min_policed": spec.min_policed,
        "max_packet": spec.max_packet,
    });
    if let Some((rate, slack)) = spec.guaranteed {
        value["guaranteed"] = json!({ "rate": rate, "slack_us": slack });
    }
    value
}

/// A message of the QoS client, with the objects that it has.
fn qos(message: &QosMessage<'_>) -> Value {
    let mut all = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            all.insert(name.into(), value);
        }
    };
    put("type", Some(message.kind.to_string().into()));
    put("flags", Some(message.flags.names().collect::<Vec<_>>().into()));
    put("flow", Some(flow(&message.flow)));
    put("sequence", message.sequence.map(Value::from));
    put("answers", message.echo.map(Value::from));
    put("age", message.age.map(|age| format!("{age:016x}").into()));
    put("version", message.version.map(|version| version.to_string().into()));
    put("minimum", message.minimum.as_ref().map(flowspec));
    put("desired", message.desired.as_ref().map(flowspec));
    put("bandwidth", message.bandwidth.map(|both| json!({ "upper": both.upper, "lower": both.lower })));
    put("phb", message.phb.map(Value::from));
    let partial = message.partial.map(|partial| {
        json!({
            "failed": partial.failed,
            "indeterminate": partial.indeterminate,
            "failures_allowed": partial.failures_allowed,
            "indeterminate_allowed": partial.indeterminate_allowed,
            "last_hops": partial.last_hops,
        })
    });
    put("partial", partial);
    put("error_node", message.error_node.map(|node| node.to_string().into()));
    put("error", message.error.map(|(code, detail)| json!({ "code": code.to_string(), "detail": detail })));
    put(
        "refusal",
        message.refusal.map(|one| json!({ "available_octets_per_s": one.available, "note": one.text() })),
    );
    put("priority", message.priority.map(Value::from));
    put("time", message.time.map(|(start, end)| json!([format!("{start:016x}"), format!("{end:016x}")])));
    put("reverse_flow", message.reverse_flow.map(|(of, also)| json!({ "flow": flow(&of), "also": also })));
    let others: Vec<Value> = message
        .kept()
        .map(|object| json!({ "class": object.class.0, "c_type": object.c_type, "octets": hex(object.contents) }))
        .collect();
    put("other_objects", (!others.is_empty()).then(|| others.into()));
    Value::Object(all)
}

fn signaling(message: &Signaling<'_>) -> Value {
    let mut value = json!({
        "type": "signaling",
        "flags": message.flags.names().collect::<Vec<_>>(),
        "ttd": message.ttd,
        "hops": message.hops,
        "session": message.session.to_string(),
        "flow": flow(&message.flow),
    });
    if let Some(timeout) = message.timeout {
        value["timeout_s"] = timeout.into();
    }
    if let Some(cookie) = message.proof {
        value["scout_cookie_r"] = proof(cookie);
    }
    match message.body {
        Body::Empty => {}
        Body::Client { client, data } => {
            value["client"] = json!({ "type": client.0, "name": client.name(), "octets": hex(data) });
            if let Some(message) = client_message(client, data) {
                value["client"]["message"] = message;
            }
        }
        Body::Error(code) => value["error"] = json!({ "code": code.0, "name": code.name() }),
    }
    match &message.route {
        Some(record @ Routing::Record(_)) => value["record_route"] = route(record),
        Some(back @ Routing::Route(_)) => value["route"] = route(back),
        None => {}
    }
    let others: Vec<Value> = message.kept().map(|object| other(&object)).collect();
    if !others.is_empty() {
        value["other_objects"] = others.into();
    }
    value
}

/// Returns a message as a JSON object.
pub(crate) fn json(decoded: &Decoded<'_>) -> Value {
    let mut all = Map::new();
    all.insert("length_header".into(), decoded.framed.into());
    let message = match &decoded.message {
        Message::Signaling(message) => signaling(message),
        Message::ScoutRequest(cookie) => json!({ "type": "scout_request", "scout_cookie_i": hex(cookie) }),
        Message::ScoutResponse { initiator, responder } => json!({
            "type": "scout_response",
            "scout_cookie_i": hex(initiator),
            "scout_cookie_r": hex(responder),
        }),
    };
    if let Value::Object(fields) = message {
        all.extend(fields);
    }
    Value::Object(all)
}

/// Returns a message as text: a line for the header, then an indented line for each object. There is no line break at the
/// end.
pub(crate) fn describe(decoded: &Decoded<'_>) -> String {
    let message = match &decoded.message {
        Message::ScoutRequest(cookie) => {
            return format!("CASP Scout Request\n  SCOUT_COOKIE_I: {}", hex(cookie));
        }
        Message::ScoutResponse { initiator, responder } => {
            let (initiator, responder) = (hex(initiator), hex(responder));
            return format!(
                "CASP Scout Response\n  SCOUT_COOKIE_I: {initiator}\n  SCOUT_COOKIE_R: {responder}"
            );
        }
        Message::Signaling(message) => message,
    };
    let flags: Vec<&str> = message.flags.names().collect();
    let flags = if flags.is_empty() { String::new() } else { format!(", {}", flags.join(" ")) };
    let mut text = format!(
        "CASP Signaling, session {}, TTD {}, hop count {}{flags}\n  FLOW_ID: {} ({})",
        message.session,
        message.ttd,
        message.hops,
        message.flow,
        message.flow.form(),
    );
    // Writing to a String cannot fail.
    if let Some(timeout) = message.timeout {
        let _ = write!(text, "\n  CASP_TIMEOUT: {timeout} s");
    }
    match message.proof {
        Some(Proof::Cookie(cookie)) => {
            let _ = write!(text, "\n  SCOUT_COOKIE_R: {}", hex(&cookie));
        }
        Some(Proof::Unknown) => text.push_str("\n  SCOUT_COOKIE_R of unknown C-Type"),
        None => {}
    }
    match message.body {
        Body::Empty => {}
        Body::Client { client, data } => {
            let _ = write!(text, "\n  CLIENT_DATA: {client}, {} octets: {}", data.len(), hex(data));
            if let Some(message) = client_message(client, data) {
                let _ = write!(text, "\n    {message}");
            }
        }
        Body::Error(code) => {
            let _ = write!(text, "\n  ERROR: {code}");
        }
    }
    if let Some(routing) = &message.route {
        let class = routing.class();
        let _ = match hops(routing) {
            Some(hops) => {
                let hops: Vec<String> =
                    hops.map(|hop| format!("{} protocol {}", hop.address, hop.transport)).collect();
                write!(text, "\n  {class}: {}", hops.join(", "))
            }
            None => write!(text, "\n  {class}: entries that cannot be read: {}", hex(routing.contents())),
        };
    }
    for object in message.kept() {
        let _ = write!(text, "\n  class {} C-Type {}: {}", object.class, object.c_type, hex(object.contents));
    }
    text
}
