//! RSVP's tables at the edge of the API.

use std::net::IpAddr;

use signalbox_api::rsvp::v1;
use signalbox_api::v1::InterfaceRef;
use signalbox_core::node::Interface;
use signalbox_core::{IfIndex, Time};
use signalbox_node::resources::GrantId;
use signalbox_node::rsvp::neighbor::{self, AuthenticationFailure};
use signalbox_node::rsvp::{
    BlockadeView, InterfaceView, RequestView, SessionKind, SessionView, Style, UpstreamView,
};

use super::convert::{
    adspec_to_api, filter_to_api, flowspec_to_api, policy_to_api, style_to_api, traffic_to_api,
};
use crate::api::pages::{Portion, page, walked};
use crate::api::types::{interface, micros};
use crate::course;
use crate::view::View;

page!(5: v1::ListSessionsResponse, sessions: v1::Session);
page!(6: v1::ListNeighborsResponse, neighbors: v1::Neighbor);
page!(13: v1::ListInterfacesResponse, interfaces: v1::InterfaceState);

/// Which sessions are listed.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// Their destination, or that of a sender.
    pub(super) address: Option<IpAddr>,
    /// Their destination port.
    pub(super) port: Option<u16>,
    /// An interface of their Paths or data.
    pub(super) interface: Option<String>,
    /// The style of their reservations.
    pub(super) style: Option<Style>,
    /// A previous or next hop.
    pub(super) neighbor: Option<IpAddr>,
}

impl Wanted {
    fn fits(&self, row: &SessionView, ifindex: Option<IfIndex>) -> bool {
        let (senders, reservations) = (&row.senders, &row.reservations);
        self.address.is_none_or(|address| {
            row.session.dest == address || senders.iter().any(|sender| sender.sender.src == address)
        }) && self.port.is_none_or(|port| row.session.port == port)
            && self.style.is_none_or(|style| reservations.iter().any(|one| one.style == style))
            && self.neighbor.is_none_or(|hop| {
                senders.iter().any(|one| one.previous_hop == Some(hop))
                    || reservations.iter().any(|one| one.next_hops.contains(&Some(hop)))
            })
            && (self.interface.is_none()
                || ifindex.is_some_and(|ifindex| {
                    senders.iter().any(|one| one.ifindex == ifindex || one.outgoing.contains(&ifindex))
                        || reservations.iter().any(|one| one.ifindex == ifindex)
                }))
    }
}

/// Sessions from a place on.
pub(super) fn sessions(
    view: &mut View<'_>,
    from: u32,
    most: usize,
    wanted: &Wanted,
) -> Portion<v1::Session, u32> {
    let interfaces = view.kernel.interfaces().to_vec();
    let ifindex = wanted.interface.as_ref().and_then(|name| number_of(&interfaces, name));
    let (found, next) = walked(most, |take| {
        view.node.rsvp()?.walk(from, |row| take(wanted.fits(&row, ifindex).then_some(row)))
    });
    let mut grants = |grant: Option<GrantId>| {
        let held = view.node.resources().reservation(grant?)?;
        let enforced = view.kernel.enforcer().is_some_and(|enforcer| enforcer.is_enforced(held.reservation))
            && course::elsewhere(&mut *view.kernel, held.ifindex, &held.filters).is_none();
        Some(Granted { since: held.since, enforced })
    };
    let rows = found.iter().map(|row| session(row, view.now, &interfaces, &mut grants));
    (rows.collect(), next)
}

/// The number of the interface of a name.
fn number_of(interfaces: &[Interface], name: &str) -> Option<IfIndex> {
    interfaces.iter().find(|one| one.name == name).map(|one| one.ifindex)
}

/// Neighbors that come after a row, at the interface of this name if one is given.
pub(super) fn neighbors(
    view: &mut View<'_>,
    after: Option<(IpAddr, IfIndex)>,
    most: usize,
    name: Option<&str>,
) -> Portion<v1::Neighbor, Option<(IpAddr, IfIndex)>> {
    let Some(rsvp) = view.node.rsvp() else { return (Vec::new(), None) };
    let rows = rsvp.neighbors().view_after(view.now, after, most);
    let last = rows.last().filter(|_| rows.len() == most).map(|row| (row.address, row.ifindex));
    let interfaces = view.kernel.interfaces();
    let at = name.map(|name| number_of(interfaces, name));
    let rows = rows.iter().filter(|row| at.is_none_or(|at| at == Some(row.ifindex)));
    let neighbors = rows.map(|row| neighbor(row, view.now, interfaces));
    (neighbors.collect(), last.map(Some))
}

