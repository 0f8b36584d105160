//! `bench forward natfw`: passages of the NATFW NSLP through the daemon as a firewall, whose kernel opens for each, and as a router.

use anyhow::Result;
use clap::Args;
use signalbox_node::natfw::{self, NatfwEvent, OpenRequest, Options};
use signalbox_node::{Command, Event};

use super::super::Goal;
use super::super::figures::Row;
use super::set_ups::{Bench, COLUMNS, GIST, OCTETS, Outcome, SetUpArgs, WARM_UP, ports};
use super::site::{SINK, SOURCE};

/// Most passages in the kernel.
const MAX_PINHOLES: u32 = 65_536;
const OCTETS_GOAL: f64 = 300.0;

/// Options of `bench forward natfw`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
A CREATE of a node of this program at the source crosses the daemon to another one at the sink, and its RESPONSE comes back. \
The firewall opens in its kernel for each; the router has no rules and sends the same messages on. Both ends are on one \
processor. The row without a daemon shows what they can offer.

EXAMPLES:
  signalbox bench forward natfw
  signalbox bench forward natfw --sessions 40000 --runs 1 --json")]
pub struct NatfwForwardArgs {
    /// Passages to open; the last quarter of the kernel's 65,536 is for sources that hold few
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=48_000))]
    pub sessions: u32,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub set_ups: SetUpArgs,
}

pub(in super::super) fn run(args: &NatfwForwardArgs) -> Result<()> {
    let inside = "[interfaces.middle0]\nnatfw.side = \"inside\"\n";
    let bench = Bench {
        name: "natfw-forward",
        what: "passages",
        sessions: args.sessions,
        args: &args.set_ups,
        ends: settings(args, "none", ""),
        lanes: vec![
            ("firewall", Some(settings(args, "firewall", inside))),
            ("router", Some(settings(args, "none", ""))),
            ("no daemon", None),
        ],
        command,
        outcome,
        goals,
    };
    bench.run()
}

fn goals(rows: &[Row]) -> Vec<Goal> {
    let octets = rows.first().map_or(f64::NAN, |node| node.median(COLUMNS, OCTETS));
    vec![Goal::at_most("resident octets per passage", "at most 300", OCTETS_GOAL, octets)]
}

/// Nodes without limits of rates and numbers. A firewall opens for who is inside without a rule of the policy.
fn settings(args: &NatfwForwardArgs, role: &str, interfaces: &str) -> String {
    // The last quarter of a table is for sources that hold little; all is of one source here.
    let room = args.sessions.saturating_add(WARM_UP).saturating_mul(2);
    let pinholes = room.min(MAX_PINHOLES);
    format!(
        "node.protocols = [\"gist\", \"natfw\"]\nnode.families = [\"ipv4\"]\n{GIST}[natfw]\nrole = \"{role}\"\n\
         reliable = false\nmax_sessions = {room}\n[admission]\nmax_pinholes = {pinholes}\n{interfaces}"
    )
}

fn outcome(event: &Event) -> Option<Outcome> {
    let Event::Natfw { event, .. } = event else { return None };
    match event {
        NatfwEvent::Granted(_) => Some(Outcome::Granted),
        NatfwEvent::Refused(refusal) => Some(Outcome::Failed(format!("{refusal:?}"))),
        NatfwEvent::Failed(failure) => Some(Outcome::Failed(format!("{failure:?}"))),
        NatfwEvent::Started { .. } | NatfwEvent::Notified(_) | NatfwEvent::Closed => None,
    }
}

fn command(number: u32) -> Command {
    let [src_port, dst_port] = ports(number);
    let request = OpenRequest {
        src: Some(SOURCE.into()),
        dst: SINK.into(),
        protocol: Some(17),
        src_port,
        dst_port,
        options: Options::default(),
    };
    Command::Natfw { id: number.into(), command: natfw::Command::Open(request) }
}
