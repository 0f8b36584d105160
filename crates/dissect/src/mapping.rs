//! Messages of PCP and NAT-PMP, which share a port.

use core::fmt::Write as _;

use serde_json::{Map, Value, json};
use signalbox_mapping::wire::{
    Body, Known, NatPmpMessage, NatPmpRequest, NatPmpResponse, Options, RawOption, Request, Response,
    SERVER_PORT, Transport, Version,
};
use signalbox_wire::hex;

use crate::decode::encoded;

/// A message of one of the two protocols.
pub(crate) enum Message<'a> {
    Request(Request<'a>),
    Response(Response<'a>),
    NatPmp(NatPmpMessage),
}

/// Whether a UDP datagram between these ports is one of the two protocols.
pub(crate) fn is_mapping(src: u16, dst: u16) -> bool {
    src == SERVER_PORT || dst == SERVER_PORT
}

/// Reads a message. The first octet decides between the protocols, the second one between requests and responses.
pub(crate) fn parse(octets: &[u8]) -> Result<Message<'_>, String> {
    if Version::of(octets) == Some(Version::NatPmp) {
        return NatPmpMessage::parse(octets).map(Message::NatPmp).map_err(|error| error.to_string());
    }
    let response = octets.get(1).is_some_and(|kind| kind & 0x80 != 0);
    let read = if response {
        Response::parse(octets).map(Message::Response)
    } else {
        Request::parse(octets).map(Message::Request)
    };
    read.map_err(|error| error.to_string())
}

pub(crate) fn reencode(message: &Message<'_>) -> Result<String, String> {
    encoded(|w| {
        match message {
            Message::Request(request) => request.encode(w),
            Message::Response(response) => response.encode(w),
            Message::NatPmp(message) => message.encode(w),
        }
        Ok::<_, String>(())
    })
}

/// A message as a JSON object.
pub(crate) fn json(message: &Message<'_>) -> Value {
    match message {
        Message::Request(request) => {
            let head = json!({
                "protocol": "pcp",
                "message": "request",
                "opcode": request.body.opcode().to_string(),
                "lifetime_s": request.lifetime,
                "client": request.client.to_string(),
            });
            with_body(head, &request.body, &request.options)
        }
        Message::Response(response) => {
            let head = json!({
                "protocol": "pcp",
                "message": "response",
                "opcode": response.body.opcode().to_string(),
                "result": response.result.0,
                "result_name": response.result.name(),
                "lifetime_s": response.lifetime,
                "epoch_s": response.epoch,
            });
            with_body(head, &response.body, &response.options)
        }
        Message::NatPmp(NatPmpMessage::Request(request)) => nat_pmp_request(request),
        Message::NatPmp(NatPmpMessage::Response(response)) => nat_pmp_response(response),
    }
}

fn with_body(mut value: Value, body: &Body, options: &Options<'_>) -> Value {
    let (map, remote) = match body {
        Body::Announce => (None, None),
        Body::Map(map) => (Some(map), None),
        Body::Peer(peer) => (Some(&peer.map), Some(peer.remote)),
    };
    if let Some(map) = map {
        value["nonce"] = hex(&map.nonce).into();
        value["ip_protocol"] = map.protocol.into();
        value["internal_port"] = map.internal_port.into();
        value["external"] = map.external.to_string().into();
    }
    if let Some(remote) = remote {
        value["remote"] = remote.to_string().into();
    }
    value["options"] = options.iter().map(|option| json_option(&option)).collect();
    value
}

fn json_option(option: &RawOption<'_>) -> Value {
    let mut fields = Map::new();
    fields.insert("option".into(), option.code.to_string().into());
    match option.known() {
        Ok(Some(Known::ThirdParty(address))) => {
            fields.insert("address".into(), address.to_string().into());
        }
        Ok(Some(Known::PreferFailure)) => {}
        Ok(Some(Known::Filter(filter))) => {
            fields.insert("address".into(), filter.address.to_string().into());
            fields.insert("prefix".into(), filter.prefix.into());
            fields.insert("port".into(), filter.port.into());
        }
        Ok(Some(Known::Description(text))) => {
            fields.insert("text".into(), String::from_utf8_lossy(text).into());
        }
        Ok(None) => {
            fields.insert("octets".into(), hex(option.data).into());
        }
        Err(error) => {
            fields.insert("octets".into(), hex(option.data).into());
            fields.insert("error".into(), error.to_string().into());
        }
    }
    Value::Object(fields)
}

const fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "UDP",
        Transport::Tcp => "TCP",
    }
}

