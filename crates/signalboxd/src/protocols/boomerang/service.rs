//! The service `Boomerang`: the reservations of the node on the path.

use signalbox_api::boomerang::v1;
use signalbox_api::boomerang::v1::boomerang_server::{Boomerang, BoomerangServer};
use signalbox_core::Time;
use signalbox_core::node::Interface;
use signalbox_node::ProtocolId;
use signalbox_node::boomerang::{FlowView, GuessView, Pass};
use tonic::{Request, Response, Status};

use crate::api::pages::{Range, page, pages, walked};
use crate::api::{Api, held, types};
use crate::limits::REQUEST;
use crate::requests::Replies;

page!(9: v1::ListFlowsResponse, flows: v1::Flow);
page!(14: v1::ListGuessesResponse, guesses: v1::Guesses);

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct BoomerangService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> BoomerangServer<BoomerangService> {
    BoomerangServer::new(BoomerangService { api: api.clone() }).max_decoding_message_size(REQUEST)
}

#[tonic::async_trait]
impl Boomerang for BoomerangService {
    type ListFlowsStream = Replies<v1::ListFlowsResponse>;
    type ListGuessesStream = Replies<v1::ListGuessesResponse>;

    async fn list_flows(
        &self,
        request: Request<v1::ListFlowsRequest>,
    ) -> Result<Response<Self::ListFlowsStream>, Status> {
        self.api.must_run(ProtocolId::Boomerang)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from: u32, most| {
            let (found, next) = walked(most, |take| {
                view.node.boomerang()?.walk(from, |row| {
                    let fits = types::has_end(address, [row.filter.src.addr, row.filter.dst.addr]);
                    take(fits.then_some(row))
                })
            });
            let now = view.now;
            let rows = found.iter().map(|row| {
                let held = held::of_grant(view, row.grant);
                v1::Flow {
                    expires_in_us: row.expires.map(|at| types::micros(at.since(now))),
                    ..flow(row, held)
                }
            });
            (rows.collect(), next)
        });
        list.map(Response::new)
    }

    async fn list_guesses(
        &self,
        request: Request<v1::ListGuessesRequest>,
    ) -> Result<Response<Self::ListGuessesStream>, Status> {
        self.api.must_run(ProtocolId::Boomerang)?;
        let request = request.into_inner();
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, |view, from: u32, most| {
            let Some(boomerang) = view.node.boomerang() else { return (Vec::new(), None) };
            // In the order of the interfaces' numbers.
            let seen = boomerang.guesses().filter(|seen| seen.ifindex.0 >= from);
            let seen: Vec<_> = seen.take(most).collect();
            let next = seen.last().filter(|_| seen.len() == most).map(|last| last.ifindex.0 + 1);
            let interfaces = view.kernel.interfaces();
            (seen.iter().map(|seen| guesses(seen, view.now, interfaces)).collect(), next)
        });
        list.map(Response::new)
    }
}

fn guesses(seen: &GuessView, now: Time, interfaces: &[Interface]) -> v1::Guesses {
    v1::Guesses {
        interface: types::interface(interfaces, seen.ifindex),
        wrong: seen.wrong,
        limited: seen.limited,
        since_us: types::micros(now.since(seen.since)),
        last_us: types::micros(now.since(seen.last)),
        source: seen.source.to_string(),
        attack: seen.is_attack(),
    }
}

/// A reservation without the time that is left to it.
fn flow(row: &FlowView, held: Option<signalbox_api::v1::Reservation>) -> v1::Flow {
    let pass = match row.pass {
        Pass::Request => v1::Pass::Request,
        Pass::Reply => v1::Pass::Reply,
    };
    v1::Flow {
        flow: Some(types::filter(&row.filter)),
        pass: pass.into(),
        initiator: row.initiator.to_string(),
        refresh_us: u64::from(row.refresh) * 1_000_000,
        proved: row.proved,
        expires_in_us: None,
        held,
        aggregate: row.aggregate.map(|one| v1::Aggregate {
            proposer: one.proposer.to_string(),
            number: one.number,
            adopted: one.adopted,
        }),
    }
}
