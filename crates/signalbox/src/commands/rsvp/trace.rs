//! `signalbox rsvp trace`: asks node by node what is reserved for a sender (RFC 2745). It needs no daemon.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::filter;
use signalbox_linux::clock::Clock;
use signalbox_linux::diagnosis::Requester;
use signalbox_rsvp::client::{Action, Client, End, Entry, Patience, Query, Report, TTL};
use signalbox_rsvp::wire::{
    Class, DiagErrors, DiagResponse, Filter, FlowSpec, Object, ObjectType, Selector, Session, SessionKind,
};

use super::args;
use super::args::{DataArgs, check_spi};
use crate::arguments::OutputArgs;
use crate::arguments::values::time;
use crate::commands::Run;
use crate::exit::{Exit, exit_status, usage};
use crate::print::{json_line, rate, table};

/// Nodes of a traceroute at most, and how long each may take to answer.
const TRACEROUTE: (u8, Duration) = (30, Duration::from_millis(500));
/// The longest UDP payload.
const REPLY: usize = 65_536;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The sender: ADDRESS, ADDRESS/PORT, ADDRESS/label:N or ADDRESS/spi:N, as `show rsvp sessions` lists it.
    #[arg(long, value_name = "SENDER", value_parser = args::sender)]
    sender: v1::Filter,
    /// The node to begin at, on the path of the sender's data [default: the destination, if it is a host].
    #[arg(long, value_name = "ADDRESS")]
    last_hop: Option<IpAddr>,
    /// End after N RSVP nodes [default: at the sender].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    max_hops: Option<u8>,
    /// Let replies return from node to node, where a firewall drops the direct ones.
    #[arg(long)]
    hop_by_hop: bool,
    /// Octets of a packet at most [default: the MTU towards the first node].
    #[arg(long, value_name = "OCTETS")]
    mtu: Option<u16>,
    /// Ask nodes to report only these objects: adspec, flowspec, filter-spec, rsvp-hop, scope, sender-template,
    /// sender-tspec, style.
    #[arg(long = "object", value_name = "NAME", value_delimiter = ',', value_parser = object)]
    objects: Vec<Class>,
    /// Send a request N times before the node counts as silent.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// Wait this long for each answer.
    #[arg(short = 'W', long, value_name = "TIME", default_value = "1s", value_parser = time)]
    timeout: Duration,
    /// Do not try to get past nodes that are silent.
    #[arg(long)]
    no_fallback: bool,
    #[command(flatten)]
    output: OutputArgs,
}

const HELP: &str = concat!(
    exit_status!("the path state was followed to the sender, or to --max-hops", "it was not"),
    "EXAMPLES:\n",
    "  signalbox rsvp trace 192.0.2.9 --proto udp --dport 5004 --sender 198.51.100.7/4000\n",
    "  signalbox rsvp trace 239.1.1.1 --proto udp --dport 5004 --sender 198.51.100.7 --last-hop 192.0.2.1\n",
    "  signalbox rsvp trace 192.0.2.9 --proto udp --dport 5004 --sender 198.51.100.7/4000 --max-hops 1 --object adspec\n\n",
    "Each node on the path from the last hop up to the sender reports (RFC 2745) its incoming and outgoing interface, the\n",
    "previous hop, how many IP hops the request took from the node below (IP), its refresh period and multiple (R, K), and what\n",
    "is reserved. Remarks: `merged` upstream with the reservations of other interfaces; `no path state`; `packet too big`, its\n",
    "answer began a new part or lacks objects that did not fit; `route too big`.\n\n",
    "Routers that do not answer although they forward RSVP are shown as silent; the nodes behind them are found by a\n",
    "traceroute, and each is asked directly. The command sends raw packets: it needs root or CAP_NET_RAW, but no daemon.\n\n",
    "JSON: one object of the type trace (docs/schema/trace.json). Its objects are as `signalbox decode --json` prints them.",
);

