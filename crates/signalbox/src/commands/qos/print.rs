//! The output for events of a reservation, as text and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};
use signalbox_api::v0;
use signalbox_api::v0::query_response::Answer;
use signalbox_api::v0::reserve_event::Event;
use signalbox_resources::Rate;

use crate::print::{flow_json, flow_text, hex, ms, none_if_empty};

/// Prints an event as text.
pub(super) fn text(out: &mut impl Write, event: &Event, hold: Option<Duration>) -> io::Result<()> {
    match event {
        Event::Started(started) => {
            let flow = started.flow.as_ref().map(flow_text).unwrap_or_default();
            writeln!(out, "reserve {flow}, session {}", hex(&started.session_id))
        }
        Event::Granted(grant) => {
            path(out, "granted", grant)?;
            match hold {
                Some(hold) => writeln!(out, "held for {} s; Ctrl-C releases it earlier", hold.as_secs_f64()),
                None => writeln!(out, "held until Ctrl-C"),
            }
        }
        Event::Rerouted(grant) => path(out, "the path changed; granted", grant),
        Event::Failed(refusal) => refused(out, "refused", refusal),
        Event::Lost(refusal) => refused(out, "lost", refusal),
        Event::Released(_) => writeln!(out, "released"),
    }
}

/// Prints the answer to a query as text.
pub(super) fn answer_text(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    match answer {
        Answer::Available(grant) => path(out, "available", grant),
        Answer::Failed(refusal) => refused(out, "refused", refusal),
    }
}

/// Reports that the far end did not confirm the tear in time.
pub(super) fn unconfirmed(out: &mut impl Write, json: bool) -> io::Result<()> {
    if json {
        writeln!(out, "{}", json!({"type": "released", "confirmed": false}))
    } else {
        writeln!(out, "torn down here; the far end has not confirmed it")
    }
}

fn path(out: &mut impl Write, what: &str, grant: &v0::PathGrant) -> io::Result<()> {
    write!(out, "{what}")?;
    if let Some(rate) = grant.rate {
        write!(out, ": {}", Rate(rate))?;
    }
    if let Some(burst) = grant.burst {
        write!(out, ", burst {burst} octets")?;
    }
    if let Some(bound) = grant.delay_bound_us {
        write!(out, ", queueing delay at most {:.3} ms", ms(bound))?;
    }
    writeln!(out)?;
    hops(out, &grant.hops)?;
    if grant.gaps {
        writeln!(out, "  somewhere on the path there are routers that provide no QoS")?;
    }
    if !grant.back_session_id.is_empty() {
        writeln!(out, "  the way back stands as well, session {}", hex(&grant.back_session_id))?;
    }
    Ok(())
}

fn hops(out: &mut impl Write, hops: &[v0::HopGrant]) -> io::Result<()> {
    let width = hops.iter().map(|hop| hop.address.len()).max().unwrap_or(0);
    for (number, hop) in (1..).zip(hops) {
        let rate = if hop.rate == 0 { "end of the flow".to_owned() } else { Rate(hop.rate).to_string() };
        let gap = if hop.after_gap { "  after routers without QoS" } else { "" };
        writeln!(out, "  {number:>2}  {:<width$}  {rate}{gap}", hop.address)?;
    }
    Ok(())
}

fn refused(out: &mut impl Write, what: &str, refusal: &v0::PathRefusal) -> io::Result<()> {
    write!(out, "{what}: {}", refusal.meaning)?;
    if !refusal.node.is_empty() {
        write!(out, " at {}", refusal.node)?;
    }
    if !refusal.rule.is_empty() {
        write!(out, ": {}", refusal.rule)?;
    }
    if let Some(available) = refusal.available {
        write!(out, "; available: {}", Rate(available))?;
    }
    writeln!(out)?;
    hops(out, &refusal.hops)
}

