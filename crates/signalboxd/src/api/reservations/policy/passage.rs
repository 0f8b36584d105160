//! What the rules answer to a request for a passage through a firewall or NAT that is not made.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_api::v1;
use signalbox_core::IfIndex;
use signalbox_core::node::{Prefix, RouteQuery};
use signalbox_core::pinhole::{Pinhole, Verdict};
use signalbox_core::traffic::FlowFilter;
use signalbox_node::resources::PassageRequest;
use signalbox_node::resources::config::Opening;
use signalbox_node::resources::opening::Crossing;
use signalbox_node::resources::request::Requester;
use tonic::Status;

use crate::api::errors::FieldError;
use crate::api::types::{self, Flow};
use crate::view::View;

/// A request whose interfaces are not known yet.
pub(in crate::api::reservations) struct PassageTest {
    opening: Opening,
    requester: Requester,
    packets: FlowFilter,
    /// Names of the interfaces by which the packets come in and leave; `None`: those of the routes.
    interfaces: [Option<String>; 2],
    invited: bool,
    /// The request comes from this host, and the source of the flow is not given.
    own_source: bool,
}

/// Reads a request for this opening.
pub(in crate::api::reservations) fn read(
    opening: &str,
    asked: &v1::TestPolicyRequest,
) -> Result<PassageTest, FieldError> {
    let opening = Opening::ALL.into_iter().find(|one| one.to_string() == opening);
    let opening = opening
        .ok_or_else(|| FieldError::new("opening", "outward, inward, between, reserve, block or publish"))?;
    let protocols = [v1::Protocol::Unspecified, v1::Protocol::Natfw, v1::Protocol::Casp];
    if !protocols.map(i32::from).contains(&asked.protocol) {
        return Err(FieldError::new("protocol", "natfw or casp: the others open nothing"));
    }
    let mut flow = Flow::read("flow", asked.flow.as_ref())?;
    let dst = flow.dst.ok_or_else(|| FieldError::new("flow.destination", "missing"))?;
    let from = types::address_in("from", asked.from.as_deref())?;
    let of_sender = !opening.is_of_receiver();
    if of_sender {
        // A host asks for its own packets.
        flow.src = flow.src.or(from.map(Prefix::host));
    }
    let own_source = of_sender && flow.src.is_none();
    let requester = super::requester(asked, from)?;
    let interfaces = [asked.from_interface.clone(), asked.interface.clone()];
    let packets = super::packets(&flow, dst);
    Ok(PassageTest { opening, requester, packets, interfaces, invited: asked.invited, own_source })
}

/// What the rules would answer. Nothing changes.
pub(in crate::api::reservations) fn answer(
    view: &mut View<'_>,
    asked: PassageTest,
) -> Result<v1::TestPolicyResponse, Status> {
    let PassageTest {
        opening,
        mut requester,
        mut packets,
        interfaces: [come_in, leave],
        invited,
        own_source,
    } = asked;
    if own_source && let Ok(route) = view.kernel.route(&RouteQuery::to(packets.dst.addr)) {
        packets.src = Prefix::host(route.src);
    }
    // The message of a sender has the source of its flow, that of a receiver the receiver.
    let claimed = if opening.is_of_receiver() { packets.dst } else { packets.src };
    requester.claimed = host(claimed);
    let from = end(view, "from_interface", come_in, packets.src)?;
    let to = end(view, "interface", leave, packets.dst)?;
    let verdict = if opening == Opening::Block { Verdict::Deny } else { Verdict::Allow };
    let pinhole = Pinhole { verdict, ..Pinhole::allow(packets) };
    let request = PassageRequest {
        requester: &requester,
        opening,
        crossing: Crossing { from, to },
        pinhole: &pinhole,
        lifetime: Duration::ZERO,
        invited,
    };
    let dry = view.node.resources().dry_passage(view.now, &request);
    Ok(v1::TestPolicyResponse {
        allowed: dry.result.is_ok(),
        rule: dry.rule.map(|rule| rule.to_string()),
        failure: dry.result.err().map(super::failure),
    })
}

/// The interface at one end of the flow: the one of this name, or that of the route to a single host. Packets of several hosts may
/// have any.
fn end(view: &mut View<'_>, field: &str, name: Option<String>, hosts: Prefix) -> Result<IfIndex, FieldError> {
    if let Some(name) = name {
        return super::named(view, field, &name);
    }
    let route = host(hosts).and_then(|host| view.kernel.route(&RouteQuery::to(host)).ok());
    Ok(route.filter(|route| !route.local).map_or(IfIndex::NONE, |route| route.ifindex))
}

fn host(prefix: Prefix) -> Option<IpAddr> {
    (prefix == Prefix::host(prefix.addr)).then_some(prefix.addr)
}
