//! The edge of the API: its types to ours and back. No API type goes further into the daemon.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_api::v0;
use signalbox_core::Mri;
use signalbox_core::{Counter, SessionId};
use tonic::Status;

pub(crate) fn address(field: &str, text: &str) -> Result<IpAddr, Status> {
    text.parse().map_err(|_| Status::invalid_argument(format!("{field}: {text:?} is no IP address")))
}

/// A flow, without its direction.
pub(crate) fn flow(mri: &Mri) -> v0::Flow {
    match mri {
        Mri::PathCoupled(p) => v0::Flow {
            method: "path-coupled".into(),
            source: p.src.to_string(),
            source_prefix: p.src_prefix.into(),
            destination: p.dst.to_string(),
            destination_prefix: p.dst_prefix.into(),
            protocol: p.protocol.map(Into::into),
            dscp: p.dscp.map(Into::into),
            flow_label: p.flow_label,
            spi: p.spi,
            source_port: p.src_port.map(Into::into),
            destination_port: p.dst_port.map(Into::into),
        },
        Mri::LooseEnd(l) => v0::Flow {
            method: "loose-end".into(),
            source: l.src.to_string(),
            destination: l.dst.to_string(),
            ..v0::Flow::default()
        },
    }
}

/// A counter.
pub(crate) fn counter(counter: Counter) -> v0::Counter {
    v0::Counter {
        room: counter.subsystem.name.to_owned(),
        name: counter.count.name.to_owned(),
        help: counter.count.help.to_owned(),
        value: counter.count.value,
    }
}

pub(crate) fn session_id(session: SessionId) -> Vec<u8> {
    session.0.to_vec()
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
