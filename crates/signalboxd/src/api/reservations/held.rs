//! A reservation, as its call holds it.

use signalbox_api::v1;
use signalbox_api::v1::reserve_request::Request as ReserveMessage;
use signalbox_api::v1::reserve_response::Event;
use tonic::Status;

use crate::api::call::{Held, Meaning};
use crate::api::errors::already_open;
use crate::api::reserver::Standing;
use crate::api::types::unix_us;

/// A reservation, as its call holds it.
pub(super) struct Reservation(pub(super) Box<dyn Standing>);

#[tonic::async_trait]
impl Held for Reservation {
    const NAME: &'static str = "reservation";
    type Open = v1::ReserveOpen;
    type Request = v1::ReserveRequest;
    type Response = v1::ReserveResponse;
    type Event = Event;

    fn request_id(open: &v1::ReserveOpen) -> Option<&[u8]> {
        open.request_id.as_deref()
    }

    /// The traffic may be another one.
    fn change(former: &v1::ReserveOpen, open: &v1::ReserveOpen) -> Result<Option<v1::ReserveRequest>, ()> {
        if (v1::ReserveOpen { traffic: open.traffic, ..former.clone() }) != *open {
            return Err(());
        }
        let traffic = Some(open.traffic.unwrap_or_default());
        let change = ReserveMessage::Change(v1::ReserveChange { traffic });
        Ok((former.traffic != open.traffic).then_some(v1::ReserveRequest { request: Some(change) }))
    }

    fn taken_over(started: Event) -> Event {
        match started {
            Event::Started(start) => Event::Started(v1::ReserveStarted { taken_over: true, ..start }),
            event @ (Event::Granted(_)
            | Event::Failed(_)
            | Event::Lost(_)
            | Event::ChangeRefused(_)
            | Event::Interrupted(_)
            | Event::Released(_)
            | Event::Retrying(_)) => event,
        }
    }

    fn meaning(event: &Event) -> Meaning {
        match event {
            Event::Failed(_) | Event::Lost(_) | Event::Released(_) => Meaning::Last,
            Event::ChangeRefused(_) => Meaning::Answer,
            Event::Started(_) | Event::Granted(_) | Event::Interrupted(_) | Event::Retrying(_) => {
                Meaning::State
            }
        }
    }

    fn response(event: Event) -> v1::ReserveResponse {
        v1::ReserveResponse { time_unix_us: unix_us(), event: Some(event) }
    }

    async fn next(&mut self) -> Result<Event, Status> {
        self.0.next().await
    }

    async fn ask(&mut self, request: v1::ReserveRequest) -> Result<Option<Event>, Status> {
        match request.request {
            // A request of a client that is newer than this daemon.
            None => Ok(None),
            Some(ReserveMessage::Open(_)) => Err(already_open("open")),
            Some(ReserveMessage::Release(_)) => self.0.release().await.map(|()| None),
            Some(ReserveMessage::Change(change)) => self.0.change(&change.traffic.unwrap_or_default()).await,
        }
    }

    async fn close(self) {
        self.0.close().await;
    }
}
