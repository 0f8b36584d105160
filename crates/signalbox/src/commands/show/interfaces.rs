//! `signalbox show interfaces`: interfaces with resources to reserve.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;

use crate::arguments::OutputArgs;
use crate::client;
use crate::exit::Exit;
use crate::print::{enum_text, or_dash, rate, service, table};

#[derive(Debug, Args)]
pub(crate) struct InterfacesArgs {
    /// Only this interface.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

pub(super) async fn show(arguments: &InterfacesArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = NodeClient::new(client::channel(socket).await?);
    let request = v1::ListInterfacesRequest { interface: arguments.interface.clone() };
    table::list(client.list_interfaces(request).await, output, &COLUMNS, cells).await
}

const COLUMNS: [&str; 8] =
    ["interface", "capacity", "service", "reservable", "reserved", "reservations", "enforced", "missing"];

/// A row for the interface, and one for each service in use there.
fn cells(interface: &v1::Interface) -> Vec<[String; 8]> {
    let capacity = match (interface.up, interface.capacity_octets_per_s) {
        (false, _) => "down".to_owned(),
        (_, None) => "unknown".to_owned(),
        (_, Some(of)) if interface.measured => format!("{} (measured)", rate(of)),
        (_, Some(of)) => rate(of),
    };
    let enforcement = interface.enforcement.as_ref();
    let mut rows = vec![[
        or_dash(interface.interface.as_ref().map(|interface| &interface.name)),
        capacity,
        "all".to_owned(),
        rate(interface.reservable_octets_per_s),
        rate(interface.reserved_octets_per_s),
        interface.reservations.to_string(),
        enforcement.map_or_else(|| "no".to_owned(), enforced),
        enforcement.map(|enforcement| enforcement.missing.join("; ")).unwrap_or_default(),
    ]];
    rows.extend(interface.services.iter().map(|one| {
        [
            String::new(),
            String::new(),
            or_dash(one.service.as_ref().map(service)),
            rate(one.limit_octets_per_s),
            rate(one.reserved_octets_per_s),
            one.reservations.to_string(),
            String::new(),
            String::new(),
        ]
    }));
    rows
}

fn enforced(enforcement: &v1::Enforcement) -> String {
    if !enforcement.queues {
        return "no".to_owned();
    }
    let policing = enum_text(enforcement.policing().as_str_name(), "POLICING_");
    format!("{policing}, {} of {} queues", enforcement.classes_taken, enforcement.classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_show_what_is_reserved() {
        let guaranteed = v1::service::Service::Guaranteed(v1::Guaranteed::default());
        let service = v1::Service { service: Some(guaranteed) };
        let interface = v1::Interface {
            interface: Some(v1::InterfaceRef { name: "rb".into(), index: 2 }),
            up: true,
            capacity_octets_per_s: Some(1_250_000),
            reservable_octets_per_s: 1_000_000,
            reserved_octets_per_s: 125_000,
            services: vec![v1::InterfaceService { service: Some(service), ..Default::default() }],
            enforcement: Some(v1::Enforcement { missing: vec!["no eBPF".into()], ..Default::default() }),
            ..Default::default()
        };
        let rows = cells(&interface);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0], ["rb", "10mbit", "all", "8mbit", "1mbit", "0", "no", "no eBPF"]);
        assert_eq!(rows[1][2], "guaranteed");
    }
}
