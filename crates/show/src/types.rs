//! The common types of the API.

use core::time::Duration;

use signalbox_api::v1;
use signalbox_core::hops::{Hop, Part};
use signalbox_core::node::{Interface, Prefix};
use signalbox_core::pinhole::{Endpoint, OpenerId, Pinhole, Verdict};
use signalbox_core::security::Identity;
use signalbox_core::traffic::{FlowFilter, ServiceClass};
use signalbox_core::{IfIndex, Mri, ReserverId, SessionId};
use signalbox_node::ProtocolId;

/// A duration in microseconds.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A node of a path that granted a request.
#[must_use]
pub fn hop(hop: &Hop) -> v1::HopGrant {
    let (part, rate) = match hop.part {
        // The end of a flow holds nothing.
        Part::Rate(0) | Part::End => (v1::HopPart::End, None),
        Part::Rate(rate) => (v1::HopPart::Holds, Some(rate)),
        Part::Opened => (v1::HopPart::Opened, None),
        Part::Translated => (v1::HopPart::Translated, None),
        Part::Reserved => (v1::HopPart::Reserved, None),
        Part::Blocked => (v1::HopPart::Blocked, None),
        Part::Passed => (v1::HopPart::Passed, None),
    };
    v1::HopGrant {
        address: hop.address.to_string(),
        rate_octets_per_s: rate,
        after_gap: hop.after_gap,
        routers_before: (hop.routers > 0).then(|| hop.routers.into()),
        part: part.into(),
    }
}

/// A session identifier.
#[must_use]
pub fn session_id(session: SessionId) -> Vec<u8> {
    session.0.to_vec()
}

/// A count that the API has in 32 bits.
#[must_use]
pub fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A protocol of the node; unspecified for one that the API does not have, such as a test's.
#[must_use]
pub fn protocol(id: ProtocolId) -> v1::Protocol {
    named(id.name())
}

/// The protocol that owns a reservation.
#[must_use]
pub fn owner(owner: ReserverId) -> v1::Protocol {
    named(&owner.to_string())
}

/// The protocol that opens a passage.
#[must_use]
pub fn opener(opener: OpenerId) -> v1::Protocol {
    named(&opener.to_string())
}

/// Configurations, counters and the API have the same name for a protocol.
fn named(name: &str) -> v1::Protocol {
    v1::Protocol::from_str_name(&format!("PROTOCOL_{}", name.to_ascii_uppercase())).unwrap_or_default()
}

/// An interface; `None` for [`IfIndex::NONE`].
#[must_use]
pub fn interface(interfaces: &[Interface], ifindex: IfIndex) -> Option<v1::InterfaceRef> {
    let known = interfaces.iter().find(|interface| interface.ifindex == ifindex);
    let name = known.map(|interface| interface.name.clone()).unwrap_or_default();
    (ifindex != IfIndex::NONE).then_some(v1::InterfaceRef { name, index: ifindex.0 })
}

/// The authenticated identity of a peer, as the configuration writes it: `dns:`, `address:` or `key:`.
#[must_use]
pub fn identity(identity: &Identity) -> String {
    if identity.dns_names().next().is_some() {
        format!("dns:{identity}")
    } else if let Some(address) = identity.addresses.first() {
        format!("address:{address}")
    } else {
        format!("key:{}", identity.key)
    }
}

/// The packets of a filter. A prefix without bits is absent: it stands for every address.
#[must_use]
pub fn filter(filter: &FlowFilter) -> v1::FlowSpec {
    let mut spec = flow_of(filter);
    if filter.src.len == 0 {
        (spec.source, spec.source_prefix_length) = (None, None);
    }
    if filter.dst.len == 0 {
        (spec.destination, spec.destination_prefix_length) = (None, None);
    }
    spec
}

/// What a firewall or NAT does with packets. `seen` are the packets and octets that its kernel counted.
#[must_use]
pub fn pinhole_rule(rule: &Pinhole, active: bool, seen: Option<(u64, u64)>) -> v1::PinholeRule {
    let end =
        |end: Endpoint| v1::Endpoint { address: end.address.to_string(), port: end.port.map(Into::into) };
    v1::PinholeRule {
        packets: Some(filter(&rule.packets)),
        blocks: rule.verdict == Verdict::Deny,
        source: rule.source.map(end),
        destination: rule.destination.map(end),
        active,
        packet_count: seen.map(|(packets, _)| packets),
        octet_count: seen.map(|(_, octets)| octets),
    }
}

/// The flow of an MRI. Its addresses are always there: messages are routed by them.
#[must_use]
pub fn flow(mri: &Mri) -> v1::FlowSpec {
    flow_of(&FlowFilter::from(mri))
}

fn flow_of(filter: &FlowFilter) -> v1::FlowSpec {
    let length = |prefix: Prefix| (prefix != Prefix::host(prefix.addr)).then(|| prefix.len.into());
    v1::FlowSpec {
        source: Some(filter.src.addr.to_string()),
        source_prefix_length: length(filter.src),
        destination: Some(filter.dst.addr.to_string()),
        destination_prefix_length: length(filter.dst),
        ip_protocol: filter.protocol.map(Into::into),
        dscp: filter.dscp.map(Into::into),
        flow_label: filter.flow_label,
        spi: filter.spi,
        source_port: filter.src_port.map(Into::into),
        destination_port: filter.dst_port.map(Into::into),
    }
}

/// A service as it is listed.
#[must_use]
pub fn service(class: ServiceClass, guaranteed: impl FnOnce() -> v1::Guaranteed) -> v1::Service {
    use v1::service::Service;
    let service = match class {
        ServiceClass::ControlledLoad => Service::ControlledLoad(v1::ControlledLoad {}),
        ServiceClass::Guaranteed => Service::Guaranteed(guaranteed()),
        ServiceClass::Dscp(dscp) => Service::Dscp(dscp.into()),
    };
    v1::Service { service: Some(service) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_of_the_node_has_its_name_in_the_api() {
        for id in ProtocolId::ALL {
            let known = protocol(*id).as_str_name().strip_prefix("PROTOCOL_").map(str::to_ascii_lowercase);
            assert!(known.as_deref() == Some(id.name()) || id.name() == "beacon", "{id:?}");
        }
        assert_eq!([ReserverId::QOS, ReserverId::RSVP].map(owner), [v1::Protocol::Qos, v1::Protocol::Rsvp]);
    }
}
