//! What every command needs that asks the daemon: the connection to its control socket, its answers and refusals, and
//! the signals that end a command.

mod stop;

use std::io;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use hyper_util::rt::TokioIo;
use signalbox_api::v0::control_client::ControlClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use tower::service_fn;

pub(crate) use stop::{Stop, wait_until};

/// A client of the daemon behind a control socket.
pub(crate) type Client = ControlClient<Channel>;

/// Runs the work of a command that talks to the daemon, on this thread.
///
/// # Errors
/// Those of `work`; or the operating system gives no event queue.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Connects to the daemon that listens at `path`.
///
/// # Errors
/// No daemon listens there, or the caller may not open the socket.
pub(crate) async fn connect(path: &Path) -> Result<Client> {
    channel(path).await.map(Client::new)
}

/// Opens a connection that any of the daemon's services can use.
///
/// # Errors
/// No daemon listens there, or the caller may not open the socket.
pub(crate) async fn channel(path: &Path) -> Result<Channel> {
    let stream = UnixStream::connect(path).await.map_err(|error| unreachable(path, &error))?;
    // The connection is made first, so that an error keeps its cause. The channel gets this connection once; it cannot
    // connect a second time.
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset));
        async move { stream }
    });
    // HTTP/2 wants an authority; the connector ignores it.
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

/// The content of an answer, or the daemon's refusal as an error.
///
/// # Errors
/// The daemon refused or failed.
pub(crate) fn answer<T>(answer: Result<Response<T>, Status>) -> Result<T> {
    answer.map(Response::into_inner).map_err(refusal)
}

/// The reason why the daemon refused a request, without gRPC's wrapping.
#[allow(clippy::needless_pass_by_value, reason = "an argument of map_err")]
pub(crate) fn refusal(status: Status) -> anyhow::Error {
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
