//! `signalbox reserve` and `signalbox query`.

pub(crate) mod many;
mod print;

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::query_response::Answer;
use signalbox_api::v1::reserve_event::Event;
use signalbox_resources::Rate;
use tokio::signal::unix::{SignalKind, signal};

use crate::client;
use crate::ping::{duration, protocol};
use crate::rsvp::{self, PolicyArgs, SendArgs, SessionArgs, TrafficArgs};

/// How long the far end may take to confirm that a reservation is torn down.
const FAREWELL: Duration = Duration::from_secs(10);

/// The flow, and how much.
#[derive(Debug, Args)]
pub(crate) struct WantedArgs {
    /// Destination of the flow.
    destination: IpAddr,
    /// Rate of IP packets, in bits a second: 64kbit, 20mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Rate,
    /// Burst in octets: 3000, 15k, 1m [default: a tenth of a second at the rate].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    burst: Option<u32>,
    /// Peak rate, at least the rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    peak: Option<Rate>,
    /// Largest packet in octets.
    #[arg(long, value_name = "OCTETS", default_value = "1500", value_parser = octets)]
    max_packet: u32,
    /// Least rate that will do if the rate cannot be had.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    at_least: Option<Rate>,
    /// Service: controlled-load, guaranteed, ef, or dscp:N.
    #[arg(long, default_value = "controlled-load", value_parser = service)]
    service: String,
    /// Bound of the queueing delay; with --service guaranteed.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<Duration>,
    /// Source of the flow; the node's own address towards the destination if not given.
    #[arg(long = "src", value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// IP protocol of the flow: a number, or tcp, udp, icmp [default: all].
    #[arg(long = "proto", value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u8>,
    /// Destination port of the flow.
    #[arg(long = "dport", value_name = "PORT", requires = "protocol")]
    destination_port: Option<u16>,
    /// Source port of the flow.
    #[arg(long = "sport", value_name = "PORT", requires = "protocol")]
    source_port: Option<u16>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = RESERVE_EXAMPLES)]
pub(crate) struct ReserveArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// Signaling protocol. With RSVP this host announces itself as sender, and the receiver reserves.
    #[arg(long = "protocol", value_enum, default_value_t = Signaling::Nsis)]
    signaling: Signaling,
    /// The far end makes the reservation, at our asking.
    #[arg(long, conflicts_with = "bidirectional")]
    receiver_initiated: bool,
    /// The same for the way back.
    #[arg(long)]
    bidirectional: bool,
    /// Release it after this time; without it, at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    hold: Option<Duration>,
    /// Setup and defending priority, 0 to 65535.
    #[arg(long, value_name = "N")]
    priority: Option<u16>,
    /// The same for so many flows, to ports from --dport on; all are granted, or none is held.
    #[arg(long, value_name = "N", requires = "destination_port", value_parser = clap::value_parser!(u16).range(1..))]
    flows: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Signaling {
    /// QoS NSLP over GIST.
    Nsis,
    /// RSVP.
    Rsvp,
}

const RESERVE_EXAMPLES: &str = "\
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
            session, back_session (null without one), rate, burst, delay_bound_ms, latency_us (null if not
            told), gaps, hops: [{address, rate, after_gap}]
  refused, lost
            meaning, node, rule, available (null if not told), class, code, hops
  released  confirmed
With --flows: granted has flows and seconds, told once all are granted; the first refused or lost ends all; released
has flows and confirmed (of all).

With --protocol rsvp it is as `signalbox rsvp send --help` says.

Exit status: 0 granted, and released orderly; 1 refused or lost; 2 wrong arguments, no daemon, or the node cannot do
it.";

#[derive(Debug, Args)]
#[command(after_help = QUERY_EXAMPLES)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    wanted: WantedArgs,
}

const QUERY_EXAMPLES: &str = "\
Examples:
  signalbox query 192.0.2.9 --rate 20mbit
  signalbox query 192.0.2.9 --rate 1gbit --service guaranteed --json

Nothing is reserved. Each hop shows what that node could give. With --json the one line has
the type \"available\" or \"refused\" and the fields of `signalbox reserve --json`.

Exit status: 0 the path answered, 1 a node refused or none answered, 2 wrong arguments, no daemon, or the node cannot
do it.";

