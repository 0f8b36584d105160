//! A call, and what it holds for its client: a reservation, or a passage through firewalls and NATs.

mod takeover;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Extensions, Response, Status, Streaming};

use super::errors::Reason;
use super::reserver::reached;
use crate::connection::Peer;
use crate::requests::Replies;
use crate::services::Call;
pub(crate) use takeover::Takeovers;
use takeover::{Place, STANDS, TakeoverPlace};

/// Events that wait for a client to read them while its requests are still taken. Some requests are answered at once, so that a client
/// that does not read could fill the memory.
const WAITING: usize = 16;

/// What a call holds. It ends when this is dropped.
#[tonic::async_trait]
pub(crate) trait Held: Sized + Send + 'static {
    /// What it is, for messages.
    const NAME: &'static str;
    /// The first request of a call.
    type Open: Clone + Send + 'static;
    /// A request of the client.
    type Request: Send + 'static;
    /// A response to the client.
    type Response: Send + 'static;
    /// What happens to it. The first event is that it has started.
    type Event: Clone + Send + Sync + 'static;

    /// The octets by which a later call finds it.
    fn request_id(open: &Self::Open) -> Option<&[u8]>;

    /// The request that makes it what a later call asks for, if that is another one; `Err`: it cannot become that.
    fn change(former: &Self::Open, open: &Self::Open) -> Result<Option<Self::Request>, ()>;

    /// The first event for a call that takes over.
    fn taken_over(started: Self::Event) -> Self::Event;

    /// What an event means for a call that takes over later.
    fn meaning(event: &Self::Event) -> Meaning;

    /// The response that carries an event.
    fn response(event: Self::Event) -> Self::Response;

    /// What happens next. It may be called again if it was given up.
    async fn next(&mut self) -> Result<Self::Event, Status>;

    /// Takes a request. The result is an event if the answer is known at once.
    async fn ask(&mut self, request: Self::Request) -> Result<Option<Self::Event>, Status>;

    /// Ends it, and waits until the event loop has taken the request.
    async fn close(self);
}

/// What an event means for a call that takes over later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is the answer to a request of the present call.
    Answer,
    /// It shows the state from now on.
    State,
    /// It shows the state, and no event follows.
    Last,
}

/// Who calls.
pub(crate) struct Caller {
    /// `None` if the kernel does not give it.
    pub(crate) user: Option<u32>,
    place: Option<Arc<Call>>,
}

impl Caller {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let peer = extensions.get::<Peer>().and_then(|peer| peer.caller.as_ref());
        Self { user: peer.map(|caller| caller.user), place: extensions.get().cloned() }
    }
}

/// Answers a call whose first request was read. It takes over what an earlier call holds, or holds what `begin` gives from now on.
pub(crate) async fn answer<H: Held>(
    caller: Caller,
    requests: Streaming<H::Request>,
    open: &H::Open,
    takeovers: &Takeovers<H>,
    begin: impl Future<Output = Result<(H::Event, H), Status>>,
) -> Result<Response<Replies<H::Response>>, Status> {
    let (attached, replies) = Attached::new(requests);
    let takeover_place = match takeovers.place(caller.user, open)? {
        Some(Place::Taken(earlier)) => {
            earlier.attach(attached).await?;
            return Ok(Response::new(replies));
        }
        Some(Place::New(takeover_place)) => Some(takeover_place),
        None => None,
    };
    let (started, held) = begin.await?;
    tokio::spawn(run(started, held, attached, takeover_place, caller.place));
    Ok(Response::new(replies))
}

/// The client's end of a call.
struct Attached<H: Held> {
    requests: Streaming<H::Request>,
    /// The change that the first request asks for.
    change: Option<H::Request>,
    /// The client has closed its requests.
    half_closed: bool,
    out: mpsc::Sender<Result<H::Response, Status>>,
}