/// Parses the name of an object class that nodes may report.
fn object(text: &str) -> Result<Class, String> {
    const CLASSES: [Class; 8] = [
        Class::ADSPEC,
        Class::FLOWSPEC,
        Class::FILTER_SPEC,
        Class::RSVP_HOP,
        Class::SCOPE,
        Class::SENDER_TEMPLATE,
        Class::SENDER_TSPEC,
        Class::STYLE,
    ];
    let name = |class: Class| class.name().unwrap_or_default().to_lowercase().replace('_', "-");
    CLASSES
        .into_iter()
        .find(|class| name(*class) == text.to_lowercase())
        .ok_or_else(|| format!("use {}", CLASSES.map(name).join(", ")))
}

impl TraceArgs {
    fn query(&self, sockets: &Requester, destination: IpAddr, last_hop: IpAddr) -> Result<Query> {
        let kind = if self.data.ipsec { SessionKind::Gpi } else { SessionKind::Ports };
        let port = self.data.destination_port.unwrap_or(0);
        let session = Session { dest: destination, protocol: self.data.ip_protocol, kind, port };
        let source = self.sender.source.as_deref().unwrap_or_default();
        let src: IpAddr = source.parse().context("--sender is no address")?;
        let selector = match self.sender.selector {
            None if self.data.ipsec => {
                usage!("a sender of an IPsec session has an SPI: --sender ADDRESS/spi:N")
            }
            None => Selector::Port(0),
            Some(filter::Selector::SourcePort(port)) => Selector::Port(u16::try_from(port)?),
            Some(filter::Selector::FlowLabel(label)) => Selector::FlowLabel(label),
            Some(filter::Selector::Spi(spi)) => Selector::Gpi(spi),
        };
        check_spi(matches!(selector, Selector::Gpi(_)), self.data.ipsec)?;
        let ipv6 = last_hop.is_ipv6();
        if src.is_ipv6() != ipv6 || destination.is_ipv6() != ipv6 {
            usage!("destination, sender and last hop are of one IP version");
        }
        let link = u16::try_from(sockets.mtu()).unwrap_or(u16::MAX);
        Ok(Query {
            session,
            sender: Filter { src, selector },
            last_hop,
            max_hops: self.max_hops.unwrap_or(0),
            select: self.objects.iter().map(|class| ObjectType::new(*class, 0)).collect(),
            with_route: self.hop_by_hop,
            path_mtu: self.mtu.map_or(link, |mtu| mtu.min(link)),
            requester: sockets.address(),
            // The process and the request (RFC 2745 §3.3).
            request_id: (std::process::id() & 0xffff) << 16 | 1,
        })
    }

    fn last_hop(&self, destination: IpAddr) -> Result<IpAddr> {
        match self.last_hop {
            Some(last_hop) => Ok(last_hop),
            None if destination.is_multicast() => {
                usage!("for a group, give --last-hop: a receiver or its router")
            }
            None => Ok(destination),
        }
    }
}

impl Run for TraceArgs {
    fn run(self) -> Result<Exit> {
        trace(&self)
    }
}

/// Sends the requests and prints the report.
fn trace(arguments: &TraceArgs) -> Result<Exit> {
    let sender = arguments.sender.source.as_ref().and_then(|source| source.parse().ok());
    let destination = arguments.data.destination(sender)?;
    let last_hop = arguments.last_hop(destination)?;
    let sockets = Requester::open(last_hop, TTL)?;
    let query = arguments.query(&sockets, destination, last_hop)?;
    let patience = Patience {
        tries: arguments.tries,
        timeout: arguments.timeout,
        fall_back: !arguments.no_fallback,
        ..Patience::default()
    };
    let report = ask(&sockets, Client::new(query, patience), last_hop)?;
    let mut out = std::io::stdout();
    if arguments.output.json {
        json_line(&mut out, &TraceLine::new(arguments, destination, last_hop, &report)?)?;
    } else {
        in_text(&mut out, &report)?;
    }
    out.flush()?;
    Ok(Exit::yes_if(is_well(&report)))
}

