//! What is wanted, as the API has it.

use signalbox_api::v1;
use signalbox_config::{Expose, Flow, Passage, Pinhole, Reserve, Standing};
use signalbox_core::node::Prefix;
use signalbox_node::ProtocolId;

use crate::api::types;

/// The table of the configuration, and the name in it.
pub(super) type Key = (v1::StandingKind, String);

/// The request that opens a call of a user who wants the same.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wanted {
    Reservation(v1::ReserveOpen),
    Passage(v1::PinholeOpen),
}

/// All requests of a configuration.
pub(super) fn all(standing: &Standing) -> impl Iterator<Item = (Key, Wanted)> {
    let Standing { reserve, pinhole, expose } = standing;
    let key = |kind, name: &str| (kind, name.to_owned());
    let reserve = reserve
        .iter()
        .map(move |one| (key(v1::StandingKind::Reserve, one.name()), Wanted::Reservation(reservation(one))));
    let pinhole = pinhole
        .iter()
        .map(move |one| (key(v1::StandingKind::Pinhole, one.name()), Wanted::Passage(passage(one))));
    let expose = expose
        .iter()
        .map(move |one| (key(v1::StandingKind::Expose, one.name()), Wanted::Passage(exposed(one))));
    reserve.chain(pinhole).chain(expose)
}

impl Wanted {
    /// The protocol that asks for it.
    pub(super) const fn protocol(&self) -> i32 {
        match self {
            Self::Reservation(open) => open.protocol,
            Self::Passage(open) => open.protocol,
        }
    }

    /// Its packets.
    pub(super) const fn flow(&self) -> Option<&v1::FlowSpec> {
        match self {
            Self::Reservation(open) => open.flow.as_ref(),
            Self::Passage(open) => open.flow.as_ref(),
        }
    }

    /// The rate of a reservation.
    pub(super) fn rate(&self) -> Option<u64> {
        match self {
            Self::Reservation(open) => open.traffic.as_ref().map(|traffic| traffic.rate_octets_per_s),
            Self::Passage(_) => None,
        }
    }
}

/// Whether a reservation becomes another one by a change of its traffic. A change says nothing of the least rate, and CASP's nothing of the
/// service or of a receiver who reserves.
pub(super) fn differ_in_traffic_only(one: &v1::ReserveOpen, other: &v1::ReserveOpen) -> bool {
    let casp = other.protocol == i32::from(v1::Protocol::Casp);
    let whole = other.min_rate_octets_per_s.is_none()
        && !(casp && (other.receiver_initiated || other.service.is_some()));
    whole && v1::ReserveOpen { traffic: other.traffic, ..one.clone() } == *other
}

fn reservation(one: &Reserve) -> v1::ReserveOpen {
    let priority = one.priority.map(|setup| v1::Priority { setup: setup.into(), defending: None });
    v1::ReserveOpen {
        protocol: protocol(one.signaling),
        flow: Some(v1::FlowSpec { dscp: one.dscp.map(Into::into), ..flow(&one.flow) }),
        traffic: Some(v1::TokenBucket {
            rate_octets_per_s: one.rate(),
            burst_octets: one.burst,
            max_packet_octets: one.max_packet,
            ..v1::TokenBucket::default()
        }),
        service: one.service().map(|class| signalbox_show::types::service(class, v1::Guaranteed::default)),
        min_rate_octets_per_s: one.at_least(),
        authority: priority
            .map(|priority| v1::Authority { priority: Some(priority), ..v1::Authority::default() }),
        receiver_initiated: one.receiver_initiated,
        bidirectional: one.bidirectional,
        ..v1::ReserveOpen::default()
    }
}

fn passage(one: &Pinhole) -> v1::PinholeOpen {
    v1::PinholeOpen {
        protocol: protocol(one.signaling),
        action: v1::PinholeAction::Open.into(),
        flow: Some(flow(&one.flow)),
        ..common(&one.passage)
    }
}

fn exposed(one: &Expose) -> v1::PinholeOpen {
    let from = one.from();
    v1::PinholeOpen {
        protocol: protocol(one.signaling),
        action: v1::PinholeAction::Expose.into(),
        flow: Some(v1::FlowSpec {
            source: from.map(|prefix| prefix.addr.to_string()),
            source_prefix_length: from
                .filter(|prefix| *prefix != Prefix::host(prefix.addr))
                .map(|prefix| prefix.len.into()),
            destination: one.address.map(|address| address.to_string()),
            ip_protocol: one.protocol.map(Into::into),
            source_port: one.from_port.map(Into::into),
            destination_port: one.port.map(Into::into),
            ..v1::FlowSpec::default()
        }),
        towards: one.towards.map(|towards| towards.to_string()),
        ..common(&one.passage)
    }
}

fn common(passage: &Passage) -> v1::PinholeOpen {
    v1::PinholeOpen {
        lifetime_us: passage.lifetime.map(types::micros),
        second_port: passage.second_port,
        proxy: passage.proxy,
        ..v1::PinholeOpen::default()
    }
}

fn flow(flow: &Flow) -> v1::FlowSpec {
    v1::FlowSpec {
        source: flow.source.map(|source| source.to_string()),
        destination: flow.destination.map(|destination| destination.to_string()),
        ip_protocol: flow.protocol.map(Into::into),
        source_port: flow.source_port.map(Into::into),
        destination_port: flow.destination_port.map(Into::into),
        ..v1::FlowSpec::default()
    }
}

/// A protocol by its name in the configuration.
fn protocol(name: &str) -> i32 {
    let found = ProtocolId::ALL.iter().find(|id| id.name() == name);
    found.map_or(v1::Protocol::Unspecified, |id| types::protocol(*id)).into()
}
