//! The service `Casp`.

use signalbox_api::casp::v1;
use signalbox_api::casp::v1::casp_server::{Casp, CaspServer};
use signalbox_api::ping::v1::{PingRequest, PingResponse};
use signalbox_node::ProtocolId;
use signalbox_node::casp::Command;
use signalbox_show::casp as show;
use tonic::{Request, Response, Status, Streaming};

use super::client::Clients;
use super::{Pings, convert};
use crate::api::pages::{Range, page, pages, walked};
use crate::api::{Api, types};
use crate::limits::APPLICATION_REQUEST;
use crate::protocols::applications;
use crate::requests::Replies;

page!(10: v1::ListSessionsResponse, sessions: v1::Session);
page!(11: v1::ListPeersResponse, peers: v1::Peer);

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct CaspService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> CaspServer<CaspService> {
    CaspServer::new(CaspService { api: api.clone() }).max_decoding_message_size(APPLICATION_REQUEST)
}

#[tonic::async_trait]
impl Casp for CaspService {
    type PingStream = Replies<PingResponse>;

    /// Starts probes, which stop when the stream of their events is dropped.
    async fn ping(&self, request: Request<PingRequest>) -> Result<Response<Self::PingStream>, Status> {
        self.api.must_run(ProtocolId::Casp)?;
        let request = convert::request(request.get_ref())?;
        let start_us =
            self.api.handle.query(|view| types::unix_us().saturating_sub(view.now.as_micros())).await?;
        let opened = self.api.handle.open::<Pings>(Command::Ping(request)).await?;
        Ok(Response::new(opened.replies(move |event| convert::response(event, start_us))))
    }

    type ClientStream = Replies<v1::ClientResponse>;

    async fn client(
        &self,
        requests: Request<Streaming<v1::ClientRequest>>,
    ) -> Result<Response<Self::ClientStream>, Status> {
        self.api.must_run(ProtocolId::Casp)?;
        applications::call::serve::<Clients>(&self.api, requests.into_inner()).await.map(Response::new)
    }

    type ListSessionsStream = Replies<v1::ListSessionsResponse>;

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<Self::ListSessionsStream>, Status> {
        self.api.must_run(ProtocolId::Casp)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from: u32, most| {
            walked(most, |take| {
                view.node.casp()?.walk(from, |row| {
                    let fits = types::has_end(address, [row.flow.src(), row.flow.dst()]);
                    take(fits.then(|| show::session(&row, view.now)))
                })
            })
        });
        list.map(Response::new)
    }

    type ListPeersStream = Replies<v1::ListPeersResponse>;

    async fn list_peers(
        &self,
        request: Request<v1::ListPeersRequest>,
    ) -> Result<Response<Self::ListPeersStream>, Status> {
        self.api.must_run(ProtocolId::Casp)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from: u32, most| {
            walked(most, |take| {
                view.node.casp()?.walk_peers(from, |row| {
                    let fits = address.is_none_or(|address| row.address == address);
                    take(fits.then(|| show::peer(&row, view.now)))
                })
            })
        });
        list.map(Response::new)
    }
}
