//! `GET /metrics` over HTTP/1.1, for monitoring systems that ask the daemon themselves.
//!
//! It is served by the control thread. A request costs the event loop one query. Connections are bounded in number
//! and in time, and each has one request.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
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
use tokio::sync::Semaphore;

use super::{Snapshot, families};
use crate::requests::LoopHandle;

/// Connections at one time; more wait to be accepted.
const CONNECTIONS: usize = 8;
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
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "no connection accepted for metrics");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let handle = handle.clone();
        tokio::spawn(async move {
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
            drop(place);
        });
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
    use super::*;

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
