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

const COLUMNS: [&str; 14] = [
    "id",
    "protocol",
    "flow",
    "interface",
    "rate",
    "service",
    "priority",
    "neighbor",
    "proof",
    "identity",
    "for",
    "rule",
    "packets",
    "policed",
];

fn cells(row: &v1::Reservation) -> Vec<[String; 14]> {
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
    let neighbor = match (&row.neighbor, row.proof.as_deref()) {
        (Some(neighbor), _) => neighbor.clone(),
        (None, Some("local")) => "this host".to_owned(),
        (None, _) => "-".to_owned(),
    };
    vec![[
        row.id.clone(),
        enum_text(row.protocol().as_str_name(), "PROTOCOL_"),
        flows(&row.flows),
        or_dash(row.interface.as_ref().map(|interface| &interface.name)),
        or_dash(row.traffic.map(|traffic| rate(traffic.rate_octets_per_s))),
        or_dash(row.service.as_ref().map(service)),
        or_dash(priority),
        neighbor,
        or_dash(row.proof.as_ref()),
        or_dash(row.identity.as_ref()),
        or_dash(row.claimed.as_ref()),
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
        assert_eq!(
            (&cells_of(&row)[6], &cells_of(&row)[12]),
            (&"3/4".to_owned(), &"not enforced".to_owned())
        );
        row.statistics = Some(v1::TrafficStatistics { packets: 12, ..Default::default() });
        assert_eq!(cells_of(&row)[12], "12");
    }

    /// T31: a claim has a column of its own, and is never shown as the neighbor.
    #[test]
    fn who_asks_is_shown_as_far_as_it_is_proved() {
        let mut row = v1::Reservation { claimed: Some("10.1.0.5".into()), ..Default::default() };
        assert_eq!(cells(&row)[0][7..11], ["-", "-", "-", "10.1.0.5"]);
        row.proof = Some("local".into());
        assert_eq!(cells(&row)[0][7..11], ["this host", "local", "-", "10.1.0.5"]);
        row.neighbor = Some("192.0.2.1".into());
        row.proof = Some("identity".into());
        row.identity = Some("dns:r1.example.net".into());
        assert_eq!(cells(&row)[0][7..11], ["192.0.2.1", "identity", "dns:r1.example.net", "10.1.0.5"]);
    }
}
