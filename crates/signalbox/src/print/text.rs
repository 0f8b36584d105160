//! Flows, rates, services and traffic as text. Rates have the form of the options.

use signalbox_api::v1;
use signalbox_core::traffic::ServiceClass;
use signalbox_units::{BitRate, Service};

/// Hexadecimal digits of an identifier that a table shows.
const DIGITS: usize = 16;

/// Octets in hexadecimal.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The beginning of an identifier, as tables show it.
pub(crate) fn identifier(octets: &[u8]) -> String {
    hex(octets).chars().take(DIGITS).collect()
}

/// A text, or `-` if it is absent.
pub(crate) fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// A rate in bits a second, from one in octets a second: `20mbit`.
pub(crate) fn rate(octets_per_s: u64) -> String {
    BitRate::of_octets(octets_per_s).to_string()
}

/// The name of an enumeration's value in lower case, without its prefix and with blanks: from
/// `CAUSE_NO_ROUTE` and `CAUSE_` it is `no route`.
pub(crate) fn enum_text(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase().replace('_', " ")
}

/// A token bucket: its rate and burst.
pub(crate) fn traffic(traffic: &v1::TokenBucket) -> String {
    let burst = traffic.burst_octets.map(|burst| format!(", burst {burst} octets")).unwrap_or_default();
    rate(traffic.rate_octets_per_s) + &burst
}

/// A service: `controlled-load`, `guaranteed 20mbit`, `dscp:46`.
pub(crate) fn service(service: &v1::Service) -> String {
    use v1::service::Service as Kind;
    match &service.service {
        None => "-".to_owned(),
        Some(Kind::ControlledLoad(_)) => Service(ServiceClass::ControlledLoad).to_string(),
        Some(Kind::Guaranteed(guaranteed)) => {
            let name = Service(ServiceClass::Guaranteed);
            let by_rate =
                guaranteed.rate_octets_per_s.map(|octets| format!(" {}", rate(octets))).unwrap_or_default();
            format!("{name}{by_rate}")
        }
        Some(Kind::Dscp(code)) => format!("dscp:{code}"),
    }
}

/// A flow in one line: `192.0.2.1 > 192.0.2.9 port 5004 proto 17`.
pub(crate) fn flow(flow: &v1::FlowSpec) -> String {
    let end = |address: &Option<String>, prefix: Option<u32>, port: Option<u32>| {
        let address = address.as_deref().unwrap_or("any");
        let mask = prefix.map(|prefix| format!("/{prefix}")).unwrap_or_default();
        let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
        format!("{address}{mask}{port}")
    };
    let mut text = format!(
        "{} > {}",
        end(&flow.source, flow.source_prefix_length, flow.source_port),
        end(&flow.destination, flow.destination_prefix_length, flow.destination_port)
    );
    for (name, value) in
        [("proto", flow.ip_protocol), ("dscp", flow.dscp), ("flow label", flow.flow_label), ("spi", flow.spi)]
    {
        if let Some(value) = value {
            text += &format!(" {name} {value}");
        }
    }
    text
}

/// The flows that share a reservation.
pub(crate) fn flows(flows: &[v1::FlowSpec]) -> String {
    flows.iter().map(flow).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_shows_what_is_not_a_wildcard() {
        let mut spec = v1::FlowSpec {
            source: Some("192.0.2.1".into()),
            destination: Some("192.0.2.0".into()),
            destination_prefix_length: Some(24),
            ..v1::FlowSpec::default()
        };
        assert_eq!(flow(&spec), "192.0.2.1 > 192.0.2.0/24");
        spec.ip_protocol = Some(17);
        spec.destination_port = Some(9);
        assert_eq!(flow(&spec), "192.0.2.1 > 192.0.2.0/24 port 9 proto 17");
    }

    #[test]
    fn services_and_rates_have_the_form_of_options() {
        let guaranteed = v1::Guaranteed { rate_octets_per_s: Some(2_500_000), ..Default::default() };
        let kind = v1::service::Service::Guaranteed(guaranteed);
        assert_eq!(service(&v1::Service { service: Some(kind) }), "guaranteed 20mbit");
        assert_eq!(enum_text("CAUSE_NO_ROUTE", "CAUSE_"), "no route");
    }
}
