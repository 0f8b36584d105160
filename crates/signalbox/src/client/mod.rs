//! What every command needs that asks the daemon: the connection to its control socket, its answers and refusals, and
//! the signals that end a command.

mod retry;
mod shared;
mod termination;

use std::error::Error;
use std::io;
use std::path::Path;

use anyhow::Result;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use tonic_types::StatusExt;
use tower::service_fn;

use crate::exit::{Exit, NoDaemon, Refusal};

pub(crate) use retry::{AfterAttempt, End, Loss, Retry};
pub(crate) use shared::Shared;
pub(crate) use termination::{Termination, wait_until};

/// Runs the work of a command that calls the daemon, on this thread.
///
/// # Errors
/// Those of `work`; or the operating system gives no event queue.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Opens a connection to the daemon that listens at `path`. Clients of any of its services can use it.
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
    // HTTP/2 needs an authority; the connector ignores it.
    Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        // Without its cause: a broken pipe would pass for the end of the reader of the output.
        .map_err(|_| {
            NoDaemon(format!(
                "what listens at {} closed the connection: this user has too many (control.max_connections), or it does not use the \
                 control protocol",
                path.display()
            ))
            .into()
        })
}

fn unreachable(path: &Path, error: &io::Error) -> NoDaemon {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run as root or as a member of the socket's group",
        _ => "is signalboxd running? start it with `signalboxd --config FILE`, or give --socket",
    };
    NoDaemon(format!("cannot reach the daemon at {}: {error}; {remedy}", path.display()))
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
    let code = status.code();
    let reason = status.get_details_error_info().map_or_else(|| format!("{code:?}"), |info| info.reason);
    let exit = match code {
        Code::InvalidArgument => Exit::Usage,
        Code::NotFound => Exit::No,
        _ => Exit::Environment,
    };
    let message = match code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Unavailable => status.message().to_owned(),
        Code::Unimplemented => {
            "the daemon does not have this call: its protocol does not run, or the daemon is older than this command"
                .to_owned()
        }
        code => format!("the daemon failed: {code:?}: {}", with_causes(&status)),
    };
    Refusal { exit, reason: snake(&reason), message }.into()
}

/// The message of a status, and the errors that led to it: without them one of the transport says nothing.
fn with_causes(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// `NotFound` and `NOT_FOUND` become `not_found`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    let upper = !name.chars().any(char::is_lowercase);
    for c in name.chars() {
        if !upper && c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_refusal_has_the_reason_of_its_details() {
        let details = ErrorDetails::with_error_info(
            "PROTOCOL_NOT_RUNNING",
            "signalbox",
            [("protocol".to_owned(), "rsvp".to_owned())],
        );
        let status = Status::with_error_details(Code::FailedPrecondition, "rsvp does not run", details);
        let refused = refusal(status);
        let refused = refused.downcast_ref::<Refusal>().unwrap();
        assert_eq!((refused.reason.as_str(), refused.exit), ("protocol_not_running", Exit::Environment));
        let wrong = refusal(Status::invalid_argument("flow.destination: missing"));
        let wrong = wrong.downcast_ref::<Refusal>().unwrap();
        assert_eq!((wrong.reason.as_str(), wrong.exit), ("invalid_argument", Exit::Usage));
    }
}
