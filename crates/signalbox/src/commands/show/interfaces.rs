//! `signalbox show interfaces`: interfaces with resources to reserve.

use std::io::Write;
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
use crate::print::JsonArray;
use crate::print::table;

#[derive(Debug, Args)]
pub(crate) struct InterfacesArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl Run for InterfacesArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, self.output))
    }
}

async fn show(socket: &Path, output: OutputArgs) -> Result<ExitCode> {
    let request = v0::ListInterfacesRequest {};
    let interfaces = answer(client::connect(socket).await?.list_interfaces(request).await)?.interfaces;
    let mut out = std::io::stdout().lock();
    if output.json {
        let mut array = JsonArray::new(&mut out);
        for interface in &interfaces {
            array.push(&to_json(interface))?;
        }
        array.end()?;
    } else {
        text(&mut out, &interfaces)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a table with a row for each interface, and for each service in use there.
fn text(out: &mut impl Write, interfaces: &[v0::Interface]) -> Result<()> {
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

fn enforced(enforcement: &v0::InterfaceEnforcement) -> String {
    if !enforcement.queues {
        return "no".to_owned();
    }
    let v0::InterfaceEnforcement { policing, classes_taken, classes, .. } = enforcement;
    format!("{policing}, {classes_taken} of {classes} queues")
}

fn to_json(interface: &v0::Interface) -> Value {
    let service = |service: &v0::InterfaceService| {
        json!({
            "service": service.service,
            "reserved": service.reserved,
            "limit": service.limit,
            "reservations": service.reservations,
        })
    };
    let enforcement = |enforcement: &v0::InterfaceEnforcement| {
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
    fn interfaces_show_what_is_reserved() {
        let interface = v0::Interface {
            name: "rb".into(),
            up: true,
            capacity: Some(1_250_000),
            reservable: 1_000_000,
            reserved: 125_000,
            services: vec![v0::InterfaceService { service: "guaranteed".into(), ..Default::default() }],
            enforcement: Some(v0::InterfaceEnforcement {
                lacking: vec!["no eBPF".into()],
                ..Default::default()
            }),
            ..v0::Interface::default()
        };
        let mut out = Vec::new();
        text(&mut out, std::slice::from_ref(&interface)).unwrap();
        let shown = String::from_utf8(out).unwrap();
        for part in ["10 Mbit/s", "8 Mbit/s", "1 Mbit/s", "guaranteed", "rb: no eBPF"] {
            assert!(shown.contains(part), "{shown}");
        }
        assert_eq!(to_json(&interface)["reserved"], 125_000);
    }
}
