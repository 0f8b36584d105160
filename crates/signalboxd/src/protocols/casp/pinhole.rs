//! Passages of clients by CASP.

use std::net::{IpAddr, Ipv4Addr};

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_core::SessionId;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_node::casp::{Command as CaspCommand, OpenRequest, PassageEvent, PassageRefusal};
use signalbox_node::{Command, Node, ProtocolId};
use signalbox_show::casp as show;
use tonic::Status;

use super::Passages;
use crate::api::errors::{Reason, Wrong};
use crate::api::opener::{self, Opened, Opener};
use crate::api::reserver::only_with;
use crate::api::{Api, types};
use crate::view::View;

/// The client for firewalls of CASP.
pub(crate) struct Casp;

#[tonic::async_trait]
impl Opener for Casp {
    fn id(&self) -> ProtocolId {
        ProtocolId::Casp
    }

    async fn open(&self, api: &Api, open: &v1::PinholeOpen) -> Result<(Event, Box<dyn Opened>), Status> {
        opener::begin::<Passages>(api, request(open)?, event).await
    }

    fn list(
        &self,
        view: &mut View<'_>,
        from: u32,
        most: usize,
        address: Option<IpAddr>,
    ) -> (Vec<v1::Pinhole>, Option<u32>) {
        let mut found = Vec::new();
        let next = view.node.casp_firewall().and_then(|firewall| {
            firewall.walk(from, |passage| {
                if types::has_end(address, [passage.flow.src(), passage.flow.dst()]) {
                    found.push(passage);
                }
                found.len() < most
            })
        });
        let ids: Vec<_> =
            found.iter().flat_map(|passage| passage.rules.iter().map(|rule| rule.pinhole)).collect();
        let seen = view.kernel.pinholes().map(|pinholes| pinholes.read(&ids)).unwrap_or_default();
        let mut seen = seen.into_iter().map(|seen| seen.map(|seen| (seen.packets, seen.octets)));
        let rows = found.iter().flat_map(|passage| show::pinholes(passage, view.now, &mut seen));
        (rows.collect(), next)
    }

    fn delete(&self, node: &Node, session: SessionId) -> Option<Command> {
        let there = node.casp_firewall()?.has_session(session);
        // No client has this identifier.
        there.then_some(Command::Casp { id: 0, command: CaspCommand::Delete(session) })
    }
}

/// The passage that a client asks for.
fn request(open: &v1::PinholeOpen) -> Result<CaspCommand, Wrong> {
    const FLOW: &str = "open.flow";
    let foreign = [
        ("open.second_port", open.second_port),
        ("open.icmp_types", !open.icmp_types.is_empty()),
        ("open.proxy", open.proxy),
        ("open.extend", open.extend),
        ("open.path_coupled", open.path_coupled),
        ("open.bindings", open.bindings),
        ("open.towards", open.towards.is_some()),
        ("open.session_auth", open.session_auth.is_some()),
    ];
    only_with("natfw", &foreign)?;
    let flow = types::Flow::read(FLOW, open.flow.as_ref())?;
    for (name, given) in [
        ("dscp", flow.dscp.is_some()),
        ("flow_label", flow.flow_label.is_some()),
        ("spi", flow.spi.is_some()),
    ] {
        if given {
            return Err(Wrong::new(format!("{FLOW}.{name}"), "no part of a passage: leave it out"));
        }
    }
    match v1::PinholeAction::try_from(open.action) {
        Ok(v1::PinholeAction::Unspecified | v1::PinholeAction::Open) => {
            let (src, dst) = flow.hosts(FLOW)?;
            let lifetime = open.lifetime_us.map(|us| us.div_ceil(1_000_000));
            let lifetime = lifetime.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
            Ok(CaspCommand::Open(Box::new(OpenRequest {
                dst,
                src,
                protocol: flow.protocol,
                src_port: flow.src_port,
                dst_port: flow.dst_port,
                receiver_initiated: open.receiver_initiated,
                lifetime,
            })))
        }
        Ok(v1::PinholeAction::Expose) => accepted(open, &flow).map(CaspCommand::Accept),
        Ok(v1::PinholeAction::Block) => {
            Err(Wrong::new("open.action", "CASP opens firewalls and blocks nothing: use natfw"))
        }
        Err(_) => Err(Wrong::new("open.action", "open or expose")),
    }
}

