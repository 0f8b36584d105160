//! `signalbox show qos`: sessions of the QoS NSLP (RFC 5974).

use std::path::Path;

use anyhow::Result;
use clap::{Args, Subcommand};
use signalbox_api::qos::v1;
use signalbox_api::qos::v1::qos_client::QosClient;

use super::{ListArgs, view_help};
use crate::arguments::OutputArgs;
use crate::client;
use crate::exit::Exit;
use crate::print::{duration, enum_text, flow, identifier, or_dash, rate, service, table};

#[derive(Debug, Subcommand)]
pub(crate) enum QosView {
    /// Sessions, with this node's part in each and what it holds.
    #[command(after_help = view_help!(
        "qos_session",
        "qos sessions --address 192.0.2.9",
        "qos sessions --session 5d41 --json",
    ))]
    Sessions(SessionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// Only sessions whose identifier begins with this prefix (hexadecimal).
    #[arg(long, value_name = "PREFIX")]
    session: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

pub(super) async fn show(view: &QosView, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let QosView::Sessions(arguments) = view;
    let mut client = QosClient::new(client::channel(socket).await?);
    let request = v1::ListSessionsRequest {
        session_id_prefix: arguments.session.clone(),
        address: arguments.list.address(),
        limit: arguments.list.limit,
        page_token: Vec::new(),
    };
    table::list(client.list_sessions(request).await, output, &COLUMNS, cells).await
}

const COLUMNS: [&str; 8] = ["session", "flow", "role", "state", "interface", "rate", "service", "expires"];

fn cells(row: &v1::Session) -> Vec<[String; 8]> {
    let held = row.held.as_ref();
    vec![[
        identifier(&row.session_id),
        or_dash(row.flow.as_ref().map(flow)),
        enum_text(row.role().as_str_name(), "ROLE_"),
        enum_text(row.state().as_str_name(), "STATE_"),
        or_dash(held.and_then(|held| held.interface.as_ref()).map(|interface| &interface.name)),
        or_dash(held.and_then(|held| held.traffic).map(|traffic| rate(traffic.rate_octets_per_s))),
        or_dash(held.and_then(|held| held.service.as_ref()).map(service)),
        or_dash(row.expires_in_us.map(duration)),
    ]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_flow_holds_nothing() {
        let row = v1::Session { role: v1::Role::Responder.into(), ..v1::Session::default() };
        assert_eq!(cells(&row)[0][2], "responder");
        assert_eq!(cells(&row)[0][4..], ["-"; 4].map(str::to_owned));
    }
}
