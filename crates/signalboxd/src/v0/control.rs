//! The control service: calls of people and tools. What belongs to a protocol is passed on to its folder.

use signalbox_api::v0;
use signalbox_api::v0::control_server;
use signalbox_config::Config;
use signalbox_core::NslpId;
use tonic::{Request, Response, Status};

use crate::requests::{LoopHandle, Replies};
use crate::v0::convert;
use crate::v0::gist::service::GistTables;
use crate::v0::ping::service::PingService;
use crate::v0::qos::service::QosService;
use crate::v0::resources::service::ResourceService;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct Control {
    handle: LoopHandle,
    node: String,
    /// NSLPIDs of the applications inside the daemon.
    nslps: Vec<NslpId>,
    gist: GistTables,
    ping: PingService,
    qos: QosService,
    resources: ResourceService,
}

impl Control {
    /// A service that reaches the event loop through `handle`.
    pub(crate) fn new(handle: &LoopHandle, config: &Config) -> Self {
        Self {
            handle: handle.clone(),
            node: config.node.name.clone(),
            nslps: config.nslps(),
            gist: GistTables::new(handle, config),
            ping: PingService::new(handle, config),
            qos: QosService::new(handle, config),
            resources: ResourceService::new(handle, config),
        }
    }
}

#[tonic::async_trait]
impl control_server::Control for Control {
    async fn get_status(
        &self,
        _: Request<v0::GetStatusRequest>,
    ) -> Result<Response<v0::GetStatusResponse>, Status> {
        let fixed = v0::GetStatusResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node.clone(),
            pid: std::process::id(),
            nslp_ids: self.nslps.iter().map(|nslp| nslp.0.into()).collect(),
            ..v0::GetStatusResponse::default()
        };
        let status = self.handle.query(move |view| v0::GetStatusResponse {
            uptime_ms: view.now.as_micros() / 1000,
            sessions: view.node.sessions().count() as u64,
            peers: view.node.peers().count() as u64,
            nslp_ids: fixed
                .nslp_ids
                .into_iter()
                .chain(view.node.applications().map(|application| application.nslp.0.into()))
                .collect(),
            ..fixed
        });
        status.await.map(Response::new)
    }

    async fn list_counters(
        &self,
        _: Request<v0::ListCountersRequest>,
    ) -> Result<Response<v0::ListCountersResponse>, Status> {
        let counters = self.handle.query(|view| view.kernel.counters(view.node)).await?;
        let counters = counters.into_iter().map(convert::counter).collect();
        Ok(Response::new(v0::ListCountersResponse { counters }))
    }

    type ListSessionsStream = Replies<v0::Session>;

    async fn list_sessions(
        &self,
        request: Request<v0::ListSessionsRequest>,
    ) -> Result<Response<Self::ListSessionsStream>, Status> {
        self.gist.sessions(&request.into_inner()).map(Response::new)
    }

    type ListPeersStream = Replies<v0::Peer>;

    async fn list_peers(
        &self,
        _: Request<v0::ListPeersRequest>,
    ) -> Result<Response<Self::ListPeersStream>, Status> {
        self.gist.peers().map(Response::new)
    }

    type ListAssociationsStream = Replies<v0::Association>;

    async fn list_associations(
        &self,
        _: Request<v0::ListAssociationsRequest>,
    ) -> Result<Response<Self::ListAssociationsStream>, Status> {
        self.gist.associations().map(Response::new)
    }

    type PingStream = Replies<v0::PingEvent>;

    async fn ping(&self, request: Request<v0::PingRequest>) -> Result<Response<Self::PingStream>, Status> {
        self.ping.ping(request.into_inner()).await.map(Response::new)
    }

    type ReserveStream = Replies<v0::ReserveEvent>;

    async fn reserve(
        &self,
        request: Request<v0::ReserveRequest>,
    ) -> Result<Response<Self::ReserveStream>, Status> {
        self.qos.reserve(request.into_inner()).await.map(Response::new)
    }

    async fn release(
        &self,
        request: Request<v0::ReleaseRequest>,
    ) -> Result<Response<v0::ReleaseResponse>, Status> {
        self.qos.release(request.into_inner()).await.map(Response::new)
    }

    async fn query(&self, request: Request<v0::QueryRequest>) -> Result<Response<v0::QueryResponse>, Status> {
        self.qos.query(request.into_inner()).await.map(Response::new)
    }

    type ListReservationsStream = Replies<v0::Reservation>;

    async fn list_reservations(
        &self,
        _: Request<v0::ListReservationsRequest>,
    ) -> Result<Response<Self::ListReservationsStream>, Status> {
        self.qos.list().map(Response::new)
    }

    async fn list_interfaces(
        &self,
        _: Request<v0::ListInterfacesRequest>,
    ) -> Result<Response<v0::ListInterfacesResponse>, Status> {
        self.resources.interfaces().await.map(Response::new)
    }
}
