//! `signalbox net`: the same question to several nodes at once.

mod ask;
mod check;
mod inventory;
mod path;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::Run;
use crate::arguments::values;
use crate::client::block_on;
use crate::exit::{Exit, exit_status};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct NetArgs {
    #[command(flatten)]
    nodes: NodesArgs,
    #[command(subcommand)]
    question: Question,
}

/// Which nodes to ask.
#[derive(Debug, Args)]
struct NodesArgs {
    /// The file that names the nodes.
    #[arg(
        long,
        global = true,
        env = "SIGNALBOX_INVENTORY",
        value_name = "FILE",
        default_value = "/etc/signalbox/nodes.toml"
    )]
    inventory: PathBuf,
    /// The nodes of this lab, which stands.
    #[arg(long, global = true, value_name = "NAME")]
    lab: Option<String>,
    /// Only these nodes.
    #[arg(long, global = true, value_name = "NODE", value_delimiter = ',')]
    only: Vec<String>,
    /// How long a node may take to answer.
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = values::time)]
    timeout: Duration,
    /// Print JSON, one object a line (docs/schema/).
    #[arg(long, global = true)]
    json: bool,
}

const HELP: &str = concat!(
    exit_status!(
        "all nodes answered; with `check`: and nothing was found",
        "a finding, no such flow, or a node that did not answer"
    ),
    "EXAMPLES:\n",
    "  signalbox net check\n",
    "  signalbox net show reservations --interface eth1\n",
    "  signalbox net path 192.0.2.9 --dport 5004\n",
    "  signalbox net --lab quickstart show interfaces --json | jq .row.reserved_octets_per_s\n",
    "  signalbox net --inventory ./nodes.toml --only r1,r2 check --json\n\n",
    "THE FILE OF NODES:\n",
    "  [nodes.r1]\n",
    "  socket = \"/run/signalbox/r1.sock\"         # a daemon of this machine\n",
    "  [nodes.edge]\n",
    "  command = [\"ssh\", \"edge\", \"signalbox\"]    # the command of another machine; socket may stand beside it\n\n",
    "The command of a node is started without a terminal, sixteen at a time. It must not ask for a password.",
);

#[derive(Debug, Subcommand)]
enum Question {
    /// What `signalbox show` prints of each node.
    #[command(after_help = concat!(
        exit_status!("shown", "a node did not answer"),
        "EXAMPLES:\n  signalbox net show reservations\n  signalbox net show rsvp neighbors --json"
    ))]
    Show(show::ShowArgs),
    /// What the nodes hold for a flow, hop by hop.
    #[command(after_help = concat!(
        exit_status!("shown", "no node holds anything for such a flow, or a node did not answer"),
        "EXAMPLES:\n  signalbox net path 192.0.2.9\n  signalbox net path 192.0.2.9 --proto udp --dport 5004 --json"
    ))]
    Path(path::PathArgs),
    /// Versions, clocks, interception, warnings, and what the kernel enforces.
    #[command(after_help = concat!(
        exit_status!("nothing was found", "a finding"),
        "EXAMPLES:\n  signalbox net check\n  signalbox net --lab quickstart check --json"
    ))]
    Check(check::CheckArgs),
}

impl Run for NetArgs {
    fn run(self) -> Result<Exit> {
        let nodes = inventory::nodes(&self.nodes.inventory, self.nodes.lab.as_deref(), &self.nodes.only)?;
        let asked = ask::Asked { nodes, timeout: self.nodes.timeout, json: self.nodes.json };
        block_on(async {
            match self.question {
                Question::Show(arguments) => show::show(&asked, arguments).await,
                Question::Path(arguments) => path::path(&asked, &arguments).await,
                Question::Check(_) => check::check(&asked).await,
            }
        })
    }
}
