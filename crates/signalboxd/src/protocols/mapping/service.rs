//! The service `Mappings`: who has which port by PCP and NAT-PMP.

use std::net::SocketAddr;

use signalbox_api::mapping::v1;
use signalbox_api::mapping::v1::mappings_server::{Mappings, MappingsServer};
use signalbox_api::v1::Endpoint;
use signalbox_node::ProtocolId;
use signalbox_node::mapping::{Command, Event, Inside, MappingView, State};
use tonic::{Request, Response, Status};

use super::Orders;
use crate::api::errors::{FieldError, Reason};
use crate::api::pages::{Range, page, pages, walked};
use crate::api::{Api, types};
use crate::limits::REQUEST;
use crate::requests::{Opened, Replies};
use crate::view::View;

page!(15: v1::ListMappingsResponse, mappings: v1::Mapping);

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct MappingService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> MappingsServer<MappingService> {
    MappingsServer::new(MappingService { api: api.clone() }).max_decoding_message_size(REQUEST)
}

#[tonic::async_trait]
impl Mappings for MappingService {
    type ListMappingsStream = Replies<v1::ListMappingsResponse>;

    async fn list_mappings(
        &self,
        request: Request<v1::ListMappingsRequest>,
    ) -> Result<Response<Self::ListMappingsStream>, Status> {
        self.api.must_run(ProtocolId::Mapping)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view: &mut View<'_>, from: u32, most| {
            walked(most, |take| {
                view.node.mapping()?.walk(from, |row| {
                    let is = |place: SocketAddr| address == Some(place.ip());
                    let fits = address.is_none()
                        || address == Some(row.inside.client)
                        || row.outside.is_some_and(is);
                    take(fits.then(|| mapping(view, &row)))
                })
            })
        });
        list.map(Response::new)
    }

    async fn delete_mapping(
        &self,
        request: Request<v1::DeleteMappingRequest>,
    ) -> Result<Response<v1::DeleteMappingResponse>, Status> {
        self.api.must_run(ProtocolId::Mapping)?;
        let v1::DeleteMappingRequest { inside, ip_protocol } = request.into_inner();
        let inside = inside.ok_or_else(|| FieldError::new("inside", "missing"))?;
        let inside = Inside {
            client: types::address("inside.address", &inside.address)?,
            protocol: types::number("ip_protocol", ip_protocol, 0, 255)?,
            port: types::number("inside.port", inside.port.unwrap_or(0), 0, 65_535)?,
        };
        let Opened { lease, mut events } = self.api.handle.open::<Orders>(Command::Clear(inside)).await?;
        let answer = events.waiting();
        lease.close().await;
        match answer {
            Some(Event::Cleared) => Ok(Response::new(v1::DeleteMappingResponse {})),
            Some(Event::Unknown) => {
                let text = "the host has no such mapping: `signalbox show mappings` lists those that stand";
                Err(Reason::NoMapping.status(text))
            }
            None => Err(Reason::Internal.status("the node has not answered")),
        }
    }
}

fn endpoint(place: SocketAddr) -> Endpoint {
    Endpoint { address: place.ip().to_string(), port: Some(place.port().into()) }
}

fn mapping(view: &View<'_>, row: &MappingView<'_>) -> v1::Mapping {
    let now = view.now;
    let session = view.node.natfw().and_then(|natfw| natfw.session_of_host(row.id.0));
    let state = match row.state {
        State::Asking => v1::MappingState::Asking,
        State::Standing => v1::MappingState::Open,
        State::Repairing => v1::MappingState::Repairing,
    };
    let asking = if row.by_pcp { v1::Asking::Pcp } else { v1::Asking::NatPmp };
    v1::Mapping {
        inside: Some(endpoint(SocketAddr::new(row.inside.client, row.inside.port))),
        ip_protocol: row.inside.protocol.into(),
        asking: asking.into(),
        state: state.into(),
        outside: row.outside.map(endpoint),
        expires_in_us: row.ends.map(|ends| types::micros(ends.since(now))),
        description: row.description.map(str::to_owned),
        filters: u32::try_from(row.filters).unwrap_or(u32::MAX),
        session_id: session.map(|session| session.0.to_vec()),
    }
}
