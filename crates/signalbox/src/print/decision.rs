//! A decision in one line. It is read from its JSON, so that the audit file and the daemon give the same line.

use serde_json::Value;
use signalbox_api::v1;

use super::style::{Tone, paint};
use super::{duration, flows, rate};

/// What happened, to whom, and why.
pub(crate) fn decision(row: &Value) -> String {
    let text = |key: &str| row.get(key).and_then(Value::as_str);
    let number = |key: &str| row.get(key).and_then(Value::as_u64);
    let outcome = text("outcome").unwrap_or("-");
    let tone = match outcome {
        "granted" | "restored" => Tone::Good,
        "refused" | "preempted" | "lost" => Tone::Bad,
        _ => Tone::Heading,
    };
    let mut line = format!(
        "{} {} {}",
        text("protocol").unwrap_or("-"),
        text("subject").unwrap_or("-"),
        paint(tone, outcome)
    );
    let neighbor = text("neighbor").is_some();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            line += &format!("{name}{value}");
        }
    };
    let owned = |key: &str| text(key).map(str::to_owned);
    add(" ", owned("id"));
    add(" session ", owned("session_id"));
    add(" request ", owned("request_id"));
    add(": ", Some(flows(&flows_of(row))).filter(|flows| !flows.is_empty()));
    add(", ", number("rate_octets_per_s").map(rate));
    add(" ", owned("opening"));
    add(" at ", owned("interface"));
    add(", from ", owned("neighbor"));
    // `none` is no proof: the address is a claim.
    let proof = owned("proof");
    add("", proof.as_deref().filter(|proof| *proof == "none").map(|_| " without proof".to_owned()));
    add(if neighbor { " by " } else { ", by " }, proof.filter(|proof| proof != "none"));
    add(" as ", owned("identity"));
    // A claim of a neighbor that is not trusted is no more than that.
    let claimed = owned("claimed");
    let counts = claimed.is_none() || claimed.as_deref() == text("requester");
    add(" for ", claimed);
    add("", (!counts).then(|| " (not counted)".to_owned()));
    // The reason of a refusal begins with the rule.
    let (rule, reason) = (owned("rule"), owned("reason"));
    let repeats =
        rule.as_deref().zip(reason.as_deref()).is_some_and(|(rule, reason)| reason.starts_with(rule));
    add(", ", rule.filter(|_| !repeats));
    add(if repeats { ", " } else { ": " }, reason);
    add(", available ", number("available_octets_per_s").map(rate));
    add(", after ", number("lasted_us").map(duration));
    line
}

/// The flows of a decision.
pub(crate) fn flows_of(row: &Value) -> Vec<v1::FlowSpec> {
    let all = row.get("flows").and_then(Value::as_array);
    all.into_iter().flatten().map(flow_of).collect()
}

fn flow_of(flow: &Value) -> v1::FlowSpec {
    let text = |key: &str| flow.get(key).and_then(Value::as_str).map(str::to_owned);
    let number =
        |key: &str| flow.get(key).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    v1::FlowSpec {
        source: text("source"),
        source_prefix_length: number("source_prefix_length"),
        destination: text("destination"),
        destination_prefix_length: number("destination_prefix_length"),
        ip_protocol: number("ip_protocol"),
        dscp: number("dscp"),
        flow_label: number("flow_label"),
        spi: number("spi"),
        source_port: number("source_port"),
        destination_port: number("destination_port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_one_line_with_who_what_and_why() {
        let row = v1::Decision {
            outcome: v1::Outcome::Refused.into(),
            subject: v1::Subject::Reservation.into(),
            protocol: v1::Protocol::Rsvp.into(),
            claimed: Some("10.0.0.9".into()),
            requester: Some("10.0.1.1".into()),
            neighbor: Some("10.0.1.1".into()),
            proof: Some("link".into()),
            flows: vec![v1::FlowSpec {
                source: Some("10.0.0.1".into()),
                destination: Some("10.0.9.1".into()),
                ..v1::FlowSpec::default()
            }],
            interface: Some("eth1".into()),
            rate_octets_per_s: Some(1_000_000),
            rule: Some("rule 2 'guests'".into()),
            reason: Some("denied".into()),
            ..v1::Decision::default()
        };
        assert_eq!(
            decision(&signalbox_json::value(&row).unwrap()),
            "rsvp reservation refused: 10.0.0.1 > 10.0.9.1, 8mbit at eth1, from 10.0.1.1 by link for 10.0.0.9 \
             (not counted), rule 2 'guests': denied"
        );
        let trusted = v1::Decision { requester: row.claimed.clone(), ..row };
        let text = decision(&signalbox_json::value(&trusted).unwrap());
        assert!(text.contains(" by link for 10.0.0.9, rule 2"), "{text}");
    }

    /// The rule is named once, and an address that nothing proves is one.
    #[test]
    fn nothing_is_said_twice_and_no_proof_is_said_so() {
        let row = v1::Decision {
            outcome: v1::Outcome::Refused.into(),
            subject: v1::Subject::Reservation.into(),
            protocol: v1::Protocol::Boomerang.into(),
            neighbor: Some("10.0.1.1".into()),
            proof: Some("none".into()),
            rule: Some("rule 1 'no video'".into()),
            reason: Some("rule 1 'no video': denied".into()),
            ..v1::Decision::default()
        };
        assert_eq!(
            decision(&signalbox_json::value(&row).unwrap()),
            "boomerang reservation refused, from 10.0.1.1 without proof, rule 1 'no video': denied"
        );
    }
}
