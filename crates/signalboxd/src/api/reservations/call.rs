//! One reservation, and the call that holds it.

use std::collections::VecDeque;
use std::future::pending;

use signalbox_api::v1;
use signalbox_api::v1::reserve_request::Request as ReserveMessage;
use signalbox_api::v1::reserve_response::Event;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::takeover::{self, STANDS, Seat};
use crate::api::errors::{Reason, already_open};
use crate::api::reserver::{Standing, is_last};
use crate::api::types::unix_us;
use crate::requests::Replies;

/// The client's end of a call.
pub(super) struct Attached {
    requests: Streaming<v1::ReserveRequest>,
    /// The change that the first request asks for.
    change: Option<v1::TokenBucket>,
    /// The client has closed its requests.
    half_closed: bool,
    out: mpsc::Sender<Result<v1::ReserveResponse, Status>>,
}

impl Attached {
    /// A call, and what its client reads.
    pub(super) fn new(requests: Streaming<v1::ReserveRequest>) -> (Self, Replies<v1::ReserveResponse>) {
        let (out, stream) = mpsc::channel(1);
        (Self { requests, change: None, half_closed: false, out }, Box::pin(ReceiverStream::new(stream)))
    }

    /// The same, with a change as the first request.
    pub(super) fn changing(mut self, change: Option<v1::TokenBucket>) -> Self {
        self.change = change;
        self
    }

    /// The next request; `Err`: the client is gone.
    async fn request(&mut self) -> Result<Option<ReserveMessage>, ()> {
        if let Some(traffic) = self.change.take() {
            return Ok(Some(ReserveMessage::Change(v1::ReserveChange { traffic: Some(traffic) })));
        }
        if self.half_closed {
            return pending().await;
        }
        match self.requests.message().await {
            Ok(Some(message)) => Ok(message.request),
            Ok(None) => {
                self.half_closed = true;
                Ok(None)
            }
            Err(_) => Err(()),
        }
    }

    /// Ends the call with an error. It does not wait for the client to read it.
    fn fail(self, status: Status) {
        tokio::spawn(async move {
            // A client that is gone needs no answer.
            let _ = self.out.send(Err(status)).await;
        });
    }
}

/// What comes next in the life of a reservation.
enum Step {
    Event(Result<Event, Status>),
    Request(Option<ReserveMessage>),
    /// The first waiting event was sent.
    Sent,
    /// The client is gone.
    Broken,
    /// Another call takes over.
    Taken(Attached),
    /// No call took over in time.
    Expired,
}

/// Holds a reservation until it ends. It ends with its call, unless it has a `seat`.
pub(super) async fn run(
    started: Event,
    mut standing: Box<dyn Standing>,
    attached: Attached,
    mut seat: Option<Seat>,
) {
    let mut attached = Some(attached);
    let mut expires = None;
    // What a call that takes over reads first.
    let Event::Started(start) = started.clone() else { return standing.close().await };
    let mut state: Option<Event> = None;
    let mut waiting = VecDeque::from([started]);
    let mut ended = false;
    loop {
        let step = step(&mut *standing, attached.as_mut(), seat.as_mut(), &waiting, ended, expires).await;
        let answer = match step {
            Step::Sent => {
                waiting.pop_front();
                if ended && waiting.is_empty() {
                    break;
                }
                continue;
            }
            Step::Broken if seat.is_some() => {
                attached = None;
                expires = Some(Instant::now() + STANDS);
                continue;
            }
            Step::Broken | Step::Expired => break,
            Step::Taken(call) => {
                if let Some(former) = attached.replace(call) {
                    former.fail(Reason::TakenOver.status("a call with the same request_id took over"));
                }
                expires = None;
                let start = Event::Started(v1::ReserveStarted { taken_over: true, ..start.clone() });
                waiting = [Some(start), state.clone()].into_iter().flatten().collect();
                continue;
            }
            Step::Event(Ok(event)) => Ok(Some(event)),
            Step::Event(Err(status)) => Err(status),
            Step::Request(None) => continue,
            Step::Request(Some(ReserveMessage::Open(_))) => Err(already_open("open")),
            Step::Request(Some(ReserveMessage::Release(_))) => standing.release().await.map(|()| None),
            Step::Request(Some(ReserveMessage::Change(change))) => {
                standing.change(&change.traffic.unwrap_or_default()).await
            }
        };
        match answer {
            Ok(None) => {}
            Ok(Some(event)) => {
                ended = is_last(&event);
                if !matches!(event, Event::ChangeRefused(_)) {
                    state = Some(event.clone());
                }
                // Nobody reads them while no call is attached: the state alone is kept.
                if attached.is_some() {
                    waiting.push_back(event);
                }
            }
            Err(status) => {
                if let Some(call) = attached.take() {
                    call.fail(status);
                }
                break;
            }
        }
    }
    standing.close().await;
    if let Some(Ok(call)) = seat.as_mut().map(|seat| seat.calls.try_recv()) {
        call.fail(takeover::ended());
    }
}

