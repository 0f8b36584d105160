//! The service `Qos`: the sessions of the node.

use signalbox_api::qos::v1;
use signalbox_api::qos::v1::qos_server::{Qos, QosServer};
use signalbox_node::ProtocolId;
use signalbox_show::qos as show;
use tonic::{Request, Response, Status};

use crate::api::pages::{Range, page, pages, walked};
use crate::api::{Api, held, types};
use crate::limits::REQUEST;
use crate::requests::Replies;

page!(4: v1::ListSessionsResponse, sessions: v1::Session);

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct QosService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> QosServer<QosService> {
    QosServer::new(QosService { api: api.clone() }).max_decoding_message_size(REQUEST)
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
            let (found, next) = walked(most, |take| {
                view.node.qos()?.walk(view.now, from, |row| {
                    let fits = types::has_end(address, [row.mri.src(), row.mri.dst()])
                        && (prefix.is_empty() || row.session.to_string().starts_with(&prefix));
                    take(fits.then_some(row))
                })
            });
            let rows = found.iter().map(|row| {
                let held = row.grant.and_then(|grant| held::of_grant(view, grant));
                show::session(row, held)
            });
            (rows.collect(), next)
        });
        list.map(Response::new)
    }
}