/// Prints an event as a line of JSON.
pub(super) fn json(out: &mut impl Write, event: &Event) -> io::Result<()> {
    let value = match event {
        Event::Started(started) => json!({
            "type": "started",
            "id": started.id,
            "session": hex(&started.session_id),
            "flow": started.flow.as_ref().map(flow_json),
        }),
        Event::Granted(grant) => path_json("granted", grant),
        Event::Rerouted(grant) => path_json("rerouted", grant),
        Event::Failed(refusal) => refusal_json("refused", refusal),
        Event::Lost(refusal) => refusal_json("lost", refusal),
        Event::Released(_) => json!({"type": "released", "confirmed": true}),
    };
    writeln!(out, "{value}")
}

/// Prints the answer to a query as a line of JSON.
pub(super) fn answer_json(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let value = match answer {
        Answer::Available(grant) => path_json("available", grant),
        Answer::Failed(refusal) => refusal_json("refused", refusal),
    };
    writeln!(out, "{value}")
}

fn path_json(kind: &str, grant: &v0::PathGrant) -> Value {
    json!({
        "type": kind,
        "session": hex(&grant.session_id),
        "back_session": none_if_empty(&hex(&grant.back_session_id)),
        "rate": grant.rate,
        "burst": grant.burst,
        "delay_bound_ms": grant.delay_bound_us.map(ms),
        "latency_us": grant.latency_us,
        "gaps": grant.gaps,
        "hops": hops_json(&grant.hops),
    })
}

fn hops_json(hops: &[v0::HopGrant]) -> Vec<Value> {
    let hop =
        |hop: &v0::HopGrant| json!({"address": hop.address, "rate": hop.rate, "after_gap": hop.after_gap});
    hops.iter().map(hop).collect()
}

fn refusal_json(kind: &str, refusal: &v0::PathRefusal) -> Value {
    json!({
        "type": kind,
        "class": refusal.class,
        "code": refusal.code,
        "meaning": refusal.meaning,
        "node": none_if_empty(&refusal.node),
        "rule": none_if_empty(&refusal.rule),
        "available": refusal.available,
        "hops": hops_json(&refusal.hops),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_grant_shows_each_hop() {
        let hop = |address: &str, rate, after_gap| v0::HopGrant { address: address.into(), rate, after_gap };
        let grant = v0::PathGrant {
            session_id: vec![0xab; 16],
            rate: Some(2_500_000),
            burst: Some(15_000),
            hops: vec![hop("10.0.0.1", 2_500_000, false), hop("10.0.12.2", 0, true)],
            ..v0::PathGrant::default()
        };
        let text = printed(|out| text(out, &Event::Granted(grant.clone()), None));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "granted: 20 Mbit/s, burst 15000 octets",
                "   1  10.0.0.1   20 Mbit/s",
                "   2  10.0.12.2  end of the flow  after routers without QoS",
                "held until Ctrl-C",
            ]
        );
        let line: Value = serde_json::from_str(&printed(|out| json(out, &Event::Granted(grant)))).unwrap();
        assert_eq!((&line["type"], &line["rate"]), (&json!("granted"), &json!(2_500_000)));
        assert_eq!((&line["hops"][1]["after_gap"], &line["back_session"]), (&json!(true), &Value::Null));
    }

    #[test]
    fn a_refusal_names_node_and_rule() {
        let refusal = v0::PathRefusal {
            meaning: "authorization failed".into(),
            node: "10.0.12.1".into(),
            rule: "rule 2 'guests'".into(),
            available: Some(125_000),
            ..v0::PathRefusal::default()
        };
        let text = printed(|out| text(out, &Event::Failed(refusal.clone()), None));
        assert_eq!(
            text,
            "refused: authorization failed at 10.0.12.1: rule 2 'guests'; available: 1 Mbit/s\n"
        );
        let line: Value = serde_json::from_str(&printed(|out| json(out, &Event::Failed(refusal)))).unwrap();
        assert_eq!((&line["type"], &line["node"]), (&json!("refused"), &json!("10.0.12.1")));
    }
}
