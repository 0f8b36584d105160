//! `signalbox show gist`: message routing state, peers and messaging associations (RFC 5971 §4.2, §4.4).

use std::path::Path;

use anyhow::Result;
use clap::{Args, Subcommand};
use signalbox_api::gist::v1;
use signalbox_api::gist::v1::gist_client::GistClient;
use signalbox_api::v1::Endpoint;

use super::{ListArgs, view_help};
use crate::arguments::OutputArgs;
use crate::client;
use crate::exit::Exit;
use crate::print::{duration, enum_text, flow, identifier, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum GistView {
    /// Message routing state: which peer comes next, per session and direction.
    #[command(after_help = view_help!(
        "gist_session",
        "gist sessions --address 192.0.2.9",
        "gist sessions --session 5d41 --json",
        "gist sessions --nslp 1 --limit 20",
    ))]
    Sessions(SessionsArgs),
    /// GIST nodes that the routing state points to.
    #[command(after_help = view_help!("gist_peer", "gist peers", "gist peers --json"))]
    Peers(PeersArgs),
    /// Messaging associations: the connections to peers, and what they carry.
    #[command(after_help = view_help!(
        "gist_association",
        "gist associations",
        "gist associations --address 192.0.2.9 --json",
    ))]
    Associations(PeersArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// Only sessions whose identifier begins with this prefix (hexadecimal).
    #[arg(long, value_name = "PREFIX")]
    session: Option<String>,
    /// Only sessions of this signaling application.
    #[arg(long, value_name = "NSLPID")]
    nslp: Option<u16>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    #[command(flatten)]
    list: ListArgs,
}

pub(super) async fn show(view: &GistView, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = GistClient::new(client::channel(socket).await?);
    match view {
        GistView::Sessions(arguments) => {
            let request = v1::ListSessionsRequest {
                session_id_prefix: arguments.session.clone(),
                nslp_id: arguments.nslp.map(Into::into),
                address: arguments.list.address(),
                limit: arguments.list.limit,
                page_token: Vec::new(),
            };
            table::list(client.list_sessions(request).await, output, &SESSION, session).await
        }
        GistView::Peers(PeersArgs { list }) => {
            let (address, limit) = (list.address(), list.limit);
            let request = v1::ListPeersRequest { address, limit, page_token: Vec::new() };
            table::list(client.list_peers(request).await, output, &PEER, peer).await
        }
        GistView::Associations(PeersArgs { list }) => {
            let (address, limit) = (list.address(), list.limit);
            let request = v1::ListAssociationsRequest { address, limit, page_token: Vec::new() };
            table::list(client.list_associations(request).await, output, &ASSOCIATION, association).await
        }
    }
}

pub(super) fn endpoint(of: &Endpoint) -> String {
    match of.port {
        Some(port) if of.address.contains(':') => format!("[{}]:{port}", of.address),
        Some(port) => format!("{}:{port}", of.address),
        None => of.address.clone(),
    }
}

/// Columns of the sessions, with a row for each session and direction.
const SESSION: [&str; 10] =
    ["session", "nslp", "flow", "towards", "role", "state", "peer", "interface", "refresh", "expires"];

fn session(session: &v1::Session) -> Vec<[String; 10]> {
    let digits = identifier(&session.session_id);
    let flow = or_dash(session.flow.as_ref().map(flow));
    let row = |towards: &str, rest: [String; 6]| {
        let [role, state, peer, interface, refresh, expires] = rest;
        let (session, nslp) = (digits.clone(), session.nslp_id.to_string());
        [session, nslp, flow.clone(), towards.to_owned(), role, state, peer, interface, refresh, expires]
    };
    let directions = [("upstream", &session.upstream), ("downstream", &session.downstream)];
    let mut rows: Vec<_> = directions
        .into_iter()
        .filter_map(|(towards, state)| {
            let state = state.as_ref()?;
            let rest = [
                enum_text(state.role().as_str_name(), "ROLE_"),
                enum_text(state.state().as_str_name(), "STATE_"),
                or_dash(state.peer.as_ref().map(endpoint)),
                or_dash(state.interface.as_ref().map(|interface| &interface.name)),
                or_dash(state.refresh_in_us.map(duration)),
                or_dash(state.expires_in_us.map(duration)),
            ];
            Some(row(towards, rest))
        })
        .collect();
    if rows.is_empty() {
        rows.push(row("-", std::array::from_fn(|_| "-".to_owned())));
    }
    rows
}

const PEER: [&str; 5] = ["identity", "peer", "interface", "states", "not reached by"];

fn peer(peer: &v1::Peer) -> Vec<[String; 5]> {
    vec![[
        identifier(&peer.peer_identity),
        or_dash(peer.peer.as_ref().map(endpoint)),
        or_dash(peer.interface.as_ref().map(|interface| &interface.name)),
        peer.routing_states.to_string(),
        if peer.unreached_by.is_empty() { "-".to_owned() } else { peer.unreached_by.join(", ") },
    ]]
}

const ASSOCIATION: [&str; 8] =
    ["peer", "stack", "state", "since", "hold time", "states", "queued", "authenticated"];

fn association(association: &v1::Association) -> Vec<[String; 8]> {
    let stack = enum_text(association.stack().as_str_name(), "STACK_");
    let opener = if association.opened { "opened here" } else { "accepted" };
    let unsent = association.queued_octets + association.unsent_octets;
    vec![[
        or_dash(association.peer.as_ref().map(endpoint)),
        format!("{stack}, {opener}"),
        enum_text(association.state().as_str_name(), "ASSOCIATION_STATE_"),
        duration(association.age_us),
        or_dash(association.hold_time_us.map(duration)),
        association.routing_states.to_string(),
        format!("{} messages, {unsent} octets", association.queued_messages),
        or_dash(association.authenticated.as_ref()),
    ]]
}

#[cfg(test)]
mod tests {
    use signalbox_api::v1::InterfaceRef;

    use super::*;

    #[test]
    fn each_direction_with_state_has_a_row() {
        let state = v1::RoutingState {
            role: v1::Role::Querying.into(),
            state: v1::State::AwaitingResponse.into(),
            ..Default::default()
        };
        let mut row = v1::Session { session_id: vec![1; 16], ..Default::default() };
        assert_eq!(session(&row).len(), 1);
        row.downstream = Some(state.clone());
        assert_eq!(session(&row)[0][3..6], ["downstream", "querying", "awaiting response"]);
        row.upstream = Some(state);
        assert_eq!(session(&row).len(), 2);
    }

    #[test]
    fn a_peer_shows_the_name_of_the_interface() {
        let row = v1::Peer {
            peer: Some(Endpoint { address: "fd00::1".into(), port: Some(270) }),
            interface: Some(InterfaceRef { name: "eth0".into(), index: 2 }),
            ..Default::default()
        };
        assert_eq!(peer(&row)[0][1..3], ["[fd00::1]:270", "eth0"]);
    }

    #[test]
    fn an_association_shows_what_waits_and_who_the_peer_is() {
        let mut row =
            v1::Association { stack: v1::Stack::Tls.into(), queued_messages: 2, ..Default::default() };
        (row.queued_octets, row.unsent_octets, row.opened) = (300, 20, true);
        let [cells] = &association(&row)[..] else { panic!("one row") };
        assert_eq!((cells[1].as_str(), cells[6].as_str()), ("tls, opened here", "2 messages, 320 octets"));
        assert_eq!((cells[4].as_str(), cells[7].as_str()), ("-", "-"));
    }
}