/// Interfaces from a place on.
pub(super) fn interfaces(view: &mut View<'_>, from: u32, most: usize) -> Portion<v1::InterfaceState, u32> {
    let Some(rsvp) = view.node.rsvp() else { return (Vec::new(), None) };
    let known = view.kernel.interfaces();
    let rows: Vec<_> = rsvp.interface_views(from).take(most).collect();
    let next = rows.last().filter(|_| rows.len() == most).map(|(place, _)| place + 1);
    (rows.iter().map(|(_, row)| interface_state(row, known)).collect(), next)
}

fn interface_state(view: &InterfaceView<'_>, interfaces: &[Interface]) -> v1::InterfaceState {
    let reduction = match view.reduction {
        (false, _) => v1::RefreshReduction::Off,
        (true, false) => v1::RefreshReduction::MessageIds,
        (true, true) => v1::RefreshReduction::Complete,
    };
    let counts = neighbor::TYPES.iter().zip(view.traffic.received).zip(view.traffic.sent);
    let messages = counts
        .filter(|((_, received), sent)| received + sent > 0)
        .map(|((kind, received), sent)| v1::MessageCount { r#type: kind.to_string(), received, sent });
    v1::InterfaceState {
        // An interface that is gone has its former name.
        interface: interface(interfaces, view.ifindex)
            .or_else(|| Some(InterfaceRef { name: view.name.to_owned(), index: view.ifindex.0 })),
        enabled: view.enabled,
        up: view.up,
        addresses: view.addresses.into_iter().flatten().map(|address| address.to_string()).collect(),
        refresh_period_us: micros(view.refresh),
        announced_refresh_period_us: micros(view.announced),
        refresh_reduction: reduction.into(),
        hello_interval_us: view.hello.map(micros),
        signs: view.signs,
        requires_signature: view.requires_signature,
        neighbors: u32::try_from(view.neighbors).unwrap_or(u32::MAX),
        messages: messages.collect(),
        errors_received: view.traffic.errors_received,
    }
}

/// What admission control and the kernel know of a reservation.
#[derive(Clone, Copy)]
struct Granted {
    /// Time of the first grant.
    since: Time,
    /// The kernel keeps it.
    enforced: bool,
}

/// A session as it stands at `now`; `grants` gives what stands of a grant.
fn session(
    view: &SessionView,
    now: Time,
    interfaces: &[Interface],
    grants: &mut dyn FnMut(Option<GrantId>) -> Option<Granted>,
) -> v1::Session {
    let senders = view.senders.iter().map(|sender| v1::SenderState {
        filter: Some(filter_to_api(&sender.sender)),
        traffic: Some(traffic_to_api(&sender.tspec)),
        previous_hop: sender.previous_hop.map(|hop| hop.to_string()),
        interface: interface(interfaces, sender.ifindex),
        expires_in_us: sender.expires.map(|expires| micros(expires.since(now))),
        next_refresh_in_us: sender.next_refresh.map(|at| micros(at.since(now))),
        outgoing_interfaces: sender.outgoing.iter().filter_map(|at| interface(interfaces, *at)).collect(),
        age_us: micros(now.since(sender.since)),
        non_rsvp_hop: sender.non_rsvp_hop,
        broken: sender.broken,
        adspec: sender.adspec.as_ref().map(adspec_to_api),
        policy: policy_to_api(&sender.policy).map(without_octets),
    });
    let reservations = view.reservations.iter().map(|reservation| {
        let granted = grants(reservation.grant);
        let since = granted.map(|granted| granted.since).or(reservation.requested_here);
        v1::ReservationState {
            style: style_to_api(reservation.style).into(),
            interface: interface(interfaces, reservation.ifindex),
            senders: reservation.senders.iter().map(filter_to_api).collect(),
            flowspec: Some(flowspec_to_api(&reservation.flowspec)),
            next_hops: reservation.next_hops.iter().flatten().map(ToString::to_string).collect(),
            requested_here: reservation.next_hops.contains(&None),
            enforced: granted.is_some_and(|granted| granted.enforced),
            requests: reservation.requests.iter().map(|one| next_hop_request(one, now)).collect(),
            policy: policy_to_api(&reservation.policy).map(without_octets),
            age_us: since.map(|since| micros(now.since(since))),
        }
    });
    v1::Session {
        destination: view.session.dest.to_string(),
        ip_protocol: view.session.protocol.into(),
        destination_port: (view.session.port != 0).then(|| view.session.port.into()),
        ipsec: view.session.kind == SessionKind::Gpi,
        senders: senders.collect(),
        reservations: reservations.collect(),
        blockades: view.blockades.iter().map(|one| blockade(one, now)).collect(),
        upstream_requests: view.upstream.iter().map(|one| upstream(one, now, interfaces)).collect(),
    }
}

fn next_hop_request(request: &RequestView, now: Time) -> v1::NextHopRequest {
    v1::NextHopRequest {
        next_hop: request.next_hop.map(|hop| hop.to_string()),
        flowspec: Some(flowspec_to_api(&request.flowspec)),
        expires_in_us: request.expires.map(|at| micros(at.since(now))),
    }
}

fn blockade(blockade: &BlockadeView, now: Time) -> v1::BlockadeState {
    v1::BlockadeState {
        sender: blockade.sender.as_ref().map(filter_to_api),
        previous_hop: blockade.previous_hop.map(|hop| hop.to_string()),
        flowspec: Some(flowspec_to_api(&blockade.flowspec)),
        expires_in_us: micros(blockade.expires.since(now)),
    }
}

fn upstream(request: &UpstreamView, now: Time, interfaces: &[Interface]) -> v1::UpstreamRequest {
    let flows = request.flows.iter().map(|(sender, flowspec)| v1::FlowDescriptor {
        flowspec: Some(flowspec_to_api(flowspec)),
        senders: vec![filter_to_api(sender)],
    });
    v1::UpstreamRequest {
        previous_hop: request.previous_hop.to_string(),
        interface: interface(interfaces, request.ifindex),
        style: style_to_api(request.style).into(),
        flows: flows.collect(),
        next_refresh_in_us: request.next_refresh.map(|at| micros(at.since(now))),
    }
}

/// POLICY_DATA may authorize requests, so that lists do not contain its octets.
fn without_octets(policy: v1::PolicyData) -> v1::PolicyData {
    v1::PolicyData { octets: Vec::new(), ..policy }
}

/// A neighbor as it stands at `now`.
fn neighbor(view: &neighbor::View, now: Time, interfaces: &[Interface]) -> v1::Neighbor {
    let reduction = match view.reduction {
        (false, _) => v1::RefreshReduction::Off,
        _ if view.plain => v1::RefreshReduction::GivenUp,
        _ if !view.able => v1::RefreshReduction::NotOffered,
        (true, false) => v1::RefreshReduction::MessageIds,
        (true, true) if !view.capable => v1::RefreshReduction::MessageIds,
        (true, true) if view.far => v1::RefreshReduction::NotAdjacent,
        (true, true) => v1::RefreshReduction::Complete,
    };
    let hello = match view.hello {
        None => v1::Hello::Off,
        Some(neighbor::HelloState::Up) => v1::Hello::Up,
        Some(neighbor::HelloState::Lost) => v1::Hello::Lost,
        Some(neighbor::HelloState::Never) => v1::Hello::Never,
    };
    let associations = view.associations.iter().map(|one| v1::SecurityAssociation {
        key_id: one.key_id,
        sequence_number: one.sequence,
        unanswered_challenges: one.asked,
    });
    let failures = AuthenticationFailure::ALL.into_iter().filter_map(|why| {
        let messages = view.failures.map(|failures| failures.count(why)).filter(|count| *count > 0)?;
        Some(v1::AuthenticationFailures { reason: failure(why).into(), messages })
    });
    v1::Neighbor {
        address: view.address.to_string(),
        interface: interface(interfaces, view.ifindex),
        last_message_age_us: view.last_message.map(|at| micros(now.since(at))),
        refresh_reduction: reduction.into(),
        message_ids: view.states,
        hello: hello.into(),
        signs: view.integrity.sending,
        requires_signature: view.integrity.receiving,
        key_id: view.signs_with,
        security_associations: associations.collect(),
        authentication_failures: failures.collect(),
        last_failure_age_us: view.failures.map(|failures| micros(now.since(failures.at))),
        last_failure: view.failures.map_or_else(Default::default, |failures| failure(failures.last).into()),
        messages_received: view.traffic.received,
        messages_sent: view.traffic.sent,
        errors_received: view.traffic.errors_received,
    }
}

const fn failure(why: AuthenticationFailure) -> v1::AuthenticationFailure {
    match why {
        AuthenticationFailure::Unsigned => v1::AuthenticationFailure::Unsigned,
        AuthenticationFailure::UnknownKey => v1::AuthenticationFailure::UnknownKey,
        AuthenticationFailure::WrongDigest => v1::AuthenticationFailure::WrongDigest,
        AuthenticationFailure::Replayed => v1::AuthenticationFailure::Replayed,
        AuthenticationFailure::Unproven => v1::AuthenticationFailure::ChallengePending,
        AuthenticationFailure::Unwilling => v1::AuthenticationFailure::NoChallengeResponse,
    }
}
