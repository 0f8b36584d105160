//! The call of a session that registers with the daemon, and the commands that run in it.

use std::io::Write;
use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::rsvp::v1::session_request::Request;
use signalbox_api::rsvp::v1::session_response::Upcall;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::args::SessionArgs;
use super::{many, print};
use crate::client::{self, Termination, answer, refusal};
use crate::exit::Exit;
use crate::print::{json_event, json_line, now_unix_us};

/// What a command does in a session: the part of a sender or of a receiver.
pub(super) trait Role {
    /// The text that the session is registered.
    const WAITS: &'static str;
    /// The words for a session in which the role is fulfilled, and for one in which it is not any more.
    const FULFILLED: [&'static str; 2];

    /// The requests to send once the session is registered, in this order.
    fn first_requests(&self) -> Vec<Request>;

    /// Takes an upcall (RFC 2205 §3.11.1). Returns the request to send because of it.
    fn upcall(&mut self, upcall: &Upcall) -> Option<Request>;

    /// The reservation that the role is for exists.
    fn is_fulfilled(&self) -> bool;
}

/// The last line of one session.
#[derive(Debug, Serialize)]
struct ReleasedLine {
    r#type: &'static str,
    time_unix_us: u64,
}

/// Acts in the sessions of the command until it is stopped, and prints each upcall.
pub(super) async fn run<R: Role + Clone + Send + 'static>(
    arguments: &SessionArgs,
    destination: IpAddr,
    role: R,
) -> Result<Exit> {
    let termination = Termination::new(arguments.lifetime.hold)?;
    match arguments.flows {
        Some(flows) => many::run(arguments, destination, flows, termination, role).await,
        None => run_one(arguments, destination, termination, role).await,
    }
}

async fn run_one<R: Role>(
    arguments: &SessionArgs,
    destination: IpAddr,
    mut termination: Termination,
    mut role: R,
) -> Result<Exit> {
    let json = arguments.output.json;
    let mut client = RsvpClient::new(client::channel(&arguments.node.socket).await?);
    let mut call = Call::open(&mut client, arguments.data.session(destination)).await?;
    for request in role.first_requests() {
        call.send(request).await?;
    }
    let mut out = std::io::stdout();
    loop {
        let response = tokio::select! {
            response = call.next() => response?,
            // The daemon tears down the state of a call that ends.
            () = termination.wait() => {
                if json {
                    let line = ReleasedLine { r#type: "released", time_unix_us: now_unix_us() };
                    json_line(&mut out, &line)?;
                } else {
                    writeln!(out, "released")?;
                }
                return Ok(Exit::yes_if(role.is_fulfilled()));
            }
        };
        let Some(upcall) = &response.upcall else { continue };
        if json {
            json_event(&mut out, &response)?;
        } else if matches!(upcall, Upcall::Registered(_)) {
            writeln!(out, "{}", R::WAITS)?;
        } else {
            writeln!(out, "{}", print::text(upcall))?;
        }
        out.flush()?;
        let next = role.upcall(upcall);
        if ends(&role, upcall) {
            return Ok(Exit::No);
        }
        if let Some(request) = next {
            call.send(request).await?;
        }
    }
}

/// Whether an upcall ends the command. A refused request changes nothing that stands: a receiver whose reservation was
/// confirmed keeps it when a sender offers something else later, such as an ADSPEC without the service.
pub(super) fn ends(role: &impl Role, upcall: &Upcall) -> bool {
    matches!(upcall, Upcall::Refused(_)) && !role.is_fulfilled()
}

/// The call of one session: requests in one direction, upcalls in the other.
pub(super) struct Call {
    requests: mpsc::Sender<v1::SessionRequest>,
    upcalls: Streaming<v1::SessionResponse>,
}

impl Call {
    /// Opens the call and registers the session.
    ///
    /// # Errors
    /// The daemon refused.
    pub(super) async fn open(client: &mut RsvpClient<Channel>, register: v1::Register) -> Result<Self> {
        let (requests, stream) = mpsc::channel(4);
        let first = v1::SessionRequest { request: Some(Request::Register(register)) };
        requests.send(first).await.context("cannot register")?;
        let upcalls = answer(client.session(ReceiverStream::new(stream)).await)?;
        Ok(Self { requests, upcalls })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The daemon ended the call.
    pub(super) async fn send(&self, request: Request) -> Result<()> {
        let request = v1::SessionRequest { request: Some(request) };
        self.requests.send(request).await.context("the daemon ended the session")
    }

    /// Waits for the next upcall.
    ///
    /// # Errors
    /// The daemon ended the call.
    pub(super) async fn next(&mut self) -> Result<v1::SessionResponse> {
        match self.upcalls.message().await.map_err(refusal)? {
            Some(response) => Ok(response),
            None => bail!("the daemon ended the session"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Stands(bool);

    impl Role for Stands {
        const WAITS: &'static str = "";
        const FULFILLED: [&'static str; 2] = [""; 2];

        fn first_requests(&self) -> Vec<Request> {
            Vec::new()
        }

        fn upcall(&mut self, _: &Upcall) -> Option<Request> {
            None
        }

        fn is_fulfilled(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn a_refusal_ends_the_command_only_before_its_reservation_stands() {
        let refused = Upcall::Refused(v1::Refused::default());
        assert!(ends(&Stands(false), &refused) && !ends(&Stands(true), &refused));
        assert!(!ends(&Stands(false), &Upcall::Registered(v1::Registered::default())));
    }
}
