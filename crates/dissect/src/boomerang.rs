//! Boomerang messages: ICMP and ICMPv6 Echo with the magic number.

use core::fmt::Write as _;

use serde_json::{Map, Value, json};
pub(crate) use signalbox_boomerang::wire::Message;
use signalbox_boomerang::wire::{Classifier, Ends, FlowSpec, Known, MAGIC, Options, Pass, Qos, Rates};
use signalbox_wire::hex;

/// IP protocols of ICMP and ICMPv6.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Whether an IP packet of this protocol with this payload is a Boomerang message.
pub(crate) fn is_boomerang(protocol: u8, payload: &[u8]) -> bool {
    let echo = match (protocol, payload.first()) {
        (ICMP, Some(kind)) => Pass::of_icmp_type(*kind, false),
        (ICMPV6, Some(kind)) => Pass::of_icmp_type(*kind, true),
        _ => None,
    };
    echo.is_some() && payload.get(8..12) == Some(&MAGIC.to_be_bytes()[..])
}

/// Reads an ICMP message from its type octet on; the type distinguishes ICMPv6.
pub(crate) fn parse(octets: &[u8]) -> Result<Message<'_>, String> {
    let ipv6 = octets.first().is_some_and(|kind| *kind >= 128);
    Message::parse(octets, ipv6).map_err(|error| error.to_string())
}

/// Encodes a decoded message again, in hexadecimal. The checksum is that of ICMP; that of ICMPv6 needs the addresses of the
/// packet, which are taken as unspecified.
pub(crate) fn reencode(message: &Message<'_>, octets: &[u8]) -> Result<String, String> {
    if message.body.is_none() {
        return Err("cannot be encoded again: unknown format".to_owned());
    }
    let ipv6 = octets.first().is_some_and(|kind| *kind >= 128);
    let any = if ipv6 {
        core::net::Ipv6Addr::UNSPECIFIED.into()
    } else {
        core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED)
    };
    let mut again = Vec::new();
    message.encode(&Ends { src: any, dst: any }, &mut again);
    Ok(hex(&again))
}

fn classifier(of: &Classifier) -> Value {
    json!({
        "source": of.src.to_string(),
        "destination": of.dst.to_string(),
        "source_port": of.src_port,
        "destination_port": of.dst_port,
        "protocol": of.protocol,
        "tos": of.tos,
    })
}

fn flow(flow: &FlowSpec) -> Value {
    json!({ "classifier": classifier(&flow.classifier), "mask": classifier(&flow.mask) })
}

fn rates(rates: Rates) -> Value {
    json!({ "forward_bits_per_s": rates.forward, "reverse_bits_per_s": rates.reverse })
}

fn qos(qos: &Qos<'_>) -> Value {
    match qos {
        Qos::BitRate(pair) => rates(*pair),
        Qos::Downgrade(list) => json!({ "pairs": list.pairs().map(rates).collect::<Vec<_>>() }),
        Qos::IntServ(specs) => json!({ "forward": hex(specs.forward), "reverse": hex(specs.reverse) }),
    }
}

fn options(options: &Options<'_>) -> Vec<Value> {
    let value_of = |option: Known| match option {
        Known::UserId(uid) => json!({ "user": uid.name(), "credential": hex(&uid.credential) }),
        Known::Aggregation(option) => json!({
            "address": option.address.to_string(),
            "transaction": option.transaction,
            "flow": flow(&option.flow),
            "rate_bits_per_s": option.rate,
        }),
        Known::Refusal(option) => json!({ "address": option.address.to_string(), "cause": option.cause }),
        Known::Authentication(option) => {
            let most = [option.most.forward, option.most.reverse];
            json!({ "key": option.key, "time_us": option.time_us, "most_bits_per_s": most, "digest": hex(&option.digest) })
        }
        Known::ReturnProof(option) => {
            json!({ "node": option.node, "number": hex(&option.number.to_be_bytes()) })
        }
        Known::Note(note) => json!({ "text": note.text() }),
        Known::Nodes(nodes) => {
            let places = nodes.places.iter().take(nodes.count.into()).map(ToString::to_string);
            json!({ "count": nodes.count, "ttl": nodes.ttl, "gaps": nodes.gaps, "nodes": places.collect::<Vec<_>>() })
        }
    };
    let placed = options.iter().map(|placed| {
        let mut all = Map::new();
        all.insert("option".into(), placed.option.kind().to_string().into());
        all.insert("flags".into(), placed.flags.into());
        if let Value::Object(fields) = value_of(placed.option) {
            all.extend(fields);
        }
        Value::Object(all)
    });
    placed.collect()
}

const fn pass(pass: Pass) -> &'static str {
    match pass {
        Pass::Request => "request",
        Pass::Reply => "reply",
    }
}

/// Returns a message as a JSON object.
pub(crate) fn json(message: &Message<'_>) -> Value {
    let mut value = json!({
        "type": pass(message.pass),
        "identifier": message.identifier,
        "sequence": message.sequence,
        "transaction": message.transaction,
        "format": message.format.0,
        "flags": message.flags.names().collect::<Vec<_>>(),
        "refresh_s": message.refresh,
        "key": message.key,
        "refused": message.is_refused(),
    });
    if let Some(body) = &message.body {
        value["flow"] = flow(&body.flow);
        value["qos"] = qos(&body.qos);
        value["options"] = options(&body.options).into();
    }
    value
}

/// Returns a message as text: a line for the header, then indented lines for flow, quality of service and options. There is
/// no line break at the end.
pub(crate) fn describe(message: &Message<'_>) -> String {
    let refused = if message.is_refused() { ", refused" } else { "" };
    let mut text = format!(
        "Boomerang {}, transaction {:#x}, {}, {}, refresh {} s, KEY {}{refused}",
        pass(message.pass),
        message.transaction,
        message.format.family(),
        message.format.qos(),
        message.refresh,
        message.key,
    );
    let Some(body) = &message.body else { return text };
    // Writing to a String cannot fail.
    let fields = &body.flow.classifier;
    let _ = write!(
        text,
        "\n  flow: {} port {} > {} port {}, protocol {}, tos {:#04x}",
        fields.src, fields.src_port, fields.dst, fields.dst_port, fields.protocol, fields.tos
    );
    let mask = &body.flow.mask;
    let _ = write!(
        text,
        "\n  mask: {} port {:#06x} > {} port {:#06x}, protocol {:#04x}, tos {:#04x}",
        mask.src, mask.src_port, mask.dst, mask.dst_port, mask.protocol, mask.tos
    );
    let _ = write!(text, "\n  qos: {}", qos(&body.qos));
    for option in options(&body.options) {
        let _ = write!(text, "\n  option: {option}");
    }
    text
}
