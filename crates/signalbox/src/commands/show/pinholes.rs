//! `signalbox show pinholes`: sessions of the NATFW NSLP, and what this node opened for them.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::pinholes_client::PinholesClient;

use super::ListArgs;
use crate::arguments::OutputArgs;
use crate::client;
use crate::commands::pinhole::endpoint;
use crate::exit::Exit;
use crate::print::{duration, enum_text, flow, identifier, or_dash, table};

#[derive(Debug, Args)]
pub(crate) struct PinholesArgs {
    #[command(flatten)]
    list: ListArgs,
}

pub(super) async fn show(arguments: &PinholesArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = PinholesClient::new(client::channel(socket).await?);
    let request = v1::ListPinholesRequest {
        address: arguments.list.address(),
        limit: arguments.list.limit,
        page_token: Vec::new(),
    };
    table::list(client.list_pinholes(request).await, output, &COLUMNS, cells).await
}

const COLUMNS: [&str; 12] = [
    "session",
    "flow",
    "role",
    "state",
    "rule here",
    "neighbor",
    "proof",
    "identity",
    "for",
    "policy",
    "packets",
    "expires",
];

fn cells(row: &v1::Pinhole) -> Vec<[String; 12]> {
    let rule = row.rule.as_ref();
    vec![[
        identifier(&row.session_id),
        or_dash(row.flow.as_ref().map(flow)),
        enum_text(row.role().as_str_name(), "PINHOLE_ROLE_"),
        enum_text(row.state().as_str_name(), "PINHOLE_STATE_"),
        or_dash(rule.map(rule_text)),
        row.neighbor.clone().unwrap_or_else(|| "this host".to_owned()),
        or_dash(row.proof.as_ref()),
        or_dash(row.identity.as_ref()),
        or_dash(row.claimed.as_ref()),
        or_dash(row.policy_rule.as_ref()),
        or_dash(rule.and_then(|rule| rule.packet_count)),
        duration(row.expires_in_us),
    ]]
}

/// What a rule does, in a few words.
fn rule_text(rule: &v1::PinholeRule) -> String {
    let mut text = match (rule.blocks, rule.active) {
        (false, true) => "open".to_owned(),
        (false, false) => "not open yet".to_owned(),
        (true, true) => "blocked".to_owned(),
        (true, false) => "not blocked yet".to_owned(),
    };
    if let Some(source) = &rule.source {
        text += &format!(", from {}", endpoint(source));
    }
    if let Some(destination) = &rule.destination {
        text += &format!(", to {}", endpoint(destination));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_what_the_node_does_with_packets() {
        let mut row = v1::Pinhole { role: v1::PinholeRole::Forwarder.into(), ..v1::Pinhole::default() };
        assert_eq!(cells(&row)[0][2..6], ["forwarder", "unspecified", "-", "this host"]);
        let inside = v1::Endpoint { address: "10.0.0.2".into(), port: Some(6000) };
        row.rule = Some(v1::PinholeRule {
            destination: Some(inside),
            active: true,
            packet_count: Some(7),
            ..v1::PinholeRule::default()
        });
        row.neighbor = Some("192.0.2.1".into());
        row.proof = Some("handshake".into());
        row.claimed = Some("10.0.0.7".into());
        let cells = cells(&row).remove(0);
        assert_eq!((cells[4].as_str(), cells[10].as_str()), ("open, to 10.0.0.2 port 6000", "7"));
        assert_eq!(cells[5..9], ["192.0.2.1", "handshake", "-", "10.0.0.7"]);
    }
}
