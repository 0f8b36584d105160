//! `signalbox policy`.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_units::Identity;

use super::{Run, subcommands};
use crate::arguments::values::{rate, time};
use crate::arguments::{AuthorityArgs, FlowArgs, NodeArgs, OutputArgs, ServiceArgs, Signaling, TrafficArgs};
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
    "  signalbox policy test 192.0.2.9 --rate 2mbit --signaling rsvp --user ann --json\n",
    "  signalbox policy test 10.0.9.9 --opens between --from 10.0.1.2 --proto udp --dport 5000\n\n",
    "JSON: one line of the type policy_decision (docs/schema/policy_decision.json).",
);

impl Run for PolicyArgs {
    fn run(self) -> Result<Exit> {
        self.command.run()
    }
}

/// What rules open, as `opens` names it.
const OPENINGS: [&str; 6] = ["outward", "inward", "between", "reserve", "block", "publish"];

#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct TestArgs {
    /// Destination of the flow: an address or a host name.
    #[arg(value_name = "DESTINATION")]
    destination: String,
    /// Rate of IP packets, in bits a second: 64kbit, 20mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = rate, required_unless_present = "opens")]
    rate: Option<u64>,
    /// The request is for a passage through this firewall or NAT, as rules with `opens` judge it. The source of the flow is the
    /// neighbor of --from if --src does not give it.
    #[arg(long, value_name = "OPENING", value_parser = OPENINGS, conflicts_with_all = ["rate", "signaling"])]
    opens: Option<String>,
    #[command(flatten)]
    flow: FlowArgs,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    service: ServiceArgs,
    /// Bound of the queueing delay, with --service guaranteed.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Service")]
    delay: Option<Duration>,
    #[command(flatten)]
    authority: AuthorityArgs,
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
    /// Interface by which the packets would come in, with --opens; that of the route to their source if not given.
    #[arg(long, value_name = "NAME", requires = "opens")]
    from_interface: Option<String>,
    /// A host inside has reserved the passage before, with --opens.
    #[arg(long, requires = "opens")]
    invited: bool,
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
    let TestArgs { from, peer, interface, from_interface, output, node, .. } = arguments;
    let protocol = match &arguments.opens {
        Some(_) => v1::Protocol::Unspecified,
        None => arguments.signaling.protocol(),
    };
    let request = v1::TestPolicyRequest {
        protocol: protocol.into(),
        flow: Some(arguments.flow.to(&arguments.destination)?),
        traffic: arguments.rate.map(|rate| arguments.traffic.with_rate(rate)),
        service: arguments.service.request(arguments.delay)?,
        authority: arguments.authority.request(),
        from: from.map(|from| from.to_string()),
        peer: peer.as_ref().map(ToString::to_string),
        interface: interface.clone(),
        opening: arguments.opens.clone(),
        from_interface: from_interface.clone(),
        invited: arguments.invited,
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