impl WantedArgs {
    fn request(&self) -> Result<v1::Wanted> {
        if self.delay.is_some() && self.service != "guaranteed" {
            bail!("--delay needs --service guaranteed");
        }
        Ok(v1::Wanted {
            destination: self.destination.to_string(),
            source: self.source.map(|a| a.to_string()).unwrap_or_default(),
            protocol: self.protocol.map(Into::into),
            source_port: self.source_port.map(Into::into),
            destination_port: self.destination_port.map(Into::into),
            rate: self.rate.0,
            burst: self.burst,
            peak: self.peak.map(|peak| peak.0),
            max_packet: Some(self.max_packet),
            min_policed: 0,
            service: self.service.clone(),
            delay_us: self.delay.map(|delay| u64::try_from(delay.as_micros())).transpose()?,
            minimum: self.at_least.map(|minimum| minimum.0),
        })
    }
}

impl ReserveArgs {
    fn request(&self) -> Result<v1::ReserveRequest> {
        Ok(v1::ReserveRequest {
            wanted: Some(self.wanted.request()?),
            receiver_initiated: self.receiver_initiated,
            bidirectional: self.bidirectional,
            hold_ms: self.hold.map(|hold| u64::try_from(hold.as_millis())).transpose()?,
            priority: self.priority.map(Into::into),
            confirm_release: true,
            token: Vec::new(),
        })
    }

