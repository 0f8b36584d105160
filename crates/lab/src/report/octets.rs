//! The octets of messages by layer, as they were on the links.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::protocols;
use crate::protocols::fields::Message;
use crate::protocols::packet::Layers;
use crate::run::evidence::Evidence;
use crate::run::observe::trace::LinkTrace;

/// The fields that distinguish messages of one type with different sizes.
const APART: [&str; 3] = ["carrier", "stack_proposal", "qos"];

/// The field with the octets that a message carries for an application.
const CARRIED: &str = "nslp_octets";

/// The field with those of them that describe the traffic and what it needs.
const DESCRIBED: &str = "qspec_octets";

/// The field with the octets of a message, without those of others in its packet.
const OWN: &str = "octets";

/// A size of messages: the octets of each layer, those for the application among them, and those of its QSPEC among these.
type Size = (Layers, u64, u64);

/// What a row is about: the type of its messages, and their fields of [`APART`].
type Kind = Vec<(&'static str, Value)>;

/// How many messages had which size.
type Sizes = BTreeMap<Size, usize>;

/// Returns a row for each link, protocol and type of message, with the most frequent size.
pub(super) fn measure(evidence: &Evidence) -> Vec<Value> {
    let links = evidence.trace.links.iter().zip(&evidence.plan.links);
    links
        .flat_map(|(trace, link)| {
            let readers = protocols::all().filter(|protocol| protocol.observer().is_some());
            let rows = readers
                .flat_map(|protocol| {
                    let groups = of_messages(trace, &trace.messages(protocol.name()));
                    groups.into_iter().map(|(kind, sizes)| row(&link.name, protocol.name(), kind, &sizes))
                })
                .chain(
                    of_segments(trace)
                        .into_iter()
                        .map(|(kind, sizes)| row(&link.name, "tcp", vec![("type", kind.into())], &sizes)),
                );
            rows.collect::<Vec<_>>()
        })
        .collect()
}

/// Groups messages. Of those that share an IP packet only those are known that have a length of their own.
fn of_messages(trace: &LinkTrace, messages: &[&dyn Message]) -> Vec<(Kind, Sizes)> {
    let mut together: BTreeMap<usize, usize> = BTreeMap::new();
    for message in messages {
        *together.entry(message.frame()).or_default() += 1;
    }
    let mut groups: BTreeMap<String, (Kind, Sizes)> = BTreeMap::new();
    for message in messages {
        let (mut layers, Some(kind)) = (trace.layers(message.frame()), message.field("type")) else {
            continue;
        };
        if together.get(&message.frame()) != Some(&1) {
            let own = message.field(OWN).and_then(|octets| usize::try_from(octets.as_u64()?).ok());
            layers.message = own.unwrap_or(0).min(layers.message);
        }
        // A connection is no message, and has no octets.
        if layers.message == 0 {
            continue;
        }
        let apart = APART.into_iter().filter_map(|name| Some((name, message.field(name)?)));
        let kind: Kind = [("type", kind)].into_iter().chain(apart).collect();
        let name = kind.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" ");
        let (_, sizes) = groups.entry(name).or_insert_with(|| (kind, Sizes::new()));
        let octets = |name| message.field(name).and_then(|octets| octets.as_u64()).unwrap_or(0);
        *sizes.entry((layers, octets(CARRIED), octets(DESCRIBED))).or_default() += 1;
    }
    groups.into_values().collect()
}

/// Groups the TCP segments without payload.
fn of_segments(trace: &LinkTrace) -> BTreeMap<&'static str, Sizes> {
    let mut groups: BTreeMap<_, Sizes> = BTreeMap::new();
    for ((kind, layers), count) in &trace.bare {
        groups.entry(*kind).or_default().insert((*layers, 0, 0), *count);
    }
    groups
}

