//! The way to a daemon: its control socket.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use hyper_util::rt::TokioIo;
use signalbox_api::v1::control_client::ControlClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A client of the daemon behind a control socket.
pub(crate) type Client = ControlClient<Channel>;

/// Connects to the daemon that listens at `path`.
///
/// # Errors
/// Nobody listens there, or the caller may not open the socket.
pub(crate) async fn connect(path: &Path) -> Result<Client> {
    channel(path).await.map(Client::new)
}

/// The way to the daemon's services.
///
/// # Errors
/// Nobody listens there, or the caller may not open the socket.
pub(crate) async fn channel(path: &Path) -> Result<Channel> {
    let stream = UnixStream::connect(path).await.map_err(|error| unreachable(path, &error))?;
    // The connection is made first, so that an error keeps its cause; the channel gets it once and has no
    // second one to fall back to.
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset));
        async move { stream }
    });
    // The address is a formality: the authority that HTTP/2 asks for.
    Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        .with_context(|| format!("what listens at {} does not speak the control protocol", path.display()))
}

fn unreachable(path: &Path, error: &io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run as root or as a member of the socket's group",
        _ => "is signalboxd running? start it with `signalboxd --config FILE`, or give --socket",
    };
    anyhow!("cannot reach the daemon at {}: {error}; {remedy}", path.display())
}

/// What the daemon says against a request, without gRPC's wrapping.
pub(crate) fn said_no(status: &tonic::Status) -> anyhow::Error {
    match status.code() {
        tonic::Code::InvalidArgument
        | tonic::Code::FailedPrecondition
        | tonic::Code::ResourceExhausted
        | tonic::Code::Unavailable => anyhow!("{}", status.message()),
        tonic::Code::Unimplemented => {
            anyhow!("the daemon does not know this call: it is older than this command")
        }
        code => anyhow!("the daemon failed: {code:?}: {}", status.message()),
    }
}
