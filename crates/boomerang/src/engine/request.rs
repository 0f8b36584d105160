//! What a host of this node asks for: whether it can be sent, and the flow that it is for.

use core::net::IpAddr;

use super::io::{Rejected, Request};
use crate::wire::{Classifier, FlowSpec, MAX_PAIRS};

/// Whether a request can be sent at all. BOOM-3.2.3-07, BOOM-F3.3.1-01, BOOM-F5.3-01.
pub(super) fn check(request: &Request, query: bool) -> Result<(), Rejected> {
    let alike = |address: Option<IpAddr>| {
        address.is_none_or(|address| address.is_ipv4() == request.far_end.is_ipv4())
    };
    let group = request.far_end.is_multicast();
    // Data to a group are those of the group that the requests go to.
    let of_group = match request.dst {
        Some(dst) if group => dst == request.far_end,
        Some(dst) => !dst.is_multicast(),
        None => true,
    };
    if request.far_end.is_unspecified() || !of_group || !alike(request.src) || !alike(request.dst) {
        return Err(Rejected::Address);
    }
    if group && (query || request.rates.iter().any(|pair| pair.reverse != 0)) {
        return Err(Rejected::Group);
    }
    if request.protocol.is_none() && (request.src_port.is_some() || request.dst_port.is_some()) {
        return Err(Rejected::Ports);
    }
    let falls = request
        .rates
        .iter()
        .zip(request.rates.iter().skip(1))
        .all(|(one, next)| next.forward <= one.forward && next.reverse <= one.reverse);
    let asks = request.rates.first().is_some_and(|first| !first.is_zero());
    if !asks || !falls || request.rates.len() > usize::from(MAX_PAIRS) {
        return Err(Rejected::Rates);
    }
    if request.refresh == Some(0) {
        return Err(Rejected::Refresh);
    }
    if request.dscp > 63 {
        return Err(Rejected::Dscp);
    }
    Ok(())
}

/// The flow specification of a request. BOOM-F1-01, BOOM-G43-01.
pub(super) fn flow_of(request: &Request, unspecified: IpAddr) -> FlowSpec {
    let ignored = |port: Option<u16>| if port.is_some() { 0 } else { u16::MAX };
    let classifier = Classifier {
        src: request.src.unwrap_or(unspecified),
        dst: request.dst.unwrap_or(request.far_end),
        src_port: request.src_port.unwrap_or(0),
        dst_port: request.dst_port.unwrap_or(0),
        protocol: request.protocol.unwrap_or(0),
        tos: request.dscp << 2,
        flags: 0,
    };
    let mut flow = FlowSpec::exact(classifier);
    flow.mask.src_port = ignored(request.src_port);
    flow.mask.dst_port = ignored(request.dst_port);
    flow.mask.protocol = if request.protocol.is_some() { 0 } else { u8::MAX };
    flow
}
