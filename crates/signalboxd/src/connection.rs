//! Connections of the control socket.
//!
//! A connection has a place of its user ([`crate::limits`]). One that finds no place is served for two seconds all the same, and each of its
//! calls is refused with the reason. One whose client makes no call in time is closed.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::access::{Caller, Roles};
use crate::limits::{Kind, Limits, Place};

/// Pause after a failure to accept, for example because all descriptors are in use.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a connection stands without a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Until the first one.
    pub(crate) first: Duration,
    /// After the last one.
    pub(crate) idle: Duration,
    /// A connection without place, whatever its calls.
    pub(crate) refused: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            refused: Duration::from_secs(2),
        }
    }
}

/// Where connections come in; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Acceptor {
    pub(crate) limits: Limits,
    pub(crate) roles: Roles,
    pub(crate) timeouts: Timeouts,
}

impl Acceptor {
    /// Lets a connection in; `None`: even its calls cannot be refused, because too many others wait for that.
    pub(crate) fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let caller = stream.peer_cred().ok().map(|cred| Caller { user: cred.uid(), group: cred.gid() });
        let privileged = caller.is_some_and(|caller| self.roles.is_privileged(caller));
        let take = |kind| self.limits.connection(kind, caller, privileged);
        let (place, refused) = match take(Kind::Connection) {
            Some(place) => (place, false),
            None => (take(Kind::Refusal)?, true),
        };
        let in_use = Arc::new(Mutex::new(Use { open: 0, called: false, since: Instant::now() }));
        let peer = Peer { caller, privileged, refused, in_use };
        let first = if refused { self.timeouts.refused } else { self.timeouts.first };
        let timer = Box::pin(sleep(first));
        Some(Connection { stream, peer, timeouts: self.timeouts, timer, _place: place })
    }
}

/// The process at the other end of a connection, as its calls see it.
#[derive(Clone)]
pub(crate) struct Peer {
    /// `None`: the kernel does not give it.
    pub(crate) caller: Option<Caller>,
    /// It needs no share.
    pub(crate) privileged: bool,
    /// Its connection has no place.
    pub(crate) refused: bool,
    in_use: Arc<Mutex<Use>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// The use of a connection.
#[derive(Debug)]
struct Use {
    /// Calls.
    open: u32,
    /// There was a call.
    called: bool,
    /// When the connection began, or its last call ended.
    since: Instant,
}

impl Peer {
    /// A call begins.
    pub(crate) fn call(&self) -> OpenCall {
        let mut in_use = self.in_use();
        in_use.open += 1;
        in_use.called = true;
        OpenCall(self.clone())
    }

    fn in_use(&self) -> MutexGuard<'_, Use> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call of a connection; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall(Peer);

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut in_use = self.0.in_use();
        in_use.open -= 1;
        in_use.since = Instant::now();
    }
}

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    peer: Peer,
    timeouts: Timeouts,
    timer: Pin<Box<Sleep>>,
    _place: Place,
}

impl Connection {
    /// Ready when the client had its time.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let in_use = self.peer.in_use();
            let now = Instant::now();
            let until = if self.peer.refused {
                now
            } else if in_use.open > 0 {
                now + self.timeouts.idle
            } else {
                in_use.since + if in_use.called { self.timeouts.idle } else { self.timeouts.first }
            };
            drop(in_use);
            if until <= now {
                tracing::debug!(peer = ?self.peer, "a client made no call: its connection is closed");
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
    }

    /// What became of reading or writing; an error if it waits and the client had its time.
    fn unless_over<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.poll_over(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.unless_over(cx, polled)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.unless_over(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.unless_over(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The connections that come in.
#[derive(Debug)]
pub(crate) struct Incoming {
    listener: UnixListener,
    acceptor: Acceptor,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// Those of a listening socket.
    pub(crate) const fn new(listener: UnixListener, acceptor: Acceptor) -> Self {
        Self { listener, acceptor, pause: None }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, _)) => {
                    if let Some(connection) = self.acceptor.admit(stream) {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "no client accepted");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use signalbox_config::Control;

    use super::*;

    fn acceptor(max_connections: u32) -> Acceptor {
        let limits = Limits::new(&Control { max_connections, ..Control::default() });
        let first = Duration::from_millis(20);
        let timeouts = Timeouts { first, idle: first, refused: first };
        Acceptor { limits, roles: Roles::default(), timeouts }
    }

    /// Reads until something comes or the connection is over.
    async fn read(connection: &mut Connection) -> io::Result<()> {
        let mut octets = [0; 8];
        poll_fn(|cx| Pin::new(&mut *connection).poll_read(cx, &mut ReadBuf::new(&mut octets))).await
    }

    fn is_over(result: &io::Result<()>) -> bool {
        result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[tokio::test]
    async fn a_connection_without_calls_is_closed() {
        let (_client, ours) = UnixStream::pair().unwrap();
        let mut connection = acceptor(16).admit(ours).unwrap();
        assert!(is_over(&read(&mut connection).await), "the first call does not come");

        let (_client, ours) = UnixStream::pair().unwrap();
        let mut connection = acceptor(16).admit(ours).unwrap();
        let call = connection.connect_info().call();
        let waits = tokio::time::timeout(Duration::from_millis(200), read(&mut connection)).await;
        assert!(waits.is_err(), "a call is open");
        drop(call);
        assert!(is_over(&read(&mut connection).await), "the last call ended");
    }

    #[tokio::test]
    async fn a_connection_without_place_lives_for_a_refusal() {
        let acceptor = acceptor(1);
        let connect = || {
            let (client, ours) = UnixStream::pair().unwrap();
            (client, acceptor.admit(ours))
        };
        // These connections are of the user of the daemon, who finds some more than others.
        let mut all: Vec<_> = std::iter::from_fn(|| {
            let (client, connection) = connect();
            Some((client, connection?))
        })
        .collect();
        let refused: Vec<_> = all.iter().map(|(_, connection)| connection.peer.refused).collect();
        let first = refused.iter().position(|refused| *refused).unwrap();
        assert!(first > 1 && refused[first..].iter().all(|refused| *refused), "{refused:?}");
        let (_, last) = all.last_mut().unwrap();
        let _call = last.connect_info().call();
        assert!(is_over(&read(last).await), "although a call is open");
        all.pop();
        assert!(connect().1.is_some(), "its place is free");
    }
}
