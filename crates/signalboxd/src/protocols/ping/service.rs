//! The service `Ping`.

use signalbox_api::ping::v1;
use signalbox_api::ping::v1::ping_server::{Ping, PingServer};
use signalbox_node::ProtocolId;
use signalbox_node::ping::Command;
use tonic::{Request, Response, Status};

use super::{Pings, convert};
use crate::api::Api;
use crate::limits::REQUEST;
use crate::requests::Replies;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct PingService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> PingServer<PingService> {
    PingServer::new(PingService { api: api.clone() }).max_decoding_message_size(REQUEST)
}

#[tonic::async_trait]
impl Ping for PingService {
    type PingStream = Replies<v1::PingResponse>;

    /// Starts a ping, which stops when the stream of its events is dropped.
    async fn ping(&self, request: Request<v1::PingRequest>) -> Result<Response<Self::PingStream>, Status> {
        self.api.must_run(ProtocolId::Ping)?;
        let request = convert::request(request.get_ref())?;
        let opened = self.api.handle.open::<Pings>(Command::Start(request)).await?;
        Ok(Response::new(opened.replies(convert::response)))
    }
}

#[cfg(test)]
mod tests;
