//! The service `Pinholes`: passages through firewalls and NATs.

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_request::Request as OpenMessage;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_api::v1::pinholes_server::{Pinholes, PinholesServer};
use signalbox_node::natfw::{Command as NatfwCommand, NatfwEvent};
use signalbox_node::{Command, ProtocolId};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Passages, convert};
use crate::api::errors::{Reason, Wrong, already_open, must_open, stopping};
use crate::api::pages::{Portion, Range, page, pages};
use crate::api::{Api, types};
use crate::clients::EventReader;
use crate::requests::{LoopHandle, Opened, Replies};
use crate::view::View;

page!(8: v1::ListPinholesResponse, pinholes: v1::Pinhole);

/// Most rows of one portion: the kernel is asked for the packets of each.
const ROWS: usize = 64;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct PinholeService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> PinholesServer<PinholeService> {
    PinholesServer::new(PinholeService { api: api.clone() })
}

#[tonic::async_trait]
impl Pinholes for PinholeService {
    type OpenPinholeStream = Replies<v1::OpenPinholeResponse>;

    async fn open_pinhole(
        &self,
        request: Request<Streaming<v1::OpenPinholeRequest>>,
    ) -> Result<Response<Self::OpenPinholeStream>, Status> {
        self.api.must_run(ProtocolId::Natfw)?;
        let mut requests = request.into_inner();
        let Some(v1::OpenPinholeRequest { request: Some(OpenMessage::Open(open)) }) =
            requests.message().await?
        else {
            return Err(must_open("open"));
        };
        let natfw = [v1::Protocol::Unspecified, v1::Protocol::Natfw].map(i32::from);
        if !natfw.contains(&open.protocol) {
            return Err(Wrong::new("open.protocol", "one that opens firewalls: natfw").into());
        }
        let command = convert::request(&open)?;
        let Opened { lease, mut events } = self.api.handle.open::<Passages>(command).await?;
        let first = match events.next().await.ok_or_else(stopping)?? {
            NatfwEvent::Refused(refusal) => return Err(convert::refused(refusal)),
            event @ (NatfwEvent::Started { .. }
            | NatfwEvent::Granted(_)
            | NatfwEvent::Notified(_)
            | NatfwEvent::Failed(_)
            | NatfwEvent::Closed) => convert::event(lease.id, event)?,
        };
        let (out, stream) = mpsc::channel(1);
        let call = Call { handle: self.api.handle.clone(), id: lease.id, out };
        tokio::spawn(async move {
            call.send(Ok(first)).await;
            tokio::select! {
                () = call.pass_requests(requests) => {}
                () = call.pass_events(events) => {}
                () = call.out.closed() => {}
            }
            // The passage is closed when the client reads the end of the call.
            lease.close().await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    type ListPinholesStream = Replies<v1::ListPinholesResponse>;

    async fn list_pinholes(
        &self,
        request: Request<v1::ListPinholesRequest>,
    ) -> Result<Response<Self::ListPinholesStream>, Status> {
        self.api.must_run(ProtocolId::Natfw)?;
        let request = request.into_inner();
        let address = types::address_in("address", request.address.as_deref())?;
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from, most| portion(view, from, most, address));
        list.map(Response::new)
    }

    async fn delete_pinhole(
        &self,
        request: Request<v1::DeletePinholeRequest>,
    ) -> Result<Response<v1::DeletePinholeResponse>, Status> {
        self.api.must_run(ProtocolId::Natfw)?;
        let session = convert::session(&request.into_inner().session_id)?;
        if self.api.handle.delete_pinhole(session).await? {
            return Ok(Response::new(v1::DeletePinholeResponse {}));
        }
        let text = format!("there is no session {session}, or it ended: ListPinholes lists those that stand");
        Err(Reason::NoPinhole.status(text))
    }
}

fn portion(
    view: &mut View<'_>,
    from: u32,
    most: usize,
    address: Option<std::net::IpAddr>,
) -> Portion<v1::Pinhole, u32> {
    let mut found = Vec::new();
    let next = view.node.natfw().and_then(|natfw| {
        natfw.walk(view.now, from, |session| {
            if types::has_end(address, [session.mri.src(), session.mri.dst()]) {
                found.push(session);
            }
            found.len() < most.min(ROWS)
        })
    });
    let ids: Vec<_> = found.iter().map(|session| session.pinhole).collect();
    let seen = view.kernel.pinholes().map(|pinholes| pinholes.read(&ids)).unwrap_or_default();
    let seen = seen.into_iter().chain(core::iter::repeat(None));
    let rows = found.iter().zip(seen).map(|(session, seen)| convert::pinhole(session, seen));
    (rows.collect(), next)
}

/// The call of a client whose passage is open.
struct Call {
    handle: LoopHandle,
    id: u64,
    out: mpsc::Sender<Result<v1::OpenPinholeResponse, Status>>,
}

impl Call {
    async fn send(&self, event: Result<Event, Status>) {
        let time_unix_us = types::unix_us();
        let response = event.map(|event| v1::OpenPinholeResponse { time_unix_us, event: Some(event) });
        // If the client is gone, the call ends elsewhere.
        let _ = self.out.send(response).await;
    }

    /// Passes requests to the event loop, until the client is gone or sends a request that cannot be.
    async fn pass_requests(&self, mut requests: Streaming<v1::OpenPinholeRequest>) {
        loop {
            let sent = match requests.message().await {
                Ok(Some(v1::OpenPinholeRequest { request: Some(OpenMessage::Release(_)) })) => {
                    self.handle.post(Command::Natfw { id: self.id, command: NatfwCommand::Close }).await
                }
                Ok(Some(v1::OpenPinholeRequest { request: Some(OpenMessage::Open(_)) })) => {
                    Err(already_open("open"))
                }
                // A request of a client that is newer than this daemon.
                Ok(Some(v1::OpenPinholeRequest { request: None })) => Ok(()),
                // The client has no more requests, and goes on to read events.
                Ok(None) => std::future::pending().await,
                Err(_) => return,
            };
            if let Err(status) = sent {
                return self.send(Err(status)).await;
            }
        }
    }

    /// Passes events to the client until there are no more.
    async fn pass_events(&self, mut events: EventReader<Passages>) {
        while let Some(event) = events.next().await {
            self.send(event.and_then(|event| convert::event(self.id, event))).await;
        }
    }
}

#[cfg(test)]
mod tests;
