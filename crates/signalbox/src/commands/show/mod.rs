//! `signalbox show`: the state of the node. Each view is a file with a `mod` line and a line in the table below.

mod bindings;
mod boomerang;
mod casp;
mod config;
mod counters;
mod decisions;
mod gist;
mod interfaces;
mod mappings;
mod pinholes;
mod qos;
mod repeat;
mod requests;
mod reservations;
mod rsvp;
mod status;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::arguments::OutputArgs;
use crate::client::{Termination, block_on};
use crate::exit::{Exit, exit_status};

use super::Run;
#[cfg(feature = "top")]
pub(super) use repeat::interval;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ShowArgs {
    #[command(subcommand)]
    view: View,
    /// Control socket of the daemon.
    #[arg(
        long,
        global = true,
        env = "SIGNALBOX_SOCKET",
        value_name = "PATH",
        default_value = signalbox_api::DEFAULT_SOCKET
    )]
    socket: PathBuf,
    /// Print JSON, one object a line (docs/schema/).
    #[arg(long, global = true)]
    json: bool,
    /// Show it again after each interval, on the same screen, until Ctrl-C [default interval: 2s]. `signalbox watch` prints changes,
    /// `signalbox top` has links, sessions and decisions on one screen.
    #[arg(
        long,
        global = true,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s",
        value_parser = repeat::interval
    )]
    watch: Option<Duration>,
}

/// The help text of a view: the type of its rows, and examples of what stands behind `signalbox show`.
macro_rules! view_help {
    ($row:literal, $($example:literal),+ $(,)?) => {
        concat!(
            $crate::exit::exit_status!("shown"),
            "EXAMPLES:\n",
            $("  signalbox show ", $example, "\n",)+
            "\nJSON: a row a line, of the type ",
            $row,
            "."
        )
    };
}
use view_help;

const HELP: &str = concat!(
    exit_status!("shown"),
    "EXAMPLES:\n",
    "  signalbox show status\n",
    "  signalbox show reservations --interface eth1\n",
    "  signalbox show gist sessions --address 192.0.2.9 --json | jq -s length\n",
    "  signalbox show rsvp neighbors\n",
    "  signalbox show counters --nonzero\n",
    "  signalbox show interfaces --watch\n",
    "  signalbox show reservations --watch=500ms\n",
    "  signalbox show reservations --watch --json\n\n",
    "JSON: one row a line; with --watch a line of the type view before the rows of each view. The types are node, interface, metric, config, reservation, decision, pinhole, standing_request, gist_session, gist_peer,\n",
    "gist_association, gist_binding, mapping, qos_session, rsvp_session, rsvp_neighbor, rsvp_interface, boomerang_flow, boomerang_guesses, casp_session, casp_peer; docs/schema/ describes each.",
);