fn row(link: &str, protocol: &str, kind: Kind, sizes: &Sizes) -> Value {
    let most = sizes.iter().max_by_key(|(_, count)| **count);
    let (layers, carried, described) = most.map(|(size, _)| *size).unwrap_or_default();
    let Layers { network, transport, message } = layers;
    // They are a part of the message, so that it has no fewer octets.
    let carried = usize::try_from(carried).unwrap_or(usize::MAX).min(message);
    let mut row: Map<String, Value> = [("link", Value::from(link)), ("protocol", protocol.into())]
        .into_iter()
        .chain(kind)
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let described = usize::try_from(described).unwrap_or(usize::MAX).min(carried);
    if described > 0 {
        row.insert("qspec".to_owned(), described.into());
    }
    let numbers = [
        ("count", sizes.values().sum()),
        ("sizes", sizes.len()),
        ("network", network),
        ("transport", transport),
        ("message", message - carried),
        ("application", carried),
        ("octets", network + transport + message),
    ];
    row.extend(numbers.map(|(name, number)| (name.to_owned(), number.into())));
    row.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocols::frame::Frame;
    use crate::protocols::gist::message::tests::query_v4;

    fn frame(number: usize, octets: Vec<u8>) -> Frame {
        Frame { number, at: std::time::Duration::ZERO, outgoing: true, octets }
    }

    /// A TCP segment of these flags over IPv4, with twelve octets of options and this payload.
    fn segment(flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(20 + 32 + payload.len()).expect("short");
        let mut octets = vec![0; 12];
        octets.extend([0x08, 0, 0x45, 0, 0, length, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 1, 1, 10, 0, 1, 2]);
        octets.extend([0xc0, 0, 1, 14, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, flags, 0, 0, 0, 0, 0, 0]);
        octets.extend([1; 12]);
        octets.extend(payload);
        octets
    }

    #[test]
    fn a_query_with_router_alert_has_24_octets_of_ip_and_8_of_udp() {
        let frames = [frame(1, query_v4()), frame(2, query_v4())];
        let trace = LinkTrace::read(0, &frames, 0);
        let [(kind, sizes)] = &of_messages(&trace, &trace.messages("gist"))[..] else { panic!("one group") };
        let row = row("h1-r1", "gist", kind.clone(), sizes);
        let wanted = json!({
            "link": "h1-r1", "protocol": "gist", "type": "query", "carrier": "datagram", "stack_proposal": false,
            "count": 2, "sizes": 1, "network": 24, "transport": 8, "message": 32, "application": 0, "octets": 64,
        });
        assert_eq!(row, wanted);
    }

    /// Two messages of 28 octets in one segment: each counts with its own octets.
    #[test]
    fn messages_that_share_a_segment_are_told_apart_by_their_lengths() {
        let message = |kind: u8| [&[1, 1, 0, 5, 0x7f, 0xc0, kind, 0x40, 0, 1, 0, 4][..], &[7; 16]].concat();
        let both = [message(2), message(3)].concat();
        let mut frames = vec![frame(1, segment(0x02, &[])), frame(2, segment(0x18, &both))];
        // The first octet behind the SYN has the number that follows.
        frames[1].octets[14 + 20 + 4..14 + 20 + 8].copy_from_slice(&2_u32.to_be_bytes());
        let trace = LinkTrace::read(0, &frames, 0);
        let groups = of_messages(&trace, &trace.messages("gist"));
        let sizes: Vec<_> = groups
            .iter()
            .map(|(kind, sizes)| (kind[0].1.clone(), sizes.keys().copied().collect::<Vec<_>>()))
            .collect();
        let size = (Layers { network: 20, transport: 32, message: 28 }, 0, 0);
        assert_eq!(sizes, [(json!("confirm"), vec![size]), (json!("data"), vec![size])]);
    }

    #[test]
    fn segments_without_payload_are_told_apart_from_those_with_messages() {
        let frames = [(0x02, ""), (0x12, ""), (0x10, ""), (0x18, "x"), (0x11, "")]
            .map(|(flags, payload)| segment(flags, payload.as_bytes()));
        let frames: Vec<_> =
            frames.into_iter().enumerate().map(|(at, octets)| frame(at + 1, octets)).collect();
        let groups = of_segments(&LinkTrace::read(0, &frames, 0));
        let size = (Layers { network: 20, transport: 32, message: 0 }, 0, 0);
        let wanted = [("ack", Sizes::from([(size, 1)])), ("syn", Sizes::from([(size, 2)]))];
        assert_eq!(groups, wanted.into_iter().collect());
    }
}