    /// The same as a sender of RSVP.
    fn rsvp(&self) -> Result<SendArgs> {
        let WantedArgs { destination, rate, burst, peak, max_packet, source, .. } = self.wanted;
        let WantedArgs { protocol, destination_port, source_port, json, .. } = self.wanted;
        for (given, name) in [
            (self.receiver_initiated, "--receiver-initiated"),
            (self.bidirectional, "--bidirectional"),
            (self.priority.is_some(), "--priority"),
            (self.wanted.at_least.is_some(), "--at-least"),
            (self.wanted.delay.is_some(), "--delay"),
            (self.wanted.service != "controlled-load", "--service"),
        ] {
            if given {
                bail!(
                    "{name}: not with --protocol rsvp, where the receiver decides; see signalbox rsvp --help"
                );
            }
        }
        Ok(SendArgs {
            session: SessionArgs {
                destination,
                protocol: protocol.context("--proto: RSVP needs the IP protocol of the flow")?,
                destination_port,
                flows: self.flows,
                ipsec: false,
                hold: self.hold,
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
}

/// Reserves, holds, releases, and prints what happens.
pub(crate) async fn run(socket: &Path, arguments: &ReserveArgs) -> Result<ExitCode> {
    if arguments.signaling == Signaling::Rsvp {
        return rsvp::send(socket, &arguments.rsvp()?).await;
    }
    if let Some(flows) = arguments.flows {
        return many::run(socket, arguments, flows).await;
    }
    let request = arguments.request()?;
    let cannot = "cannot wait for signals";
    let mut interrupt = signal(SignalKind::interrupt()).context(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).context(cannot)?;
    let mut client = client::connect(socket).await?;
    let mut events = client.reserve(request).await.map_err(|status| client::said_no(&status))?.into_inner();
    let mut out = std::io::stdout();
    let json = arguments.wanted.json;
    let mut course = Course::default();
    let mut deadline = None;
    loop {
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let turn = tokio::select! {
            event = events.message() => match event.map_err(|status| client::said_no(&status))? {
                Some(event) => Turn::Event(event.event),
                None => Turn::Ended,
            },
            _ = interrupt.recv() => Turn::Stop,
            _ = terminate.recv() => Turn::Stop,
            () = late => Turn::Late,
        };
        let event = match (turn, course.id) {
            (Turn::Event(Some(event)), _) => event,
            // Of a daemon that is newer than this command.
            (Turn::Event(None), _) => continue,
            (Turn::Ended, _) => bail!("the daemon ended before the reservation was released"),
            (Turn::Stop, Some(id)) if deadline.is_none() => {
                let released = client.release(v1::ReleaseRequest { id }).await;
                released.map_err(|status| client::said_no(&status))?;
                deadline = Some(tokio::time::Instant::now() + FAREWELL);
                continue;
            }
            // The daemon releases what nobody listens to.
            (Turn::Stop | Turn::Late, _) => {
                print::unconfirmed(&mut out, json)?;
                return Ok(ExitCode::from(1));
            }
        };
        if json {
            print::json(&mut out, &event)?;
        } else {
            print::text(&mut out, &event, arguments.hold)?;
        }
        out.flush()?;
        if let Some(code) = course.follow(&event) {
            return Ok(ExitCode::from(code));
        }
    }
}

/// What the reservation waits for.
enum Turn {
    /// It came.
    Event(Option<Event>),
    /// No event will come any more.
    Ended,
    /// Somebody wants it to end.
    Stop,
    /// The far end has not confirmed the tear in time.
    Late,
}

/// What has become of the reservation so far.
#[derive(Debug, Default)]
struct Course {
    id: Option<u64>,
    granted: bool,
}

impl Course {
    /// The exit status, if this was the last event.
    fn follow(&mut self, event: &Event) -> Option<u8> {
        match event {
            Event::Started(started) => self.id = Some(started.id),
            Event::Granted(_) | Event::Rerouted(_) => self.granted = true,
            Event::Failed(_) | Event::Lost(_) => return Some(1),
            Event::Released(_) => return Some(u8::from(!self.granted)),
        }
        None
    }
}

/// Asks what a path could give.
pub(crate) async fn query(socket: &Path, arguments: &QueryArgs) -> Result<ExitCode> {
    let request = v1::QueryRequest { wanted: Some(arguments.wanted.request()?) };
    let mut client = client::connect(socket).await?;
    let response = client.query(request).await.map_err(|status| client::said_no(&status))?.into_inner();
    let mut out = std::io::stdout();
    let Some(answer) = response.answer else { bail!("the daemon gave no answer") };
    if arguments.wanted.json {
        print::answer_json(&mut out, &answer)?;
    } else {
        print::answer_text(&mut out, &answer)?;
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(matches!(answer, Answer::Failed(_)))))
}

/// A rate above 0.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(Rate(0)) => Err("above 0, as in 64kbit or 20mbit".into()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// A number of octets.
pub(crate) fn octets(text: &str) -> Result<u32, String> {
    let wrong = || "use a number of octets, as in 3000, 15k or 1m".to_owned();
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix('b').unwrap_or(&lower);
    let (number, factor) = match lower.strip_suffix('k') {
        Some(number) => (number, 1_000),
        None => lower.strip_suffix('m').map_or((lower, 1), |number| (number, 1_000_000)),
    };
    number.parse::<u32>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

/// The service as the API names it.
fn service(text: &str) -> Result<String, String> {
    match text {
        "controlled-load" | "guaranteed" => Ok(text.to_owned()),
        "ef" => Ok("dscp 46".to_owned()),
        _ => text
            .strip_prefix("dscp")
            .and_then(|number| number.trim_start_matches([':', ' ', '=']).parse::<u8>().ok())
            .filter(|dscp| *dscp <= 63)
            .map(|dscp| format!("dscp {dscp}"))
            .ok_or_else(|| "use controlled-load, guaranteed, ef, or dscp:N with N from 0 to 63".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reserve: ReserveArgs,
    }

    fn parse(line: &str) -> Result<ReserveArgs, String> {
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
    fn rsvp_takes_what_a_sender_can_say() {
        let line = "192.0.2.9 --rate 8mbit --proto udp --dport 5004 --protocol rsvp";
        let send = parse(line).unwrap().rsvp().unwrap();
        assert_eq!((send.rate, send.session.destination_port), (Rate(1_000_000), Some(5004)));
        for more in ["--priority 3", "--service guaranteed", "--at-least 1mbit"] {
            let error = parse(&format!("{line} {more}")).unwrap().rsvp().unwrap_err().to_string();
            assert!(error.contains("the receiver decides"), "{error}");
        }
        assert!(parse("192.0.2.9 --rate 8mbit --protocol rsvp").unwrap().rsvp().is_err(), "no --proto");
    }

    #[test]
    fn services_go_by_name_or_code_point() {
        for (text, expected) in [("ef", "dscp 46"), ("dscp:10", "dscp 10"), ("guaranteed", "guaranteed")] {
            assert_eq!(service(text).as_deref(), Ok(expected));
        }
        for text in ["dscp:64", "dscp", "best"] {
            assert!(service(text).is_err(), "{text}");
        }
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

    #[test]
    fn the_exit_status_tells_whether_it_was_had() {
        let grant = Event::Granted(v1::PathGrant::default());
        let released = Event::Released(v1::ReserveReleased {});
        let mut course = Course::default();
        assert_eq!(course.follow(&Event::Started(v1::ReserveStarted { id: 4, ..Default::default() })), None);
        assert_eq!((course.follow(&grant), course.id), (None, Some(4)));
        assert_eq!(course.follow(&released), Some(0));
        assert_eq!(Course::default().follow(&released), Some(1), "released before it was granted");
        assert_eq!(course.follow(&Event::Lost(v1::PathRefusal::default())), Some(1));
    }
}
