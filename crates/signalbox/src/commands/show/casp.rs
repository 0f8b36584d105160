//! `signalbox show casp`: sessions and peers of the messaging layer.

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;
use signalbox_api::casp::v1;
use signalbox_api::casp::v1::casp_client::CaspClient;

use super::{ListArgs, view_help};
use crate::arguments::OutputArgs;
use crate::client;
use crate::exit::Exit;
use crate::print::{duration, enum_text, flow, hex, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum CaspView {
    /// Sessions of which this node has state.
    #[command(after_help = view_help!(
        "casp_session",
        "casp sessions",
        "casp sessions --address 192.0.2.9 --json",
    ))]
    Sessions(ListArgs),
    /// Nodes that this node exchanges messages with, and the connections.
    #[command(after_help = view_help!("casp_peer", "casp peers", "casp peers --json"))]
    Peers(ListArgs),
}

pub(super) async fn show(view: &CaspView, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = CaspClient::new(client::channel(socket).await?);
    match view {
        CaspView::Sessions(list) => {
            let (address, limit) = (list.address(), list.limit);
            let request = v1::ListSessionsRequest { address, limit, page_token: Vec::new() };
            table::list(client.list_sessions(request).await, output, &SESSION, session).await
        }
        CaspView::Peers(list) => {
            let (address, limit) = (list.address(), list.limit);
            let request = v1::ListPeersRequest { address, limit, page_token: Vec::new() };
            table::list(client.list_peers(request).await, output, &PEER, peer).await
        }
    }
}

const SESSION: [&str; 8] =
    ["session", "flow", "previous", "next", "branches", "lifetime", "refresh in", "expires"];
const PEER: [&str; 6] = ["address", "key", "uses", "connection", "unsent", "idle"];

fn session(row: &v1::Session) -> Vec<[String; 8]> {
    let peer = |hop: &v1::Branch| hop.peer.clone().unwrap_or_else(|| "local".to_owned());
    vec![[
        hex(row.session_id.get(..4).unwrap_or_default()),
        or_dash(row.flow.as_ref().map(flow)),
        or_dash(row.previous.first().map(peer)),
        or_dash(row.next.first().map(peer)),
        format!("{}+{}", row.previous.len(), row.next.len()),
        duration(row.lifetime_us),
        or_dash(row.refresh_in_us.map(duration)),
        or_dash(row.previous.first().and_then(|hop| hop.expires_in_us).map(duration)),
    ]]
}

/// One line for each connection, one for a node without.
fn peer(row: &v1::Peer) -> Vec<[String; 6]> {
    let key = or_dash(row.key_sha256.as_deref().map(|key| hex(key.get(..4).unwrap_or_default())));
    let line = |connection: String, unsent: String, idle: String| {
        [row.address.clone(), key.clone(), row.uses.to_string(), connection, unsent, idle]
    };
    if row.connections.is_empty() {
        return vec![line("-".to_owned(), "-".to_owned(), "-".to_owned())];
    }
    let connection_cells = |one: &v1::Connection| {
        let transport = enum_text(one.transport().as_str_name(), "TRANSPORT_");
        let text = if one.up { transport } else { format!("{transport} opening") };
        line(text, one.unsent_octets.to_string(), duration(one.idle_us))
    };
    row.connections.iter().map(connection_cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_this_node_has_no_previous_node() {
        let next = v1::Branch { peer: Some("10.0.0.2".into()), expires_in_us: Some(1), ..Default::default() };
        let row = v1::Session {
            session_id: (0..16).collect(),
            previous: vec![v1::Branch::default()],
            next: vec![next.clone(), next],
            lifetime_us: 90_000_000,
            ..v1::Session::default()
        };
        let cells = session(&row).remove(0);
        assert_eq!(cells[2..6], ["local", "10.0.0.2", "1+2", "1m30s"]);
        assert_eq!(cells[7], "-", "it does not expire");
    }

    #[test]
    fn each_connection_of_a_peer_has_a_line() {
        let row = v1::Peer { address: "10.0.0.2".into(), ..v1::Peer::default() };
        assert_eq!(peer(&row)[0][3], "-");
        let up = v1::Connection { transport: v1::Transport::Tls.into(), up: true, ..Default::default() };
        let opening = v1::Connection { up: false, ..up };
        let lines = peer(&v1::Peer { connections: vec![up, opening], ..row });
        assert_eq!((lines[0][3].as_str(), lines[1][3].as_str()), ("tls", "tls opening"));
    }
}
