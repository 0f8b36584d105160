//! `signalbox query`.

use std::io::Write;

use anyhow::{Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use signalbox_api::v1;
use signalbox_api::v1::query_response::Answer;
use signalbox_api::v1::reservations_client::ReservationsClient;

use super::Run;
use crate::arguments::values::{partial, rate};
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
    /// A part of the path will do, with casp: N nodes may lack the rate, and M nodes may not run the QoS client [default: no node].
    #[arg(long, value_name = "N[/M]", value_parser = partial)]
    partial: Option<v1::PartialReservation>,
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
    "  signalbox query 192.0.2.9 --rate 1mbit --proto udp --dport 5004 --signaling casp\n",
    "  signalbox query 192.0.2.9 --rate 1mbit --proto udp --dport 5004 --signaling casp --partial 1/2\n\n",
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

impl QueryArgs {
    /// The request of the call.
    fn request(&self) -> Result<v1::QueryRequest> {
        let Self { request: wanted, signaling, .. } = self;
        let authority = &wanted.authority;
        if *signaling != Signaling::Casp {
            signaling.refuse(&[(self.partial.is_some(), "--partial")], "it belongs to CASP")?;
        }
        let policy_data = (authority.policy_data.is_some(), "--policy-data");
        match signaling {
            Signaling::Qos | Signaling::Rsvp | Signaling::Casp => {
                let foreign = [(authority.user.is_some(), "--user"), policy_data];
                signaling.refuse(&foreign, "it belongs to RSVP")?;
            }
            Signaling::Boomerang => signaling.refuse(&[policy_data], "it belongs to RSVP")?,
        }
        Ok(v1::QueryRequest {
            protocol: signaling.protocol().into(),
            flow: Some(wanted.flow()?),
            traffic: Some(wanted.traffic()),
            service: wanted.service()?,
            authority: authority.request(),
            partial: self.partial,
            min_rate_octets_per_s: self.at_least,
        })
    }
}

/// Asks the nodes of a path which resources they could give, and prints the answer.
async fn query(arguments: &QueryArgs) -> Result<Exit> {
    let request = arguments.request()?;
    let mut client = ReservationsClient::new(client::channel(&arguments.node.socket).await?);
    let response = answer(client.query(request).await)?;
    let mut out = std::io::stdout();
    let Some(answer) = &response.answer else { bail!("the daemon gave no answer") };
    let least = arguments.at_least.unwrap_or(arguments.request.rate);
    let enough = matches!(
        answer,
        Answer::Available(grant)
            if rate_of(grant).is_some_and(|rate| rate >= least) && packets_fit(grant, arguments.request.traffic.max_packet)
    );
    match answer {
        _ if arguments.output.json => json_event(&mut out, &response)?,
        Answer::Available(grant) => {
            path::grant(&mut out, "available", grant)?;
            if !packets_fit(grant, arguments.request.traffic.max_packet) {
                let mtu = grant.traffic.and_then(|traffic| traffic.max_packet_octets).unwrap_or_default();
                writeln!(
                    out,
                    "a link of the path has an MTU of {mtu} octets: use --max-packet {mtu}, or leave it out"
                )?;
            } else if !enough {
                writeln!(out, "less than {}", print::rate(least))?;
            }
        }
        Answer::Failed(failure) => path::failure(&mut out, "refused", failure)?,
    }
    out.flush()?;
    Ok(Exit::yes_if(enough))
}

/// Whether the path carries packets of the size that the user gives, as for `signalbox reserve`.
fn packets_fit(grant: &v1::PathGrant, asked: Option<u32>) -> bool {
    let most = grant.traffic.and_then(|traffic| traffic.max_packet_octets);
    asked.zip(most).is_none_or(|(asked, most)| asked <= most)
}

/// The rate that the whole path could give: that of the answer, or else the least of its nodes.
fn rate_of(grant: &v1::PathGrant) -> Option<u64> {
    let nodes = grant.hops.iter().filter_map(|hop| hop.rate_octets_per_s).min();
    grant.traffic.map(|traffic| traffic.rate_octets_per_s).or(nodes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        query: QueryArgs,
    }

    #[test]
    fn a_part_of_the_path_belongs_to_casp() {
        let run = |signaling: &str| {
            let line = format!("query 192.0.2.9 --rate 1mbit --partial 1/2 --signaling {signaling}");
            let line = Line::try_parse_from(line.split_whitespace()).expect("it is a query");
            line.query.request()
        };
        let partial = v1::PartialReservation { failures: 1, unaware: 2 };
        assert_eq!(run("casp").expect("CASP has it").partial, Some(partial));
        for signaling in ["qos", "boomerang"] {
            assert!(run(signaling).is_err(), "{signaling}");
        }
    }

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