async fn step(
    standing: &mut dyn Standing,
    attached: Option<&mut Attached>,
    seat: Option<&mut Seat>,
    waiting: &VecDeque<Event>,
    ended: bool,
    expires: Option<Instant>,
) -> Step {
    let has_client = attached.is_some();
    let taken = async {
        match seat {
            Some(seat) => match seat.calls.recv().await {
                Some(call) => call,
                None => pending().await,
            },
            None => pending().await,
        }
    };
    let event = async {
        // The client reads first what waits: what follows waits in the queue of the event loop, which ends it when it
        // is full.
        if ended || (has_client && !waiting.is_empty()) { pending().await } else { standing.next().await }
    };
    let expired = async {
        match expires {
            Some(at) => tokio::time::sleep_until(at).await,
            None => pending().await,
        }
    };
    let Some(call) = attached else {
        return tokio::select! {
            call = taken => Step::Taken(call),
            event = event => Step::Event(event),
            () = expired => Step::Expired,
        };
    };
    let out = call.out.clone();
    let send = async {
        match waiting.front() {
            Some(event) => match out.reserve().await {
                Ok(place) => {
                    let event = Some(event.clone());
                    place.send(Ok(v1::ReserveResponse { time_unix_us: unix_us(), event }));
                    Step::Sent
                }
                Err(_) => Step::Broken,
            },
            None => pending().await,
        }
    };
    tokio::select! {
        call = taken => Step::Taken(call),
        sent = send => sent,
        event = event => Step::Event(event),
        request = call.request(), if !ended => request.map_or(Step::Broken, Step::Request),
        () = out.closed() => Step::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reservations::takeover::{Place, Takeovers};

    /// A reservation to which nothing happens.
    struct Quiet;

    #[tonic::async_trait]
    impl Standing for Quiet {
        async fn next(&mut self) -> Result<Event, Status> {
            pending().await
        }

        async fn change(&mut self, _: &v1::TokenBucket) -> Result<Option<Event>, Status> {
            Ok(None)
        }

        async fn release(&mut self) -> Result<(), Status> {
            Ok(())
        }

        async fn close(self: Box<Self>) {}
    }

    #[tokio::test]
    async fn a_reservation_that_no_call_takes_over_ends() {
        let open = v1::ReserveOpen { request_id: Some(vec![7; 16]), ..v1::ReserveOpen::default() };
        let table = Takeovers::default();
        let Ok(Some(Place::New(mut seat))) = table.place(Some(5), &open) else { panic!("it is new") };
        assert!(matches!(table.place(Some(5), &open), Ok(Some(Place::Taken(_)))));
        assert!(matches!(table.place(Some(6), &open), Ok(Some(Place::New(_)))), "another user's");
        let now = Some(Instant::now());
        let step = step(&mut Quiet, None, Some(&mut seat), &VecDeque::new(), false, now).await;
        assert!(matches!(step, Step::Expired));
        drop(seat);
        assert!(matches!(table.place(Some(5), &open), Ok(Some(Place::New(_)))), "the octets are free");
    }
}
