//! What protocols report to users, as text and JSON: one line a protocol in [`line`].

use serde::Serialize;
use serde_json::{Value, json};
use signalbox_core::service::IndicationOf;
use signalbox_node::ping::{PingEvent, Reply};
use signalbox_node::{ApplicationEvent, Event};

/// Returns an event for people and for programs.
pub(super) fn line(event: &Event) -> (String, Value) {
    match event {
        Event::Gist { id, event } => {
            (format!("application {id}: {}", application(event)), tagged("application", *id, event))
        }
        Event::Ping { id, event } => (format!("ping {id}: {}", ping(event)), ping_json(*id, event)),
        Event::Qos { id, event } => (format!("QoS session {id}: {event:?}"), tagged("qos-event", *id, event)),
        Event::Rsvp { id, event } => {
            (format!("RSVP session {id}: {event:?}"), tagged("rsvp-event", *id, event))
        }
        Event::Boomerang { id, event } => {
            (format!("Boomerang session {id}: {event:?}"), tagged("boomerang-event", *id, event))
        }
        Event::Natfw { id, event } => {
            (format!("NATFW session {id}: {event:?}"), tagged("natfw-event", *id, event))
        }
        Event::GistNat { event, .. } => match *event {},
        Event::Mapping { id, event } => {
            (format!("mapping {id}: {event:?}"), tagged("mapping-event", *id, event))
        }
        Event::Casp { id, event } => (format!("CASP {id}: {event:?}"), tagged("casp-event", *id, event)),
        #[cfg(feature = "test-protocol")]
        Event::Beacon { id, event } => {
            (format!("beacon {id}: {event:?}"), tagged("beacon-event", *id, event))
        }
    }
}

fn tagged(kind: &str, id: u64, event: &impl Serialize) -> Value {
    json!({ "type": kind, "id": id, "event": event })
}

fn ping(event: &PingEvent) -> String {
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

fn ping_json(id: u64, event: &PingEvent) -> Value {
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

fn application(event: &ApplicationEvent) -> String {
    match event {
        ApplicationEvent::Registered => "registered".to_owned(),
        ApplicationEvent::Refused(why) => format!("refused: {why}"),
        ApplicationEvent::Indication(IndicationOf::RecvMessage(m)) => {
            let asks = if m.check.is_some() { ", asks whether to peer" } else { "" };
            let (octets, direction) = (m.data.0.len(), m.mri.direction());
            format!("message of {octets} octets {direction}, {}, session {}{asks}", m.mri, m.session)
        }
        ApplicationEvent::Indication(IndicationOf::MessageStatus { handle, session, status, .. }) => {
            format!("message {}, session {session}: {status:?}", handle.0)
        }
        ApplicationEvent::Indication(IndicationOf::NetworkNotification { mri, session, event, .. }) => {
            format!("{event:?} {}, {mri}, session {session}", mri.direction())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_qos_is_printed() {
        let event = Event::Qos { id: 3, event: Box::new(signalbox_node::qos::QosEvent::Released) };
        let (text, json) = line(&event);
        assert_eq!(text, "QoS session 3: Released");
        assert_eq!((&json["type"], &json["id"]), (&"qos-event".into(), &3.into()));
        assert!(!json["event"].is_null());
    }
}
