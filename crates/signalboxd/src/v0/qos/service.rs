//! Reservations over the control socket.

use signalbox_api::v0;
use signalbox_config::Config;
use signalbox_node::Command;
use signalbox_node::qos::{self, SessionView};
use tonic::Status;

use super::convert;
use crate::api::errors::stopping;
use crate::protocols::qos::Reservations;
use crate::requests::{LoopHandle, Replies, must_run};
use crate::v0::resources;
use crate::view::{View, portion};

/// The calls that belong to QoS; cheap to clone.
#[derive(Clone)]
pub(crate) struct QosService {
    handle: LoopHandle,
    running: bool,
}

impl QosService {
    /// Calls of a node of this configuration.
    pub(crate) fn new(handle: &LoopHandle, config: &Config) -> Self {
        Self { handle: handle.clone(), running: config.node.runs("qos") }
    }

    fn must_run(&self) -> Result<(), Status> {
        must_run(
            self.running,
            "this node does not run the QoS application: add \"qos\" to node.protocols in its configuration",
        )
    }

    /// Makes a reservation, which is released when the stream of its events is dropped.
    pub(crate) async fn reserve(
        &self,
        request: v0::ReserveRequest,
    ) -> Result<Replies<v0::ReserveEvent>, Status> {
        self.must_run()?;
        let request = convert::reserve_request(request)?;
        let opened = self.handle.open::<Reservations>(qos::Command::Reserve(Box::new(request))).await?;
        let id = opened.lease.id;
        Ok(opened.replies(move |event| convert::reserve_event(id, event)))
    }

    /// Releases a reservation that another call made.
    pub(crate) async fn release(&self, request: v0::ReleaseRequest) -> Result<v0::ReleaseResponse, Status> {
        let id = request.id;
        if self.handle.command(Command::Qos { id, command: qos::Command::Release }).await? {
            Ok(v0::ReleaseResponse {})
        } else {
            Err(Status::not_found(format!("id: no reservation has the name {id}")))
        }
    }

    /// Asks what a path could give.
    pub(crate) async fn query(&self, request: v0::QueryRequest) -> Result<v0::QueryResponse, Status> {
        self.must_run()?;
        let request = convert::query_request(request)?;
        let mut opened = self.handle.open::<Reservations>(qos::Command::Query(Box::new(request))).await?;
        while let Some(event) = opened.events.next().await {
            if let Some(answer) = convert::query_response(event?) {
                return answer;
            }
        }
        Err(stopping())
    }

    /// The sessions of the node.
    pub(crate) fn list(&self) -> Result<Replies<v0::Reservation>, Status> {
        self.must_run()?;
        Ok(self.handle.table(0, |view, from| {
            let (sessions, next) = portion(view.node.qos_sessions(), from, |_| true, Clone::clone);
            (sessions.iter().map(|session| row(view, session)).collect(), next)
        }))
    }
}

/// A session with what is held for it and what the kernel has seen of it.
fn row(view: &mut View<'_>, session: &SessionView) -> v0::Reservation {
    let held = session.grant.and_then(|grant| view.node.resources().reservation(grant)).map(|held| {
        let enforcer = view.kernel.enforcer();
        let (enforced, statistics) = enforcer.map_or((false, None), |enforcer| {
            let read = enforcer.statistics(held.reservation);
            let statistics = read.inspect_err(|error| tracing::debug!(%error, "statistics")).ok().flatten();
            (enforcer.is_enforced(held.reservation), statistics)
        });
        resources::convert::held(&held, enforced, statistics)
    });
    convert::reservation(session, held)
}
