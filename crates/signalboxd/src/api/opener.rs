//! A protocol that opens firewalls along the path of a flow, as the service `Pinholes` sees it.

use std::net::IpAddr;

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_core::SessionId;
use signalbox_node::{Command, Node, ProtocolId};
use tonic::Status;

use super::Api;
use super::errors::stopping;
use crate::clients::ClientProtocol;
use crate::requests::{self, LoopHandle};
use crate::view::View;

/// A protocol that opens firewalls.
#[tonic::async_trait]
pub(crate) trait Opener: Sync {
    /// The protocol.
    fn id(&self) -> ProtocolId;

    /// Begins a passage of a user, `None` if the kernel does not give it. The result is the first event, `started`, and what stands
    /// from now on.
    async fn open(
        &self,
        api: &Api,
        open: &v1::PinholeOpen,
        user: Option<u32>,
    ) -> Result<(Event, Box<dyn Opened>), Status>;

    /// The sessions of its table from a place on, with this address if one is given, and where to go on; at most `most`
    /// sessions.
    fn list(
        &self,
        view: &mut View<'_>,
        from: u32,
        most: usize,
        address: Option<IpAddr>,
    ) -> (Vec<v1::Pinhole>, Option<u32>);

    /// The command that ends a session at this node; `None`: the protocol has no such session.
    fn delete(&self, node: &Node, session: SessionId) -> Option<Command>;
}

/// A passage that was begun. It is closed when this is dropped.
#[tonic::async_trait]
pub(crate) trait Opened: Send {
    /// What happens next. It may be called again if it was given up.
    async fn next(&mut self) -> Result<Event, Status>;

    /// Closes it. The event `released` follows.
    async fn release(&mut self) -> Result<(), Status>;

    /// Closes it, and waits until the event loop has taken the request.
    async fn close(self: Box<Self>);
}

/// An event of a client of protocol `P` in the words of the API; the error ends the call.
type Convert<P> = fn(u64, <P as ClientProtocol>::Event) -> Result<Event, Status>;

/// A passage of a client of protocol `P`.
struct Passage<P: ClientProtocol> {
    handle: LoopHandle,
    opened: requests::Opened<P>,
    convert: Convert<P>,
}

/// Begins a passage by a command of protocol `P`. The result is that of [`Opener::open`].
pub(crate) async fn begin<P: ClientProtocol>(
    api: &Api,
    command: P::Command,
    convert: Convert<P>,
) -> Result<(Event, Box<dyn Opened>), Status> {
    let opened = api.handle.open::<P>(command).await?;
    let mut passage = Passage { handle: api.handle.clone(), opened, convert };
    let started = passage.next().await?;
    Ok((started, Box::new(passage)))
}

#[tonic::async_trait]
impl<P: ClientProtocol> Opened for Passage<P> {
    async fn next(&mut self) -> Result<Event, Status> {
        let event = self.opened.events.next().await.ok_or_else(stopping)??;
        (self.convert)(self.opened.lease.id, event)
    }

    async fn release(&mut self) -> Result<(), Status> {
        self.handle.post(P::close(self.opened.lease.id)).await
    }

    async fn close(self: Box<Self>) {
        self.opened.lease.close().await;
    }
}
