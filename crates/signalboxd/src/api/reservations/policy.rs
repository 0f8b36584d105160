//! What the rules of this node answer to a request that is not made.

pub(super) mod passage;

use std::net::IpAddr;
use std::sync::Arc;

use signalbox_api::v1;
use signalbox_api::v1::service::Service;
use signalbox_core::node::{Prefix, RouteQuery};
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::traffic::{FlowFilter, ServiceClass};
use signalbox_core::{IfIndex, ReserverId};
use signalbox_node::resources::request::{
    GrantRequest, Neighbor, Owner, Priority, Proof, RequestedBy, Requester,
};
use signalbox_node::resources::{Cause, Refusal};
use tonic::Status;

use crate::api::errors::{FieldError, Reason};
use crate::api::types::{self, Flow, number};
use crate::view::View;

/// A request whose egress interface is not known yet.
pub(super) struct PolicyTest {
    request: GrantRequest,
    dst: IpAddr,
    /// Name of the egress interface; `None`: that of the route.
    interface: Option<String>,
    /// The request comes from this host.
    own: bool,
}

/// Reads a request of this protocol.
pub(super) fn read(protocol: ReserverId, asked: &v1::TestPolicyRequest) -> Result<PolicyTest, FieldError> {
    let flow = Flow::read("flow", asked.flow.as_ref())?;
    let dst = flow.dst.ok_or_else(|| FieldError::new("flow.destination", "missing"))?;
    let from = types::address_in("from", asked.from.as_deref())?;
    let requester = requester(asked, from)?;
    let filter = packets(&flow, dst);
    let service = match asked.service.as_ref().and_then(|service| service.service.as_ref()) {
        None | Some(Service::ControlledLoad(_)) => ServiceClass::ControlledLoad,
        Some(Service::Guaranteed(_)) => ServiceClass::Guaranteed,
        Some(Service::Dscp(dscp)) => ServiceClass::Dscp(number("service.dscp", *dscp, 0, 63)?),
    };
    let value = |name: &str, value| number(&format!("authority.priority.{name}"), value, 0, 0xffff);
    let priority = match asked.authority.as_ref().and_then(|authority| authority.priority) {
        Some(v1::Priority { setup, defending }) => Priority {
            setup: value("setup", setup)?,
            defending: value("defending", defending.unwrap_or(setup))?,
        },
        None => Priority::default(),
    };
    let owner = Owner { protocol, key: 0 };
    let traffic = types::traffic("traffic", asked.traffic.as_ref())?;
    let request = GrantRequest {
        service,
        priority,
        ..GrantRequest::new(owner, requester, IfIndex::NONE, filter, traffic)
    };
    Ok(PolicyTest { request, dst: dst.addr, interface: asked.interface.clone(), own: from.is_none() })
}

/// Who asks: this host, or the neighbor at an address.
fn requester(asked: &v1::TestPolicyRequest, from: Option<IpAddr>) -> Result<Requester, FieldError> {
    let peer = asked.peer.as_deref().map(identity).transpose()?.map(Arc::new);
    let proof = if peer.is_some() { Proof::Identity } else { Proof::Handshake };
    let requested_by = match from {
        Some(address) => RequestedBy::Neighbor(Neighbor { address, ifindex: IfIndex::NONE, proof }),
        None => RequestedBy::LocalUser(None),
    };
    let user = asked.authority.as_ref().and_then(|authority| authority.user.clone());
    Ok(Requester { names: user.map(|user| Arc::new(vec![user])), ..Requester::new(requested_by, peer, None) })
}

/// The packets of a flow to these addresses.
fn packets(flow: &Flow, dst: Prefix) -> FlowFilter {
    FlowFilter {
        protocol: flow.protocol,
        src_port: flow.src_port,
        dst_port: flow.dst_port,
        dscp: flow.dscp,
        flow_label: flow.flow_label,
        spi: flow.spi,
        ..FlowFilter::between(flow.src.unwrap_or(Prefix::all_like(dst.addr)), dst)
    }
}

fn identity(text: &str) -> Result<Identity, FieldError> {
    let wrong = || FieldError::new("peer", "dns:NAME, address:ADDRESS or key:FINGERPRINT");
    let (kind, value) = text.split_once(':').ok_or_else(wrong)?;
    let none = Identity::of_key(Fingerprint([0; 32]));
    Ok(match kind {
        "dns" => Identity { dns: vec![value.to_owned()], ..none },
        "address" => Identity { addresses: vec![value.parse().map_err(|_| wrong())?], ..none },
        "key" => Identity::of_key(value.parse().map_err(|_| wrong())?),
        _ => return Err(wrong()),
    })
}

/// What admission control would answer. Nothing changes.
pub(super) fn answer(view: &mut View<'_>, asked: PolicyTest) -> Result<v1::TestPolicyResponse, Status> {
    let PolicyTest { mut request, dst, interface, own } = asked;
    let route = view.kernel.route(&RouteQuery::to(dst));
    if own {
        request.requester.claimed = Some(route.as_ref().map_or(dst, |route| route.src));
    }
    request.ifindex = match interface {
        Some(name) => named(view, "interface", &name)?,
        None => match route {
            Ok(route) => route.ifindex,
            Err(_) => return Err(Reason::NoRoute.status(format!("this node has no route to {dst}"))),
        },
    };
    let dry = view.node.resources().dry_run(view.now, &request);
    Ok(v1::TestPolicyResponse {
        allowed: dry.result.is_ok(),
        rule: dry.rule.map(|rule| rule.to_string()),
        failure: dry.result.err().map(failure),
    })
}

/// The interface with this name; `field` is the one that names it.
fn named(view: &View<'_>, field: &str, name: &str) -> Result<IfIndex, FieldError> {
    let found = view.kernel.interfaces().iter().find(|one| one.name == name);
    found.map(|one| one.ifindex).ok_or_else(|| FieldError::new(field, "no such interface here"))
}

fn failure(refusal: Refusal) -> v1::Failure {
    let cause = match refusal.cause() {
        Cause::Policy | Cause::Token => v1::Cause::Policy,
        Cause::Conflict => v1::Cause::Conflict,
        Cause::BadRequest | Cause::Unsupported | Cause::NoGrant => v1::Cause::Protocol,
        Cause::Bandwidth | Cause::Buffer | Cause::Mtu | Cause::Interface | Cause::Full => {
            v1::Cause::Admission
        }
    };
    let available = (cause == v1::Cause::Admission).then_some(refusal.available);
    v1::Failure {
        cause: cause.into(),
        message: refusal.to_string(),
        available_octets_per_s: available,
        ..v1::Failure::default()
    }
}
