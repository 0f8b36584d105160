//! GIST's tables at the edge of the API.

use signalbox_api::v0;
use signalbox_node::gist::{AssociationView, DirectionView, PeerView, SessionView, Transport, Validity};
use tonic::Status;

use super::service::SessionFilter;
use crate::v0::convert::{address, flow, millis, session_id};

/// The filter that a client asks for.
pub(super) fn session_filter(request: &v0::ListSessionsRequest) -> Result<SessionFilter, Status> {
    let prefix = request.session_prefix.to_ascii_lowercase();
    if prefix.len() > 32 || !prefix.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Status::invalid_argument("session_prefix: at most 32 hexadecimal digits"));
    }
    let nslp = request
        .nslp_id
        .map(u16::try_from)
        .transpose()
        .map_err(|_| Status::invalid_argument("nslp_id: between 0 and 65535"))?;
    let address = (!request.address.is_empty()).then(|| address("address", &request.address)).transpose()?;
    Ok(SessionFilter { prefix, nslp, address })
}

/// A session.
pub(super) fn session(session: &SessionView<'_>) -> v0::Session {
    v0::Session {
        session_id: session_id(session.session),
        nslp_id: session.nslp.0.into(),
        flow: Some(flow(&session.mri)),
        upstream: session.upstream.as_ref().map(routing_state),
        downstream: session.downstream.as_ref().map(routing_state),
        queued: u32::try_from(session.queued).unwrap_or(u32::MAX),
    }
}

fn routing_state(state: &DirectionView<'_>) -> v0::RoutingState {
    v0::RoutingState {
        role: state.role.to_owned(),
        state: state.state.to_owned(),
        validity: match state.validity {
            Validity::Bad => "bad",
            Validity::Tentative => "tentative",
            Validity::Good => "good",
        }
        .to_owned(),
        peer: state.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        peer_identity: state.identity.to_vec(),
        local: state.local.map(|local| local.to_string()).unwrap_or_default(),
        ifindex: state.ifindex.0,
        ip_distance: state.ip_distance.into(),
        age_ms: millis(state.age),
        refresh_in_ms: state.refresh_in.map(millis),
        expires_in_ms: state.expires_in.map(millis),
    }
}

/// A peer.
pub(super) fn peer(peer: &PeerView<'_>) -> v0::Peer {
    v0::Peer {
        identity: peer.identity.to_vec(),
        address: peer.address.to_string(),
        ifindex: peer.ifindex.0,
        sessions: peer.sessions,
    }
}

/// A messaging association.
pub(super) fn association(association: &AssociationView<'_>) -> v0::Association {
    v0::Association {
        channel: association.channel.0,
        stack: match association.transport {
            Transport::Tcp => "tcp",
            Transport::TlsTcp => "tls",
            Transport::Sctp => "sctp",
        }
        .to_owned(),
        state: association.state.to_owned(),
        opened: association.opened,
        peer_identity: association.peer.to_vec(),
        peer: association.address.to_string(),
        local: association.local.to_string(),
        authenticated: association.authenticated.map(ToString::to_string).unwrap_or_default(),
        sessions: association.sessions,
        queued: u32::try_from(association.queued).unwrap_or(u32::MAX),
        queued_octets: association.queued_octets as u64,
        unsent_octets: association.unsent as u64,
        hold_time_ms: (!association.hold_time.is_zero()).then(|| millis(association.hold_time)),
        hello_in_ms: association.hello_in.map(millis),
        closes_in_ms: association.closes_in.map(millis),
        age_ms: millis(association.age),
    }
}
