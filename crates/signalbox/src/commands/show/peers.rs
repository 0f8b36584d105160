//! `signalbox show peers`: GIST nodes that the message routing state points to.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use signalbox_api::v0;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, block_on};
use crate::commands::Run;
use crate::print::hex;
use crate::print::table::{self, DIGITS};

#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl Run for PeersArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, self.output))
    }
}

async fn show(socket: &Path, output: OutputArgs) -> Result<ExitCode> {
    let rows = answer(client::connect(socket).await?.list_peers(v0::ListPeersRequest {}).await)?;
    table::rows(rows, output.json, &COLUMNS, cells, to_json).await
}

/// Columns of the table.
const COLUMNS: [&str; 4] = ["identity", "address", "interface", "sessions"];

fn cells(peer: &v0::Peer) -> Vec<[String; 4]> {
    let interface = if peer.ifindex == 0 { "-".to_owned() } else { format!("if{}", peer.ifindex) };
    let identity = hex(&peer.identity).chars().take(2 * DIGITS).collect();
    vec![[identity, peer.address.clone(), interface, peer.sessions.to_string()]]
}

fn to_json(peer: &v0::Peer) -> Value {
    json!({
        "identity": hex(&peer.identity),
        "address": peer.address,
        "ifindex": peer.ifindex,
        "sessions": peer.sessions,
    })
}
