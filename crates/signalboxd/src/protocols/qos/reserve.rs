//! Reservations of clients by the QoS NSLP.

use signalbox_api::v1;
use signalbox_api::v1::reserve_response::Event;
use signalbox_core::ReserverId;
use signalbox_node::qos::{self, QosEvent, ReserveRequest};
use signalbox_node::{Command, ProtocolId};
use signalbox_show::qos as show;
use tonic::Status;

use super::{Reservations, convert};
use crate::api::Api;
use crate::api::errors::{FieldError, stopping};
use crate::api::reserver::{Reserver, Stage, Standing, change_refused, only_with};
use crate::requests::{LoopHandle, Opened};

/// The QoS NSLP.
pub(crate) struct Qos;

/// A reservation of a client.
struct Reservation {
    handle: LoopHandle,
    opened: Opened<Reservations>,
    /// What stands, or is asked for at first.
    request: ReserveRequest,
    /// Of a change, what is asked for.
    stage: Stage<ReserveRequest>,
}

#[tonic::async_trait]
impl Reserver for Qos {
    fn id(&self) -> ProtocolId {
        ProtocolId::Qos
    }

    fn owner(&self) -> ReserverId {
        ReserverId::QOS
    }

    async fn open(
        &self,
        api: &Api,
        open: &v1::ReserveOpen,
        user: Option<u32>,
    ) -> Result<(Event, Box<dyn Standing>), Status> {
        only_with("rsvp", &[("open.ip_ttl", open.ip_ttl.is_some()), ("open.protect", open.protect)])?;
        only_with(
            "casp",
            &[("open.partial", open.partial.is_some()), ("open.start_unix_us", open.start_unix_us.is_some())],
        )?;
        let mut request = convert::reserve_request(open)?;
        request.session = Some(api.sessions.of_flow(user, &purpose(&request)));
        let command = qos::Command::Reserve(Box::new(request.clone()));
        let mut opened = api.handle.open::<Reservations>(command).await?;
        let started = match opened.events.next().await.ok_or_else(stopping)?? {
            QosEvent::Started { session, mri } => v1::ReserveStarted {
                id: opened.lease.id.to_string(),
                session_id: Some(crate::api::types::session_id(session)),
                flow: Some(crate::api::types::flow(&mri)),
                taken_over: false,
            },
            QosEvent::Refused(refusal) => return Err(convert::refused(refusal)),
            other @ (QosEvent::Granted(_)
            | QosEvent::Rerouted(_)
            | QosEvent::Failed(_)
            | QosEvent::Lost(_)
            | QosEvent::Released
            | QosEvent::Answer(_)) => return Err(convert::unexpected(&other)),
        };
        let handle = api.handle.clone();
        let standing = Reservation { handle, opened, request, stage: Stage::Asked };
        Ok((Event::Started(started), Box::new(standing)))
    }

    async fn query(&self, api: &Api, query: v1::QueryRequest) -> Result<v1::QueryResponse, Status> {
        let request = convert::query_request(&query)?;
        let mut opened = api.handle.open::<Reservations>(qos::Command::Query(Box::new(request))).await?;
        while let Some(event) = opened.events.next().await {
            if let Some(answer) = convert::query_response(event?) {
                return answer;
            }
        }
        Err(stopping())
    }
}

#[tonic::async_trait]
impl Standing for Reservation {
    async fn next(&mut self) -> Result<Event, Status> {
        loop {
            let event = match self.opened.events.next().await.ok_or_else(stopping)?? {
                QosEvent::Started { .. } => continue,
                QosEvent::Granted(granted) => {
                    if let Stage::Changing(changed) = self.stage.grant() {
                        self.request = changed;
                    }
                    Event::Granted(show::path_grant(&granted, &self.request, false))
                }
                QosEvent::Rerouted(granted) => {
                    Event::Granted(show::path_grant(&granted, &self.request, true))
                }
                QosEvent::Failed(failure) if self.stage.is_granted() => {
                    self.stage.keep();
                    Event::ChangeRefused(show::failure(failure))
                }
                QosEvent::Refused(refusal) if self.stage.is_granted() => {
                    self.stage.keep();
                    change_refused(v1::Cause::Protocol, &refusal.to_string())
                }
                QosEvent::Failed(failure) => Event::Failed(show::failure(failure)),
                QosEvent::Lost(failure) => Event::Lost(show::failure(failure)),
                QosEvent::Refused(refusal) => return Err(convert::refused(refusal)),
                QosEvent::Released => {
                    // With `confirm_release` the event comes after the far end has answered, or does not answer.
                    Event::Released(v1::ReserveReleased { confirmed: self.request.confirm_release })
                }
                other @ QosEvent::Answer(_) => return Err(convert::unexpected(&other)),
            };
            return Ok(event);
        }
    }

    async fn change(&mut self, traffic: &v1::TokenBucket) -> Result<Option<Event>, Status> {
        if let Some(refusal) = self.stage.refuses_change() {
            return Ok(Some(refusal));
        }
        if self.request.bidirectional || self.request.receiver_initiated {
            let message = "a bidirectional or receiver-initiated reservation cannot be changed: make another";
            return Ok(Some(change_refused(v1::Cause::Protocol, message)));
        }
        let changed = match convert::changed(&self.request, traffic) {
            Ok(changed) => changed,
            Err(wrong) => return Err(FieldError::into(wrong)),
        };
        self.stage = Stage::Changing(changed.clone());
        self.post(qos::Command::Reserve(Box::new(changed))).await.map(|()| None)
    }

    async fn release(&mut self) -> Result<(), Status> {
        self.post(qos::Command::Release).await
    }

    async fn close(self: Box<Self>) {
        self.opened.lease.close().await;
    }
}

/// What the session of a user is for. A flow has one session for each kind of reservation, since nodes that remember a session expect
/// its RESERVEs from the same end.
fn purpose(request: &ReserveRequest) -> String {
    let flow = serde_json::to_string(&request.flow).unwrap_or_default();
    match (request.receiver_initiated, request.bidirectional) {
        (false, false) => flow,
        (true, _) => format!("{flow} by the receiver"),
        (false, true) => format!("{flow} in both directions"),
    }
}

impl Reservation {
    async fn post(&self, command: qos::Command) -> Result<(), Status> {
        self.handle.post(Command::Qos { id: self.opened.lease.id, command }).await
    }
}

#[cfg(test)]
mod tests {
    use signalbox_node::qos::{Flow, QosRequest};

    use super::*;

    #[test]
    fn each_kind_of_reservation_of_a_flow_has_a_session_of_its_own() {
        let sender_initiated = ReserveRequest::new(Flow::to([192, 0, 2, 1].into()), QosRequest::rate(1000));
        let receiver = ReserveRequest { receiver_initiated: true, ..sender_initiated.clone() };
        let both = ReserveRequest { bidirectional: true, ..sender_initiated.clone() };
        let purposes = [&sender_initiated, &receiver, &both].map(purpose);
        assert!(purposes[0] != purposes[1] && purposes[1] != purposes[2] && purposes[0] != purposes[2]);
        let larger = ReserveRequest { qos: QosRequest::rate(2000), ..receiver };
        assert_eq!(purpose(&larger), purposes[1]);
    }
}
