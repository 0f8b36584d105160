//! Passages of clients by CASP.

use std::net::{IpAddr, Ipv4Addr};

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_core::SessionId;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_node::casp::{
    Command as CaspCommand, NatfwPackets, NatfwScope, NatfwTerms, OpenRequest, PassageEvent, PassageRefusal,
};
use signalbox_node::{Command, Node, ProtocolId};
use signalbox_show::casp as show;
use tonic::Status;

use super::Passages;
use crate::api::errors::{FieldError, Reason};
use crate::api::opener::{self, Opened, Opener};
use crate::api::pages::walked;
use crate::api::reserver::only_with;
use crate::api::{Api, types};
use crate::view::View;

/// The farthest start time of a passage, microseconds from now: firewalls refuse later ones.
const LATEST_US: u64 = 3_600_000_000;

/// The client for firewalls of CASP.
pub(crate) struct Casp;

#[tonic::async_trait]
impl Opener for Casp {
    fn id(&self) -> ProtocolId {
        ProtocolId::Casp
    }

    async fn open(
        &self,
        api: &Api,
        open: &v1::PinholeOpen,
        user: Option<u32>,
    ) -> Result<(Event, Box<dyn Opened>), Status> {
        let mut command = request(open)?;
        if let CaspCommand::Open(request) = &mut command {
            request.session = Some(api.sessions.of_flow(user, &name(request)));
        }
        opener::begin::<Passages>(api, command, event).await
    }

