//! `GET /metrics` over HTTP/1.1, for monitoring systems that ask the daemon themselves.
//!
//! It is served by the control thread. A request costs the event loop one query. Connections are bounded in number
//! and in time, and each has one request. One that finds no place takes that of the oldest connection of its source, or of the
//! source that has most: a client that sends slowly delays no other one.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use signalbox_api::openmetrics::{self, Format};
use signalbox_core::shares::source;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, Id, JoinSet};

use super::{Snapshot, families};
use crate::requests::LoopHandle;

/// Connections at one time.
const CONNECTIONS: usize = 64;
/// Connections of one source at one time.
const OF_SOURCE: usize = 8;
/// How long a connection may take from its first octet to its last.
const LIFETIME: Duration = Duration::from_secs(10);
/// How long a client may take for the lines of its request.
const HEADER: Duration = Duration::from_secs(5);
/// Pause after a failure to accept, for example because all descriptors are in use.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at the address.
///
/// # Errors
/// The address is not of this node, or another process uses the port.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen for metrics at {address}; set metrics.listen"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves metrics until the runtime ends.
pub(crate) async fn serve(listener: tokio::net::TcpListener, handle: LoopHandle) {
    let mut open = Open::default();
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = tasks.join_next_with_id() => {
                open.remove(ended.map_or_else(|error| error.id(), |(id, ())| id));
                continue;
            }
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "no connection accepted for metrics");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let source = source(peer.ip());
        if let Some(oldest) = open.make_room(source) {
            oldest.abort();
            tracing::debug!(%peer, "too many connections for metrics: the oldest one of the largest source is closed");
        }
        let task = tasks.spawn(connection(stream, handle.clone()));
        open.add(source, task);
    }
}

/// Connections that are open, the oldest first.
#[derive(Default)]
struct Open(Vec<(IpAddr, AbortHandle)>);

impl Open {
    /// Takes out the connection whose place one more of `source` needs, if there is no free place.
    fn make_room(&mut self, source: IpAddr) -> Option<AbortHandle> {
        let held = |one: IpAddr| self.0.iter().filter(|(source, _)| *source == one).count();
        let from = if held(source) >= OF_SOURCE {
            source
        } else if self.0.len() >= CONNECTIONS {
            self.0.iter().map(|(source, _)| *source).max_by_key(|source| held(*source))?
        } else {
            return None;
        };
        let at = self.0.iter().position(|(source, _)| *source == from)?;
        Some(self.0.remove(at).1)
    }

    fn add(&mut self, source: IpAddr, task: AbortHandle) {
        self.0.push((source, task));
    }

    fn remove(&mut self, task: Id) {
        self.0.retain(|(_, one)| one.id() != task);
    }
}

async fn connection(stream: TcpStream, handle: LoopHandle) {
    let service = service_fn(|request| answer(request, handle.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(LIFETIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "request for metrics failed"),
        Err(_) => tracing::debug!("request for metrics took too long"),
    }
}

async fn answer(request: Request<Incoming>, handle: LoopHandle) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return Ok(plain(StatusCode::NOT_FOUND, "Metrics are at /metrics.\n"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let Ok(snapshot) = handle.query(|view| Snapshot::take(view)).await else {
        return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, "The daemon is stopping.\n"));
    };
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = format(accept);
    let text = openmetrics::text(&families(snapshot), format);
    let mut response = Response::new(Full::from(text));
    let kind = hyper::header::HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// The format for a client that accepts these media types. One that does not name OpenMetrics gets the older format,
/// which every client reads.
fn format(accept: &str) -> Format {
    let named =
        |one: &str| one.split(';').next().is_some_and(|kind| kind.trim() == "application/openmetrics-text");
    if accept.split(',').any(named) { Format::OpenMetrics } else { Format::Prometheus }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::rig::Rig;

    /// Forty clients that send nothing hold places; requests of the same source and of another one are answered.
    #[tokio::test]
    async fn slow_clients_delay_no_other_one() {
        let rig = Rig::new("version = 1\n").await;
        let listener =
            tokio::net::TcpListener::from_std(bind("127.0.0.1:0".parse().unwrap()).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, rig.handle.clone()));
        let mut slow = Vec::new();
        for _ in 0..40 {
            slow.push(TcpStream::connect(address).await.unwrap());
        }
        for from in ["127.0.0.1:0", "127.0.0.2:0"] {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(from.parse().unwrap()).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            stream.write_all(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 404"), "{from}: {answer}");
        }
    }

    #[tokio::test]
    async fn the_oldest_connection_of_the_largest_source_makes_room() {
        let (mut open, mut tasks) = (Open::default(), JoinSet::new());
        let mut add = |open: &mut Open, source: IpAddr| {
            let room = open.make_room(source).map(|task| task.id());
            let task = tasks.spawn(std::future::pending::<()>());
            let id = task.id();
            open.add(source, task);
            (id, room)
        };
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        let first: Vec<_> = (0..8).map(|_| add(&mut open, address(1))).collect();
        assert!(first.iter().all(|(_, room)| room.is_none()));
        assert_eq!(add(&mut open, address(1)).1, Some(first[0].0));
        (2..58).for_each(|n| assert_eq!(add(&mut open, address(n)).1, None));
        assert_eq!(add(&mut open, address(100)).1, Some(first[1].0), "all are in use");
        assert_eq!(open.0.len(), CONNECTIONS);
        open.remove(first[2].0);
        assert_eq!(add(&mut open, address(101)).1, None);
    }

    #[test]
    fn only_who_asks_for_openmetrics_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(format(prometheus), Format::OpenMetrics);
        assert_eq!(format("*/*"), Format::Prometheus);
        assert_eq!(format(""), Format::Prometheus);
        assert_eq!(format("text/plain, application/openmetrics-text"), Format::OpenMetrics);
    }
}
