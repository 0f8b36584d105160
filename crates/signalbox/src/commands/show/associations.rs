//! `signalbox show associations`: messaging associations (RFC 5971 §4.4.5).

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use signalbox_api::v0;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, block_on};
use crate::commands::Run;
use crate::print::table::{self, time};
use crate::print::{hex, none_if_empty};

#[derive(Debug, Args)]
pub(crate) struct AssociationsArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl Run for AssociationsArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, self.output))
    }
}

async fn show(socket: &Path, output: OutputArgs) -> Result<ExitCode> {
    let rows =
        answer(client::connect(socket).await?.list_associations(v0::ListAssociationsRequest {}).await)?;
    table::rows(rows, output.json, &COLUMNS, cells, to_json).await
}

/// Columns of the table.
const COLUMNS: [&str; 8] =
    ["peer", "stack", "state", "since", "hold time", "sessions", "queued", "authenticated"];
fn cells(association: &v0::Association) -> Vec<[String; 8]> {
    let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let whose = if association.opened { "ours" } else { "theirs" };
    let unsent = association.queued_octets + association.unsent_octets;
    vec![[
        association.peer.clone(),
        format!("{}, {whose}", association.stack),
        association.state.clone(),
        time(association.age_ms),
        association.hold_time_ms.map_or_else(|| "-".to_owned(), time),
        association.sessions.to_string(),
        format!("{} messages, {unsent} octets", association.queued),
        or_none(&association.authenticated),
    ]]
}

fn to_json(association: &v0::Association) -> Value {
    json!({
        "channel": association.channel,
        "stack": association.stack,
        "state": association.state,
        "opened": association.opened,
        "peer": association.peer,
        "peer_identity": none_if_empty(&hex(&association.peer_identity)),
        "authenticated": none_if_empty(&association.authenticated),
        "local": association.local,
        "sessions": association.sessions,
        "queued": association.queued,
        "queued_octets": association.queued_octets,
        "unsent_octets": association.unsent_octets,
        "hold_time_ms": association.hold_time_ms,
        "hello_in_ms": association.hello_in_ms,
        "closes_in_ms": association.closes_in_ms,
        "age_ms": association.age_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_shows_what_waits_and_who_the_peer_is() {
        let mut row = v0::Association { stack: "tls".into(), queued: 2, ..Default::default() };
        (row.queued_octets, row.unsent_octets, row.opened) = (300, 20, true);
        let [cells] = &cells(&row)[..] else { panic!("one row") };
        assert_eq!((cells[1].as_str(), cells[6].as_str()), ("tls, ours", "2 messages, 320 octets"));
        assert_eq!((cells[4].as_str(), cells[7].as_str()), ("-", "-"));
    }
}
