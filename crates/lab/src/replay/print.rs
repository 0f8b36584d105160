//! What a replayed node does, as text or JSON lines.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use signalbox_core::node::{Output, RouteQuery};
use signalbox_core::packet::Transmit;
use signalbox_core::service::IndicationOf;
use signalbox_core::traffic::{Reservation, TrafficSpec};
use signalbox_core::{Entry, Time};
use signalbox_dissect::{hex, summary};
use signalbox_node::ping::{PingEvent, Reply};
use signalbox_node::{ApplicationEvent, Counter, Event, Node};
use signalbox_record::Replayed;

/// Prints a line for each output and counts them.
pub(super) struct Printer<'a, W> {
    out: &'a mut W,
    json: bool,
    transmits: u64,
    lookups: u64,
    streams: u64,
    reservations: u64,
    events: u64,
}

impl<'a, W: Write> Printer<'a, W> {
    pub(super) fn new(out: &'a mut W, json: bool) -> Self {
        Self { out, json, transmits: 0, lookups: 0, streams: 0, reservations: 0, events: 0 }
    }

    /// One output, given at `t`.
    pub(super) fn output(&mut self, t: Time, output: &Output<'_, Event>) -> io::Result<()> {
        let count = match output {
            Output::Transmit(_) => &mut self.transmits,
            Output::RouteLookup { .. } | Output::MulticastLookup { .. } => &mut self.lookups,
            Output::Event(_) => &mut self.events,
            Output::StreamListen { .. }
            | Output::StreamOpen { .. }
            | Output::StreamWrite { .. }
            | Output::StreamMessage { .. }
            | Output::StreamRead { .. }
            | Output::StreamClose { .. } => &mut self.streams,
            Output::Reserve { .. } | Output::Release { .. } => &mut self.reservations,
        };
        *count += 1;
        if self.json {
            let mut line = match output {
                Output::Transmit(transmit) => transmit_json(transmit),
                Output::RouteLookup { id, query } => {
                    json!({ "type": "route-lookup", "id": id, "query": query })
                }
                Output::MulticastLookup { group, source } => {
                    json!({ "type": "multicast-lookup", "group": group, "source": source })
                }
                Output::Event(Event::Ping { id, event }) => event_json(*id, event),
                Output::Event(Event::Gist { id, event }) => {
                    json!({ "type": "application", "id": id, "event": event })
                }
                Output::Event(Event::Rsvp { id, event }) => {
                    json!({ "type": "rsvp-event", "id": id, "event": event })
                }
                Output::Reserve { id, reservation } => {
                    json!({ "type": "reserve", "id": id, "reservation": reservation })
                }
                Output::Release { id } => json!({ "type": "release", "id": id }),
                stream => stream_json(stream),
            };
            line["t"] = t.as_micros().into();
            return writeln!(self.out, "{line}");
        }
        match output {
            Output::Transmit(d) => {
                writeln!(self.out, "{t} send {} > {}, TTL {}: {}", d.src, d.dst, d.ttl, payload(d))
            }
            Output::RouteLookup { id, query } => {
                writeln!(self.out, "{t} lookup {id}: {}", query_text(query))
            }
            Output::MulticastLookup { group, source } => {
                writeln!(self.out, "{t} lookup multicast route from {source} to {group}")
            }
            Output::Event(Event::Ping { id, event }) => {
                writeln!(self.out, "{t} ping {id}: {}", event_text(event))
            }
            Output::Event(Event::Gist { id, event }) => {
                writeln!(self.out, "{t} application {id}: {}", application_text(event))
            }
            Output::Event(Event::Rsvp { id, event }) => {
                writeln!(self.out, "{t} RSVP session {id}: {event:?}")
            }
            Output::Reserve { id, reservation } => {
                writeln!(self.out, "{t} reserve {}: {}", id.0, reservation_text(reservation))
            }
            Output::Release { id } => writeln!(self.out, "{t} release {}", id.0),
            stream => writeln!(self.out, "{t} {}", stream_text(stream)),
        }
    }

