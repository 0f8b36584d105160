//! The service `Pinholes`: the same calls for every protocol that opens firewalls.

use std::net::IpAddr;

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_request::Request as OpenMessage;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_api::v1::pinholes_server::{Pinholes, PinholesServer};
use signalbox_core::SessionId;
use tonic::{Request, Response, Status, Streaming};

use super::call::{Caller, Held, Meaning, Takeovers, answer};
use super::errors::{FieldError, Reason, already_open, must_open, not_running};
use super::opener::{Opened, Opener};
use super::pages::{Cursor, Portion, Range, page, pages};
use super::{Api, types};
use crate::limits::REQUEST;
use crate::protocols::OPENERS;
use crate::requests::Replies;
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
        .max_decoding_message_size(REQUEST)
}

impl PinholeService {
    fn must_open(&self) -> Result<(), Status> {
        let runs = OPENERS.iter().any(|one| self.api.facts.protocols.contains(&one.id()));
        runs.then_some(()).ok_or_else(|| not_running("a protocol that opens firewalls"))
    }
}

/// The protocol of a request, which runs here; without one: natfw.
pub(crate) fn opener(api: &Api, protocol: i32) -> Result<&'static dyn Opener, Status> {
    let asked = (protocol, v1::Protocol::Natfw);
    api.chosen(OPENERS, <dyn Opener>::id, asked, ("open.protocol", "opens firewalls"))
}

#[tonic::async_trait]
impl Pinholes for PinholeService {
    type OpenPinholeStream = Replies<v1::OpenPinholeResponse>;

    async fn open_pinhole(
        &self,
        request: Request<Streaming<v1::OpenPinholeRequest>>,
    ) -> Result<Response<Self::OpenPinholeStream>, Status> {
        let caller = Caller::of(request.extensions());
        let mut requests = request.into_inner();
        let Some(v1::OpenPinholeRequest { request: Some(OpenMessage::Open(open)) }) =
            requests.message().await?
        else {
            return Err(must_open("open"));
        };
        let opener = opener(&self.api, open.protocol)?;
        let (api, user) = (self.api.named(open.request_id.as_deref()), caller.user);
        let begin = async {
            let (started, opened) = opener.open(&api, &open, user).await?;
            Ok((started, Passage(opened)))
        };
        answer(caller, requests, &open, &self.takeovers, begin).await
    }

    type ListPinholesStream = Replies<v1::ListPinholesResponse>;

    async fn list_pinholes(
        &self,
        request: Request<v1::ListPinholesRequest>,
    ) -> Result<Response<Self::ListPinholesStream>, Status> {
        self.must_open()?;
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
        self.must_open()?;
        let session = session(&request.into_inner().session_id)?;
        if self.api.handle.delete_pinhole(session).await? {
            return Ok(Response::new(v1::DeletePinholeResponse {}));
        }
        let text = format!("there is no session {session}, or it ended: ListPinholes lists those that stand");
        Err(Reason::NoPinhole.status(text))
    }
}

/// The session that a client names.
fn session(octets: &[u8]) -> Result<SessionId, FieldError> {
    octets
        .try_into()
        .map(SessionId)
        .map_err(|_| FieldError::new("session_id", "the 16 octets that ListPinholes gives"))
}

/// A place in the tables of the protocols, which are listed one after the other.
#[derive(Debug, Clone, Copy)]
struct InTable {
    opener: u8,
    slot: u32,
}

impl Cursor for InTable {
    const START: Self = Self { opener: 0, slot: 0 };

    fn write(&self, to: &mut Vec<u8>) {
        to.push(self.opener);
        self.slot.write(to);
    }

    fn read(octets: &[u8]) -> Option<Self> {
        let (opener, slot) = octets.split_first()?;
        Some(Self { opener: *opener, slot: u32::read(slot)? })
    }
}

fn portion(
    view: &mut View<'_>,
    from: InTable,
    most: usize,
    address: Option<IpAddr>,
) -> Portion<v1::Pinhole, InTable> {
    let at = usize::from(from.opener);
    let Some(opener) = OPENERS.get(at) else { return (Vec::new(), None) };
    let (rows, slot) = opener.list(view, from.slot, most.min(ROWS), address);
    let next = match slot {
        Some(slot) => Some(InTable { slot, ..from }),
        None => (at + 1 < OPENERS.len()).then_some(InTable { opener: from.opener + 1, slot: 0 }),
    };
    (rows, next)
}

/// A passage, as its call holds it.
struct Passage(Box<dyn Opened>);

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
            event @ (Event::Granted(_)
            | Event::Accepted(_)
            | Event::Ended(_)
            | Event::Notified(_)
            | Event::Failed(_)
            | Event::Released(_)
            | Event::Retrying(_)) => event,
        }
    }

    fn meaning(event: &Event) -> Meaning {
        match event {
            Event::Failed(_) | Event::Released(_) => Meaning::Last,
            // The request is repeated, and what was granted before stands.
            Event::Notified(_) | Event::Accepted(_) | Event::Ended(_) | Event::Retrying(_) => Meaning::Answer,
            Event::Started(_) | Event::Granted(_) => Meaning::State,
        }
    }

    fn response(event: Event) -> v1::OpenPinholeResponse {
        v1::OpenPinholeResponse { time_unix_us: types::unix_us(), event: Some(event) }
    }

    async fn next(&mut self) -> Result<Event, Status> {
        self.0.next().await
    }

    async fn ask(&mut self, request: v1::OpenPinholeRequest) -> Result<Option<Event>, Status> {
        match request.request {
            Some(OpenMessage::Release(_)) => self.0.release().await.map(|()| None),
            Some(OpenMessage::Open(_)) => Err(already_open("open")),
            // A request of a client that is newer than this daemon.
            None => Ok(None),
        }
    }

    async fn close(self) {
        self.0.close().await;
    }
}

#[cfg(test)]
mod tests;
