//! The fields of RSVP messages.

use std::time::Duration;

use serde_json::{Value, json};

use super::message::{RsvpMessage, RsvpStyle, RsvpType};
use crate::protocols::fields::{self, Field};

/// The fields of a message.
pub(super) const FIELDS: &[Field<RsvpMessage>] = &[
    Field {
        name: "type",
        meaning: "`path`, `resv`, `path_err`, `resv_err`, `path_tear`, `resv_tear`, `resv_conf`, `dreq`, `drep`, `other`",
        get: |m| Some(kind(m.kind).into()),
    },
    Field {
        name: "session",
        meaning: "destination, IP protocol and destination port, as one text",
        get: |m| {
            m.session.map(|(destination, protocol, port)| format!("{destination}/{protocol}/{port}").into())
        },
    },
    Field {
        name: "destination",
        meaning: "destination address of the session",
        get: |m| Some(m.session?.0.to_string().into()),
    },
    Field { name: "ip_protocol", meaning: "IP protocol of the session", get: |m| Some(m.session?.1.into()) },
    Field {
        name: "destination_port",
        meaning: "destination port of the session",
        get: |m| Some(m.session?.2.into()),
    },
    Field { name: "style", meaning: "`wf`, `ff` or `se`", get: |m| Some(style(m.style?).into()) },
    Field {
        name: "rate_octets_per_s",
        meaning: "token rate of the flowspec or of the sender; of several the greatest",
        get: |m| m.rates.iter().copied().reduce(f32::max).map(|rate| json!(rate)),
    },
    Field {
        name: "senders",
        meaning: "addresses of the senders, in the order of the addresses",
        get: |m| Some(addresses(&m.senders)),
    },
    Field {
        name: "scope",
        meaning: "addresses in SCOPE, in the order of the addresses",
        get: |m| m.scope.as_deref().map(addresses),
    },
    Field { name: "error_code", meaning: "code of the ERROR_SPEC", get: |m| Some(m.error?.0.into()) },
    Field { name: "error_value", meaning: "its value", get: |m| Some(m.error?.1.into()) },
    Field { name: "in_place", meaning: "its InPlace flag", get: |m| Some((m.error?.2 & 1 != 0).into()) },
    Field {
        name: "broken",
        meaning: "the global break bit of the ADSPEC",
        get: |m| m.broken.map(Value::from),
    },
    Field { name: "send_ttl", meaning: "Send_TTL of the message", get: |m| Some(m.sent_ttl.into()) },
    Field { name: "ip_ttl", meaning: "TTL or hop limit of the IP packet", get: |m| Some(m.ttl.into()) },
    Field {
        name: "hops_without_rsvp",
        meaning: "the difference between Send_TTL and the packet's TTL",
        get: |m| m.sent_ttl.checked_sub(m.ttl).map(Value::from),
    },
];

fn addresses(all: &[std::net::IpAddr]) -> Value {
    let mut all = all.to_vec();
    all.sort();
    all.dedup();
    all.iter().map(|address| Value::from(address.to_string())).collect()
}

pub(crate) fn kind(kind: RsvpType) -> &'static str {
    match kind {
        RsvpType::Path => "path",
        RsvpType::Resv => "resv",
        RsvpType::PathErr => "path_err",
        RsvpType::ResvErr => "resv_err",
        RsvpType::PathTear => "path_tear",
        RsvpType::ResvTear => "resv_tear",
        RsvpType::ResvConf => "resv_conf",
        RsvpType::Dreq => "dreq",
        RsvpType::Drep => "drep",
        RsvpType::Other => "other",
    }
}

fn style(style: RsvpStyle) -> &'static str {
    match style {
        RsvpStyle::Wf => "wf",
        RsvpStyle::Ff => "ff",
        RsvpStyle::Se => "se",
    }
}

impl fields::Message for RsvpMessage {
    fn at(&self) -> Duration {
        self.at
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
