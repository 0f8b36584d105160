//! The fields of GIST messages, and of the connections that carried some of them.

use std::time::Duration;

use serde_json::{Value, json};

use super::qos;
use super::seen::{Carrier, Connection, Content, Message, hex};
use crate::protocols::fields::{self, Field};
use crate::protocols::gist::message::Kind;
use crate::protocols::packet::u16_at;

/// Length of the common header, and type of the NSLP-Data object (RFC 5971 A.1, A.3.10).
const COMMON_HEADER: usize = 8;
const NSLP_DATA: u16 = 8;
/// NSLPID of the QoS NSLP (RFC 5974).
const QOS: u16 = 1;

/// The fields of a message.
pub(super) const FIELDS: &[Field<Message>] = &[
    Field {
        name: "type",
        meaning: "`query`, `response`, `confirm`, `data`, `error`, `ma_hello`; `connection` is a connection",
        get: |m| Some(kind(m.kind).into()),
    },
    Field {
        name: "session_id",
        meaning: "session identifier, hexadecimal",
        get: |m| Some(hex(&m.session?).into()),
    },
    Field {
        name: "nslpid",
        meaning: "number of the signaling application",
        // The common header has it behind version, hop count and length (RFC 5971 A.1).
        get: |m| Some(u16_at(&m.octets, 4)?.into()),
    },
    Field { name: "hops", meaning: "GIST hop count", get: |m| Some(m.hops.into()) },
    Field { name: "c", meaning: "C-flag", get: |m| Some(m.c_flag.into()) },
    Field {
        name: "s",
        meaning: "S-flag: the IP source is the node's own address, not the flow's",
        get: |m| Some(m.s_flag.into()),
    },
    Field {
        name: "stack_proposal",
        meaning: "it negotiates an association: Stack-Proposal and Stack-Configuration-Data",
        get: |m| Some(m.negotiates.into()),
    },
    Field { name: "error_code", meaning: "code of the Error object", get: |m| m.error.map(Value::from) },
    Field {
        name: "nats",
        meaning: "NAT-Count of the NAT-Traversal object, if the message begins with one",
        get: |m| m.nats().map(Value::from),
    },
    Field {
        name: "carrier",
        meaning: "`datagram` or `stream`",
        get: |m| Some((if m.carrier == Carrier::Datagram { "datagram" } else { "stream" }).into()),
    },
    Field {
        name: "router_alert",
        meaning: "value of the Router Alert option",
        get: |m| m.router_alert.map(Value::from),
    },
    Field {
        name: "ip_source",
        meaning: "source address of the IP packet",
        get: |m| Some(m.src.to_string().into()),
    },
    Field {
        name: "ip_destination",
        meaning: "its destination address",
        get: |m| Some(m.dst.to_string().into()),
    },
    Field { name: "ip_ttl", meaning: "its TTL or hop limit", get: |m| Some(m.ttl.into()) },
    Field {
        name: "source_port",
        meaning: "port of the sender, in a datagram",
        get: |m| Some(u16_at(&m.packet, m.payload_at.checked_sub(8)?)?.into()),
    },
    Field { name: "port", meaning: "port that it was sent to", get: |m| Some(m.dst_port.into()) },
    Field {
        name: "body",
        meaning: "all octets behind the GIST hop count, hexadecimal",
        get: |m| Some(hex(m.octets.get(2..)?).into()),
    },
    Field {
        name: "octets",
        meaning: "octets of the message from its common header on",
        get: |m| Some(m.octets.len().into()),
    },
    Field {
        name: "nslp_octets",
        meaning: "octets that it carries for the signaling application: NSLP-Data without its header",
        get: |m| Some(nslp_data(&m.octets)?.len().into()),
    },
    Field {
        name: "qos",
        meaning: "of the QoS NSLP: `reserve`, `refresh` (a RESERVE without QSPEC), `query`, `response`, `notify`",
        get: |m| Some(qos::kind(qos_data(m)?)?.into()),
    },
    Field {
        name: "qspec_octets",
        meaning: "octets of the QSPEC of the QoS NSLP, with the header of its object",
        get: |m| Some(qos::qspec(qos_data(m)?).into()),
    },
    Field {
        name: "padding",
        meaning: "padding of a Ping message, hexadecimal",
        get: |m| Some(hex(padding(&m.octets)?).into()),
    },
];

