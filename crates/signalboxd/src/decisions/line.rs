//! The line of the log about a decision.

use signalbox_api::v1;

/// Logs a decision: what it is about and what happened, then who asked for what, and why.
pub(super) fn log(row: &v1::Decision) {
    let name = |text: &str, prefix: &str| text.strip_prefix(prefix).unwrap_or(text).to_ascii_lowercase();
    let (subject, outcome) = (row.subject().as_str_name(), row.outcome().as_str_name());
    let flows = row.flows.iter().map(flow).collect::<Vec<_>>().join(", ");
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
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The packets of a flow: from where to where, and what else they have.
fn flow(flow: &v1::FlowSpec) -> String {
    let end = |address: Option<&String>, length: Option<u32>, port: Option<u32>| {
        let mut text = address.map_or_else(|| "any".to_owned(), Clone::clone);
        if let Some(length) = length {
            text += &format!("/{length}");
        }
        if let Some(port) = port {
            text += &format!(" port {port}");
        }
        text
    };
    let mut text = format!(
        "{} > {}",
        end(flow.source.as_ref(), flow.source_prefix_length, flow.source_port),
        end(flow.destination.as_ref(), flow.destination_prefix_length, flow.destination_port),
    );
    for (name, value) in
        [("proto", flow.ip_protocol), ("dscp", flow.dscp), ("label", flow.flow_label), ("spi", flow.spi)]
    {
        if let Some(value) = value {
            text += &format!(" {name} {value}");
        }
    }
    text
}
