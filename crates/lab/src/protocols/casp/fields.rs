//! The fields of CASP messages.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::message::{CaspMessage, Way};
use crate::protocols::fields::{self, Field};

/// The fields of a message.
pub(super) const FIELDS: &[Field<CaspMessage>] = &[
    Field {
        name: "type",
        meaning: "`signaling`, `scout_request` or `scout_response`",
        get: |m| {
            Some(match m.kind {
                2 => "scout_request".into(),
                3 => "scout_response".into(),
                _ => "signaling".into(),
            })
        },
    },
    Field {
        name: "transport",
        meaning: "`tcp` or `udp`; messages over TLS and SCTP are not read",
        get: |m| Some(if m.way == Way::Tcp { "tcp" } else { "udp" }.into()),
    },
    Field {
        name: "session",
        meaning: "session identifier in hexadecimal",
        get: |m| Some(m.session.iter().map(|octet| format!("{octet:02x}")).collect::<String>().into()),
    },
    Field { name: "unsecure", meaning: "flag U", get: |m| Some((m.flags & 1 != 0).into()) },
    Field { name: "discover", meaning: "flag D", get: |m| Some((m.flags & 2 != 0).into()) },
    Field { name: "tear_down", meaning: "flag T", get: |m| Some((m.flags & 4 != 0).into()) },
    Field { name: "reverse", meaning: "flag R", get: |m| Some((m.flags & 8 != 0).into()) },
    Field { name: "ttd", meaning: "how many nodes it may reach", get: |m| Some(m.ttd.into()) },
    Field { name: "hops", meaning: "how many nodes it passed", get: |m| Some(m.hops.into()) },
    Field {
        name: "source",
        meaning: "source address of the data",
        get: |m| Some(m.flow?.0.to_string().into()),
    },
    Field {
        name: "destination",
        meaning: "destination address of the data",
        get: |m| Some(m.flow?.1.to_string().into()),
    },
    Field { name: "lifetime_s", meaning: "CASP_TIMEOUT", get: |m| Some(m.lifetime?.into()) },
    Field { name: "client", meaning: "number of the client in CLIENT_DATA", get: |m| Some(m.client?.into()) },
    Field {
        name: "local",
        meaning: "the message of the QoS client has LOCAL",
        get: |m| Some(m.local?.into()),
    },
    Field { name: "error", meaning: "code of ERROR", get: |m| Some(m.error?.into()) },
    Field {
        name: "recorded",
        meaning: "addresses in RECORD_ROUTE, the initiator first",
        get: |m| Some(addresses(m.recorded.as_deref()?)),
    },
    Field {
        name: "route",
        meaning: "addresses in ROUTE, the next node last",
        get: |m| Some(addresses(m.route.as_deref()?)),
    },
    Field { name: "cookie", meaning: "it has SCOUT_COOKIE_R", get: |m| Some(m.classes.contains(&6).into()) },
    Field {
        name: "router_alert",
        meaning: "the IP packet contains a Router Alert",
        get: |m| Some(m.alert.into()),
    },
    Field {
        name: "ip_destination",
        meaning: "destination of the IP packet",
        get: |m| Some(m.ip_destination.to_string().into()),
    },
];

fn addresses(all: &[IpAddr]) -> Value {
    all.iter().map(|address| Value::from(address.to_string())).collect()
}

impl fields::Message for CaspMessage {
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
