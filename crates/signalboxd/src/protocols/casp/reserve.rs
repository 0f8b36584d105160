//! Reservations of clients by CASP.

use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::query_response::Answer;
use signalbox_api::v1::reserve_response::Event;
use signalbox_core::ReserverId;
use signalbox_node::casp::{Command as CaspCommand, ReservationEvent};
use signalbox_node::{Command, ProtocolId};
use signalbox_show::casp as show;
use tokio::time::Instant;
use tonic::Status;

use super::{Reservations, convert};
use crate::api::Api;
use crate::api::errors::stopping;
use crate::api::reserver::{Reserver, Stage, Standing, change_refused, reached};
use crate::api::types;
use crate::requests::{LoopHandle, Opened};

/// The QoS client of CASP.
pub(crate) struct Casp;

/// A reservation of a client.
struct Reservation {
    handle: LoopHandle,
    opened: Opened<Reservations>,
    /// An event that came before the call was answered.
    first: Option<ReservationEvent>,
    stage: Stage,
    /// When it ends by itself.
    ends: Option<Instant>,
}

#[tonic::async_trait]
impl Reserver for Casp {
    fn id(&self) -> ProtocolId {
        ProtocolId::Casp
    }

    fn owner(&self) -> ReserverId {
        ReserverId::CASP
    }

    async fn open(
        &self,
        api: &Api,
        open: &v1::ReserveOpen,
        user: Option<u32>,
    ) -> Result<(Event, Box<dyn Standing>), Status> {
        let mut request = convert::reserve_request(open)?;
        request.session = Some(api.sessions.of_flow(user, &convert::name(&request)));
        let command = CaspCommand::Reserve(Box::new(request));
        let mut opened = api.handle.open::<Reservations>(command).await?;
        let mut first = None;
        let started = match opened.events.next().await.ok_or_else(stopping)?? {
            ReservationEvent::Started { session, flow } => v1::ReserveStarted {
                id: opened.lease.id.to_string(),
                session_id: Some(types::session_id(session)),
                flow: Some(types::filter(&flow.filter())),
                taken_over: false,
            },
            ReservationEvent::Refused(refusal) => return Err(convert::reserve_refused(refusal)),
            // This node itself refused: there is no session.
            failed @ ReservationEvent::Failed(_) => {
                first = Some(failed);
                v1::ReserveStarted {
                    id: opened.lease.id.to_string(),
                    session_id: None,
                    flow: open.flow.clone(),
                    taken_over: false,
                }
            }
            other @ (ReservationEvent::Granted(_)
            | ReservationEvent::Available(_)
            | ReservationEvent::Lost(_)
            | ReservationEvent::Released { .. }) => return Err(convert::unexpected(&other)),
        };
        // The nodes end a reservation in advance by themselves.
        let hold = open.hold_us.filter(|_| open.start_unix_us.is_none());
        let ends = hold.map(|hold| Instant::now() + Duration::from_micros(hold));
        let handle = api.handle.clone();
        let standing = Reservation { handle, opened, first, stage: Stage::Asked, ends };
        Ok((Event::Started(started), Box::new(standing)))
    }

    async fn query(&self, api: &Api, query: v1::QueryRequest) -> Result<v1::QueryResponse, Status> {
        let request = Box::new(convert::query_request(&query)?);
        let mut opened = api.handle.open::<Reservations>(CaspCommand::Query(request)).await?;
        loop {
            let answer = match opened.events.next().await.ok_or_else(stopping)?? {
                ReservationEvent::Started { .. } => continue,
                ReservationEvent::Available(available) => {
                    Answer::Available(show::path_grant(available.amount.as_ref(), &available.path, false))
                }
                ReservationEvent::Failed(failure) | ReservationEvent::Lost(failure) => {
                    Answer::Failed(show::failure(failure))
                }
                ReservationEvent::Refused(refusal) => return Err(convert::reserve_refused(refusal)),
                other @ (ReservationEvent::Granted(_) | ReservationEvent::Released { .. }) => {
                    return Err(convert::unexpected(&other));
                }
            };
            return Ok(v1::QueryResponse { answer: Some(answer) });
        }
    }
}

impl Reservation {
    fn event(&mut self, event: ReservationEvent) -> Result<Option<Event>, Status> {
        Ok(Some(match event {
            ReservationEvent::Started { .. } => return Ok(None),
            ReservationEvent::Granted(granted) => {
                let asked = !matches!(self.stage.grant(), Stage::Granted);
                Event::Granted(show::path_grant(Some(&granted.amount), &granted.path, !asked))
            }
            ReservationEvent::Failed(failure) if self.stage.is_granted() => {
                self.stage.keep();
                Event::ChangeRefused(show::failure(failure))
            }
            ReservationEvent::Failed(failure) => Event::Failed(show::failure(failure)),
            ReservationEvent::Refused(refusal) if self.stage.is_granted() => {
                self.stage.keep();
                change_refused(v1::Cause::Protocol, &refusal.to_string())
            }
            ReservationEvent::Refused(refusal) => return Err(convert::reserve_refused(refusal)),
            ReservationEvent::Lost(failure) => Event::Lost(show::failure(failure)),
            ReservationEvent::Released { confirmed } => Event::Released(v1::ReserveReleased { confirmed }),
            other @ ReservationEvent::Available(_) => return Err(convert::unexpected(&other)),
        }))
    }

    async fn post(&self, command: CaspCommand) -> Result<(), Status> {
        self.handle.post(Command::Casp { id: self.opened.lease.id, command }).await
    }
}

#[tonic::async_trait]
impl Standing for Reservation {
    async fn next(&mut self) -> Result<Event, Status> {
        if let Some(first) = self.first.take().and_then(|first| self.event(first).transpose()) {
            return first;
        }
        loop {
            let event = tokio::select! {
                event = self.opened.events.next() => event.ok_or_else(stopping)??,
                () = reached(self.ends) => {
                    self.release().await?;
                    continue;
                }
            };
            if let Some(event) = self.event(event)? {
                return Ok(event);
            }
        }
    }

    async fn change(&mut self, traffic: &v1::TokenBucket) -> Result<Option<Event>, Status> {
        if let Some(refusal) = self.stage.refuses_change() {
            return Ok(Some(refusal));
        }
        let wanted = convert::wanted("change.traffic", Some(traffic), None)?;
        self.stage = Stage::Changing(());
        self.post(CaspCommand::Change(wanted)).await.map(|()| None)
    }

    async fn release(&mut self) -> Result<(), Status> {
        self.ends = None;
        self.post(CaspCommand::Close).await
    }

    async fn close(self: Box<Self>) {
        self.opened.lease.close().await;
    }
}
