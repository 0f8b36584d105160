//! `signalbox show reservations`: what admission control holds.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;

use super::ListArgs;
use crate::arguments::{OutputArgs, Signaling};
use crate::client;
use crate::exit::Exit;
use crate::print::{enum_text, flows, or_dash, rate, service, table};

#[derive(Debug, Args)]
pub(crate) struct ReservationsArgs {
    /// Only reservations of this protocol.
    #[arg(long, value_enum)]
    signaling: Option<Signaling>,
    /// Only reservations at this interface.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

pub(super) async fn show(arguments: &ReservationsArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = ReservationsClient::new(client::channel(socket).await?);
    let request = v1::ListReservationsRequest {
        protocols: arguments.signaling.map(|signaling| signaling.protocol().into()).into_iter().collect(),
        interface: arguments.interface.clone(),
        address: arguments.list.address(),
        limit: arguments.list.limit,
        page_token: Vec::new(),
    };
    table::list(client.list_reservations(request).await, output, &COLUMNS, cells).await
}

const COLUMNS: [&str; 11] = [
    "id",
    "protocol",
    "flow",
    "interface",
    "rate",
    "service",
    "priority",
    "peer",
    "rule",
    "packets",
    "policed",
];

fn cells(row: &v1::Reservation) -> Vec<[String; 11]> {
    let seen = row.statistics.as_ref();
    let packets = match (seen, row.enforced) {
        (Some(seen), _) => seen.packets.to_string(),
        (None, true) => "-".to_owned(),
        (None, false) => "not enforced".to_owned(),
    };
    let priority = row.priority.map(|v1::Priority { setup, defending }| match defending {
        Some(defending) if defending != setup => format!("{setup}/{defending}"),
        _ => setup.to_string(),
    });
    vec![[
        row.id.clone(),
        enum_text(row.protocol().as_str_name(), "PROTOCOL_"),
        flows(&row.flows),
        or_dash(row.interface.as_ref().map(|interface| &interface.name)),
        or_dash(row.traffic.map(|traffic| rate(traffic.rate_octets_per_s))),
        or_dash(row.service.as_ref().map(service)),
        or_dash(priority),
        row.peer.clone().unwrap_or_else(|| "this host".to_owned()),
        or_dash(row.rule.as_ref()),
        packets,
        or_dash(seen.map(|seen| seen.policed_packets)),
    ]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_shows_its_protocol_and_what_the_kernel_counted() {
        let mut row = v1::Reservation {
            id: "7".into(),
            protocol: v1::Protocol::Rsvp.into(),
            priority: Some(v1::Priority { setup: 3, defending: Some(4) }),
            ..Default::default()
        };
        let cells_of = |row: &v1::Reservation| cells(row).remove(0);
        assert_eq!(cells_of(&row)[..2], ["7", "rsvp"]);
        assert_eq!((&cells_of(&row)[6], &cells_of(&row)[9]), (&"3/4".to_owned(), &"not enforced".to_owned()));
        row.statistics = Some(v1::TrafficStatistics { packets: 12, ..Default::default() });
        assert_eq!(cells_of(&row)[9], "12");
    }
}
