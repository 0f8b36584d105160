//! The service `Qos`: the sessions of the node.

use signalbox_api::qos::v1;
use signalbox_api::qos::v1::qos_server::{Qos, QosServer};
use signalbox_node::ProtocolId;
use signalbox_node::qos::{Role, SessionView};
use tonic::{Request, Response, Status};

use crate::api::pages::{Range, page, pages};
use crate::api::{Api, held, types};
use crate::requests::Replies;

page!(4: v1::ListSessionsResponse, sessions: v1::Session);

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct QosService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> QosServer<QosService> {
    QosServer::new(QosService { api: api.clone() })
}

#[tonic::async_trait]
impl Qos for QosService {
    type ListSessionsStream = Replies<v1::ListSessionsResponse>;

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<Self::ListSessionsStream>, Status> {
        self.api.must_run(ProtocolId::Qos)?;
        let request = request.into_inner();
        let prefix = types::session_prefix("session_id_prefix", request.session_id_prefix)?;
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from: u32, most| {
            let mut found = Vec::new();
            let next = view.node.qos().and_then(|qos| {
                qos.walk(view.now, from, |row| {
                    let fits = types::has_end(address, [row.mri.src(), row.mri.dst()])
                        && (prefix.is_empty() || row.session.to_string().starts_with(&prefix));
                    if fits {
                        found.push(row);
                    }
                    found.len() < most
                })
            });
            let rows = found.iter().map(|row| {
                let held = row.grant.and_then(|grant| held::of_grant(view, grant));
                session(row, held)
            });
            (rows.collect(), next)
        });
        list.map(Response::new)
    }
}

/// A session with what is held for it.
fn session(session: &SessionView, held: Option<signalbox_api::v1::Reservation>) -> v1::Session {
    v1::Session {
        session_id: types::session_id(session.session),
        flow: Some(types::flow(&session.mri)),
        role: match session.role {
            Role::Initiator => v1::Role::Initiator,
            Role::Relay => v1::Role::Relay,
            Role::Responder => v1::Role::Responder,
        }
        .into(),
        state: match (session.reserved, session.confirmed) {
            (true, true) => v1::State::Confirmed,
            (true, false) => v1::State::Granted,
            (false, _) => v1::State::Signaling,
        }
        .into(),
        receiver_initiated: session.receiver_initiated,
        gaps: session.gaps,
        expires_in_us: session.expires_in.map(types::micros),
        held,
    }
}
