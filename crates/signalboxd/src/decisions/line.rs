//! The line of the log about a decision.

use std::fmt::Write;

use signalbox_api::v1;

/// Whether the log takes lines about decisions.
pub(super) fn is_wanted() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}

/// Logs a decision: what it is about and what happened, then who asked for what, and why.
pub(super) fn log(row: &v1::Decision) {
    let name = |text: &str, prefix: &str| text.strip_prefix(prefix).unwrap_or(text).to_ascii_lowercase();
    let (subject, outcome) = (row.subject().as_str_name(), row.outcome().as_str_name());
    let mut flows = String::new();
    for flow in &row.flows {
        flows += if flows.is_empty() { "" } else { ", " };
        write_flow(&mut flows, flow);
    }
    let seconds =
        |us: Option<u64>| us.map(|us| format!("{:.1}s", std::time::Duration::from_micros(us).as_secs_f64()));
    tracing::info!(
        protocol = %name(row.protocol().as_str_name(), "PROTOCOL_"),
        id = row.id.as_deref().map(display),
        session = row.session_id.as_deref().map(hex).map(display),
        request_id = row.request_id.as_deref().map(hex).map(display),
        neighbor = row.neighbor.as_deref(),
        proof = row.proof.as_deref().map(display),
        identity = row.identity.as_deref(),
        claimed = row.claimed.as_deref(),
        requester = row.requester.as_deref(),
        flow = (!flows.is_empty()).then_some(flows),
        interface = row.interface.as_deref().map(display),
        rate = row.rate_octets_per_s.map(|rate| format!("{}bit/s", rate.saturating_mul(8))).map(display),
        service = row.service.as_ref().and_then(service).map(display),
        opening = row.opening.as_deref().map(display),
        lifetime = seconds(row.lifetime_us).map(display),
        rule = row.rule.as_deref(),
        reason = row.reason.as_deref(),
        refused_by = row.refused_by.as_deref().map(display),
        available = row.available_octets_per_s.map(|rate| format!("{}bit/s", rate.saturating_mul(8))).map(display),
        lasted = seconds(row.lasted_us).map(display),
        "{} {}",
        name(subject, "SUBJECT_"),
        name(outcome, "OUTCOME_"),
    );
}

/// The service, as options of the command name it.
fn service(service: &v1::Service) -> Option<String> {
    use v1::service::Service;
    Some(match service.service.as_ref()? {
        Service::ControlledLoad(_) => "controlled-load".to_owned(),
        Service::Guaranteed(_) => "guaranteed".to_owned(),
        Service::Dscp(code) => format!("dscp:{code}"),
    })
}

fn hex(octets: &[u8]) -> String {
    let digits = octets.iter().flat_map(|octet| [octet >> 4, octet & 0x0f]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Appends the packets of a flow: from where to where, and what else they have.
fn write_flow(text: &mut String, flow: &v1::FlowSpec) {
    write_end(text, flow.source.as_deref(), flow.source_prefix_length, flow.source_port);
    *text += " > ";
    write_end(text, flow.destination.as_deref(), flow.destination_prefix_length, flow.destination_port);
    for (name, value) in
        [("proto", flow.ip_protocol), ("dscp", flow.dscp), ("label", flow.flow_label), ("spi", flow.spi)]
    {
        if let Some(value) = value {
            // Writing into a text does not fail.
            let _ = write!(text, " {name} {value}");
        }
    }
}

fn write_end(text: &mut String, address: Option<&str>, length: Option<u32>, port: Option<u32>) {
    *text += address.unwrap_or("any");
    if let Some(length) = length {
        let _ = write!(text, "/{length}");
    }
    if let Some(port) = port {
        let _ = write!(text, " port {port}");
    }
}