    fn list(
        &self,
        view: &mut View<'_>,
        from: u32,
        most: usize,
        address: Option<IpAddr>,
    ) -> (Vec<v1::Pinhole>, Option<u32>) {
        let (found, next) = walked(most, |take| {
            view.node.casp_firewall()?.walk(from, |passage| {
                let fits = types::has_end(address, [passage.flow.src(), passage.flow.dst()]);
                take(fits.then_some(passage))
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
        let found = node.casp_firewall()?.has_session(session);
        // No client has this identifier.
        found.then_some(Command::Casp { id: 0, command: CaspCommand::Delete(session) })
    }
}

/// The passage that a client asks for.
fn request(open: &v1::PinholeOpen) -> Result<CaspCommand, FieldError> {
    const FLOW: &str = "open.flow";
    let foreign = [
        ("open.second_port", open.second_port),
        ("open.icmp_types", !open.icmp_types.is_empty()),
        ("open.proxy", open.proxy),
        ("open.extend", open.extend),
        ("open.path_coupled", open.path_coupled),
        ("open.bindings", open.bindings),
        ("open.publish", open.publish.is_some()),
        ("open.towards", open.towards.is_some()),
    ];
    only_with("natfw", &foreign)?;
    let flow = types::Flow::read(FLOW, open.flow.as_ref())?;
    for (name, given) in [
        ("dscp", flow.dscp.is_some()),
        ("flow_label", flow.flow_label.is_some()),
        ("spi", flow.spi.is_some()),
    ] {
        if given {
            return Err(FieldError::new(format!("{FLOW}.{name}"), "no part of a passage: leave it out"));
        }
    }
    match v1::PinholeAction::try_from(open.action) {
        Ok(v1::PinholeAction::Unspecified | v1::PinholeAction::Open) => {
            if open.receiver_initiated {
                let what = "the receiver opens the firewalls: leave it out, or receiver_initiated";
                for (field, given) in
                    [("open.session_auth", open.session_auth.is_some()), ("open.scope", open.scope.is_some())]
                {
                    if given {
                        return Err(FieldError::new(field, what));
                    }
                }
            }
            let (src, dst) = flow.hosts(FLOW)?;
            let packets = if open.bidirectional { NatfwPackets::Both } else { NatfwPackets::Along };
            Ok(CaspCommand::Open(Box::new(OpenRequest {
                dst,
                src,
                protocol: flow.protocol,
                src_port: flow.src_port,
                dst_port: flow.dst_port,
                receiver_initiated: open.receiver_initiated,
                lifetime: lifetime(open),
                terms: terms(open, packets)?,
                session: None,
            })))
        }
        Ok(v1::PinholeAction::Expose) if open.scope.is_some() => {
            only_open(open)?;
            let (sender, own) = (flow.src, flow.dst);
            let sender =
                sender.and_then(|sender| (sender == Prefix::host(sender.addr)).then_some(sender.addr));
            let Some(sender) = sender else {
                let what = "with a scope the address of one sender: the border opens for it";
                return Err(FieldError::new(format!("{FLOW}.source"), what));
            };
            Ok(CaspCommand::Open(Box::new(OpenRequest {
                dst: sender,
                src: own.map(|own| own.addr),
                protocol: flow.protocol,
                src_port: flow.dst_port,
                dst_port: flow.src_port,
                receiver_initiated: false,
                lifetime: lifetime(open),
                terms: terms(open, NatfwPackets::Against)?,
                session: None,
            })))
        }
        Ok(v1::PinholeAction::Expose) => accepted(open, &flow).map(CaspCommand::Accept),
        Ok(v1::PinholeAction::Block) => {
            Err(FieldError::new("open.action", "CASP opens firewalls and blocks nothing: use natfw"))
        }
        Err(_) => Err(FieldError::new("open.action", "open or expose")),
    }
}

/// What a user's passages have in common that take each other's place: the flow, the directions, who opens, and how far.
fn name(request: &OpenRequest) -> String {
    let OpenRequest { src, dst, protocol, src_port, dst_port, receiver_initiated, terms, .. } = request;
    let flow = (src, dst, protocol, src_port, dst_port);
    let kind = (receiver_initiated, &terms.scope, terms.packets);
    format!("casp passage {flow:?} {kind:?}")
}

/// The lifetime of a request, seconds.
fn lifetime(open: &v1::PinholeOpen) -> Option<u32> {
    let seconds = open.lifetime_us?.div_ceil(1_000_000);
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// What a request says besides its flow.
fn terms(open: &v1::PinholeOpen, packets: NatfwPackets) -> Result<NatfwTerms, FieldError> {
    let name = |field: &'static str, text: &String| match text.len() {
        1..=255 => Ok(text.clone()),
        _ => Err(FieldError::new(field, "1 to 255 octets")),
    };
    let scope = open.scope.as_ref().map(|scope| match &scope.domain {
        None => Ok(NatfwScope::Local),
        Some(domain) => name("open.scope.domain", domain).map(NatfwScope::Domain),
    });
    let scope = scope.transpose()?;
    if packets == NatfwPackets::Both && scope.is_none() {
        let what = "the border of a scope opens both directions: give open.scope";
        return Err(FieldError::new("open.bidirectional", what));
    }
    if let Some(start) = open.start_unix_us
        && start > types::unix_us().saturating_add(LATEST_US)
    {
        return Err(FieldError::new("open.start_unix_us", "one hour from now at most"));
    }
    Ok(NatfwTerms {
        scope,
        packets,
        application: open.application_id.as_ref().map(|id| name("open.application_id", id)).transpose()?,
        start_us: open.start_unix_us,
        tokens: open.session_auth.clone().unwrap_or_default(),
    })
}

/// Refuses what belongs to a request of the sender.
fn only_open(open: &v1::PinholeOpen) -> Result<(), FieldError> {
    let foreign =
        [("open.receiver_initiated", open.receiver_initiated), ("open.bidirectional", open.bidirectional)];
    only_with("open", &foreign)
}

/// The packets that a client accepts.
fn accepted(open: &v1::PinholeOpen, flow: &types::Flow) -> Result<FlowFilter, FieldError> {
    only_open(open)?;
    let what = "the sender gives it: leave it out, or give open.scope";
    for (field, given) in [
        ("open.lifetime_us", open.lifetime_us.is_some()),
        ("open.session_auth", open.session_auth.is_some()),
        ("open.application_id", open.application_id.is_some()),
        ("open.start_unix_us", open.start_unix_us.is_some()),
    ] {
        if given {
            return Err(FieldError::new(field, what));
        }
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
        PassageRefusal::Address | PassageRefusal::PrivateFlow => FieldError::new("open.flow", refusal).into(),
        PassageRefusal::Scope => FieldError::new("open.scope", refusal).into(),
        PassageRefusal::Token => FieldError::new("open.session_auth", refusal).into(),
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

    #[expect(clippy::unnecessary_wraps, reason = "the type of the field")]
    fn local() -> Option<v1::PinholeScope> {
        Some(v1::PinholeScope { domain: None })
    }

    /// What a user gives is what the request says. With `expose` and a scope the flow goes to the sender.
    #[test]
    fn terms_of_a_request_are_those_of_the_user() {
        let asked = v1::PinholeOpen {
            scope: Some(v1::PinholeScope { domain: Some("b.example".to_owned()) }),
            bidirectional: true,
            application_id: Some("video".to_owned()),
            start_unix_us: Some(7),
            session_auth: Some(vec![1, 2]),
            ..open(v1::PinholeAction::Open)
        };
        let Ok(CaspCommand::Open(sent)) = request(&asked) else { panic!("a passage") };
        let terms = NatfwTerms {
            scope: Some(NatfwScope::Domain("b.example".to_owned())),
            packets: NatfwPackets::Both,
            application: Some("video".to_owned()),
            start_us: Some(7),
            tokens: vec![1, 2],
        };
        assert_eq!(sent.terms, terms);
        let mut asked = v1::PinholeOpen { scope: local(), ..open(v1::PinholeAction::Expose) };
        asked.flow.as_mut().unwrap().source = Some("198.51.100.7".to_owned());
        let Ok(CaspCommand::Open(sent)) = request(&asked) else { panic!("a passage") };
        let ends = (sent.src.map(|src| src.to_string()), sent.dst.to_string());
        assert_eq!(ends, (Some("192.0.2.9".to_owned()), "198.51.100.7".to_owned()));
        assert_eq!((sent.src_port, sent.dst_port), (Some(5004), None));
        assert_eq!(sent.terms.packets, NatfwPackets::Against);
    }

    /// O09: a command that asks again after a crash has the session of before, also where the border of a scope opens for a receiver. Another
    /// flow, direction or scope has another one.
    #[test]
    fn the_same_request_has_the_same_session() {
        let named = |asked: &v1::PinholeOpen| {
            let Ok(CaspCommand::Open(request)) = request(asked) else { panic!("a passage") };
            name(&request)
        };
        let mut exposed = v1::PinholeOpen { scope: local(), ..open(v1::PinholeAction::Expose) };
        exposed.flow.as_mut().unwrap().source = Some("198.51.100.7".to_owned());
        let mut other = exposed.clone();
        other.flow.as_mut().unwrap().destination_port = Some(5005);
        let domain = Some(v1::PinholeScope { domain: Some("b.example".to_owned()) });
        let all = [
            exposed.clone(),
            other,
            v1::PinholeOpen { scope: domain, ..exposed.clone() },
            open(v1::PinholeAction::Open),
            v1::PinholeOpen { receiver_initiated: true, ..open(v1::PinholeAction::Open) },
            v1::PinholeOpen { scope: local(), bidirectional: true, ..open(v1::PinholeAction::Open) },
        ];
        assert_eq!(
            named(&exposed),
            named(&v1::PinholeOpen { lifetime_us: Some(7_000_000), ..exposed.clone() })
        );
        let names: std::collections::BTreeSet<_> = all.iter().map(named).collect();
        assert_eq!(names.len(), all.len());
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
            (v1::PinholeOpen { bidirectional: true, ..asked.clone() }, "open.bidirectional"),
            (v1::PinholeOpen { scope: local(), ..open(v1::PinholeAction::Expose) }, "open.flow.source"),
            (
                v1::PinholeOpen { session_auth: Some(vec![1]), ..open(v1::PinholeAction::Expose) },
                "open.session_auth",
            ),
            (v1::PinholeOpen { scope: local(), receiver_initiated: true, ..asked.clone() }, "open.scope"),
            (v1::PinholeOpen { start_unix_us: Some(u64::MAX), ..asked.clone() }, "open.start_unix_us"),
            (v1::PinholeOpen { application_id: Some(String::new()), ..asked.clone() }, "open.application_id"),
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
