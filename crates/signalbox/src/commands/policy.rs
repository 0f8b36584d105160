//! `signalbox policy`.

use std::io::Write;
use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_units::Identity;

use super::{Run, subcommands};
use crate::arguments::{NodeArgs, OutputArgs, RequestArgs, Signaling};
use crate::client::{self, answer, block_on};
use crate::exit::{Exit, exit_status};
use crate::print::json_row;
use crate::print::path::failure_text;
use crate::print::style::{Tone, paint};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    enum Command {
        /// Show which rule would decide about a request, and how. Nothing is reserved, and no message leaves.
        Test(Box<TestArgs>),
    }
}

const HELP: &str = concat!(
    exit_status!("the rules allow the request", "they refuse it"),
    "EXAMPLES:\n",
    "  signalbox policy test 192.0.2.9 --rate 20mbit\n",
    "  signalbox policy test 192.0.2.9 --rate 20mbit --from 10.0.12.1 --peer dns:r1.example --interface eth1\n",
    "  signalbox policy test 192.0.2.9 --rate 2mbit --signaling rsvp --user ann --json\n\n",
    "JSON: one line of the type policy_decision (docs/schema/policy_decision.json).",
);

impl Run for PolicyArgs {
    fn run(self) -> Result<Exit> {
        self.command.run()
    }
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct TestArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Signaling protocol of the request.
    #[arg(long, value_enum, default_value_t = Signaling::Qos)]
    signaling: Signaling,
    /// Address of the neighbor that sends the request; this host if not given.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// Authenticated identity of that neighbor: dns:NAME, address:ADDRESS or key:FINGERPRINT.
    #[arg(long, value_name = "IDENTITY", requires = "from")]
    peer: Option<Identity>,
    /// Interface by which the packets would leave; that of the route if not given.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
}

impl Run for TestArgs {
    fn run(self) -> Result<Exit> {
        block_on(test(&self))
    }
}

async fn test(arguments: &TestArgs) -> Result<Exit> {
    let TestArgs { request: wanted, signaling, from, peer, interface, output, node } = arguments;
    let request = v1::TestPolicyRequest {
        protocol: signaling.protocol().into(),
        flow: Some(wanted.flow()?),
        traffic: Some(wanted.traffic()),
        service: wanted.service()?,
        authority: wanted.authority.request(),
        from: from.map(|from| from.to_string()),
        peer: peer.as_ref().map(ToString::to_string),
        interface: interface.clone(),
    };
    let mut client = ReservationsClient::new(client::channel(&node.socket).await?);
    let decision = answer(client.test_policy(request).await)?;
    let mut out = std::io::stdout();
    if output.json {
        json_row(&mut out, &decision)?;
    } else {
        let rule = decision.rule.as_deref().unwrap_or("the default");
        match (&decision.failure, decision.allowed) {
            (_, true) => writeln!(out, "{} by {rule}", paint(Tone::Good, "allowed"))?,
            (None, false) => writeln!(out, "{} by {rule}", paint(Tone::Bad, "refused"))?,
            (Some(failure), false) => {
                writeln!(out, "{} by {rule}: {}", paint(Tone::Bad, "refused"), failure_text(failure))?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::yes_if(decision.allowed))
}
