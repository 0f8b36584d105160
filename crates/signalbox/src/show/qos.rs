//! Reservations and interfaces.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use signalbox_api::v1;
use signalbox_resources::Rate;

use super::{flow_json, flow_text, hex, none_if_empty, table};

/// Columns of the reservation table.
pub(super) const RESERVATIONS: [&str; 10] =
    ["session", "flow", "role", "state", "interface", "rate", "service", "expires", "packets", "policed"];

/// A reservation.
pub(super) fn reservation(row: &v1::Reservation) -> Vec<[String; 10]> {
    let held = row.held.as_ref();
    let seen = held.and_then(|held| held.statistics.as_ref());
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![[
        hex(&row.session_id).chars().take(table::DIGITS).collect(),
        row.flow.as_ref().map(flow_text).unwrap_or_default(),
        row.role.clone(),
        row.state.clone(),
        or_none(held.map(|held| held.interface.clone())),
        or_none(held.map(|held| Rate(held.rate).to_string())),
        or_none(held.map(|held| held.service.clone())),
        or_none(row.expires_in_ms.map(table::time)),
        or_none(seen.map(|seen| seen.packets.to_string())),
        or_none(seen.map(|seen| seen.policed_packets.to_string())),
    ]]
}

/// A reservation as JSON.
pub(super) fn reservation_json(row: &v1::Reservation) -> Value {
    let statistics = |seen: &v1::TrafficStatistics| {
        json!({
            "packets": seen.packets,
            "octets": seen.octets,
            "policed_packets": seen.policed_packets,
            "policed_octets": seen.policed_octets,
        })
    };
    let held = |held: &v1::HeldReservation| {
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

/// All interfaces in one table, each service that is in use in a row of its own.
pub(super) fn interfaces(out: &mut impl Write, interfaces: &[v1::Interface]) -> Result<()> {
    if interfaces.is_empty() {
        writeln!(out, "none")?;
        return Ok(());
    }
    let mut rows = table::new(&[
        "interface",
        "capacity",
        "service",
        "reservable",
        "reserved",
        "reservations",
        "enforced",
    ]);
    for interface in interfaces {
        let capacity = match (interface.up, interface.capacity) {
            (false, _) => "down".to_owned(),
            (_, None) => "unknown".to_owned(),
            (_, Some(rate)) if interface.measured => format!("{} (measured)", Rate(rate)),
            (_, Some(rate)) => Rate(rate).to_string(),
        };
        rows.add_row([
            interface.name.clone(),
            capacity,
            "all".to_owned(),
            Rate(interface.reservable).to_string(),
            Rate(interface.reserved).to_string(),
            interface.reservations.to_string(),
            interface.enforcement.as_ref().map_or_else(|| "no".to_owned(), enforced),
        ]);
        for service in &interface.services {
            rows.add_row([
                String::new(),
                String::new(),
                service.service.clone(),
                Rate(service.limit).to_string(),
                Rate(service.reserved).to_string(),
                service.reservations.to_string(),
                String::new(),
            ]);
        }
    }
    writeln!(out, "{}", rows.trim_fmt())?;
    for interface in interfaces {
        for lacking in interface.enforcement.iter().flat_map(|enforcement| &enforcement.lacking) {
            writeln!(out, "{}: {lacking}", interface.name)?;
        }
    }
    Ok(())
}

fn enforced(enforcement: &v1::InterfaceEnforcement) -> String {
    if !enforcement.queues {
        return "no".to_owned();
    }
    let v1::InterfaceEnforcement { policing, classes_taken, classes, .. } = enforcement;
    format!("{policing}, {classes_taken} of {classes} queues")
}

/// An interface as JSON.
pub(super) fn interface_json(interface: &v1::Interface) -> Value {
    let service = |service: &v1::InterfaceService| {
        json!({
            "service": service.service,
            "reserved": service.reserved,
            "limit": service.limit,
            "reservations": service.reservations,
        })
    };
    let enforcement = |enforcement: &v1::InterfaceEnforcement| {
        json!({
            "queues": enforcement.queues,
            "policing": enforcement.policing,
            "marking": enforcement.marking,
            "classes": enforcement.classes,
            "classes_taken": enforcement.classes_taken,
            "lacking": enforcement.lacking,
        })
    };
    json!({
        "name": interface.name,
        "ifindex": interface.ifindex,
        "up": interface.up,
        "capacity": interface.capacity,
        "measured": interface.measured,
        "reservable": interface.reservable,
        "reserved": interface.reserved,
        "reservations": interface.reservations,
        "services": interface.services.iter().map(service).collect::<Vec<_>>(),
        "enforcement": interface.enforcement.as_ref().map(enforcement),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_flow_holds_nothing() {
        let row = v1::Reservation { role: "responder".into(), ..v1::Reservation::default() };
        assert_eq!(reservation(&row)[0][4..], ["-"; 6].map(str::to_owned));
        assert_eq!(reservation_json(&row)["held"], Value::Null);
    }

    #[test]
    fn interfaces_tell_what_is_taken() {
        let interface = v1::Interface {
            name: "rb".into(),
            up: true,
            capacity: Some(1_250_000),
            reservable: 1_000_000,
            reserved: 125_000,
            services: vec![v1::InterfaceService { service: "guaranteed".into(), ..Default::default() }],
            enforcement: Some(v1::InterfaceEnforcement {
                lacking: vec!["no eBPF".into()],
                ..Default::default()
            }),
            ..v1::Interface::default()
        };
        let mut out = Vec::new();
        interfaces(&mut out, std::slice::from_ref(&interface)).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in ["10 Mbit/s", "8 Mbit/s", "1 Mbit/s", "guaranteed", "rb: no eBPF"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(interface_json(&interface)["reserved"], 125_000);
    }
}
