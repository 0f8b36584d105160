//! GIST: its tables, and that of the GIST-aware NAT gateway.

use signalbox_api::gist::v1;
use signalbox_api::v1::Endpoint;
use signalbox_core::Mri;
use signalbox_core::node::Interface;
use signalbox_core::service::Transports;
use signalbox_node::gist::{
    AssociationState, AssociationView, DirectionView, PeerChange, PeerView, Role, RoutingState, SessionView,
    Transport, Validity,
};
use signalbox_node::gist_nat::{BindingView, Purpose, State};

use crate::types::{count, flow, identity, interface, micros, pinhole_rule, session_id};

/// A session.
#[must_use]
pub fn session(session: &SessionView<'_>, interfaces: &[Interface]) -> v1::Session {
    v1::Session {
        session_id: session_id(session.session),
        nslp_id: session.nslp.0.into(),
        routing_method: routing_method(&session.mri).into(),
        flow: Some(flow(&session.mri)),
        upstream: session.upstream.as_ref().map(|state| routing_state(state, interfaces)),
        downstream: session.downstream.as_ref().map(|state| routing_state(state, interfaces)),
        queued_messages: count(session.queued),
    }
}

/// The message routing method of an MRI.
#[must_use]
pub const fn routing_method(mri: &Mri) -> v1::RoutingMethod {
    match mri {
        Mri::PathCoupled(_) => v1::RoutingMethod::PathCoupled,
        Mri::LooseEnd(_) => v1::RoutingMethod::LooseEnd,
    }
}

fn routing_state(state: &DirectionView<'_>, interfaces: &[Interface]) -> v1::RoutingState {
    v1::RoutingState {
        role: match state.role {
            Role::Querying => v1::Role::Querying,
            Role::Responding => v1::Role::Responding,
        }
        .into(),
        state: match state.state {
            RoutingState::AwaitingResponse => v1::State::AwaitingResponse,
            RoutingState::AwaitingConfirm => v1::State::AwaitingConfirm,
            RoutingState::Established => v1::State::Established,
            RoutingState::AwaitingRefresh => v1::State::AwaitingRefresh,
        }
        .into(),
        validity: match state.validity {
            Validity::Bad => v1::Validity::Bad,
            Validity::Tentative => v1::Validity::Tentative,
            Validity::Good => v1::Validity::Good,
        }
        .into(),
        peer: state
            .peer
            .map(|peer| Endpoint { address: peer.ip().to_string(), port: Some(peer.port().into()) }),
        peer_identity: (!state.identity.is_empty()).then(|| state.identity.to_vec()),
        local_address: state.local.map(|local| local.to_string()),
        interface: interface(interfaces, state.ifindex),
        ip_hops: state.ip_distance.filter(|_| state.peer.is_some()).map(Into::into),
        age_us: micros(state.age),
        refresh_in_us: state.refresh_in.map(micros),
        expires_in_us: state.expires_in.map(micros),
    }
}

/// A peer.
#[must_use]
pub fn peer(peer: &PeerView<'_>, interfaces: &[Interface]) -> v1::Peer {
    v1::Peer {
        peer_identity: peer.identity.to_vec(),
        peer: Some(Endpoint {
            address: peer.address.ip().to_string(),
            port: Some(peer.address.port().into()),
        }),
        interface: interface(interfaces, peer.ifindex),
        routing_states: peer.sessions,
        unreached_by: peer.unreached.names().map(str::to_owned).collect(),
    }
}

/// A peer that appears or disappears. `routing_states` is the number of pieces of routing state that point to it now.
#[must_use]
pub fn changed_peer(change: &PeerChange, routing_states: u32, interfaces: &[Interface]) -> v1::Peer {
    let PeerChange { identity, address, ifindex, .. } = change;
    peer(
        &PeerView {
            identity,
            address: *address,
            ifindex: *ifindex,
            sessions: routing_states,
            unreached: Transports::default(),
        },
        interfaces,
    )
}

/// A messaging association.
#[must_use]
pub fn association(association: &AssociationView<'_>) -> v1::Association {
    v1::Association {
        channel: association.channel.0,
        stack: match association.transport {
            Transport::Tcp => v1::Stack::Tcp,
            Transport::TlsTcp => v1::Stack::Tls,
            Transport::Sctp => v1::Stack::Sctp,
        }
        .into(),
        state: match association.state {
            AssociationState::AwaitingConnection => v1::AssociationState::AwaitingConnection,
            AssociationState::Connected => v1::AssociationState::Connected,
            AssociationState::Idle => v1::AssociationState::Idle,
        }
        .into(),
        opened: association.opened,
        peer_identity: (!association.peer.is_empty()).then(|| association.peer.to_vec()),
        peer: Some(Endpoint { address: association.address.to_string(), port: None }),
        local: Some(Endpoint { address: association.local.to_string(), port: None }),
        authenticated: association.authenticated.map(identity),
        routing_states: association.sessions,
        queued_messages: count(association.queued),
        queued_octets: association.queued_octets as u64,
        unsent_octets: association.unsent as u64,
        hold_time_us: (!association.hold_time.is_zero()).then(|| micros(association.hold_time)),
        hello_in_us: association.hello_in.map(micros),
        closes_in_us: association.closes_in.map(micros),
        age_us: micros(association.age),
    }
}

/// A binding of the GIST-aware NAT gateway. `seen` are the packets and octets that the kernel counted.
#[must_use]
pub fn binding(binding: &BindingView, seen: Option<(u64, u64)>) -> v1::Binding {
    v1::Binding {
        purpose: match binding.purpose {
            Purpose::Flow => v1::BindingPurpose::Flow,
            Purpose::Datagrams => v1::BindingPurpose::Datagrams,
            Purpose::Association => v1::BindingPurpose::Association,
        }
        .into(),
        rule: Some(pinhole_rule(
            &binding.pinhole,
            matches!(binding.state, State::Active | State::Adopted),
            seen,
        )),
        confirmed: binding.confirmed,
        expires_in_us: micros(binding.time_left),
    }
}
