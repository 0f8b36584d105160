//! `signalbox ping`.

mod print;

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use signalbox_api::casp::v1::casp_client::CaspClient;
use signalbox_api::ping::v1;
use signalbox_api::ping::v1::ping_client::PingClient;
use signalbox_api::ping::v1::ping_response::Event;

use super::Run;
use crate::arguments::values::time;
use crate::arguments::{FlowArgs, NodeArgs, OutputArgs, microseconds};
use crate::client::{self, Termination, answer, block_on, refusal};
use crate::exit::{Exit, exit_status};
use crate::print::{hex, json_event, now_unix_us};

/// A protocol with a Ping application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Carrier {
    /// The Ping NSLP over GIST.
    Gist,
    /// The Ping client of CASP: probes have no padding, and replies no nodes of the way back.
    Casp,
}

/// The octets of the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Ours: any length of path that fits, both times of each node, padding.
    Signalbox,
    /// That of the NSIS Ping tool, for nodes with other implementations: complete up to four nodes after this one.
    Nsis,
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct PingArgs {
    /// Destination of the flow whose path is followed: an address or a host name.
    destination: String,
    /// Probes to send; without it they go on until Ctrl-C.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// From one probe to the next.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time)]
    interval: Duration,
    /// How long to wait for each reply.
    #[arg(short = 'W', long, value_name = "TIME", default_value = "2s", value_parser = time)]
    timeout: Duration,
    /// Protocol that carries the probes.
    #[arg(long, value_enum, default_value = "gist")]
    signaling: Carrier,
    /// No node keeps a session for the probes: each node appends itself to the message, and the reply goes back along this list.
    /// CASP only.
    #[arg(long)]
    record_route: bool,
    /// Octets of padding in each probe, a multiple of 4; the reply must bring them back unchanged.
    #[arg(short = 's', long, value_name = "OCTETS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=16_000))]
    size: u16,
    /// Octets of the probes over GIST.
    #[arg(long, value_enum, default_value = "signalbox", conflicts_with_all = ["size"])]
    format: Format,
    #[command(flatten)]
    flow: FlowArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
}

const HELP: &str = concat!(
    exit_status!("the end of the flow answered every probe", "it did not"),
    "EXAMPLES:\n",
    "  signalbox ping 192.0.2.9\n",
    "  signalbox ping host.example --count 5 --interval 200ms\n",
    "  signalbox ping 192.0.2.9 --size 15000 --count 4\n",
    "  signalbox ping 192.0.2.9 --signaling casp --record-route\n",
    "  signalbox ping 192.0.2.9 --format nsis\n",
    "  signalbox ping 192.0.2.9 --proto udp --dport 5004 --count 1 --json\n\n",
    "Every node of the path that runs the Ping application shows as a hop. The time beside a hop is from the\n",
    "node before it, by the two nodes' own clocks, and is as exact as they agree.\n\n",
    "With --format nsis the times are round trips instead: for a node from its first to its second visit, by its clock.\n\n",
    "Probes with --size above some 300 octets need messaging associations between all nodes of the path.\n\n",
    "JSON: docs/schema/ping.json. The last line has the type done.",
);

impl Run for PingArgs {
    fn run(self) -> Result<Exit> {
        block_on(ping(&self))
    }
}

/// Sends the probes and prints the replies.
async fn ping(arguments: &PingArgs) -> Result<Exit> {
    let flow = arguments.flow.to(&arguments.destination)?;
    let mut tally = Tally { destination: arguments.destination.clone(), ..Tally::default() };
    let request = v1::PingRequest {
        flow: Some(flow),
        count: arguments.count,
        interval_us: Some(microseconds(arguments.interval)),
        timeout_us: Some(microseconds(arguments.timeout)),
        padding_octets: arguments.size.into(),
        format: match (arguments.signaling, arguments.format) {
            (Carrier::Casp, Format::Signalbox) => v1::PingFormat::Unspecified.into(),
            (Carrier::Gist, Format::Signalbox) => v1::PingFormat::Signalbox.into(),
            (Carrier::Gist | Carrier::Casp, Format::Nsis) => v1::PingFormat::Nsis.into(),
        },
        record_route: arguments.record_route,
    };
    let mut termination = Termination::new(None)?;
    let channel = client::channel(&arguments.node.socket).await?;
    let mut events = answer(match arguments.signaling {
        Carrier::Gist => PingClient::new(channel).ping(request).await,
        Carrier::Casp => CaspClient::new(channel).ping(request).await,
    })?;
    let mut out = std::io::stdout();
    loop {
        let response = tokio::select! {
            response = events.message() => response.map_err(refusal)?,
            // The daemon stops the probes when the call ends.
            () = termination.wait() => Some(tally.stopped()),
        };
        let Some(response) = response else { bail!("the daemon ended the pings before they were done") };
        let Some(event) = &response.event else { continue };
        tally.count(event);
        if arguments.output.json {
            json_event(&mut out, &response)?;
        } else {
            print::event(&mut out, event, &tally)?;
        }
        out.flush()?;
        if matches!(event, Event::Done(_)) {
            return Ok(Exit::yes_if(tally.all_answered()));
        }
    }
}

