//! Tables for people.

use std::io::Write;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use signalbox_api::v1;
use tonic::Streaming;

use super::{flow_text, hex};
use crate::client;

/// Rows that one table has at most; a longer answer goes on in a further table, so that memory stays bounded.
const ROWS: usize = 1000;
/// Hexadecimal digits of a session identifier or peer identity that a table shows.
pub(super) const DIGITS: usize = 16;

/// Columns of the session table: one row a session and direction.
pub(super) const SESSIONS: [&str; 9] =
    ["session", "nslp", "flow", "towards", "role", "state", "peer", "refresh", "expires"];
/// Columns of the association table.
pub(super) const ASSOCIATIONS: [&str; 8] =
    ["peer", "stack", "state", "since", "hold time", "sessions", "queued", "authenticated"];
/// Columns of the peer table.
pub(super) const PEERS: [&str; 4] = ["identity", "address", "interface", "sessions"];

/// Prints `rows`, each of which `cells` turns into one row or more.
pub(super) async fn print<T, const N: usize>(
    out: &mut impl Write,
    columns: &[&str; N],
    mut rows: Streaming<T>,
    cells: impl Fn(&T) -> Vec<[String; N]>,
) -> Result<()> {
    let mut table = new(columns);
    while let Some(row) = rows.message().await.map_err(|status| client::said_no(&status))? {
        table.add_rows(cells(&row));
        if table.row_count() >= ROWS {
            writeln!(out, "{}", table.trim_fmt())?;
            table = new(columns);
        }
    }
    if table.row_count() > 0 {
        writeln!(out, "{}", table.trim_fmt())?;
    } else {
        writeln!(out, "none")?;
    }
    Ok(())
}

/// An empty table.
pub(crate) fn new(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().map(|name| name.to_uppercase()));
    table
}

/// A session: one row for each direction that has state.
pub(super) fn session(session: &v1::Session) -> Vec<[String; 9]> {
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

/// A peer.
pub(super) fn peer(peer: &v1::Peer) -> Vec<[String; 4]> {
    let interface = if peer.ifindex == 0 { "-".to_owned() } else { format!("if{}", peer.ifindex) };
    let identity = hex(&peer.identity).chars().take(2 * DIGITS).collect();
    vec![[identity, peer.address.clone(), interface, peer.sessions.to_string()]]
}

/// A messaging association.
pub(super) fn association(association: &v1::Association) -> Vec<[String; 8]> {
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

/// All counters in one table.
pub(super) fn counters<'a>(
    out: &mut impl Write,
    counters: impl Iterator<Item = &'a v1::Counter>,
) -> Result<()> {
    let mut table = new(&["counter", "value", "meaning"]);
    for counter in counters {
        let value = counter.value.to_string();
        table.add_row([&format!("{}.{}", counter.room, counter.name), &value, &counter.help]);
    }
    if let Some(values) = table.column_mut(1) {
        values.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out, "{}", table.trim_fmt())?;
    Ok(())
}

/// A span of time in the two largest units that say something.
pub(super) fn time(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{}.{} s", s, ms % 1000 / 100),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_with_state_has_a_row() {
        let state = v1::RoutingState { role: "querying".into(), ..Default::default() };
        let mut row = v1::Session { session_id: vec![1; 16], ..Default::default() };
        assert_eq!(session(&row).len(), 1);
        row.downstream = Some(state.clone());
        assert_eq!(session(&row)[0][3], "downstream");
        row.upstream = Some(state);
        assert_eq!(session(&row).len(), 2);
    }

    #[test]
    fn an_association_shows_what_waits_and_who_the_peer_is() {
        let mut row = v1::Association { stack: "tls".into(), queued: 2, ..Default::default() };
        (row.queued_octets, row.unsent_octets, row.opened) = (300, 20, true);
        let [cells] = &association(&row)[..] else { panic!("one row") };
        assert_eq!((cells[1].as_str(), cells[6].as_str()), ("tls, ours", "2 messages, 320 octets"));
        assert_eq!((cells[4].as_str(), cells[7].as_str()), ("-", "-"));
    }

    #[test]
    fn times_are_short() {
        for (ms, text) in [
            (0, "0.0 s"),
            (12_345, "12.3 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(time(ms), text);
        }
    }
}
