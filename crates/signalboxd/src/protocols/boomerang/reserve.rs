//! Reservations of clients by Boomerang.

use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::query_response::Answer;
use signalbox_api::v1::reserve_response::Event;
use signalbox_api::v1::service::Service as ApiService;
use signalbox_core::ReserverId;
use signalbox_node::boomerang::{BoomerangEvent, Command as BoomerangCommand};
use signalbox_node::{Command, ProtocolId};
use signalbox_show::types;
use tokio::time::Instant;
use tonic::Status;

use super::{Reservations, convert};
use crate::api::Api;
use crate::api::errors::stopping;
use crate::api::reserver::{Reserver, Stage, Standing, change_refused, reached};
use crate::requests::{LoopHandle, Opened};

/// Boomerang.
pub(crate) struct Boomerang;

/// A reservation of a client.
struct Reservation {
    handle: LoopHandle,
    opened: Opened<Reservations>,
    /// An event that came before the call was answered.
    first: Option<BoomerangEvent>,
    bidirectional: bool,
    /// Its packets go to a group.
    to_group: bool,
    service: ApiService,
    stage: Stage,
    /// When it ends by itself.
    ends: Option<Instant>,
}

#[tonic::async_trait]
impl Reserver for Boomerang {
    fn id(&self) -> ProtocolId {
        ProtocolId::Boomerang
    }

    fn owner(&self) -> ReserverId {
        ReserverId::BOOMERANG
    }

    async fn open(
        &self,
        api: &Api,
        open: &v1::ReserveOpen,
        _user: Option<u32>,
    ) -> Result<(Event, Box<dyn Standing>), Status> {
        let request = convert::request(open)?;
        let (service, to_group) = (convert::service(&request), request.far_end.is_multicast());
        let mut opened = api.handle.open::<Reservations>(BoomerangCommand::Open(request)).await?;
        // What the node rejects at once is the first event; a short loop has its answer by now.
        let first = opened.events.waiting();
        if let Some(BoomerangEvent::Rejected(why)) = first {
            return Err(convert::rejected(why));
        }
        let started = v1::ReserveStarted {
            id: opened.lease.id.to_string(),
            session_id: None,
            flow: open.flow.clone(),
            taken_over: false,
        };
        let handle = api.handle.clone();
        let standing = Reservation {
            handle,
            opened,
            first,
            bidirectional: open.bidirectional,
            to_group,
            service,
            stage: Stage::Asked,
            ends: open.hold_us.map(|hold| Instant::now() + Duration::from_micros(hold)),
        };
        Ok((Event::Started(started), Box::new(standing)))
    }

    async fn query(&self, api: &Api, query: v1::QueryRequest) -> Result<v1::QueryResponse, Status> {
        let request = convert::query(&query)?;
        let service = convert::service(&request);
        let mut opened = api.handle.open::<Reservations>(BoomerangCommand::Query(request)).await?;
        let answer = match opened.events.next().await.ok_or_else(stopping)?? {
            BoomerangEvent::Available(rates) => {
                Answer::Available(convert::path_grant(rates, service, false, true))
            }
            BoomerangEvent::Unanswered => Answer::Failed(convert::silence(v1::Cause::NoAnswer)),
            BoomerangEvent::Unreachable(report) => Answer::Failed(convert::unreachable(report)),
            BoomerangEvent::Refused(refusal) | BoomerangEvent::ChangeRefused(refusal) => {
                Answer::Failed(convert::failure(&refusal))
            }
            BoomerangEvent::Rejected(why) => return Err(convert::rejected(why)),
            BoomerangEvent::Reserved { .. } | BoomerangEvent::Closed { .. } => return Err(stopping()),
        };
        Ok(v1::QueryResponse { answer: Some(answer) })
    }
}

impl Reservation {
    fn event(&mut self, event: BoomerangEvent) -> Result<Event, Status> {
        Ok(match event {
            BoomerangEvent::Reserved { rates, path, .. } => {
                let asked = !matches!(self.stage.grant(), Stage::Granted);
                Event::Granted(v1::PathGrant {
                    hops: path.hops.iter().map(types::hop).collect(),
                    gaps: path.gaps,
                    ..convert::path_grant(rates, self.service, !asked, !self.to_group)
                })
            }
            BoomerangEvent::Refused(refusal) if self.stage.is_granted() => {
                Event::Lost(convert::failure(&refusal))
            }
            BoomerangEvent::Refused(refusal) => Event::Failed(convert::failure(&refusal)),
            BoomerangEvent::ChangeRefused(refusal) => {
                self.stage.keep();
                Event::ChangeRefused(convert::failure(&refusal))
            }
            BoomerangEvent::Unanswered if self.stage.is_granted() => {
                Event::Lost(convert::silence(v1::Cause::Expired))
            }
            BoomerangEvent::Unanswered => Event::Failed(convert::silence(v1::Cause::NoAnswer)),
            // The path was lost after it had granted.
            BoomerangEvent::Unreachable(report) if self.stage.is_granted() => {
                let cause = v1::Cause::Expired.into();
                Event::Lost(v1::Failure { cause, ..convert::unreachable(report) })
            }
            BoomerangEvent::Unreachable(report) => Event::Failed(convert::unreachable(report)),
            BoomerangEvent::Rejected(why) if self.stage.is_granted() => {
                self.stage.keep();
                change_refused(v1::Cause::Protocol, &why.to_string())
            }
            BoomerangEvent::Rejected(why) => return Err(convert::rejected(why)),
            BoomerangEvent::Closed { confirmed } => Event::Released(v1::ReserveReleased { confirmed }),
            // A reservation asks for no answer of a query.
            BoomerangEvent::Available(_) => Event::Released(v1::ReserveReleased { confirmed: false }),
        })
    }

    async fn post(&self, command: BoomerangCommand) -> Result<(), Status> {
        self.handle.post(Command::Boomerang { id: self.opened.lease.id, command }).await
    }
}

#[tonic::async_trait]
impl Standing for Reservation {
    async fn next(&mut self) -> Result<Event, Status> {
        if let Some(first) = self.first.take() {
            return self.event(first);
        }
        loop {
            let event = tokio::select! {
                event = self.opened.events.next() => event.ok_or_else(stopping)??,
                () = reached(self.ends) => {
                    self.release().await?;
                    continue;
                }
            };
            return self.event(event);
        }
    }

    async fn change(&mut self, traffic: &v1::TokenBucket) -> Result<Option<Event>, Status> {
        if let Some(refusal) = self.stage.refuses_change() {
            return Ok(Some(refusal));
        }
        let rate = match self.service {
            ApiService::Dscp(_) => convert::rate("change.traffic", Some(traffic))?,
            // The other parameters stay.
            ApiService::ControlledLoad(_) | ApiService::Guaranteed(_) => {
                convert::token_rate("change.traffic", Some(traffic))?
            }
        };
        self.stage = Stage::Changing(());
        let rates = convert::pair(rate, self.bidirectional);
        self.post(BoomerangCommand::Change(rates)).await.map(|()| None)
    }

    async fn release(&mut self) -> Result<(), Status> {
        self.ends = None;
        self.post(BoomerangCommand::Close).await
    }

    async fn close(self: Box<Self>) {
        self.opened.lease.close().await;
    }
}
