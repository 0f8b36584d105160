//! The output for probes and their replies, as text and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use signalbox_api::v0;
use signalbox_api::v0::ping_event::Event;

use super::Tally;
use crate::print::{flow_text, hex, ms};

/// Milliseconds from `earlier` to `later`; negative where two clocks disagree.
fn between(earlier: u64, later: u64) -> f64 {
    if later >= earlier { ms(later - earlier) } else { -ms(earlier - later) }
}

/// Prints an event as text.
pub(super) fn text(out: &mut impl Write, event: &Event, tally: &Tally) -> io::Result<()> {
    match event {
        Event::Started(started) => {
            let flow = started.flow.as_ref().map(flow_text).unwrap_or_default();
            writeln!(out, "ping {} along {flow}, session {}", tally.destination, hex(&started.session_id))
        }
        Event::Reply(reply) => text_reply(out, reply),
        Event::Lost(lost) => writeln!(out, "seq {}: lost: {}", lost.seq, lost.reason),
        Event::Done(_) => Ok(()),
    }
}

fn text_reply(out: &mut impl Write, reply: &v0::PingReply) -> io::Result<()> {
    let remark = match (reply.reached_end, reply.truncated) {
        (true, false) => "",
        (true, true) => ", some nodes not recorded",
        (false, false) => ", turned round before the end of the flow",
        (false, true) => ", turned round before the end of the flow, some nodes not recorded",
    };
    let size = match reply.padding {
        0 => String::new(),
        padding => format!(", {padding} octets of padding as they went"),
    };
    writeln!(out, "seq {}: {:.3} ms{size}{remark}", reply.seq, ms(reply.rtt_us))?;
    let width = reply.hops.iter().chain(&reply.back).map(|hop| hop.address.len()).max().unwrap_or(0);
    let mut left_us = reply.sent_us;
    for (number, hop) in reply.hops.iter().enumerate() {
        let bypassed = match hop.ip_distance {
            0 | 1 => String::new(),
            distance => format!("  {distance} IP hops away"),
        };
        writeln!(
            out,
            "  {:>2}  {:<width$}  {:>8.3} ms{bypassed}",
            number + 1,
            hop.address,
            between(left_us, hop.received_us)
        )?;
        left_us = hop.sent_us;
    }
    for hop in &reply.back {
        let time = between(left_us, hop.received_us);
        writeln!(out, "  <-  {:<width$}  {time:>8.3} ms", hop.address)?;
        left_us = hop.sent_us;
    }
    let time = between(left_us, reply.sent_us.saturating_add(reply.rtt_us));
    writeln!(out, "  <-  {:<width$}  {time:>8.3} ms", "here")
}

/// Prints the summary as text.
pub(super) fn text_summary(out: &mut impl Write, tally: &Tally) -> io::Result<()> {
    writeln!(out, "--- {} ---", tally.destination)?;
    write!(out, "{} sent, {} received, {:.0} % lost", tally.sent, tally.received, tally.loss() * 100.0)?;
    if let Some([min, mean, max]) = tally.rtt_ms() {
        write!(out, ", round trip min/avg/max {min:.3}/{mean:.3}/{max:.3} ms")?;
    }
    writeln!(out)
}

/// Prints an event as a line of JSON. The start and the end have no line.
pub(super) fn json(out: &mut impl Write, event: &Event) -> io::Result<()> {
    let value = match event {
        Event::Started(_) | Event::Done(_) => return Ok(()),
        Event::Lost(lost) => json!({"type": "lost", "seq": lost.seq, "reason": lost.reason}),
        Event::Reply(reply) => {
            let mut left_us = reply.sent_us;
            let mut hop = |hop: &v0::Hop| -> Value {
                let link_ms = between(left_us, hop.received_us);
                left_us = hop.sent_us;
                json!({
                    "address": hop.address,
                    "link_ms": link_ms,
                    "node_ms": between(hop.received_us, hop.sent_us),
                    "received_us": hop.received_us,
                    "sent_us": hop.sent_us,
                    "ip_distance": hop.ip_distance,
                })
            };
            let hops: Vec<Value> = reply.hops.iter().map(&mut hop).collect();
            let back: Vec<Value> = reply.back.iter().map(&mut hop).collect();
            json!({
                "type": "reply",
                "seq": reply.seq,
                "rtt_ms": ms(reply.rtt_us),
                "reached_end": reply.reached_end,
                "truncated": reply.truncated,
                "padding": reply.padding,
                "sent_us": reply.sent_us,
                "hops": hops,
                "back": back,
                "last_link_ms": between(left_us, reply.sent_us.saturating_add(reply.rtt_us)),
            })
        }
    };
    writeln!(out, "{value}")
}