fn nat_pmp_request(request: &NatPmpRequest) -> Value {
    let head = json!({ "protocol": "nat-pmp", "message": "request" });
    match *request {
        NatPmpRequest::Address => joined(head, json!({ "opcode": "external address" })),
        NatPmpRequest::Map { transport: of, internal_port, external_port, lifetime } => joined(
            head,
            json!({
                "opcode": format!("map {}", transport(of)),
                "internal_port": internal_port,
                "external_port": external_port,
                "lifetime_s": lifetime,
            }),
        ),
    }
}

fn nat_pmp_response(response: &NatPmpResponse) -> Value {
    let head = json!({ "protocol": "nat-pmp", "message": "response" });
    match *response {
        NatPmpResponse::Address { result, epoch, address } => joined(
            head,
            json!({
                "opcode": "external address",
                "result": result.0,
                "result_name": result.name(),
                "epoch_s": epoch,
                "address": address.to_string(),
            }),
        ),
        NatPmpResponse::Map { transport: of, result, epoch, internal_port, external_port, lifetime } => {
            joined(
                head,
                json!({
                    "opcode": format!("map {}", transport(of)),
                    "result": result.0,
                    "result_name": result.name(),
                    "epoch_s": epoch,
                    "internal_port": internal_port,
                    "external_port": external_port,
                    "lifetime_s": lifetime,
                }),
            )
        }
        NatPmpResponse::UnsupportedVersion { epoch } => joined(
            head,
            json!({ "opcode": "unsupported version", "result": 1, "result_name": "unsupported version", "epoch_s": epoch }),
        ),
    }
}

fn joined(mut head: Value, more: Value) -> Value {
    if let (Value::Object(head), Value::Object(more)) = (&mut head, more) {
        head.extend(more);
    }
    head
}

/// A message as text: a line, then a line for each option. There is no line break at the end.
pub(crate) fn describe(message: &Message<'_>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match message {
        Message::Request(request) => {
            let (opcode, client, lifetime) = (request.body.opcode(), request.client, request.lifetime);
            write!(text, "PCP {opcode} request of {client}, lifetime {lifetime} s")
        }
        Message::Response(response) => {
            let (opcode, result, lifetime) = (response.body.opcode(), response.result, response.lifetime);
            write!(text, "PCP {opcode} response, {result}, lifetime {lifetime} s, epoch {} s", response.epoch)
        }
        Message::NatPmp(message) => nat_pmp_text(&mut text, message),
    };
    let (body, options) = match message {
        Message::Request(request) => (&request.body, &request.options),
        Message::Response(response) => (&response.body, &response.options),
        Message::NatPmp(_) => return text,
    };
    if let Body::Map(map) | Body::Peer(signalbox_mapping::wire::Peer { map, .. }) = body {
        let (protocol, port, external) = (map.protocol, map.internal_port, map.external);
        let _ = write!(
            text,
            "\n  protocol {protocol}, internal port {port}, external {external}, nonce {}",
            hex(&map.nonce)
        );
    }
    if let Body::Peer(peer) = body {
        let _ = write!(text, "\n  remote peer {}", peer.remote);
    }
    for option in options.iter() {
        let _ = write!(text, "\n  option: {}", json_option(&option));
    }
    text
}

fn nat_pmp_text(text: &mut String, message: &NatPmpMessage) -> core::fmt::Result {
    match *message {
        NatPmpMessage::Request(NatPmpRequest::Address) => write!(text, "NAT-PMP request, external address"),
        NatPmpMessage::Request(NatPmpRequest::Map {
            transport: of,
            internal_port,
            external_port,
            lifetime,
        }) => {
            let of = transport(of);
            write!(
                text,
                "NAT-PMP request, map {of} port {internal_port}, external port {external_port}, lifetime {lifetime} s"
            )
        }
        NatPmpMessage::Response(NatPmpResponse::Address { result, epoch, address }) => {
            write!(text, "NAT-PMP response, {result}, external address {address}, epoch {epoch} s")
        }
        NatPmpMessage::Response(NatPmpResponse::Map {
            transport: of,
            result,
            epoch,
            internal_port,
            external_port,
            lifetime,
        }) => {
            let of = transport(of);
            write!(
                text,
                "NAT-PMP response, {result}, {of} port {internal_port}, external port {external_port}, "
            )?;
            write!(text, "lifetime {lifetime} s, epoch {epoch} s")
        }
        NatPmpMessage::Response(NatPmpResponse::UnsupportedVersion { epoch }) => {
            write!(text, "NAT-PMP response, unsupported version, epoch {epoch} s")
        }
    }
}