/// The packets that a client accepts.
fn accepted(open: &v1::PinholeOpen, flow: &types::Flow) -> Result<FlowFilter, Wrong> {
    only_with("open", &[("open.receiver_initiated", open.receiver_initiated)])?;
    let what = "the sender gives it: leave it out";
    if open.lifetime_us.is_some() {
        return Err(Wrong::new("open.lifetime_us", what));
    }
    let any = |like: Option<Prefix>| match like {
        Some(Prefix { addr: IpAddr::V6(_), .. }) => Prefix { addr: IpAddr::V6(0.into()), len: 0 },
        Some(Prefix { addr: IpAddr::V4(_), .. }) | None => {
            Prefix { addr: Ipv4Addr::UNSPECIFIED.into(), len: 0 }
        }
    };
    let src = flow.src.unwrap_or_else(|| any(flow.dst));
    let dst = flow.dst.unwrap_or_else(|| any(flow.src));
    let (protocol, src_port, dst_port) = (flow.protocol, flow.src_port, flow.dst_port);
    Ok(FlowFilter { protocol, src_port, dst_port, ..FlowFilter::between(src, dst) })
}

/// An event of a passage; the error ends its call.
fn event(id: u64, event: PassageEvent) -> Result<Event, Status> {
    show::passage(id, event).map_err(|refusal| match refusal {
        PassageRefusal::Address | PassageRefusal::PrivateFlow => Wrong::new("open.flow", refusal).into(),
        PassageRefusal::NoRoute => Reason::NoRoute.status(refusal),
        PassageRefusal::TooMany => Reason::TableFull.status(refusal),
        PassageRefusal::NotRunning => Reason::ProtocolNotRunning.status(refusal),
        PassageRefusal::NameTaken => Reason::Internal.status(refusal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(action: v1::PinholeAction) -> v1::PinholeOpen {
        let flow = v1::FlowSpec {
            destination: Some("192.0.2.9".to_owned()),
            ip_protocol: Some(17),
            destination_port: Some(5004),
            ..v1::FlowSpec::default()
        };
        v1::PinholeOpen { action: action.into(), flow: Some(flow), ..v1::PinholeOpen::default() }
    }

    #[test]
    fn what_casp_cannot_do_names_its_field() {
        let asked = open(v1::PinholeAction::Open);
        for (wrong, field) in [
            (open(v1::PinholeAction::Block), "open.action"),
            (v1::PinholeOpen { second_port: true, ..asked.clone() }, "open.second_port"),
            (v1::PinholeOpen { proxy: true, ..asked.clone() }, "open.proxy"),
            (
                v1::PinholeOpen { receiver_initiated: true, ..open(v1::PinholeAction::Expose) },
                "open.receiver_initiated",
            ),
        ] {
            let Err(error) = request(&wrong) else { panic!("{field} is refused") };
            let status = Status::from(error);
            assert!(status.message().starts_with(field), "{status}");
        }
        let Ok(CaspCommand::Open(request)) = request(&asked) else { panic!("a passage") };
        assert_eq!((request.dst.to_string().as_str(), request.dst_port), ("192.0.2.9", Some(5004)));
    }

    /// Without senders and address all packets to the port are accepted.
    #[test]
    fn a_receiver_accepts_all_senders() {
        let mut asked = open(v1::PinholeAction::Expose);
        asked.flow.as_mut().unwrap().destination = None;
        let Ok(CaspCommand::Accept(packets)) = request(&asked) else { panic!("an acceptance") };
        assert_eq!((packets.src.len, packets.dst.len, packets.dst_port), (0, 0, Some(5004)));
    }
}
