//! A protocol that reserves along the path of a flow, as the service `Reservations` sees it.

use signalbox_api::v1;
use signalbox_api::v1::reserve_response::Event;
use signalbox_core::ReserverId;
use signalbox_node::ProtocolId;
use tokio::time::Instant;
use tonic::Status;

use super::Api;
use super::errors::FieldError;

/// A protocol that reserves.
#[tonic::async_trait]
pub(crate) trait Reserver: Sync {
    /// The protocol.
    fn id(&self) -> ProtocolId;

    /// The owner of its reservations in admission control.
    fn owner(&self) -> ReserverId;

    /// Begins a reservation of a user; `None`: the kernel does not give the user. The result is the first event, `started`, and
    /// what stands from now on.
    async fn open(
        &self,
        api: &Api,
        open: &v1::ReserveOpen,
        user: Option<u32>,
    ) -> Result<(Event, Box<dyn Standing>), Status>;

    /// Asks what a path could give.
    async fn query(&self, api: &Api, query: v1::QueryRequest) -> Result<v1::QueryResponse, Status>;
}

/// A reservation that was begun. It is torn down when this is dropped.
#[tonic::async_trait]
pub(crate) trait Standing: Send {
    /// What happens next. It may be called again if it was given up.
    async fn next(&mut self) -> Result<Event, Status>;

    /// Changes it. The result is an event if the answer is known at once.
    async fn change(&mut self, traffic: &v1::TokenBucket) -> Result<Option<Event>, Status>;

    /// Tears it down. The event `released` follows.
    async fn release(&mut self) -> Result<(), Status>;

    /// Tears it down, and waits until the event loop has taken the request.
    async fn close(self: Box<Self>);
}

/// How far a reservation is. `C` is what is kept of a change.
pub(crate) enum Stage<C = ()> {
    /// The path has not answered the request.
    Asked,
    Granted,
    /// The path has granted it, and has not answered a change yet.
    Changing(C),
}

impl<C> Stage<C> {
    /// Whether the path has granted it.
    pub(crate) const fn is_granted(&self) -> bool {
        !matches!(self, Self::Asked)
    }

    /// The path grants it, or its change. The result is the stage before.
    pub(crate) const fn grant(&mut self) -> Self {
        std::mem::replace(self, Self::Granted)
    }

    /// A change is not granted: what stood before stands.
    pub(crate) fn keep(&mut self) {
        if self.is_granted() {
            *self = Self::Granted;
        }
    }

    /// The refusal of a change as long as the path has not answered.
    pub(crate) fn refuses_change(&self) -> Option<Event> {
        let message = "the path has not answered the last request yet: wait for its event";
        (!matches!(self, Self::Granted)).then(|| change_refused(v1::Cause::Conflict, message))
    }
}

/// Waits until a time; without one, for ever.
pub(crate) async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// A change that was not granted, with a cause that this node found.
pub(crate) fn change_refused(cause: v1::Cause, message: &str) -> Event {
    Event::ChangeRefused(v1::Failure {
        cause: cause.into(),
        message: message.to_owned(),
        ..v1::Failure::default()
    })
}

/// Refuses fields of a request that only another protocol has.
pub(crate) fn only_with(protocol: &str, fields: &[(&str, bool)]) -> Result<(), FieldError> {
    match fields.iter().find(|(_, given)| *given) {
        Some((field, _)) => Err(FieldError::new(*field, format_args!("with {protocol} only: leave it out"))),
        None => Ok(()),
    }
}
