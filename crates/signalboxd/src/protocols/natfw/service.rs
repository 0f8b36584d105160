//! The service `Pinholes`: passages through firewalls and NATs.

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_request::Request as OpenMessage;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_api::v1::pinholes_server::{Pinholes, PinholesServer};
use signalbox_node::natfw::{Command as NatfwCommand, NatfwEvent};
use signalbox_node::{Command, ProtocolId};
use tonic::{Request, Response, Status, Streaming};

use super::{Passages, convert};
use crate::api::call::{Attached, Held, Meaning, Place, Takeovers, run, user};
use crate::api::errors::{Reason, Wrong, already_open, must_open, stopping};
use crate::api::pages::{Portion, Range, page, pages};
use crate::api::{Api, types};
use crate::clients::EventReader;
use crate::requests::{Lease, LoopHandle, Opened, Replies};
use crate::view::View;

page!(8: v1::ListPinholesResponse, pinholes: v1::Pinhole);

/// Most rows of one portion: the kernel is asked for the packets of each.
const ROWS: usize = 64;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct PinholeService {
    api: Api,
    takeovers: Takeovers<Passage>,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> PinholesServer<PinholeService> {
    PinholesServer::new(PinholeService { api: api.clone(), takeovers: Takeovers::default() })
}

#[tonic::async_trait]
impl Pinholes for PinholeService {
    type OpenPinholeStream = Replies<v1::OpenPinholeResponse>;

    async fn open_pinhole(
        &self,
        request: Request<Streaming<v1::OpenPinholeRequest>>,
    ) -> Result<Response<Self::OpenPinholeStream>, Status> {
        self.api.must_run(ProtocolId::Natfw)?;
        let user = user(request.extensions());
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
        let (attached, replies) = Attached::new(requests);
        let seat = match self.takeovers.place(user, &open)? {
            Some(Place::Taken(earlier)) => {
                earlier.attach(attached).await?;
                return Ok(Response::new(replies));
            }
            Some(Place::New(seat)) => Some(seat),
            None => None,
        };
        let Opened { lease, mut events } = self.api.handle.open::<Passages>(command).await?;
        let started = match events.next().await.ok_or_else(stopping)?? {
            NatfwEvent::Refused(refusal) => return Err(convert::refused(refusal)),
            event @ (NatfwEvent::Started { .. }
            | NatfwEvent::Granted(_)
            | NatfwEvent::Notified(_)
            | NatfwEvent::Failed(_)
            | NatfwEvent::Closed) => convert::event(lease.id, event)?,
        };
        let passage = Passage { handle: self.api.handle.clone(), lease, events };
        tokio::spawn(run(started, passage, attached, seat));
        Ok(Response::new(replies))
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

/// A passage, as its call holds it.
struct Passage {
    handle: LoopHandle,
    lease: Lease,
    events: EventReader<Passages>,
}

#[tonic::async_trait]
impl Held for Passage {
    const NAME: &'static str = "passage";
    type Open = v1::PinholeOpen;
    type Request = v1::OpenPinholeRequest;
    type Response = v1::OpenPinholeResponse;
    type Event = Event;

    fn request_id(open: &v1::PinholeOpen) -> Option<&[u8]> {
        open.request_id.as_deref()
    }

    /// A passage does not change.
    fn change(
        former: &v1::PinholeOpen,
        open: &v1::PinholeOpen,
    ) -> Result<Option<v1::OpenPinholeRequest>, ()> {
        if former == open { Ok(None) } else { Err(()) }
    }

    fn taken_over(started: Event) -> Event {
        match started {
            Event::Started(start) => Event::Started(v1::PinholeStarted { taken_over: true, ..start }),
            event @ (Event::Granted(_) | Event::Notified(_) | Event::Failed(_) | Event::Released(_)) => event,
        }
    }

    fn meaning(event: &Event) -> Meaning {
        match event {
            Event::Failed(_) | Event::Released(_) => Meaning::Last,
            // The request is repeated, and what was granted before stands.
            Event::Notified(_) => Meaning::Answer,
            Event::Started(_) | Event::Granted(_) => Meaning::State,
        }
    }

    fn response(event: Event) -> v1::OpenPinholeResponse {
        v1::OpenPinholeResponse { time_unix_us: types::unix_us(), event: Some(event) }
    }

    async fn next(&mut self) -> Result<Event, Status> {
        let event = self.events.next().await.ok_or_else(stopping)??;
        convert::event(self.lease.id, event)
    }

    async fn ask(&mut self, request: v1::OpenPinholeRequest) -> Result<Option<Event>, Status> {
        match request.request {
            Some(OpenMessage::Release(_)) => {
                let close = Command::Natfw { id: self.lease.id, command: NatfwCommand::Close };
                self.handle.post(close).await.map(|()| None)
            }
            Some(OpenMessage::Open(_)) => Err(already_open("open")),
            // A request of a client that is newer than this daemon.
            None => Ok(None),
        }
    }

    async fn close(self) {
        self.lease.close().await;
    }
}

#[cfg(test)]
mod tests;
