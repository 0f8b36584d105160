//! The service `Reservations`: the same calls for every protocol that reserves.

mod held;
mod policy;

use std::net::IpAddr;

use signalbox_api::v1;
use signalbox_api::v1::reservations_server::{Reservations, ReservationsServer};
use signalbox_api::v1::reserve_request::Request as ReserveMessage;
use signalbox_node::resources::view::ReservationView;
use tonic::{Request, Response, Status, Streaming};

use super::call::{Caller, Takeovers, answer};
use super::errors::{Reason, must_open, not_running};
use super::pages::{Portion, Range, page, pages, walked};
use super::reserver::Reserver;
use super::{Api, held as grants, types};
use crate::limits::REQUEST;
use crate::protocols::RESERVERS;
use crate::requests::Replies;
use crate::view::View;
use held::Reservation;

page!(7: v1::ListReservationsResponse, reservations: v1::Reservation);

/// Most rows of one portion: the kernel is asked for the packets of each.
const ROWS: usize = 64;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct ReservationService {
    api: Api,
    takeovers: Takeovers<Reservation>,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> ReservationsServer<ReservationService> {
    ReservationsServer::new(ReservationService { api: api.clone(), takeovers: Takeovers::default() })
        .max_decoding_message_size(REQUEST)
}

impl ReservationService {
    fn must_reserve(&self) -> Result<(), Status> {
        let reserves = self.api.facts.reserves;
        reserves.then_some(()).ok_or_else(|| not_running("a protocol that reserves"))
    }
}

/// The protocol of a request, which runs here; without one: qos.
pub(crate) fn reserver(api: &Api, protocol: i32) -> Result<&'static dyn Reserver, Status> {
    let asked = (protocol, v1::Protocol::Qos);
    api.chosen(RESERVERS, <dyn Reserver>::id, asked, ("protocol", "reserves"))
}

#[tonic::async_trait]
impl Reservations for ReservationService {
    type ReserveStream = Replies<v1::ReserveResponse>;

    async fn reserve(
        &self,
        request: Request<Streaming<v1::ReserveRequest>>,
    ) -> Result<Response<Self::ReserveStream>, Status> {
        let caller = Caller::of(request.extensions());
        let mut requests = request.into_inner();
        let Some(v1::ReserveRequest { request: Some(ReserveMessage::Open(open)) }) =
            requests.message().await?
        else {
            return Err(must_open("open"));
        };
        let reserver = reserver(&self.api, open.protocol)?;
        let (api, user) = (self.api.named(open.request_id.as_deref()), caller.user);
        let begin = async {
            let (started, standing) = reserver.open(&api, &open, user).await?;
            Ok((started, Reservation(standing)))
        };
        answer(caller, requests, &open, &self.takeovers, begin).await
    }

    async fn query(&self, request: Request<v1::QueryRequest>) -> Result<Response<v1::QueryResponse>, Status> {
        let request = request.into_inner();
        let reserver = reserver(&self.api, request.protocol)?;
        reserver.query(&self.api, request).await.map(Response::new)
    }

    type ListReservationsStream = Replies<v1::ListReservationsResponse>;

    async fn list_reservations(
        &self,
        request: Request<v1::ListReservationsRequest>,
    ) -> Result<Response<Self::ListReservationsStream>, Status> {
        self.must_reserve()?;
        let request = request.into_inner();
        let filter = Filter {
            protocols: request.protocols,
            interface: request.interface,
            address: types::address_in("address", request.address.as_deref())?,
        };
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from, most| portion(view, from, most, &filter));
        list.map(Response::new)
    }

    async fn delete_reservation(
        &self,
        request: Request<v1::DeleteReservationRequest>,
    ) -> Result<Response<v1::DeleteReservationResponse>, Status> {
        self.must_reserve()?;
        let id = request.into_inner().id;
        if self.api.handle.delete_reservation(grants::grant(&id)?).await? {
            return Ok(Response::new(v1::DeleteReservationResponse {}));
        }
        let text =
            format!("there is no reservation {id}, or it ended: ListReservations lists those that stand");
        Err(Reason::NoReservation.status(text))
    }

    async fn test_policy(
        &self,
        request: Request<v1::TestPolicyRequest>,
    ) -> Result<Response<v1::TestPolicyResponse>, Status> {
        let request = request.into_inner();
        if let Some(opening) = request.opening.as_deref() {
            let asked = policy::passage::read(opening, &request)?;
            return self
                .api
                .handle
                .query(|view| policy::passage::answer(view, asked))
                .await?
                .map(Response::new);
        }
        let reserver = reserver(&self.api, request.protocol)?;
        let asked = policy::read(reserver.owner(), &request)?;
        self.api.handle.query(|view| policy::answer(view, asked)).await?.map(Response::new)
    }
}

/// Which reservations are wanted; all conditions must hold.
struct Filter {
    /// Empty: all.
    protocols: Vec<i32>,
    interface: Option<String>,
    address: Option<IpAddr>,
}

impl Filter {
    fn fits(&self, row: &ReservationView<'_>) -> bool {
        let protocol = i32::from(types::owner(row.owner.protocol));
        (self.protocols.is_empty() || self.protocols.contains(&protocol))
            && self.interface.as_deref().is_none_or(|name| name == row.interface)
            && self.address.is_none_or(|address| {
                row.filters.iter().any(|one| one.src.contains(address) || one.dst.contains(address))
            })
    }
}

fn portion(view: &mut View<'_>, from: u32, most: usize, filter: &Filter) -> Portion<v1::Reservation, u32> {
    let (node, kernel) = (view.node, &mut *view.kernel);
    walked(most.min(ROWS), |take| {
        node.resources()
            .walk(from, |row| take(filter.fits(&row).then(|| grants::reservation(node, &row, &mut *kernel))))
    })
}

#[cfg(test)]
pub(crate) mod tests;
