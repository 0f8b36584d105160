//! The call of a session that registers with the daemon, and the commands that run in it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use signalbox_api::v0;
use signalbox_api::v0::rsvp_client::RsvpClient;
use signalbox_api::v0::rsvp_request::Request;
use signalbox_api::v0::rsvp_upcall::Upcall;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::args::SessionArgs;
use super::{many, print};
use crate::client::{self, Stop, answer, refusal};

/// What a command does in a session: the part of a sender or of a receiver.
pub(super) trait Role {
    /// The report that the session is registered: the type of the JSON line, and the text.
    const REGISTERED: (&'static str, &'static str);
    /// The word for a session in which the role is fulfilled.
    const FULFILLED: &'static str;

    /// The requests to send once the session is registered, in this order.
    fn first_requests(&self) -> Vec<Request>;

    /// Takes an upcall (RFC 2205 §3.11.1). Returns the request to send because of it.
    fn upcall(&mut self, upcall: &Upcall) -> Option<Request>;

    /// The reservation that the role is for exists.
    fn is_fulfilled(&self) -> bool;
}

/// Acts in the sessions of the command until it is stopped, and prints each upcall.
pub(super) async fn run<R: Role + Clone + Send + 'static>(
    socket: &Path,
    arguments: &SessionArgs,
    role: R,
) -> Result<ExitCode> {
    let stop = Stop::new(arguments.hold)?;
    match arguments.flows {
        Some(flows) => many::run(socket, arguments, flows, stop, role).await,
        None => run_one(socket, arguments, stop, role).await,
    }
}

async fn run_one<R: Role>(
    socket: &Path,
    arguments: &SessionArgs,
    mut stop: Stop,
    mut role: R,
) -> Result<ExitCode> {
    let json = arguments.json;
    let mut client = RsvpClient::new(client::channel(socket).await?);
    let mut call = Call::open(&mut client, arguments.register()).await?;
    for request in role.first_requests() {
        call.send(request).await?;
    }
    loop {
        let upcall = tokio::select! {
            upcall = call.next() => upcall?,
            // The daemon tears down the state of a call that ends.
            () = stop.wait() => {
                print_line(json, "released", "released")?;
                return Ok(ExitCode::from(u8::from(!role.is_fulfilled())));
            }
        };
        if matches!(upcall, Upcall::Registered(_)) {
            print_line(json, R::REGISTERED.0, R::REGISTERED.1)?;
            continue;
        }
        print_upcall(json, &upcall)?;
        let next = role.upcall(&upcall);
        if matches!(upcall, Upcall::Refused(_)) {
            return Ok(ExitCode::from(crate::FAILED));
        }
        if let Some(request) = next {
            call.send(request).await?;
        }
    }
}

/// The call of one session: requests in one direction, upcalls in the other.
pub(super) struct Call {
    requests: mpsc::Sender<v0::RsvpRequest>,
    upcalls: Streaming<v0::RsvpUpcall>,
}

impl Call {
    /// Opens the call and registers the session.
    ///
    /// # Errors
    /// The daemon refused.
    pub(super) async fn open(client: &mut RsvpClient<Channel>, register: v0::RsvpRegister) -> Result<Self> {
        let (requests, stream) = mpsc::channel(4);
        let first = v0::RsvpRequest { request: Some(Request::Register(register)) };
        requests.send(first).await.context("cannot register")?;
        let upcalls = answer(client.session(ReceiverStream::new(stream)).await)?;
        Ok(Self { requests, upcalls })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The daemon ended the call.
    pub(super) async fn send(&self, request: Request) -> Result<()> {
        let request = v0::RsvpRequest { request: Some(request) };
        self.requests.send(request).await.context("the daemon ended the session")
    }

    /// Waits for the next upcall.
    ///
    /// # Errors
    /// The daemon ended the call.
    pub(super) async fn next(&mut self) -> Result<Upcall> {
        loop {
            match self.upcalls.message().await.map_err(refusal)? {
                Some(v0::RsvpUpcall { upcall: Some(upcall) }) => return Ok(upcall),
                // The daemon is newer than this command.
                Some(_) => {}
                None => bail!("the daemon ended the session"),
            }
        }
    }
}

/// Prints one upcall, as text or JSON.
fn print_upcall(json: bool, upcall: &Upcall) -> Result<()> {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", print::json(upcall))?;
    } else {
        writeln!(out, "{}", print::text(upcall))?;
    }
    Ok(out.flush()?)
}

/// Prints a line about the command itself.
fn print_line(json: bool, kind: &str, text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", serde_json::json!({ "type": kind }))?;
    } else {
        writeln!(out, "{text}")?;
    }
    Ok(out.flush()?)
}