/// Carries out the client's actions until its report is complete.
fn ask(sockets: &Requester, mut client: Client, last_hop: IpAddr) -> Result<Report> {
    let clock = Clock::start();
    let mut buffer = vec![0; REPLY];
    client.start(clock.now());
    loop {
        while let Some(action) = client.poll() {
            match action {
                Action::Send { to, octets } => {
                    // A node that a traceroute found may be unreachable; it is reported as silent then.
                    let sent = sockets.send(to, &octets);
                    if to == last_hop {
                        sent.with_context(|| format!("cannot ask {to}"))?;
                    }
                }
                Action::FindRoute { to } => {
                    let nodes = sockets.trace(to, TRACEROUTE.0, TRACEROUTE.1).unwrap_or_default();
                    client.route(clock.now(), &nodes);
                }
            }
        }
        if let Some(report) = client.report() {
            return Ok(report);
        }
        let now = clock.now();
        let left = client.deadline().map_or(Duration::ZERO, |deadline| deadline.since(now));
        match sockets.receive(&mut buffer, left).context("cannot receive replies")? {
            Some(reply) => client.datagram(clock.now(), reply),
            None => client.timer(clock.now()),
        }
    }
}

/// The path state was followed to the sender or to the last hop wanted.
fn is_well(report: &Report) -> bool {
    let last = report.entries.last().and_then(|entry| match entry {
        Entry::Node(node) => node.response(),
        _ => None,
    });
    let no_path = last.is_none_or(|last| last.errors.contains(DiagErrors::NO_PATH));
    report.end == End::Complete && !no_path
}

const COLUMNS: [&str; 10] =
    ["hop", "incoming", "outgoing", "previous hop", "ip", "r", "k", "style", "reserved", "remarks"];

fn in_text(out: &mut impl Write, report: &Report) -> Result<()> {
    let mut rows = table::new(&COLUMNS);
    for (number, entry) in (1..).zip(&report.entries) {
        let mut row = [const { String::new() }; COLUMNS.len()];
        row[0] = number.to_string();
        match entry {
            Entry::Node(node) => {
                if let Some(found) = node.response() {
                    cells(&mut row, &found);
                }
            }
            Entry::Silent(address) => {
                row[2] = address.to_string();
                row[9] = "silent".to_owned();
            }
            Entry::Lost => row[9] = "a part of the answer is lost".to_owned(),
        }
        rows.add_row(row);
    }
    table::print(out, &rows)?;
    match report.end {
        End::Complete => {}
        End::Partial => writeln!(out, "not all parts of the answer came")?,
        End::Silent => writeln!(out, "no answer from farther on")?,
    }
    Ok(())
}

fn cells(row: &mut [String; COLUMNS.len()], found: &DiagResponse<'_>) {
    let known = |address: IpAddr| match address {
        IpAddr::V4(v4) if v4.is_unspecified() => "-".to_owned(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => "-".to_owned(),
        _ => address.to_string(),
    };
    [row[1], row[2], row[3]] = [found.incoming, found.outgoing, found.previous].map(known);
    row[4] = found.d_ttl.to_string();
    if !found.errors.contains(DiagErrors::NO_PATH) {
        row[5] = format!("{}s", found.refresh);
        row[6] = found.cleanup.to_string();
    }
    for object in found.objects() {
        match object.read() {
            Ok(Object::Style(_, Some(style))) => row[7] = style.to_string(),
            Ok(Object::FlowSpec(raw)) => row[8] = raw.read().map(|one| reserved(&one)).unwrap_or_default(),
            _ => {}
        }
    }
    let remarks = [
        (found.merged, "merged"),
        (found.errors.contains(DiagErrors::NO_PATH), "no path state"),
        (found.errors.contains(DiagErrors::TOO_BIG), "packet too big"),
        (found.errors.contains(DiagErrors::ROUTE_TOO_BIG), "route too big"),
    ];
    let remarks: Vec<&str> =
        remarks.into_iter().filter(|(applies, _)| *applies).map(|(_, name)| name).collect();
    row[9] = remarks.join(", ");
}

/// The reserved resources as text.
fn reserved(flowspec: &FlowSpec) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
    let rate = |octets: f32| rate(octets.round() as u64);
    let traffic = rate(flowspec.tspec.rate());
    match flowspec.rspec {
        Some(rspec) => format!("{traffic}, guaranteed {}", rate(rspec.rate())),
        None => format!("{traffic}, controlled-load"),
    }
}

