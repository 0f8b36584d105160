//! What a replayed node does, as text or JSON lines.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use signalbox_core::node::{Output, RouteQuery, StreamId};
use signalbox_core::packet::Transmit;
use signalbox_core::traffic::{Reservation, TrafficSpec};
use signalbox_core::{Count, Counter, Entry, Time};
use signalbox_dissect::{hex, summary};
use signalbox_node::{Event, Node};
use signalbox_record::Replayed;

use super::events;

/// Prints a line for each output and counts them.
pub(super) struct Printer<'a, W> {
    out: &'a mut W,
    json: bool,
    transmits: u64,
    lookups: u64,
    streams: u64,
    reservations: u64,
    pinholes: u64,
    events: u64,
}

impl<'a, W: Write> Printer<'a, W> {
    pub(super) fn new(out: &'a mut W, json: bool) -> Self {
        Self { out, json, transmits: 0, lookups: 0, streams: 0, reservations: 0, pinholes: 0, events: 0 }
    }

    /// Prints an output that the node gave at `t`.
    pub(super) fn output(&mut self, t: Time, output: &Output<'_, Event>) -> io::Result<()> {
        let (count, (text, mut json)) = match output {
            Output::Transmit(transmit) => (&mut self.transmits, transmit_line(transmit)),
            Output::RouteLookup { id, query } => (
                &mut self.lookups,
                (
                    format!("lookup {id}: {}", query_text(query)),
                    json!({ "type": "route-lookup", "id": id, "query": query }),
                ),
            ),
            Output::MulticastLookup { group, source } => (
                &mut self.lookups,
                (
                    format!("lookup multicast route from {source} to {group}"),
                    json!({ "type": "multicast-lookup", "group": group, "source": source }),
                ),
            ),
            Output::MulticastRelease { group, source } => (
                &mut self.lookups,
                (
                    format!("release multicast route from {source} to {group}"),
                    json!({ "type": "multicast-release", "group": group, "source": source }),
                ),
            ),
            Output::Event(event) => (&mut self.events, events::line(event)),
            Output::StreamListen { kind, port } => (
                &mut self.streams,
                (
                    format!("listen at {} port {port}", kind.name()),
                    json!({ "type": "stream-listen", "kind": kind.name(), "port": port }),
                ),
            ),
            Output::StreamOpen { stream: StreamId(stream), kind, local, peer } => (
                &mut self.streams,
                (
                    format!("stream {stream}: open {} from {local} to {peer}", kind.name()),
                    json!({ "type": "stream-open", "stream": stream, "kind": kind.name(), "local": local, "peer": peer }),
                ),
            ),
            Output::StreamWrite { stream: StreamId(stream), octets } => (
                &mut self.streams,
                (
                    format!("stream {stream}: write {} octets", octets.len()),
                    json!({ "type": "stream-write", "stream": stream, "octets": hex(octets) }),
                ),
            ),
            Output::StreamMessage { stream: StreamId(stream), sctp_stream, lifetime, octets } => (
                &mut self.streams,
                (
                    format!(
                        "stream {stream}: message of {} octets on SCTP stream {sctp_stream}",
                        octets.len()
                    ),
                    json!({
                        "type": "stream-message",
                        "stream": stream,
                        "sctp_stream": sctp_stream,
                        "lifetime_us": lifetime.map(|lifetime| lifetime.as_micros()),
                        "octets": hex(octets),
                    }),
                ),
            ),
            Output::StreamRead { stream: StreamId(stream), on } => (
                &mut self.streams,
                (
                    format!("stream {stream}: {} reading", if *on { "go on" } else { "stop" }),
                    json!({ "type": "stream-read", "stream": stream, "on": on }),
                ),
            ),
            Output::StreamClose { stream: StreamId(stream), abort } => (
                &mut self.streams,
                (
                    format!("stream {stream}: {}", if *abort { "abort" } else { "close" }),
                    json!({ "type": "stream-close", "stream": stream, "abort": abort }),
                ),
            ),
            Output::Reserve { id, reservation } => (
                &mut self.reservations,
                (
                    format!("reserve {}: {}", id.0, reservation_text(reservation)),
                    json!({ "type": "reserve", "id": id, "reservation": reservation }),
                ),
            ),
            Output::Release { id } => (
                &mut self.reservations,
                (format!("release {}", id.0), json!({ "type": "release", "id": id })),
            ),
            Output::OpenPinhole { id, pinhole, lifetime } => (
                &mut self.pinholes,
                (
                    format!("open {id} for {lifetime:?}: {pinhole}"),
                    json!({
                        "type": "open-pinhole",
                        "id": id,
                        "pinhole": pinhole,
                        "lifetime_us": lifetime.as_micros(),
                    }),
                ),
            ),
            Output::ClosePinhole { id } => {
                (&mut self.pinholes, (format!("close {id}"), json!({ "type": "close-pinhole", "id": id })))
            }
            Output::FindFlow { id, packets } => (
                &mut self.pinholes,
                (
                    format!("find the flow of {packets} for {id}"),
                    json!({ "type": "find-flow", "id": id, "packets": packets }),
                ),
            ),
        };
        *count += 1;
        if self.json {
            json["t"] = t.as_micros().into();
            return writeln!(self.out, "{json}");
        }
        writeln!(self.out, "{t} {text}")
    }

