//! `signalbox query`.

use std::io::Write;

use anyhow::{Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use signalbox_api::v1;
use signalbox_api::v1::query_response::Answer;
use signalbox_api::v1::reservations_client::ReservationsClient;

use super::Run;
use crate::arguments::values::rate;
use crate::arguments::{NodeArgs, OutputArgs, RequestArgs, Signaling};
use crate::client::{self, answer, block_on};
use crate::exit::{Exit, exit_status};
use crate::print::{self, json_event, path};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// The answer is yes already if this rate is available.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    at_least: Option<u64>,
    /// The signaling protocol.
    #[arg(long, value_name = "PROTOCOL", default_value = "qos", value_parser = signaling())]
    signaling: Signaling,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
}

const HELP: &str = concat!(
    exit_status!(
        "the rate is available, or that of --at-least",
        "less is available, a node refused, or no node answered"
    ),
    "EXAMPLES:\n",
    "  signalbox query 192.0.2.9 --rate 20mbit && start-the-stream\n",
    "  signalbox query host.example --rate 1gbit --at-least 100mbit --service guaranteed --json\n",
    "  signalbox query 192.0.2.9 --rate 1mbit --signaling boomerang\n",
    "  signalbox query 192.0.2.9 --rate 1mbit --proto udp --dport 5004 --signaling casp\n\n",
    "Nothing is reserved. With the QoS NSLP each hop shows what that node could give; Boomerang and CASP have the least of the\n",
    "path. RSVP has no queries.\n",
    "JSON: one line of the type available or failed (docs/schema/query.json).",
);

impl Run for QueryArgs {
    fn run(self) -> Result<Exit> {
        block_on(query(&self))
    }
}

/// The protocols that have queries.
fn signaling() -> impl TypedValueParser<Value = Signaling> {
    PossibleValuesParser::new(["qos", "boomerang", "casp"]).try_map(|name| Signaling::from_str(&name, false))
}

/// Asks the nodes of a path which resources they could give, and prints the answer.
async fn query(arguments: &QueryArgs) -> Result<Exit> {
    let wanted = &arguments.request;
    let authority = &wanted.authority;
    let foreign = [(authority.user.is_some(), "--user"), (authority.policy_data.is_some(), "--policy-data")];
    match arguments.signaling {
        Signaling::Qos | Signaling::Rsvp | Signaling::Casp => {
            arguments.signaling.refuse(&foreign, "it belongs to RSVP")?
        }
        Signaling::Boomerang => {
            let foreign = [(authority.policy_data.is_some(), "--policy-data")];
            arguments.signaling.refuse(&foreign, "it belongs to RSVP")?;
        }
    }
    let request = v1::QueryRequest {
        protocol: arguments.signaling.protocol().into(),
        flow: Some(wanted.flow()?),
        traffic: Some(wanted.traffic()),
        service: wanted.service()?,
        authority: authority.request(),
    };
    let mut client = ReservationsClient::new(client::channel(&arguments.node.socket).await?);
    let response = answer(client.query(request).await)?;
    let mut out = std::io::stdout();
    let Some(answer) = &response.answer else { bail!("the daemon gave no answer") };
    let least = arguments.at_least.unwrap_or(wanted.rate);
    let enough =
        matches!(answer, Answer::Available(grant) if rate_of(grant).is_some_and(|rate| rate >= least));
    match answer {
        _ if arguments.output.json => json_event(&mut out, &response)?,
        Answer::Available(grant) => {
            path::grant(&mut out, "available", grant)?;
            if !enough {
                writeln!(out, "less than {}", print::rate(least))?;
            }
        }
        Answer::Failed(failure) => path::failure(&mut out, "refused", failure)?,
    }
    out.flush()?;
    Ok(Exit::yes_if(enough))
}

/// The rate that the whole path could give: that of the answer, or else the least of its nodes.
fn rate_of(grant: &v1::PathGrant) -> Option<u64> {
    let nodes = grant.hops.iter().filter_map(|hop| hop.rate_octets_per_s).min();
    grant.traffic.map(|traffic| traffic.rate_octets_per_s).or(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_path_is_that_of_its_narrowest_node() {
        let hop = |rate_octets_per_s| v1::HopGrant { rate_octets_per_s, ..Default::default() };
        let mut grant =
            v1::PathGrant { hops: vec![hop(Some(9)), hop(Some(5)), hop(None)], ..Default::default() };
        assert_eq!(rate_of(&grant), Some(5));
        grant.traffic = Some(v1::TokenBucket { rate_octets_per_s: 4, ..Default::default() });
        assert_eq!(rate_of(&grant), Some(4));
        assert_eq!(rate_of(&v1::PathGrant::default()), None);
    }
}
