//! `signalbox ping`.

mod print;

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use signalbox_api::v0;
use signalbox_api::v0::ping_event::Event;

use super::Run;
use crate::arguments::{duration, protocol};
use crate::client::{self, Stop, answer, block_on, refusal};
use crate::print::{hex, ms};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PingArgs {
    /// Destination of the flow whose path is followed.
    destination: IpAddr,
    /// Probes to send; without it they go on until Ctrl-C.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// From one probe to the next.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// How long to wait for each reply.
    #[arg(short = 'W', long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    timeout: Duration,
    /// Octets of padding in each probe, a multiple of 4; the reply must bring them back unchanged.
    #[arg(short = 's', long, value_name = "OCTETS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=16_000))]
    size: u16,
    /// Source of the flow; the node's own address towards the destination if not given.
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// IP protocol of the flow: a number, or tcp, udp, icmp.
    #[arg(long = "proto", value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u8>,
    /// Destination port of the flow.
    #[arg(long = "dport", value_name = "PORT", requires = "protocol")]
    destination_port: Option<u16>,
    /// Source port of the flow.
    #[arg(long = "sport", value_name = "PORT", requires = "protocol")]
    source_port: Option<u16>,
    /// Print one JSON object a line: one for each reply or loss, and a summary at the end.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  signalbox ping 192.0.2.9
  signalbox ping 2001:db8::9 --count 5 --interval 200ms
  signalbox ping 192.0.2.9 --size 15000 --count 4
  signalbox ping 192.0.2.9 --proto udp --dport 5004 --count 1 --json

Every node of the path that runs the Ping application shows as a hop. The time beside a hop is from the
node before it, by the two nodes' own clocks, and is as exact as they agree.

Probes with --size above some 300 octets need messaging associations between all nodes of the path.

With --json, \"type\" tells the lines apart:
  reply    seq, rtt_ms, reached_end, truncated, padding, sent_us, hops and back: [{address, link_ms, node_ms,
           received_us, sent_us, ip_distance}], last_link_ms (the way home from the last node)
  lost     seq, reason
  summary  destination, source, session, sent, received, lost, loss (0 to 1), rtt_min_ms, rtt_avg_ms,
           rtt_max_ms (null without a reply)

Exit status: 0 the end of the flow answered every probe, 1 it did not, 2 wrong arguments or no daemon.";

impl Run for PingArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(ping(socket, &self))
    }
}

/// Sends the probes and prints the replies.
async fn ping(socket: &Path, arguments: &PingArgs) -> Result<ExitCode> {
    let mut client = client::connect(socket).await?;
    let request = v0::PingRequest {
        destination: arguments.destination.to_string(),
        source: arguments.source.map(|a| a.to_string()).unwrap_or_default(),
        protocol: arguments.protocol.map(Into::into),
        source_port: arguments.source_port.map(Into::into),
        destination_port: arguments.destination_port.map(Into::into),
        count: arguments.count.unwrap_or(0),
        interval_us: u64::try_from(arguments.interval.as_micros())?,
        timeout_us: u64::try_from(arguments.timeout.as_micros())?,
        padding: arguments.size.into(),
    };
    let mut events = answer(client.ping(request).await)?;
    let mut out = std::io::stdout();
    let mut tally = Tally { destination: arguments.destination.to_string(), ..Tally::default() };
    let mut stop = Stop::new(None)?;
    loop {
        let event = tokio::select! {
            event = events.message() => event.map_err(refusal)?,
            () = stop.wait() => break,
        };
        let Some(v0::PingEvent { event: Some(event) }) = event else {
            bail!("the daemon ended the pings before they were done");
        };
        tally.count(&event);
        if arguments.json {
            print::json(&mut out, &event)?;
        } else {
            print::text(&mut out, &event, &tally)?;
        }
        out.flush()?;
        if matches!(event, Event::Done(_)) {
            break;
        }
    }
    if arguments.json {
        print::json_summary(&mut out, &tally)?;
    } else {
        print::text_summary(&mut out, &tally)?;
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(!tally.all_answered())))
}

/// Counts and times of the probes so far.
#[derive(Debug, Default)]
struct Tally {
    destination: String,
    source: String,
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
                self.source = started.flow.as_ref().map(|f| f.source.clone()).unwrap_or_default();
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

    /// Smallest, mean and largest round trip time in milliseconds; `None` without a reply.
    fn rtt_ms(&self) -> Option<[f64; 3]> {
        (self.received > 0).then(|| {
            let mean = self.rtt_sum_us / u64::from(self.received);
            [self.rtt_min_us, mean, self.rtt_max_us].map(ms)
        })
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
        assert_eq!((ping.protocol, ping.destination_port), (Some(17), Some(9)));
        assert!(parse("2001:db8::1 --proto 132").is_ok());
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_would_be_right() {
        for (line, part) in [
            ("example.org", "invalid IP address"),
            ("192.0.2.9 --count 0", "0 is not in"),
            ("192.0.2.9 --interval 1d", "as in 200ms"),
            ("192.0.2.9 --interval 0s", "between 1ms"),
            ("192.0.2.9 --dport 9", "--proto"),
            ("192.0.2.9 --proto sctpp", "tcp, udp"),
            ("192.0.2.9 --proto 300", "0 to 255"),
            ("192.0.2.9 --size 20000", "16000"),
            ("", "DESTINATION"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    fn reply(seq: u32, rtt_us: u64, reached_end: bool) -> Event {
        Event::Reply(v0::PingReply { seq, rtt_us, reached_end, ..v0::PingReply::default() })
    }

    #[test]
    fn only_the_end_of_the_flow_counts_as_an_answer() {
        let mut tally = Tally::default();
        assert!(!tally.all_answered(), "no probe was sent");
        tally.count(&reply(0, 1000, true));
        tally.count(&reply(1, 3000, true));
        assert!(tally.all_answered());
        assert_eq!(tally.rtt_ms(), Some([1.0, 2.0, 3.0]));
        tally.count(&reply(2, 10, false));
        assert!(!tally.all_answered());
        assert_eq!(tally.rtt_ms(), Some([1.0, 2.0, 3.0]));
    }

    #[test]
    fn lost_and_unreported_probes_count_as_sent() {
        let mut tally = Tally::default();
        tally.count(&reply(0, 1000, true));
        tally.count(&Event::Lost(v0::PingLost { seq: 1, reason: "no reply in time".into() }));
        tally.count(&Event::Done(v0::PingDone { sent: 4, received: 1 }));
        assert_eq!((tally.sent, tally.received), (4, 1));
        assert!((tally.loss() - 0.75).abs() < 1e-9);
    }
}