/// Prints the summary as a line of JSON.
pub(super) fn json_summary(out: &mut impl Write, tally: &Tally) -> io::Result<()> {
    let [min, mean, max] = tally.rtt_ms().map_or([None; 3], |times| times.map(Some));
    let value = json!({
        "type": "summary",
        "destination": tally.destination,
        "source": tally.source,
        "session": tally.session,
        "sent": tally.sent,
        "received": tally.received,
        "lost": tally.sent - tally.received.min(tally.sent),
        "loss": tally.loss(),
        "rtt_min_ms": min,
        "rtt_avg_ms": mean,
        "rtt_max_ms": max,
    });
    writeln!(out, "{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> v0::PingReply {
        let hop = |address: &str, received_us, sent_us, ip_distance| v0::Hop {
            address: address.into(),
            received_us,
            sent_us,
            ip_distance,
        };
        v0::PingReply {
            seq: 7,
            sent_us: 1_000_000,
            rtt_us: 1_250,
            hops: vec![hop("10.0.1.2", 1_000_300, 1_000_350, 1), hop("10.0.3.2", 1_000_600, 1_000_650, 2)],
            back: vec![hop("10.0.2.1", 1_000_900, 1_000_940, 1)],
            reached_end: true,
            truncated: false,
            padding: 0,
        }
    }

    #[test]
    fn a_reply_shows_its_way_there_and_back() {
        let mut out = Vec::new();
        text(&mut out, &Event::Reply(reply()), &Tally::default()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "seq 7: 1.250 ms\n\
             \x20  1  10.0.1.2     0.300 ms\n\
             \x20  2  10.0.3.2     0.250 ms  2 IP hops away\n\
             \x20 <-  10.0.2.1     0.250 ms\n\
             \x20 <-  here         0.310 ms\n"
        );
    }

    #[test]
    fn json_lines_carry_the_same() {
        let mut out = Vec::new();
        json(&mut out, &Event::Reply(reply())).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["type"], "reply");
        assert_eq!(value["rtt_ms"], 1.25);
        assert_eq!(value["hops"][1]["link_ms"], 0.25);
        assert_eq!(value["hops"][0]["node_ms"], 0.05);
        assert_eq!(value["back"][0]["address"], "10.0.2.1");
        assert_eq!(value["last_link_ms"], 0.31);
    }

    #[test]
    fn padding_shows_where_there_is_some() {
        let mut out = Vec::new();
        let large = v0::PingReply { padding: 15_000, ..reply() };
        text(&mut out, &Event::Reply(large.clone()), &Tally::default()).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert!(line.starts_with("seq 7: 1.250 ms, 15000 octets of padding as they went\n"), "{line}");
        let mut out = Vec::new();
        json(&mut out, &Event::Reply(large)).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap()["padding"], 15_000);
    }

    #[test]
    fn clocks_that_disagree_show_as_negative_times() {
        assert_eq!(between(2_000, 1_000), -1.0);
    }

    #[test]
    fn a_summary_without_reply_has_no_times() {
        let mut out = Vec::new();
        let tally = Tally { sent: 2, ..Tally::default() };
        json_summary(&mut out, &tally).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&value["loss"], &value["rtt_min_ms"]), (&json!(1.0), &Value::Null));
        out.clear();
        text_summary(&mut out, &tally).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with("2 sent, 0 received, 100 % lost\n"));
    }
}
