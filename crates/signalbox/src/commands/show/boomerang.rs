//! `signalbox show boomerang`: the reservations of a node on the path.

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;
use signalbox_api::boomerang::v1;
use signalbox_api::boomerang::v1::boomerang_client::BoomerangClient;

use super::{LimitArgs, ListArgs, view_help};
use crate::arguments::OutputArgs;
use crate::client;
use crate::exit::Exit;
use crate::print::{duration, enum_text, flow, or_dash, rate, service, table};

#[derive(Debug, Subcommand)]
pub(crate) enum BoomerangView {
    /// Flows that this node holds a reservation for, each in one direction.
    #[command(after_help = view_help!(
        "boomerang_flow",
        "boomerang flows",
        "boomerang flows --address 192.0.2.9 --json",
    ))]
    Flows(ListArgs),
    /// Interfaces by which wrong proofs of return came in the last ten seconds.
    #[command(after_help = view_help!(
        "boomerang_guesses",
        "boomerang guesses",
        "boomerang guesses --json",
    ))]
    Guesses(LimitArgs),
}

pub(super) async fn show(view: &BoomerangView, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = BoomerangClient::new(client::channel(socket).await?);
    let page_token = Vec::new();
    match view {
        BoomerangView::Flows(list) => {
            let request = v1::ListFlowsRequest { address: list.address(), limit: list.limit, page_token };
            table::list(client.list_flows(request).await, output, &COLUMNS, cells).await
        }
        BoomerangView::Guesses(LimitArgs { limit }) => {
            let request = v1::ListGuessesRequest { limit: *limit, page_token };
            table::list(client.list_guesses(request).await, output, &GUESSES, guesses).await
        }
    }
}

const GUESSES: [&str; 7] = ["interface", "wrong proofs", "refused", "since", "last", "from", "attack"];

fn guesses(row: &v1::Guesses) -> Vec<[String; 7]> {
    vec![[
        or_dash(row.interface.as_ref().map(|interface| &interface.name)),
        row.wrong.to_string(),
        row.limited.to_string(),
        duration(row.since_us),
        duration(row.last_us),
        row.source.clone(),
        if row.attack { "yes" } else { "no" }.to_owned(),
    ]]
}

const COLUMNS: [&str; 10] = [
    "flow",
    "reserved by",
    "initiator",
    "interface",
    "rate",
    "service",
    "refresh",
    "proved",
    "expires",
    "aggregate",
];

fn cells(row: &v1::Flow) -> Vec<[String; 10]> {
    let held = row.held.as_ref();
    vec![[
        or_dash(row.flow.as_ref().map(flow)),
        enum_text(row.pass().as_str_name(), "PASS_"),
        row.initiator.clone(),
        or_dash(held.and_then(|held| held.interface.as_ref()).map(|interface| &interface.name)),
        or_dash(held.and_then(|held| held.traffic).map(|traffic| rate(traffic.rate_octets_per_s))),
        or_dash(held.and_then(|held| held.service.as_ref()).map(service)),
        duration(row.refresh_us),
        if row.proved { "yes" } else { "no" }.to_owned(),
        or_dash(row.expires_in_us.map(duration)),
        or_dash(row.aggregate.as_ref().map(aggregate)),
    ]]
}

/// The node that proposes an aggregate, its number there, and whether the row is the aggregate or one of its flows.
fn aggregate(one: &v1::Aggregate) -> String {
    let what = if one.adopted { "all of" } else { "one of" };
    format!("{what} {} {:#x}", one.proposer, one.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_show_how_many_and_from_where() {
        let row = v1::Guesses {
            wrong: 60_000,
            limited: 58_976,
            since_us: 60_000_000,
            last_us: 2_000,
            source: "192.0.2.7".into(),
            attack: true,
            ..v1::Guesses::default()
        };
        let cells = guesses(&row).remove(0);
        assert_eq!(cells[..3], ["-", "60000", "58976"]);
        assert_eq!(cells[5..], ["192.0.2.7", "yes"]);
    }

    #[test]
    fn a_flow_shows_its_direction_and_its_end() {
        let row = v1::Flow {
            pass: v1::Pass::Reply.into(),
            initiator: "10.0.0.1".into(),
            refresh_us: 30_000_000,
            expires_in_us: Some(105_000_000),
            ..v1::Flow::default()
        };
        let cells = cells(&row).remove(0);
        assert_eq!(cells[..3], ["-", "reply", "10.0.0.1"]);
        assert_eq!(cells[6..], ["30.0s", "no", "1m45s", "-"]);
        let row = v1::Aggregate { proposer: "10.0.0.9".into(), number: 7, adopted: true };
        assert_eq!(aggregate(&row), "all of 10.0.0.9 0x7");
    }
}