impl<H: Held> Attached<H> {
    /// A call, and what its client reads.
    fn new(requests: Streaming<H::Request>) -> (Self, Replies<H::Response>) {
        let (out, stream) = mpsc::channel(1);
        (Self { requests, change: None, half_closed: false, out }, Box::pin(ReceiverStream::new(stream)))
    }

    /// The next request; `Err`: the client is gone.
    async fn request(&mut self) -> Result<Option<H::Request>, ()> {
        if let Some(change) = self.change.take() {
            return Ok(Some(change));
        }
        if self.half_closed {
            return pending().await;
        }
        let request = self.requests.message().await.map_err(|_| ())?;
        self.half_closed = request.is_none();
        Ok(request)
    }

    /// Ends the call with an error. It does not wait for the client to read it.
    fn fail(self, status: Status) {
        tokio::spawn(async move {
            // A client that is gone needs no answer.
            let _ = self.out.send(Err(status)).await;
        });
    }
}

/// What comes next in the life of what is held.
enum Step<H: Held> {
    Event(Result<H::Event, Status>),
    Request(Option<H::Request>),
    /// The first waiting event was sent.
    Sent,
    /// The client is gone.
    Broken,
    /// Another call takes over.
    Taken(Box<Attached<H>>),
    /// No call took over in time.
    Expired,
}