    /// What was done and what is left.
    pub(super) fn summary(&mut self, node: &Node, done: &Replayed, reached_limit: bool) -> io::Result<()> {
        let counters: Vec<Counter> = node.counters().filter(|counter| counter.value != 0).collect();
        let fault = done.fault.as_ref().map(ToString::to_string);
        let (sessions, peers, pings) = (node.session_count(), node.peers().count(), node.pings());
        if self.json {
            let counters: Map<String, Value> =
                counters.iter().map(|c| (format!("{}.{}", c.room, c.name), c.value.into())).collect();
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
            "\n{} inputs until {}, {} outputs: {} datagrams, {} route lookups, {} to streams, {} to reserve, {} events",
            done.inputs,
            done.end,
            done.outputs,
            self.transmits,
            self.lookups,
            self.streams,
            self.reservations,
            self.events
        )?;
        writeln!(self.out, "left: {sessions} sessions, {peers} peers, {pings} pings")?;
        for Counter { room, name, value, help } in &counters {
            writeln!(self.out, "{:34} {value:>8}  {help}", format!("{room}.{name}"))?;
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

fn transmit_json(transmit: &Transmit<'_>) -> Value {
    json!({
        "type": "transmit",
        "entry": transmit.entry,
        "src": transmit.src,
        "dst": transmit.dst,
        "ifindex": transmit.ifindex,
        "ttl": transmit.ttl,
        "tos": transmit.tos,
        "dont_fragment": transmit.dont_fragment,
        "options": hex(transmit.options),
        "payload": hex(transmit.payload),
        "message": payload(transmit),
    })
}

/// What a packet holds: GIST's messages in words.
fn payload(transmit: &Transmit<'_>) -> String {
    match transmit.entry {
        Entry::Udp(_) => summary(transmit.payload),
        Entry::Ip(protocol) => format!("IP protocol {protocol}, {} octets", transmit.payload.len()),
        Entry::IcmpEcho(_) => format!("ICMP echo, {} octets", transmit.payload.len()),
    }
}

/// What concerns streams and SCTP; `null` for anything else.
fn stream_json(output: &Output<'_, Event>) -> Value {
    match output {
        Output::StreamListen { kind, port } => {
            json!({ "type": "stream-listen", "kind": kind.name(), "port": port })
        }
        Output::StreamOpen { stream, kind, local, peer } => {
            json!({ "type": "stream-open", "stream": stream.0, "kind": kind.name(), "local": local, "peer": peer })
        }
        Output::StreamMessage { stream, lane, lifetime, octets } => json!({
            "type": "stream-message",
            "stream": stream.0,
            "lane": lane,
            "lifetime_us": lifetime.map(|lifetime| lifetime.as_micros()),
            "octets": hex(octets),
        }),
        Output::StreamWrite { stream, octets } => {
            json!({ "type": "stream-write", "stream": stream.0, "octets": hex(octets) })
        }
        Output::StreamRead { stream, on } => json!({ "type": "stream-read", "stream": stream.0, "on": on }),
        Output::StreamClose { stream, abort } => {
            json!({ "type": "stream-close", "stream": stream.0, "abort": abort })
        }
        Output::Transmit(_)
        | Output::RouteLookup { .. }
        | Output::MulticastLookup { .. }
        | Output::Reserve { .. }
        | Output::Release { .. }
        | Output::Event(_) => Value::Null,
    }
}

/// The same for people; empty for anything else.
fn stream_text(output: &Output<'_, Event>) -> String {
    match output {
        Output::StreamListen { kind, port } => format!("listen at {} port {port}", kind.name()),
        Output::StreamOpen { stream, kind, local, peer } => {
            format!("stream {}: open {} from {local} to {peer}", stream.0, kind.name())
        }
        Output::StreamMessage { stream, lane, octets, .. } => {
            format!("stream {}: message of {} octets in lane {lane}", stream.0, octets.len())
        }
        Output::StreamWrite { stream, octets } => {
            format!("stream {}: write {} octets", stream.0, octets.len())
        }
        Output::StreamRead { stream, on } => {
            format!("stream {}: {} reading", stream.0, if *on { "go on" } else { "stop" })
        }
        Output::StreamClose { stream, abort } => {
            format!("stream {}: {}", stream.0, if *abort { "abort" } else { "close" })
        }
        Output::Transmit(_)
        | Output::RouteLookup { .. }
        | Output::MulticastLookup { .. }
        | Output::Reserve { .. }
        | Output::Release { .. }
        | Output::Event(_) => String::new(),
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
    text
}

fn event_text(event: &PingEvent) -> String {
    match event {
        PingEvent::Started { session, mri } => format!("started, {mri}, session {session}"),
        PingEvent::Refused(refusal) => format!("refused: {refusal}"),
        PingEvent::Reply(reply) => {
            let Reply { seq, rtt, hops, reached_end, .. } = reply;
            let path: Vec<String> = hops.iter().map(|hop| hop.address.to_string()).collect();
            let end = if *reached_end { "" } else { ", which is not the end" };
            format!("reply {seq} after {} µs by {}{end}", rtt.as_micros(), path.join(", "))
        }
        PingEvent::Lost { seq, reason } => format!("lost {seq}: {reason}"),
        PingEvent::Done { sent, received } => format!("done, {received} of {sent} came back"),
    }
}

fn application_text(event: &ApplicationEvent) -> String {
    match event {
        ApplicationEvent::Registered => "registered".to_owned(),
        ApplicationEvent::Refused(why) => format!("refused: {why}"),
        ApplicationEvent::Indication(IndicationOf::RecvMessage(m)) => {
            let asks = if m.check.is_some() { ", asks whether to peer" } else { "" };
            let direction = m.mri.direction();
            format!(
                "message of {} octets {direction}, {}, session {}{asks}",
                m.data.0.len(),
                m.mri,
                m.session
            )
        }
        ApplicationEvent::Indication(IndicationOf::MessageStatus { handle, session, status, .. }) => {
            format!("message {}, session {session}: {status:?}", handle.0)
        }
        ApplicationEvent::Indication(IndicationOf::NetworkNotification { mri, session, event, .. }) => {
            format!("{event:?} {}, {mri}, session {session}", mri.direction())
        }
    }
}

fn event_json(id: u64, event: &PingEvent) -> Value {
    let mut line = match event {
        PingEvent::Started { session, mri } => {
            json!({ "event": "started", "session": session.to_string(), "flow": mri.to_string() })
        }
        PingEvent::Refused(refusal) => json!({ "event": "refused", "reason": refusal.to_string() }),
        PingEvent::Reply(reply) => json!({
            "event": "reply",
            "seq": reply.seq,
            "sent_us": reply.sent_us,
            "rtt_us": u64::try_from(reply.rtt.as_micros()).unwrap_or(u64::MAX),
            "reached_end": reply.reached_end,
            "truncated": reply.truncated,
            "hops": reply.hops,
            "back": reply.back,
        }),
        PingEvent::Lost { seq, reason } => {
            json!({ "event": "lost", "seq": seq, "reason": reason.to_string() })
        }
        PingEvent::Done { sent, received } => json!({ "event": "done", "sent": sent, "received": received }),
    };
    line["type"] = "event".into();
    line["id"] = id.into();
    line
}
