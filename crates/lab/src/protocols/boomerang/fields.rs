//! The fields of Boomerang messages.

use std::time::Duration;

use serde_json::Value;

use super::message::BoomerangMessage;
use crate::protocols::fields::{self, Field};

/// The fields of a message.
pub(super) const FIELDS: &[Field<BoomerangMessage>] = &[
    Field {
        name: "type",
        meaning: "`request` or `reply`",
        get: |m| Some(if m.reply { "reply" } else { "request" }.into()),
    },
    Field {
        name: "flow",
        meaning: "source, source port, destination and destination port of the data to the far end, as one text",
        get: |m| {
            let (src, src_port, dst, dst_port) = (m.source, m.source_port, m.destination, m.destination_port);
            Some(format!("{src}/{src_port}/{dst}/{dst_port}").into())
        },
    },
    Field {
        name: "source",
        meaning: "source address of the data to the far end",
        get: |m| Some(m.source.to_string().into()),
    },
    Field {
        name: "destination",
        meaning: "destination address of the data to the far end",
        get: |m| Some(m.destination.to_string().into()),
    },
    Field {
        name: "destination_port",
        meaning: "destination port of the data to the far end",
        get: |m| Some(m.destination_port.into()),
    },
    Field { name: "dscp", meaning: "code point of the service", get: |m| Some((m.tos >> 2).into()) },
    Field {
        name: "forward_bits_per_s",
        meaning: "rate towards the far end; of a list that of the first pair",
        get: |m| Some(m.rates?.0.into()),
    },
    Field {
        name: "reverse_bits_per_s",
        meaning: "rate from the far end; of a list that of the first pair",
        get: |m| Some(m.rates?.1.into()),
    },
    Field { name: "refresh_s", meaning: "refresh interval", get: |m| Some(m.refresh.into()) },
    Field { name: "key", meaning: "KEY; 0: refused", get: |m| Some(m.key.into()) },
    Field { name: "refused", meaning: "NACK is set, or KEY is 0", get: |m| Some(m.is_refused().into()) },
    Field {
        name: "refused_by",
        meaning: "address of the node that refused",
        get: |m| Some(m.refusal?.0.to_string().into()),
    },
    Field { name: "cause", meaning: "number of its reason", get: |m| Some(m.refusal?.1.into()) },
    Field { name: "transaction", meaning: "number of the message", get: |m| Some(m.transaction.into()) },
    Field { name: "sequence", meaning: "sequence number of the Echo", get: |m| Some(m.sequence.into()) },
    Field {
        name: "router_alert",
        meaning: "the IP packet contains a Router Alert",
        get: |m| Some(m.alert.into()),
    },
    Field { name: "ip_ttl", meaning: "TTL or hop limit of the IP packet", get: |m| Some(m.ttl.into()) },
];

impl fields::Message for BoomerangMessage {
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
