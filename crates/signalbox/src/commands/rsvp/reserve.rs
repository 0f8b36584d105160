//! `signalbox reserve --protocol rsvp`: this host announces itself as the sender, and the receiver reserves.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::args::{PolicyArgs, SessionArgs, TrafficArgs};
use super::send::{self, SendArgs};
use crate::arguments::WantedArgs;
use crate::commands::reserve::ReserveArgs;

/// Announces the sender of the flow, and prints which reservations the receivers make.
pub(in crate::commands) async fn reserve(socket: &Path, arguments: &ReserveArgs) -> Result<ExitCode> {
    send::run(socket, &sender(arguments)?).await
}

/// The arguments of `signalbox rsvp send` that do the same.
fn sender(arguments: &ReserveArgs) -> Result<SendArgs> {
    let WantedArgs { destination, rate, burst, peak, max_packet, source, .. } = arguments.wanted;
    let WantedArgs { protocol, destination_port, source_port, json, .. } = arguments.wanted;
    for (given, name) in [
        (arguments.receiver_initiated, "--receiver-initiated"),
        (arguments.bidirectional, "--bidirectional"),
        (arguments.priority.is_some(), "--priority"),
        (arguments.wanted.at_least.is_some(), "--at-least"),
        (arguments.wanted.delay.is_some(), "--delay"),
        (arguments.wanted.service != "controlled-load", "--service"),
    ] {
        if given {
            bail!("{name}: not with --protocol rsvp, where the receiver decides; see signalbox rsvp --help");
        }
    }
    Ok(SendArgs {
        session: SessionArgs {
            destination,
            protocol: protocol.context("--proto: RSVP needs the IP protocol of the flow")?,
            destination_port,
            flows: arguments.flows,
            ipsec: false,
            hold: arguments.hold,
            json,
        },
        traffic: TrafficArgs { burst, peak, max_packet: Some(max_packet), min_policed: None },
        policy: PolicyArgs::default(),
        rate,
        source,
        source_port,
        spi: None,
        ttl: None,
        no_adspec: false,
    })
}

#[cfg(test)]
mod tests {
    use signalbox_resources::Rate;

    use super::*;
    use crate::commands::reserve::tests::parse;

    #[test]
    fn arguments_that_an_rsvp_sender_cannot_decide_are_refused() {
        let line = "192.0.2.9 --rate 8mbit --proto udp --dport 5004 --protocol rsvp";
        let send = sender(&parse(line).unwrap()).unwrap();
        assert_eq!((send.rate, send.session.destination_port), (Rate(1_000_000), Some(5004)));
        for more in ["--priority 3", "--service guaranteed", "--at-least 1mbit"] {
            let error = sender(&parse(&format!("{line} {more}")).unwrap()).unwrap_err().to_string();
            assert!(error.contains("the receiver decides"), "{error}");
        }
        assert!(sender(&parse("192.0.2.9 --rate 8mbit --protocol rsvp").unwrap()).is_err(), "no --proto");
    }
}
