//! The service `Gist`: the tables, and the call of a signaling application.

use std::net::IpAddr;

use signalbox_api::gist::v1;
use signalbox_api::gist::v1::gist_server::{Gist, GistServer};
use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Pinhole;
use signalbox_linux::pinhole::PinholeView;
use signalbox_node::ProtocolId;
use signalbox_node::gist::SessionView;
use signalbox_show::gist as show;
use tonic::{Request, Response, Status, Streaming};

use crate::api::pages::{Portion, Range, page, pages, walked};
use crate::api::{Api, types};
use crate::limits::APPLICATION_REQUEST;
use crate::protocols::applications;
use crate::requests::Replies;
use crate::view::View;

page!(1: v1::ListSessionsResponse, sessions: v1::Session);
page!(2: v1::ListPeersResponse, peers: v1::Peer);
page!(3: v1::ListAssociationsResponse, associations: v1::Association);
page!(12: v1::ListBindingsResponse, bindings: v1::Binding);

/// Most bindings of one portion: the kernel is asked for the packets of each.
const BINDINGS: usize = 64;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct GistService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> GistServer<GistService> {
    GistServer::new(GistService { api: api.clone() }).max_decoding_message_size(APPLICATION_REQUEST)
}

#[tonic::async_trait]
impl Gist for GistService {
    type ApplicationStream = Replies<v1::ApplicationResponse>;

    async fn application(
        &self,
        requests: Request<Streaming<v1::ApplicationRequest>>,
    ) -> Result<Response<Self::ApplicationStream>, Status> {
        self.api.must_run(ProtocolId::Gist)?;
        applications::call::serve::<applications::Gist>(&self.api, requests.into_inner())
            .await
            .map(Response::new)
    }

    type ListSessionsStream = Replies<v1::ListSessionsResponse>;

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<Self::ListSessionsStream>, Status> {
        self.api.must_run(ProtocolId::Gist)?;
        let request = request.into_inner();
        let filter = SessionFilter {
            prefix: types::session_prefix("session_id_prefix", request.session_id_prefix)?,
            nslp: types::number_in("nslp_id", request.nslp_id, 0, 0xffff)?,
            address: types::address_in("address", request.address.as_deref())?,
        };
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from: u32, most| {
            walked(most, |take| {
                view.node.gist()?.walk_sessions(from, |row| {
                    let fits = filter.fits(&row);
                    take(fits.then(|| show::session(&row, view.kernel.interfaces())))
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
        self.api.must_run(ProtocolId::Gist)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from: u32, most| {
            walked(most, |take| {
                view.node.gist()?.walk_peers(from, |row| {
                    let fits = address.is_none_or(|address| row.address.ip() == address);
                    take(fits.then(|| show::peer(&row, view.kernel.interfaces())))
                })
            })
        });
        list.map(Response::new)
    }

    type ListAssociationsStream = Replies<v1::ListAssociationsResponse>;

    async fn list_associations(
        &self,
        request: Request<v1::ListAssociationsRequest>,
    ) -> Result<Response<Self::ListAssociationsStream>, Status> {
        self.api.must_run(ProtocolId::Gist)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from: u32, most| {
            walked(most, |take| {
                view.node.gist()?.walk_associations(from, |row| {
                    let fits = address.is_none_or(|address| row.address == address);
                    take(fits.then(|| show::association(&row)))
                })
            })
        });
        list.map(Response::new)
    }

    type ListBindingsStream = Replies<v1::ListBindingsResponse>;

    async fn list_bindings(
        &self,
        request: Request<v1::ListBindingsRequest>,
    ) -> Result<Response<Self::ListBindingsStream>, Status> {
        self.api.must_run(ProtocolId::GistNat)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list =
            pages(&self.api.handle, range, move |view, from, most| bindings(view, from, most, address));
        list.map(Response::new)
    }
}

/// A portion of the bindings, with the packets that the kernel counted.
fn bindings(
    view: &mut View<'_>,
    from: u32,
    most: usize,
    address: Option<IpAddr>,
) -> Portion<v1::Binding, u32> {
    let (found, next) = walked(most.min(BINDINGS), |take| {
        view.node.gist_nat()?.bindings(from, |binding| {
            let Pinhole { packets, source, destination, .. } = &binding.pinhole;
            let translated = [source, destination].map(|end| end.map(|end| end.address));
            let fits = address.is_none_or(|address| {
                [packets.src, packets.dst].contains(&Prefix::host(address))
                    || translated.contains(&Some(address))
            });
            take(fits.then_some(binding))
        })
    });
    let ids: Vec<_> = found.iter().map(|binding| binding.id).collect();
    let seen = view.kernel.pinholes().map(|pinholes| pinholes.read(&ids)).unwrap_or_default();
    let seen = seen.into_iter().chain(core::iter::repeat(None));
    let row = |(binding, seen): (&_, Option<PinholeView>)| {
        show::binding(binding, seen.map(|seen| (seen.packets, seen.octets)))
    };
    (found.iter().zip(seen).map(row).collect(), next)
}

/// Which sessions are wanted; all conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionFilter {
    /// First hexadecimal digits of the identifier, in lower case.
    prefix: String,
    /// Signaling application.
    nslp: Option<u16>,
    /// Source or destination of the flow.
    address: Option<IpAddr>,
}

impl SessionFilter {
    fn fits(&self, row: &SessionView<'_>) -> bool {
        self.nslp.is_none_or(|nslp| row.nslp.0 == nslp)
            && types::has_end(self.address, [row.mri.src(), row.mri.dst()])
            && (self.prefix.is_empty() || row.session.to_string().starts_with(&self.prefix))
    }
}