/// Counts and times of the probes so far.
#[derive(Debug, Default)]
struct Tally {
    destination: String,
    session: String,
    sent: u32,
    received: u32,
    rtt_min_us: u64,
    rtt_max_us: u64,
    rtt_sum_us: u64,
}

impl Tally {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Started(started) => {
                self.session = hex(&started.session_id);
            }
            Event::Reply(reply) => {
                self.sent += 1;
                if !reply.reached_end {
                    return;
                }
                self.rtt_min_us =
                    if self.received == 0 { reply.rtt_us } else { self.rtt_min_us.min(reply.rtt_us) };
                self.rtt_max_us = self.rtt_max_us.max(reply.rtt_us);
                self.rtt_sum_us = self.rtt_sum_us.saturating_add(reply.rtt_us);
                self.received += 1;
            }
            Event::Lost(_) => self.sent += 1,
            // Probes under way when the daemon stops are neither answered nor reported lost.
            Event::Done(done) => self.sent = self.sent.max(done.sent),
        }
    }

    fn all_answered(&self) -> bool {
        self.sent > 0 && self.received >= self.sent
    }

    fn loss(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        1.0 - f64::from(self.received) / f64::from(self.sent)
    }

    /// Smallest, mean and largest round trip time in microseconds; `None` without a reply.
    fn rtt_us(&self) -> Option<[u64; 3]> {
        let mean = self.rtt_sum_us.checked_div(self.received.into())?;
        Some([self.rtt_min_us, mean, self.rtt_max_us])
    }

    /// The last event of pings that the user stopped.
    fn stopped(&self) -> v1::PingResponse {
        let done = v1::PingDone { sent: self.sent, received: self.received };
        v1::PingResponse { time_unix_us: now_unix_us(), event: Some(Event::Done(done)) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        ping: PingArgs,
    }

    fn parse(line: &str) -> Result<PingArgs, String> {
        Line::try_parse_from(["ping"].into_iter().chain(line.split_whitespace()))
            .map(|line| line.ping)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn arguments_are_read() {
        let ping =
            parse("192.0.2.9 --count 3 --interval 250ms --timeout 1.5s --proto udp --dport 9").unwrap();
        assert_eq!(ping.count, Some(3));
        assert_eq!(ping.interval, Duration::from_millis(250));
        assert_eq!(ping.timeout, Duration::from_millis(1500));
        assert_eq!((ping.flow.ip_protocol, ping.flow.destination_port), (Some(17), Some(9)));
        assert_eq!((ping.signaling, ping.format), (Carrier::Gist, Format::Signalbox));
        assert_eq!(parse("192.0.2.9 --format nsis").unwrap().format, Format::Nsis);
        assert_eq!(parse("2001:db8::1 --proto 132 --signaling casp").unwrap().signaling, Carrier::Casp);
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_would_be_right() {
        for (line, part) in [
            ("192.0.2.9 --count 0", "0 is not in"),
            ("192.0.2.9 --interval 5", "has no unit"),
            ("192.0.2.9 --interval 0s", "at least 1us"),
            ("192.0.2.9 --dport 9", "--proto"),
            ("192.0.2.9 --proto sctpp", "tcp, udp"),
            ("192.0.2.9 --proto 300", "0 to 255"),
            ("192.0.2.9 --size 20000", "16000"),
            ("192.0.2.9 --size 8 --format nsis", "cannot be used with"),
            ("", "DESTINATION"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    fn reply(sequence: u32, rtt_us: u64, reached_end: bool) -> Event {
        Event::Reply(v1::PingReply { sequence, rtt_us, reached_end, ..v1::PingReply::default() })
    }

    #[test]
    fn only_the_end_of_the_flow_counts_as_an_answer() {
        let mut tally = Tally::default();
        assert!(!tally.all_answered(), "no probe was sent");
        tally.count(&reply(0, 1000, true));
        tally.count(&reply(1, 3000, true));
        assert!(tally.all_answered());
        assert_eq!(tally.rtt_us(), Some([1000, 2000, 3000]));
        tally.count(&reply(2, 10, false));
        assert!(!tally.all_answered());
        assert_eq!(tally.rtt_us(), Some([1000, 2000, 3000]));
    }

    #[test]
    fn lost_and_unreported_probes_count_as_sent() {
        let mut tally = Tally::default();
        tally.count(&reply(0, 1000, true));
        tally.count(&Event::Lost(v1::PingLost { sequence: 1, ..v1::PingLost::default() }));
        tally.count(&Event::Done(v1::PingDone { sent: 4, received: 1 }));
        assert_eq!((tally.sent, tally.received), (4, 1));
        assert!((tally.loss() - 0.75).abs() < 1e-9);
    }
}