/// The report as one line.
#[derive(Debug, Serialize)]
struct TraceLine {
    r#type: &'static str,
    destination: String,
    ip_protocol: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    sender: Value,
    last_hop: String,
    end: &'static str,
    hops: Vec<Value>,
}

impl TraceLine {
    fn new(arguments: &TraceArgs, destination: IpAddr, last_hop: IpAddr, report: &Report) -> Result<Self> {
        let hop = |entry: &Entry| match entry {
            Entry::Node(node) => {
                let mut hop =
                    node.response().map_or(json!({}), |found| signalbox_dissect::rsvp_response(&found));
                hop["type"] = "node".into();
                hop
            }
            Entry::Silent(address) => json!({ "type": "silent", "address": address.to_string() }),
            Entry::Lost => json!({ "type": "lost" }),
        };
        Ok(Self {
            r#type: "trace",
            destination: destination.to_string(),
            ip_protocol: arguments.data.ip_protocol,
            destination_port: arguments.data.destination_port,
            sender: signalbox_json::value(&arguments.sender)?,
            last_hop: last_hop.to_string(),
            end: match report.end {
                End::Complete => "complete",
                End::Partial => "partial",
                End::Silent => "silent",
            },
            hops: report.entries.iter().map(hop).collect(),
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
        trace: TraceArgs,
    }

    fn parse(words: &str) -> TraceArgs {
        Line::try_parse_from(core::iter::once("trace").chain(words.split(' '))).unwrap().trace
    }

    #[test]
    fn it_begins_at_the_receiver_unless_that_is_a_group() {
        let arguments =
            parse("10.0.0.9 --proto udp --dport 5004 --sender 10.0.0.1/4000 --object adspec,rsvp-hop");
        let (host, multicast): (IpAddr, IpAddr) = ("10.0.0.9".parse().unwrap(), "239.1.1.1".parse().unwrap());
        assert_eq!(arguments.last_hop(host).unwrap(), host);
        assert_eq!(arguments.objects, [Class::ADSPEC, Class::RSVP_HOP]);
        let group = "239.1.1.1 --proto udp --sender 10.0.0.1";
        assert!(parse(group).last_hop(multicast).is_err());
        let given = parse(&format!("{group} --last-hop 10.0.0.9"));
        assert_eq!(given.last_hop(multicast).unwrap(), host);
        assert!(object("policy-data").is_err());
    }

    #[test]
    fn a_report_as_text_and_json() {
        let silent: IpAddr = "10.0.2.1".parse().unwrap();
        let report = Report { entries: vec![Entry::Silent(silent), Entry::Lost], end: End::Partial };
        let mut out = Vec::new();
        in_text(&mut out, &report).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in ["PREVIOUS HOP", "10.0.2.1", "silent", "a part of the answer is lost", "not all parts"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!is_well(&report));
        let arguments = parse("10.0.0.9 --proto udp --sender 10.0.0.1/4000");
        let line = TraceLine::new(&arguments, silent, silent, &report).unwrap();
        let value = serde_json::to_value(line).unwrap();
        assert_eq!((&value["end"], &value["hops"][0]["address"]), (&"partial".into(), &"10.0.2.1".into()));
        assert_eq!(value["sender"]["source_port"], 4000);
    }
}
