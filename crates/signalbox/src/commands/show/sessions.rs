//! `signalbox show sessions`: message routing state (RFC 5971 §4.2).

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use signalbox_api::v0;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, block_on};
use crate::commands::Run;
use crate::print::table::{self, DIGITS, time};
use crate::print::{flow_json, flow_text, hex, none_if_empty};

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// Only sessions whose identifier begins with this prefix (hexadecimal).
    #[arg(long, value_name = "PREFIX")]
    session: Option<String>,
    /// Only sessions of this signaling application.
    #[arg(long, value_name = "NSLPID")]
    nslp: Option<u16>,
    /// Only flows from or to this address.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<std::net::IpAddr>,
    /// Show N sessions at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
}

impl Run for SessionsArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, self))
    }
}

async fn show(socket: &Path, arguments: SessionsArgs) -> Result<ExitCode> {
    let request = v0::ListSessionsRequest {
        session_prefix: arguments.session.unwrap_or_default(),
        nslp_id: arguments.nslp.map(Into::into),
        address: arguments.address.map(|a| a.to_string()).unwrap_or_default(),
        limit: arguments.limit.unwrap_or(0),
    };
    let rows = answer(client::connect(socket).await?.list_sessions(request).await)?;
    table::rows(rows, arguments.output.json, &COLUMNS, cells, to_json).await
}

/// Columns of the table, which has a row for each session and direction.
const COLUMNS: [&str; 9] =
    ["session", "nslp", "flow", "towards", "role", "state", "peer", "refresh", "expires"];
/// A row for each direction of a session that has state.
fn cells(session: &v0::Session) -> Vec<[String; 9]> {
    let digits: String = hex(&session.session_id).chars().take(DIGITS).collect();
    let flow = session.flow.as_ref().map(flow_text).unwrap_or_default();
    let row = |towards: &str, [role, state, peer, refresh, expires]: [String; 5]| {
        let (session, nslp) = (digits.clone(), session.nslp_id.to_string());
        [session, nslp, flow.clone(), towards.to_owned(), role, state, peer, refresh, expires]
    };
    let directions = [("upstream", &session.upstream), ("downstream", &session.downstream)];
    let mut rows: Vec<_> = directions
        .into_iter()
        .filter_map(|(towards, state)| {
            let state = state.as_ref()?;
            let peer = if state.peer.is_empty() { "-".to_owned() } else { state.peer.clone() };
            let later = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), time);
            Some(row(
                towards,
                [
                    state.role.clone(),
                    state.state.clone(),
                    peer,
                    later(state.refresh_in_ms),
                    later(state.expires_in_ms),
                ],
            ))
        })
        .collect();
    if rows.is_empty() {
        rows.push(row("-", std::array::from_fn(|_| "-".to_owned())));
    }
    rows
}

fn to_json(session: &v0::Session) -> Value {
    json!({
        "session": hex(&session.session_id),
        "nslp_id": session.nslp_id,
        "flow": session.flow.as_ref().map(flow_json),
        "queued": session.queued,
        "upstream": session.upstream.as_ref().map(state_json),
        "downstream": session.downstream.as_ref().map(state_json),
    })
}

fn state_json(state: &v0::RoutingState) -> Value {
    json!({
        "role": state.role,
        "state": state.state,
        "validity": state.validity,
        "peer": none_if_empty(&state.peer),
        "peer_identity": none_if_empty(&hex(&state.peer_identity)),
        "local": none_if_empty(&state.local),
        "ifindex": state.ifindex,
        "ip_distance": state.ip_distance,
        "age_ms": state.age_ms,
        "refresh_in_ms": state.refresh_in_ms,
        "expires_in_ms": state.expires_in_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_with_state_has_a_row() {
        let state = v0::RoutingState { role: "querying".into(), ..Default::default() };
        let mut row = v0::Session { session_id: vec![1; 16], ..Default::default() };
        assert_eq!(cells(&row).len(), 1);
        row.downstream = Some(state.clone());
        assert_eq!(cells(&row)[0][3], "downstream");
        row.upstream = Some(state);
        assert_eq!(cells(&row).len(), 2);
    }

    #[test]
    fn a_session_without_state_upstream_says_null() {
        let session = v0::Session {
            session_id: vec![0xab; 16],
            downstream: Some(v0::RoutingState { role: "querying".into(), ..Default::default() }),
            ..Default::default()
        };
        let value = to_json(&session);
        assert_eq!(value["session"], "ab".repeat(16));
        assert_eq!((&value["upstream"], &value["downstream"]["peer"]), (&Value::Null, &Value::Null));
        assert_eq!(value["downstream"]["role"], "querying");
    }
}
