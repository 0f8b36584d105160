//! `signalbox reserve`: the arguments that all signaling protocols share. Each protocol that can reserve along the path of
//! a flow is a line in the table of [`Signaling`], and does the work in its own folder.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::{Run, qos, rsvp};
use crate::arguments::{WantedArgs, duration};
use crate::client::block_on;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReserveArgs {
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
    /// Signaling protocol. With RSVP this host announces itself as sender, and the receiver reserves.
    #[arg(long = "protocol", value_enum, default_value_t = Signaling::Nsis)]
    signaling: Signaling,
    /// Ask the far end of the flow to make the reservation.
    #[arg(long, conflicts_with = "bidirectional")]
    pub(crate) receiver_initiated: bool,
    /// Reserve for the opposite direction as well.
    #[arg(long)]
    pub(crate) bidirectional: bool,
    /// Release it after this time; without it, at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) hold: Option<Duration>,
    /// Setup and defending priority, 0 to 65535.
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u16>,
    /// Reserve for N flows, to ports from --dport on; all are granted, or none of them is held.
    #[arg(long, value_name = "N", requires = "destination_port", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) flows: Option<u16>,
}

/// Defines the signaling protocols: the name on the command line, the help, and the function that reserves.
macro_rules! signaling {
    ($($(#[$help:meta])* $name:ident => $reserve:path,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
        enum Signaling { $($(#[$help])* $name,)* }

        impl Signaling {
            async fn reserve(self, socket: &Path, arguments: &ReserveArgs) -> Result<ExitCode> {
                match self { $(Self::$name => $reserve(socket, arguments).await,)* }
            }
        }
    };
}

signaling! {
    /// QoS NSLP over GIST.
    Nsis => qos::reserve,
    /// RSVP.
    Rsvp => rsvp::reserve,
}

const EXAMPLES: &str = "\
Examples:
  signalbox reserve 192.0.2.9 --rate 20mbit --proto udp --dport 5004
  signalbox reserve 192.0.2.9 --rate 64kbit --burst 3k --service guaranteed --delay 20ms --proto udp --dport 5004
  signalbox reserve 2001:db8::9 --rate 2mbit --service ef --hold 60s --json
  signalbox reserve 192.0.2.9 --rate 8mbit --at-least 2mbit --receiver-initiated
  signalbox reserve 192.0.2.9 --rate 64kbit --proto udp --dport 10000 --flows 500
  signalbox reserve 192.0.2.9 --rate 8mbit --proto udp --dport 5004 --protocol rsvp

The reservation is held until Ctrl-C, SIGTERM or the end of --hold, and then torn down. If this command dies, the
daemon releases it. Rates are in bits a second on the command line, in octets a second in JSON (rate, minimum,
available); each hop shows what that node holds.

With --json, \"type\" tells the lines apart:
  started   session, flow, id
  granted, rerouted
            session, back_session (null without one), rate, burst, delay_bound_ms, latency_us (null if
            unknown), gaps, hops: [{address, rate, after_gap}]
  refused, lost
            meaning, node, rule, available (null if unknown), class, code, hops
  released  confirmed
With --flows: granted has flows and seconds, and is printed once all are granted; the first refused or lost ends all; released
has flows and confirmed (of all).

With --protocol rsvp, the output is that of `signalbox rsvp send`.

Exit status: 0 granted, and released orderly; 1 refused or lost; 2 wrong arguments, no daemon, or the node cannot do
it.";

impl Run for ReserveArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(self.signaling.reserve(socket, &self))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reserve: ReserveArgs,
    }

    /// The arguments of a command line.
    pub(in crate::commands) fn parse(line: &str) -> Result<ReserveArgs, String> {
        Line::try_parse_from(["reserve"].into_iter().chain(line.split_whitespace()))
            .map(|line| line.reserve)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn rates_are_bits_on_the_command_line_and_octets_inside() {
        let line =
            "192.0.2.9 --rate 20mbit --burst 15k --at-least 64kbit --peak 1gbit --proto udp --dport 5004";
        let wanted = parse(line).unwrap().wanted.request().unwrap();
        assert_eq!((wanted.rate, wanted.burst), (2_500_000, Some(15_000)));
        assert_eq!((wanted.minimum, wanted.peak), (Some(8_000), Some(125_000_000)));
        assert_eq!((wanted.protocol, wanted.destination_port), (Some(17), Some(5004)));
        assert_eq!((wanted.service.as_str(), wanted.max_packet), ("controlled-load", Some(1500)));
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_would_be_right() {
        for (line, part) in [
            ("192.0.2.9", "--rate"),
            ("192.0.2.9 --rate 20", "like \"10mbit\""),
            ("192.0.2.9 --rate 0bit", "above 0"),
            ("192.0.2.9 --rate 1mbit --burst x", "as in 3000"),
            ("192.0.2.9 --rate 1mbit --dport 9", "--proto"),
            ("192.0.2.9 --rate 1mbit --service best", "dscp:N"),
            ("192.0.2.9 --rate 1mbit --bidirectional --receiver-initiated", "cannot be used with"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
        let line = parse("192.0.2.9 --rate 1mbit --delay 5ms").unwrap();
        assert!(line.wanted.request().is_err(), "a delay bound is for guaranteed service");
    }
}