    /// Prints what was done and what is left.
    pub(super) fn summary(&mut self, node: &Node, done: &Replayed, reached_limit: bool) -> io::Result<()> {
        let counters: Vec<Counter> = node.counters().filter(|counter| counter.count.value != 0).collect();
        let fault = done.fault.as_ref().map(ToString::to_string);
        let (sessions, peers, pings) = (node.session_count(), node.peers().count(), node.pings());
        if self.json {
            let counters: Map<String, Value> =
                counters.iter().map(|c| (c.to_string(), c.count.value.into())).collect();
            let line = json!({
                "type": "summary",
                "t": done.end.as_micros(),
                "inputs": done.inputs,
                "outputs": done.outputs,
                "transmits": self.transmits,
                "route_lookups": self.lookups,
                "streams": self.streams,
                "reservations": self.reservations,
                "events": self.events,
                "sessions": sessions,
                "peers": peers,
                "pings": pings,
                "counters": counters,
                "reached_limit": reached_limit,
                "fault": fault,
            });
            return writeln!(self.out, "{line}");
        }
        writeln!(
            self.out,
            "\n{} inputs until {}, {} outputs: {} datagrams, {} route lookups, {} to streams, {} to reserve, {} to open and close, {} events",
            done.inputs,
            done.end,
            done.outputs,
            self.transmits,
            self.lookups,
            self.streams,
            self.reservations,
            self.pinholes,
            self.events
        )?;
        writeln!(self.out, "left: {sessions} sessions, {peers} peers, {pings} pings")?;
        for counter in &counters {
            let Count { value, help, .. } = counter.count;
            writeln!(self.out, "{:60} {value:>8}  {help}", counter.to_string())?;
        }
        if reached_limit {
            writeln!(self.out, "the recording ended at its size limit; the node went on")?;
        }
        match fault {
            Some(fault) => writeln!(self.out, "not the whole recording: {fault}"),
            None => Ok(()),
        }
    }
}

fn transmit_line(transmit: &Transmit<'_>) -> (String, Value) {
    let Transmit { src, dst, ttl, payload, .. } = transmit;
    let message = message(transmit);
    let text = format!("send {src} > {dst}, TTL {ttl}: {message}");
    let json = json!({
        "type": "transmit",
        "entry": transmit.entry,
        "src": src,
        "dst": dst,
        "ifindex": transmit.ifindex,
        "ttl": ttl,
        "tos": transmit.tos,
        "dont_fragment": transmit.dont_fragment,
        "options": hex(transmit.options),
        "payload": hex(payload),
        "message": message,
    });
    (text, json)
}

/// Describes the payload of a packet.
fn message(transmit: &Transmit<'_>) -> String {
    let octets = transmit.payload.len();
    match transmit.entry {
        Entry::Udp(_) => summary(transmit.payload),
        Entry::Ip(protocol) => format!("IP protocol {protocol}, {octets} octets"),
        Entry::IcmpEcho(_) => format!("ICMP echo, {octets} octets"),
    }
}

fn reservation_text(reservation: &Reservation) -> String {
    let Reservation { ifindex, filters, traffic, served, .. } = reservation;
    let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
    let TrafficSpec { rate, burst, .. } = traffic;
    let served = served.map(|served| format!(", served at {served}")).unwrap_or_default();
    format!("{rate} octets/s and {burst} at once{served} on {ifindex} for {}", filters.join("; "))
}

fn query_text(query: &RouteQuery) -> String {
    let mut text = format!("route to {}", query.dst);
    if let Some(src) = query.src {
        text += &format!(" from {src}");
    }
    for (name, value) in [
        ("proto", query.protocol.map(u16::from)),
        ("sport", query.src_port),
        ("dport", query.dst_port),
        ("tos", (query.tos != 0).then_some(u16::from(query.tos))),
    ] {
        if let Some(value) = value {
            text += &format!(" {name} {value}");
        }
    }
    if let Some(without) = query.without {
        text += &format!(" without interface {}", without.0);
    }
    text
}
