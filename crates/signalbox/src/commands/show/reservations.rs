//! `signalbox show reservations`: reservations by QoS NSLP along the paths of flows.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use signalbox_api::v0;
use signalbox_resources::Rate;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, block_on};
use crate::commands::Run;
use crate::print::table::{self, DIGITS, time};
use crate::print::{flow_json, flow_text, hex, none_if_empty};

#[derive(Debug, Args)]
pub(crate) struct ReservationsArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl Run for ReservationsArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, self.output))
    }
}

async fn show(socket: &Path, output: OutputArgs) -> Result<ExitCode> {
    let rows =
        answer(client::connect(socket).await?.list_reservations(v0::ListReservationsRequest {}).await)?;
    table::rows(rows, output.json, &COLUMNS, cells, to_json).await
}

/// Columns of the table.
const COLUMNS: [&str; 10] =
    ["session", "flow", "role", "state", "interface", "rate", "service", "expires", "packets", "policed"];

fn cells(row: &v0::Reservation) -> Vec<[String; 10]> {
    let held = row.held.as_ref();
    let seen = held.and_then(|held| held.statistics.as_ref());
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![[
        hex(&row.session_id).chars().take(DIGITS).collect(),
        row.flow.as_ref().map(flow_text).unwrap_or_default(),
        row.role.clone(),
        row.state.clone(),
        or_none(held.map(|held| held.interface.clone())),
        or_none(held.map(|held| Rate(held.rate).to_string())),
        or_none(held.map(|held| held.service.clone())),
        or_none(row.expires_in_ms.map(time)),
        or_none(seen.map(|seen| seen.packets.to_string())),
        or_none(seen.map(|seen| seen.policed_packets.to_string())),
    ]]
}

fn to_json(row: &v0::Reservation) -> Value {
    let statistics = |seen: &v0::TrafficStatistics| {
        json!({
            "packets": seen.packets,
            "octets": seen.octets,
            "policed_packets": seen.policed_packets,
            "policed_octets": seen.policed_octets,
        })
    };
    let held = |held: &v0::HeldReservation| {
        json!({
            "interface": held.interface,
            "rate": held.rate,
            "burst": held.burst,
            "service": held.service,
            "rule": none_if_empty(&held.rule),
            "asker": held.asker,
            "enforced": held.enforced,
            "statistics": held.statistics.as_ref().map(statistics),
        })
    };
    json!({
        "session": hex(&row.session_id),
        "flow": row.flow.as_ref().map(flow_json),
        "role": row.role,
        "state": row.state,
        "receiver_initiated": row.receiver_initiated,
        "gaps": row.gaps,
        "expires_in_ms": row.expires_in_ms,
        "held": row.held.as_ref().map(held),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_flow_holds_nothing() {
        let row = v0::Reservation { role: "responder".into(), ..v0::Reservation::default() };
        assert_eq!(cells(&row)[0][4..], ["-"; 6].map(str::to_owned));
        assert_eq!(to_json(&row)["held"], Value::Null);
    }
}