/// Defines the views: a line for each, with its help, its name, its arguments and the function that shows it.
macro_rules! views {
    ($($(#[$help:meta])* $name:ident($arguments:ty) => $show:path,)*) => {
        #[derive(Debug, clap::Subcommand)]
        enum View { $($(#[$help])* $name($arguments),)* }

        async fn show(view: &View, socket: &std::path::Path, output: OutputArgs) -> Result<Exit> {
            match view { $(View::$name(arguments) => $show(arguments, socket, output).await,)* }
        }
    };
}

views! {
    /// Version, time since the start, and the protocols that run.
    #[command(after_help = view_help!("node", "status", "status --json | jq -r .version"))]
    Status(NoArgs) => status::show,
    /// Interfaces, and how much of them is reserved.
    #[command(after_help = view_help!(
        "interface",
        "interfaces",
        "interfaces --interface eth1",
        "interfaces --json | jq .reserved_octets_per_s",
    ))]
    Interfaces(interfaces::InterfacesArgs) => interfaces::show,
    /// Counters and other metrics of the node.
    #[command(after_help = view_help!(
        "metric",
        "counters --nonzero",
        "counters --name signalbox_gist --name signalbox_table",
        "counters --openmetrics > signalbox.prom",
    ))]
    Counters(counters::CountersArgs) => counters::show,
    /// The configuration in force, with all defaults and without secrets.
    #[command(after_help = view_help!("config", "config", "config --json | jq -r .digest"))]
    Config(NoArgs) => config::show,
    /// The part of the configuration in force that decides about requests.
    #[command(after_help = view_help!("config", "policy", "policy --socket /run/signalbox/r1.sock"))]
    Policy(NoArgs) => config::show_policy,
    /// What admission control holds, of all protocols.
    #[command(after_help = view_help!(
        "reservation",
        "reservations --interface eth1",
        "reservations --signaling rsvp --json | jq -s length",
        "reservations --address 192.0.2.9 --limit 20",
    ))]
    Reservations(reservations::ReservationsArgs) => reservations::show,
    /// What became of the last requests of all protocols: who asked, what for, which rule decided.
    #[command(after_help = view_help!(
        "decision",
        "decisions --refused",
        "decisions --since 14:00 --flow 192.0.2.9",
        "decisions --json | jq .rule",
    ))]
    Decisions(decisions::DecisionsArgs) => decisions::show,
    /// Passages through firewalls and NATs, and what this node opened for them.
    #[command(after_help = view_help!("pinhole", "pinholes", "pinholes --address 192.0.2.9 --json"))]
    Pinholes(pinholes::PinholesArgs) => pinholes::show,
    /// Ports that programs on hosts have by PCP and NAT-PMP.
    #[command(after_help = view_help!("mapping", "mappings", "mappings --address 192.168.1.20 --json"))]
    Mappings(ListArgs) => mappings::show,
    /// Standing requests: what the configuration asks for by itself, and what became of it.
    #[command(after_help = view_help!(
        "standing_request",
        "requests",
        "requests --json | jq 'select(.state != \"granted\")'",
    ))]
    Requests(NoArgs) => requests::show,
    /// What a GIST-aware NAT gateway translates: flows, and the signaling for them.
    #[command(after_help = view_help!("gist_binding", "bindings", "bindings --address 192.0.2.9 --json"))]
    Bindings(bindings::BindingsArgs) => bindings::show,
    /// State of GIST: routing state, peers, messaging associations.
    #[command(subcommand)]
    Gist(gist::GistView) => gist::show,
    /// State of the QoS NSLP.
    #[command(subcommand)]
    Qos(qos::QosView) => qos::show,
    /// State of RSVP: sessions, neighbors, interfaces.
    #[command(subcommand)]
    Rsvp(rsvp::RsvpView) => rsvp::show,
    /// State of Boomerang.
    #[command(subcommand)]
    Boomerang(boomerang::BoomerangView) => boomerang::show,
    /// State of CASP: sessions, peers.
    #[command(subcommand)]
    Casp(casp::CaspView) => casp::show,
}

/// No arguments.
#[derive(Debug, Args)]
pub(crate) struct NoArgs {}

/// Which rows of a list to show.
#[derive(Debug, Clone, Args)]
struct ListArgs {
    /// Only flows from or to this address, or peers with it.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<std::net::IpAddr>,
    /// Show N rows at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl ListArgs {
    fn address(&self) -> Option<String> {
        self.address.map(|address| address.to_string())
    }
}

/// How many rows of a list to show.
#[derive(Debug, Clone, Args)]
struct LimitArgs {
    /// Show N rows at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl Run for ShowArgs {
    fn run(self) -> Result<Exit> {
        let output = OutputArgs { json: self.json };
        block_on(async {
            let Some(every) = self.watch else { return show(&self.view, &self.socket, output).await };
            let mut termination = Termination::new(None)?;
            let view = async || show(&self.view, &self.socket, output).await;
            repeat::repeat(&mut std::io::stdout(), every, self.json, async || termination.wait().await, view)
                .await
        })
    }
}
