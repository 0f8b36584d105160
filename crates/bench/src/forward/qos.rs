//! `bench forward qos`: reservations of the QoS NSLP through the daemon, with and without enforcement by the kernel.

use anyhow::Result;
use clap::Args;
use signalbox_node::qos::{self, Flow, QosEvent, QosRequest, ReserveRequest};
use signalbox_node::{Command, Event};

use super::super::Goal;
use super::super::figures::Row;
use super::set_ups::{Bench, COLUMNS, GIST, OCTETS, Outcome, SetUpArgs, WARM_UP, ports};
use super::site::{MIDDLE_LINKS, SINK, SOURCE};

/// Octets a second of each reservation.
const RATE: u64 = 1_000;
const OCTETS_GOAL: f64 = 350.0;

/// Options of `bench forward qos`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Both ends are nodes of this program on one processor. The row without a daemon shows what they can offer.

EXAMPLES:
  signalbox bench forward qos
  signalbox bench forward qos --sessions 50000 --runs 1 --json")]
pub struct QosForwardArgs {
    /// Reservations to set up
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub set_ups: SetUpArgs,
}

pub(in super::super) fn run(args: &QosForwardArgs) -> Result<()> {
    let daemon = |enforcement| Some(settings(args, enforcement, MIDDLE_LINKS));
    let bench = Bench {
        name: "qos-forward",
        what: "reservations",
        sessions: args.sessions,
        args: &args.set_ups,
        ends: settings(args, "off", "[interfaces.\"*\"]\ncapacity = \"40gbit\"\n"),
        lanes: vec![("node", daemon("off")), ("node, enforced", daemon("required")), ("no daemon", None)],
        command,
        outcome,
        goals,
    };
    bench.run()
}

fn goals(rows: &[Row]) -> Vec<Goal> {
    let octets = rows.first().map_or(f64::NAN, |node| node.median(COLUMNS, OCTETS));
    vec![Goal::at_most("resident octets per session", "at most 350", OCTETS_GOAL, octets)]
}

/// Nodes without limits of rates and numbers.
fn settings(args: &QosForwardArgs, enforcement: &str, interfaces: &str) -> String {
    // The last quarter of a table is for sources that hold little; all is of one source here.
    let room = args.sessions.saturating_add(WARM_UP).saturating_mul(2);
    format!(
        "node.protocols = [\"gist\", \"qos\"]\nnode.families = [\"ipv4\"]\n{GIST}[qos]\nmax_sessions = {room}\n\
         max_commands = {room}\n[admission]\nmax_reservations = {room}\n[policy]\ndefault = \"allow\"\n[enforcement]\n\
         mode = \"{enforcement}\"\n{interfaces}"
    )
}

fn outcome(event: &Event) -> Option<Outcome> {
    let Event::Qos { event, .. } = event else { return None };
    match &**event {
        QosEvent::Granted(_) => Some(Outcome::Granted),
        QosEvent::Refused(refusal) => Some(Outcome::Failed(refusal.to_string())),
        QosEvent::Failed(failure) | QosEvent::Lost(failure) => Some(Outcome::Failed(format!("{failure:?}"))),
        QosEvent::Started { .. } | QosEvent::Rerouted(_) | QosEvent::Released | QosEvent::Answer(_) => None,
    }
}

fn command(number: u32) -> Command {
    let [src_port, dst_port] = ports(number);
    let flow =
        Flow { src: Some(SOURCE.into()), protocol: Some(17), src_port, dst_port, ..Flow::to(SINK.into()) };
    let request = ReserveRequest::new(flow, QosRequest::rate(RATE));
    Command::Qos { id: number.into(), command: qos::Command::Reserve(Box::new(request)) }
}