/// Holds something until it ends. It ends with its call, unless it has a `takeover_place`. It keeps the place of the call that began it.
async fn run<H: Held>(
    started: H::Event,
    mut held: H,
    attached: Attached<H>,
    mut takeover_place: Option<TakeoverPlace<H>>,
    _call: Option<Arc<Call>>,
) {
    let mut attached = Some(attached);
    let mut expires = None;
    // What a call that takes over reads first.
    let start = H::taken_over(started.clone());
    let mut state: Option<H::Event> = None;
    let mut waiting = VecDeque::from([started]);
    let mut ended = false;
    loop {
        let step =
            step(&mut held, attached.as_mut(), takeover_place.as_mut(), &waiting, ended, expires).await;
        let answer = match step {
            Step::Sent => {
                waiting.pop_front();
                if ended && waiting.is_empty() {
                    break;
                }
                continue;
            }
            Step::Broken if takeover_place.is_some() => {
                attached = None;
                expires = Some(Instant::now() + STANDS);
                continue;
            }
            Step::Broken | Step::Expired => break,
            Step::Taken(call) => {
                if let Some(former) = attached.replace(*call) {
                    former.fail(Reason::TakenOver.status("a call with the same request_id took over"));
                }
                expires = None;
                waiting = [Some(start.clone()), state.clone()].into_iter().flatten().collect();
                continue;
            }
            Step::Event(event) => event.map(Some),
            Step::Request(None) => continue,
            Step::Request(Some(request)) => held.ask(request).await,
        };
        match answer {
            Ok(None) => {}
            Ok(Some(event)) => {
                let meaning = H::meaning(&event);
                ended = meaning == Meaning::Last;
                if meaning != Meaning::Answer {
                    state = Some(event.clone());
                }
                // While no call is attached, the state alone is kept.
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
    held.close().await;
    if let Some(Ok(call)) = takeover_place.as_mut().map(|takeover_place| takeover_place.calls.try_recv()) {
        call.fail(takeover::ended::<H>());
    }
}

async fn step<H: Held>(
    held: &mut H,
    attached: Option<&mut Attached<H>>,
    takeover_place: Option<&mut TakeoverPlace<H>>,
    waiting: &VecDeque<H::Event>,
    ended: bool,
    expires: Option<Instant>,
) -> Step<H> {
    let has_client = attached.is_some();
    let taken = async {
        match takeover_place {
            Some(takeover_place) => match takeover_place.calls.recv().await {
                Some(call) => call,
                None => pending().await,
            },
            None => pending().await,
        }
    };
    let event = async {
        // The client reads first what waits: what follows waits in the queue of the event loop, which ends it when it
        // is full.
        if ended || (has_client && !waiting.is_empty()) { pending().await } else { held.next().await }
    };
    let Some(call) = attached else {
        return tokio::select! {
            call = taken => Step::Taken(Box::new(call)),
            event = event => Step::Event(event),
            () = reached(expires) => Step::Expired,
        };
    };
    let out = call.out.clone();
    let send = async {
        match waiting.front() {
            Some(event) => match out.reserve().await {
                Ok(place) => {
                    place.send(Ok(H::response(event.clone())));
                    Step::Sent
                }
                Err(_) => Step::Broken,
            },
            None => pending().await,
        }
    };
    tokio::select! {
        call = taken => Step::Taken(Box::new(call)),
        sent = send => sent,
        event = event => Step::Event(event),
        request = call.request(), if !ended && waiting.len() < WAITING => request.map_or(Step::Broken, Step::Request),
        () = out.closed() => Step::Broken,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::Full;
    use hyper::body::Bytes;
    use tonic::codec::{DecodeBuf, Decoder};

    use super::*;

    /// Something to which nothing happens. It is asked for by its octets alone.
    struct Quiet;

    #[tonic::async_trait]
    impl Held for Quiet {
        const NAME: &'static str = "passage";
        type Open = Vec<u8>;
        type Request = ();
        type Response = ();
        type Event = ();

        fn request_id(open: &Vec<u8>) -> Option<&[u8]> {
            Some(open)
        }

        fn change(_: &Vec<u8>, _: &Vec<u8>) -> Result<Option<()>, ()> {
            Ok(None)
        }

        fn taken_over((): ()) {}

        fn meaning((): &()) -> Meaning {
            Meaning::State
        }

        fn response((): ()) {}

        async fn next(&mut self) -> Result<(), Status> {
            pending().await
        }

        async fn ask(&mut self, (): ()) -> Result<Option<()>, Status> {
            Ok(None)
        }

        async fn close(self) {}
    }

    /// Reads each message as one without contents.
    struct Unit;

    impl Decoder for Unit {
        type Item = ();
        type Error = Status;

        fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
            Ok(Some(()))
        }
    }

    /// What is answered at once waits for the client. If it does not read, its further requests are not taken.
    #[tokio::test]
    async fn a_client_that_does_not_read_is_not_read() {
        // Three messages: not compressed, of no octets.
        let requests = Streaming::new_request(Unit, Full::new(Bytes::from(vec![0; 15])), None, None);
        let (out, _unread) = mpsc::channel(1);
        out.try_send(Ok(())).unwrap();
        let mut attached = Attached::<Quiet> { requests, change: None, half_closed: false, out };
        let some = VecDeque::from(vec![(); WAITING - 1]);
        let next = step(&mut Quiet, Some(&mut attached), None, &some, false, None).await;
        assert!(matches!(next, Step::Request(Some(()))));
        let many = VecDeque::from(vec![(); WAITING]);
        let mut quiet = Quiet;
        let next = step(&mut quiet, Some(&mut attached), None, &many, false, None);
        assert!(tokio::time::timeout(Duration::from_millis(50), next).await.is_err());
    }

    #[tokio::test]
    async fn what_no_call_takes_over_ends() {
        let open = vec![7; 16];
        let table = Takeovers::<Quiet>::default();
        let Ok(Some(Place::New(mut takeover_place))) = table.place(Some(5), &open) else {
            panic!("it is new")
        };
        assert!(matches!(table.place(Some(5), &open), Ok(Some(Place::Taken(_)))));
        assert!(matches!(table.place(Some(6), &open), Ok(Some(Place::New(_)))), "another user's");
        let now = Some(Instant::now());
        let step = step(&mut Quiet, None, Some(&mut takeover_place), &VecDeque::new(), false, now).await;
        assert!(matches!(step, Step::Expired));
        drop(takeover_place);
        assert!(matches!(table.place(Some(5), &open), Ok(Some(Place::New(_)))), "the octets are free");
    }
}
