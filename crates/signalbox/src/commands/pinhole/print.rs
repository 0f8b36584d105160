//! The output for events of a passage, as text.

use std::io::{self, Write};
use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;

use crate::arguments::microseconds;
use crate::print::style::{Tone, paint};
use crate::print::{duration, flow, hex, path};

/// Prints an event. `granted`: the passage was granted before.
pub(crate) fn text(out: &mut impl Write, event: &Event, granted: bool) -> io::Result<()> {
    match event {
        Event::Started(started) if started.session_id.is_empty() => {
            let flow = started.flow.as_ref().map(flow).unwrap_or_default();
            writeln!(out, "{flow}: waiting for senders")
        }
        Event::Accepted(accepted) => {
            let flow = accepted.flow.as_ref().map(flow).unwrap_or_default();
            let session = hex(&accepted.session_id);
            writeln!(
                out,
                "{} {flow}, session {session}, refreshed by its sender",
                paint(Tone::Good, "opened")
            )
        }
        Event::Ended(ended) => {
            let flow = ended.flow.as_ref().map(flow).unwrap_or_default();
            match &ended.failure {
                Some(failure) => path::failure(out, &format!("lost {flow}"), failure),
                None => writeln!(out, "closed {flow}, by its sender"),
            }
        }
        Event::Started(started) => {
            let flow = started.flow.as_ref().map(flow).unwrap_or_default();
            writeln!(out, "pinhole {flow}, session {}", hex(&started.session_id))
        }
        Event::Granted(granted) => {
            let granted_for = duration(granted.lifetime_us);
            writeln!(out, "{} for {granted_for}, refreshed by this host", paint(Tone::Good, "granted"))?;
            if let Some(external) = &granted.external {
                writeln!(out, "  external address: {}", endpoint(external))?;
            }
            for nat in &granted.bindings {
                writeln!(out, "  further NAT: {nat}")?;
            }
            path::hops(out, &granted.hops, ["that is unknown", "that are unknown"])?;
            if granted.gaps {
                writeln!(
                    out,
                    "  somewhere on the path are routers or nodes that are unknown: what they do with the packets, too"
                )?;
            }
            Ok(())
        }
        Event::Notified(failure) => {
            writeln!(out, "a node reports: {}; asked again", path::failure_text(failure))
        }
        Event::Failed(failure) => path::failure(out, if granted { "lost" } else { "refused" }, failure),
        Event::Released(_) => writeln!(out, "closed"),
        Event::Retrying(retrying) => path::retrying(out, retrying),
    }
}

/// Prints how long the command holds what was granted.
pub(super) fn held(out: &mut impl Write, hold: Option<Duration>) -> io::Result<()> {
    match hold {
        Some(hold) => writeln!(out, "held for {}; Ctrl-C closes it earlier", duration(microseconds(hold))),
        None => writeln!(out, "held until Ctrl-C"),
    }
}

/// An address with its port, if it has one.
pub(crate) fn endpoint(endpoint: &v1::Endpoint) -> String {
    let v1::Endpoint { address, port } = endpoint;
    port.map_or_else(|| address.clone(), |port| format!("{address} port {port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_shows_the_address_to_give_to_others_and_the_path() {
        let hop = |address: &str, part: v1::HopPart, routers| v1::HopGrant {
            address: address.into(),
            part: part.into(),
            routers_before: (routers > 0).then_some(routers),
            after_gap: routers > 0,
            ..v1::HopGrant::default()
        };
        let granted = v1::PinholeGranted {
            lifetime_us: 42_000_000,
            external: Some(v1::Endpoint { address: "203.0.113.5".into(), port: Some(40_000) }),
            bindings: vec!["10.9.0.1".into()],
            hops: vec![hop("10.0.1.1", v1::HopPart::Translated, 0), hop("10.0.3.2", v1::HopPart::End, 1)],
            gaps: true,
            ..v1::PinholeGranted::default()
        };
        let mut out = Vec::new();
        text(&mut out, &Event::Granted(granted), false).unwrap();
        held(&mut out, None).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "  external address: 203.0.113.5 port 40000",
                "  further NAT: 10.9.0.1",
                "   1  10.0.1.1  opened, translates",
                "   2  10.0.3.2  end of the flow  after 1 router that is unknown",
                "  somewhere on the path are routers or nodes that are unknown: what they do with the packets, too",
                "held until Ctrl-C",
            ]
        );
        assert!(lines[0].starts_with("granted for 42"), "{text}");
    }

    /// A receiver learns why the passage of a sender ended.
    #[test]
    fn the_end_of_what_a_sender_asked_for_has_its_reason() {
        let ended = |failure| {
            let mut out = Vec::new();
            let flow = v1::FlowSpec {
                source: Some("10.0.0.1".into()),
                destination: Some("10.0.3.2".into()),
                ..v1::FlowSpec::default()
            };
            let ended = v1::PinholeEnded { session_id: vec![1; 16], flow: Some(flow), failure };
            text(&mut out, &Event::Ended(ended), true).unwrap();
            String::from_utf8(out).unwrap()
        };
        let failure = v1::Failure {
            message: "ended by the administrator".into(),
            node: Some("10.0.2.2".into()),
            ..v1::Failure::default()
        };
        let lost = ended(Some(failure));
        assert!(lost.starts_with("lost 10.0.0.1"), "{lost}");
        assert!(lost.ends_with(": ended by the administrator at 10.0.2.2\n"), "{lost}");
        let closed = ended(None);
        assert!(closed.starts_with("closed 10.0.0.1") && closed.ends_with(", by its sender\n"), "{closed}");
    }

    #[test]
    fn the_end_of_what_stood_is_a_loss() {
        let failed =
            Event::Failed(v1::Failure { message: "session terminated".into(), ..v1::Failure::default() });
        for (granted, word) in [(false, "refused"), (true, "lost")] {
            let mut out = Vec::new();
            text(&mut out, &failed, granted).unwrap();
            assert!(String::from_utf8(out).unwrap().starts_with(word));
        }
    }
}
