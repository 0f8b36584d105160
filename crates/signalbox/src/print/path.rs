//! What a path gives, and why it gives nothing, as text.

use std::io::{self, Write};

use signalbox_api::v1;

use super::style::{Tone, paint};
use super::{duration, enum_text, hex, rate, service, traffic};

/// Prints what a path gives. `what` is the answer in a word.
pub(crate) fn grant(out: &mut impl Write, what: &str, grant: &v1::PathGrant) -> io::Result<()> {
    write!(out, "{}", paint(Tone::Good, what))?;
    let mut parts = Vec::new();
    parts.extend(grant.traffic.as_ref().map(traffic));
    parts.extend(grant.service.as_ref().map(service));
    parts.extend(grant.delay_bound_us.map(|us| format!("queueing delay at most {}", duration(us))));
    if !parts.is_empty() {
        write!(out, ": {}", parts.join(", "))?;
    }
    writeln!(out)?;
    hops(out, &grant.hops, ["that provides no reservations", "that provide no reservations"])?;
    if grant.gaps {
        writeln!(out, "  somewhere on the path are routers that provide no reservations")?;
    }
    if grant.far_end == Some(false) {
        writeln!(
            out,
            "  {}",
            paint(Tone::Bad, "the far end did not answer: what is behind the last node is not reserved")
        )?;
    }
    if let Some(session) = &grant.reverse_session_id {
        writeln!(out, "  the reverse direction is granted too, session {}", hex(session))?;
    }
    Ok(())
}

/// Prints the nodes of a path, each with what it did. `lacks` says what the routers between them do not do: of one, and of several.
pub(crate) fn hops(out: &mut impl Write, hops: &[v1::HopGrant], lacks: [&str; 2]) -> io::Result<()> {
    let [one, several] = lacks;
    let width = hops.iter().map(|hop| hop.address.len()).max().unwrap_or(0);
    for (number, hop) in (1..).zip(hops) {
        let did = match hop.part() {
            v1::HopPart::Opened => "opened",
            v1::HopPart::Translated => "opened, translates",
            v1::HopPart::Reserved => "keeps a place",
            v1::HopPart::Blocked => "blocks",
            v1::HopPart::Passed => "passed the request on",
            v1::HopPart::Unspecified | v1::HopPart::Holds | v1::HopPart::End => "end of the flow",
        };
        let did = hop.rate_octets_per_s.map_or_else(|| did.to_owned(), rate);
        let gap = match hop.routers_before {
            Some(1) => format!("  after 1 router {one}"),
            Some(routers) => format!("  after {routers} routers {several}"),
            None if hop.after_gap => format!("  after routers {several}"),
            None => String::new(),
        };
        writeln!(out, "  {number:>2}  {:<width$}  {did}{gap}", hop.address)?;
    }
    Ok(())
}

/// Prints a failure. `what` is the answer in a word.
pub(crate) fn failure(out: &mut impl Write, what: &str, failure: &v1::Failure) -> io::Result<()> {
    writeln!(out, "{}: {}", paint(Tone::Bad, what), failure_text(failure))
}

/// Prints that a command asks again for what it lost.
pub(crate) fn retrying(out: &mut impl Write, retrying: &v1::Retrying) -> io::Result<()> {
    let v1::Retrying { after_us, attempt, reason } = retrying;
    writeln!(out, "asks again in {} (attempt {attempt}): {reason}", duration(*after_us))
}

/// A failure in one line.
pub(crate) fn failure_text(failure: &v1::Failure) -> String {
    let mut text = match failure.message.as_str() {
        "" => enum_text(failure.cause().as_str_name(), "CAUSE_"),
        message => message.to_owned(),
    };
    match &failure.code {
        Some(v1::failure::Code::Rsvp(v1::RsvpCode { code, value })) => {
            text += &format!(" (code {code}, value {value})");
        }
        Some(v1::failure::Code::Qos(_) | v1::failure::Code::Natfw(_)) | None => {}
    }
    text += &failure.node.as_ref().map(|node| format!(" at {node}")).unwrap_or_default();
    let more = failure.rule.as_ref().or(failure.detail.as_ref());
    text += &more.map(|more| format!(": {more}")).unwrap_or_default();
    if let Some(available) = failure.available_octets_per_s {
        text += &format!("; available: {}", rate(available));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_shows_each_hop() {
        let hop = |address: &str, rate_octets_per_s, after_gap| v1::HopGrant {
            address: address.into(),
            rate_octets_per_s,
            after_gap,
            routers_before: after_gap.then_some(2),
            part: v1::HopPart::Unspecified.into(),
        };
        let granted = v1::PathGrant {
            traffic: Some(v1::TokenBucket {
                rate_octets_per_s: 2_500_000,
                burst_octets: Some(15_000),
                ..Default::default()
            }),
            hops: vec![hop("10.0.0.1", Some(2_500_000), false), hop("10.0.12.2", None, true)],
            far_end: Some(false),
            ..v1::PathGrant::default()
        };
        let mut out = Vec::new();
        grant(&mut out, "granted", &granted).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "granted: 20mbit, burst 15000 octets",
                "   1  10.0.0.1   20mbit",
                "   2  10.0.12.2  end of the flow  after 2 routers that provide no reservations",
                "  the far end did not answer: what is behind the last node is not reserved",
            ]
        );
    }

    #[test]
    fn a_failure_names_node_and_rule() {
        let refused = v1::Failure {
            cause: v1::Cause::Policy.into(),
            message: "authorization failed".into(),
            node: Some("10.0.12.1".into()),
            rule: Some("rule 2 'guests'".into()),
            available_octets_per_s: Some(125_000),
            ..v1::Failure::default()
        };
        let text = "authorization failed at 10.0.12.1: rule 2 'guests'; available: 1mbit";
        assert_eq!(failure_text(&refused), text);
        let silent = v1::Failure { cause: v1::Cause::NoAnswer.into(), ..v1::Failure::default() };
        assert_eq!(failure_text(&silent), "no answer");
    }
}