/// The fields of a connection, besides `type`.
pub(super) const CONNECTION: &[Field<Connection>] = &[
    Field { name: "type", meaning: "`connection`", get: |_| Some("connection".into()) },
    Field {
        name: "transport",
        meaning: "of a connection: `tcp` or `sctp`",
        get: |c| Some((if c.sctp { "sctp" } else { "tcp" }).into()),
    },
    Field {
        name: "ip_source",
        meaning: "the end that opened it",
        get: |c| Some(c.client.ip().to_string().into()),
    },
    Field {
        name: "ip_destination",
        meaning: "the end that accepts",
        get: |c| Some(c.server.ip().to_string().into()),
    },
    Field { name: "port", meaning: "the port there", get: |c| Some(c.server.port().into()) },
    Field { name: "accepted", meaning: "of a connection: it was accepted", get: |c| Some(c.accepted.into()) },
    Field {
        name: "content",
        meaning: "of a connection: what each direction carried, `gist`, `tls`, `nothing` or `unknown`",
        get: |c| Some(json!(c.flows.each_ref().map(|flow| content(flow.content)))),
    },
    Field {
        name: "tls_data",
        meaning: "of a connection: both directions carried a TLS handshake and data",
        get: |c| Some(c.flows.iter().all(|flow| !flow.records.contains(&0)).into()),
    },
    Field {
        name: "clear_messages",
        meaning: "of a connection: GIST messages in clear",
        get: |c| Some(c.flows.iter().map(|flow| flow.messages).sum::<u64>().into()),
    },
    Field {
        name: "clear_sessions",
        meaning: "of a connection: session identifiers of the link that are in clear in it",
        get: |c| Some(c.clear_sessions.into()),
    },
];

/// Returns names and meanings of all fields.
pub(super) fn described() -> Vec<(&'static str, &'static str)> {
    let mut all = fields::described(FIELDS);
    let more = fields::described(CONNECTION);
    all.extend(more.into_iter().filter(|(name, _)| !FIELDS.iter().any(|field| field.name == *name)));
    all
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Query => "query",
        Kind::Response => "response",
        Kind::Confirm => "confirm",
        Kind::Data => "data",
        Kind::Error => "error",
        Kind::MaHello => "ma_hello",
        Kind::Unknown => "unknown",
    }
}

fn content(content: Content) -> &'static str {
    match content {
        Content::Nothing => "nothing",
        Content::Gist => "gist",
        Content::Tls => "tls",
        Content::Unknown => "unknown",
    }
}

/// Finds the value of the NSLP-Data object behind the common header.
fn nslp_data(octets: &[u8]) -> Option<&[u8]> {
    object(octets.get(COMMON_HEADER..)?, NSLP_DATA)
}

/// Finds what a message of the QoS NSLP is.
fn qos_data(message: &Message) -> Option<&[u8]> {
    nslp_data(&message.octets).filter(|_| u16_at(&message.octets, 4) == Some(QOS))
}

/// Finds the value of an object of this type. Those of GIST and of its applications have the same header.
pub(super) fn object(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let words = usize::from(u16_at(rest, 2)? & 0x0fff);
        let value = rest.get(4..4 + 4 * words)?;
        if u16_at(rest, 0)? & 0x0fff == wanted {
            return Some(value);
        }
        rest = &rest[4 + value.len()..];
    }
}

/// Finds the padding at the end of a Ping message: its length stands in front of it.
fn padding(octets: &[u8]) -> Option<&[u8]> {
    let lengths = (1..=octets.len() / 4).rev().map(|words| 4 * words);
    lengths
        .filter_map(|length| {
            let at = octets.len().checked_sub(length)?;
            let stated = octets.get(at.checked_sub(4)?..at)?.first_chunk::<4>()?;
            (usize::try_from(u32::from_be_bytes(*stated)).ok()? == length).then(|| &octets[at..])
        })
        .next()
}

impl fields::Message for Message {
    fn at(&self) -> Duration {
        self.at
    }

    fn acknowledged(&self) -> Option<Duration> {
        self.acknowledged
    }

    fn outgoing(&self) -> bool {
        self.outgoing
    }

    fn frame(&self) -> usize {
        self.frame
    }

    fn field(&self, name: &str) -> Option<Value> {
        fields::get(FIELDS, self, name)
    }
}

impl fields::Message for Connection {
    fn at(&self) -> Duration {
        self.opened.at
    }

    fn outgoing(&self) -> bool {
        self.opened.outgoing
    }

    fn frame(&self) -> usize {
        self.opened.frame
    }

    fn field(&self, name: &str) -> Option<Value> {
        fields::get(CONNECTION, self, name)
    }
}
