//! `signalbox rsvp`: sessions of this host, and what the node knows of others'.

mod args;
mod print;
mod receive;
mod send;
mod show;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use signalbox_api::v1;
use signalbox_api::v1::rsvp_client::RsvpClient;
use signalbox_api::v1::rsvp_request::Request;
use signalbox_api::v1::rsvp_upcall::Upcall;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::client;
pub(crate) use args::{SessionArgs, TrafficArgs};
pub(crate) use send::SendArgs;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RsvpArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Announce a sender of a session, and show what is reserved for it.
    Send(Box<SendArgs>),
    /// Reserve as a receiver of a session, for the senders that announce themselves.
    Receive(Box<receive::ReceiveArgs>),
    /// Show the sessions that this node knows, with path state and reservations.
    Show(show::ShowArgs),
}

const EXAMPLES: &str = "\
Examples:
  at the sender:    signalbox rsvp send 192.0.2.9 --proto udp --dport 5004 --rate 20mbit
  at the receiver:  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004
  on any node:      signalbox rsvp show

Senders announce, receivers reserve (RFC 2205): what is reserved is what the receiver asks for. Both commands hold what
they did until Ctrl-C, SIGTERM or the end of --hold, and then tear it down.";

/// Does what is asked.
pub(crate) async fn run(socket: &Path, arguments: &RsvpArgs) -> Result<ExitCode> {
    match &arguments.what {
        What::Send(arguments) => send::run(socket, arguments).await,
        What::Receive(arguments) => receive::run(socket, arguments).await,
        What::Show(arguments) => show::run(socket, arguments).await,
    }
}

/// Announces a sender, for `signalbox reserve --protocol rsvp`.
pub(crate) async fn send(socket: &Path, arguments: &SendArgs) -> Result<ExitCode> {
    send::run(socket, arguments).await
}

/// A registered session.
struct Session {
    requests: mpsc::Sender<v1::RsvpRequest>,
    upcalls: Streaming<v1::RsvpUpcall>,
    interrupt: Signal,
    terminate: Signal,
    end: Option<tokio::time::Instant>,
}

/// What a session waits for.
enum Turn {
    Upcall(Upcall),
    /// Somebody wants it to end, or its time is over.
    Stop,
}

impl Session {
    /// Registers; `hold`: it ends after this time.
    async fn open(socket: &Path, register: v1::RsvpRegister, hold: Option<Duration>) -> Result<Self> {
        let cannot = "cannot wait for signals";
        let interrupt = signal(SignalKind::interrupt()).context(cannot)?;
        let terminate = signal(SignalKind::terminate()).context(cannot)?;
        let mut client = RsvpClient::new(client::channel(socket).await?);
        let (requests, stream) = mpsc::channel(4);
        let first = v1::RsvpRequest { request: Some(Request::Register(register)) };
        requests.send(first).await.context("cannot register")?;
        let upcalls = client.session(ReceiverStream::new(stream)).await;
        let upcalls = upcalls.map_err(|status| client::said_no(&status))?.into_inner();
        let end = hold.map(|hold| tokio::time::Instant::now() + hold);
        Ok(Self { requests, upcalls, interrupt, terminate, end })
    }

    async fn ask(&self, request: Request) -> Result<()> {
        let request = v1::RsvpRequest { request: Some(request) };
        self.requests.send(request).await.context("the daemon ended the session")
    }

    async fn turn(&mut self) -> Result<Turn> {
        let end = self.end;
        let late = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(late);
        loop {
            return tokio::select! {
                upcall = self.upcalls.message() => {
                    match upcall.map_err(|status| client::said_no(&status))? {
                        Some(v1::RsvpUpcall { upcall: Some(upcall) }) => Ok(Turn::Upcall(upcall)),
                        // Of a daemon that is newer than this command.
                        Some(_) => continue,
                        None => bail!("the daemon ended the session"),
                    }
                }
                _ = self.interrupt.recv() => Ok(Turn::Stop),
                _ = self.terminate.recv() => Ok(Turn::Stop),
                () = &mut late => Ok(Turn::Stop),
            };
        }
    }
}

/// Prints one upcall, as text or JSON.
fn say(json: bool, upcall: &Upcall) -> Result<()> {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", print::json(upcall))?;
    } else {
        writeln!(out, "{}", print::text(upcall))?;
    }
    Ok(out.flush()?)
}

/// Prints something that is no upcall.
fn tell(json: bool, kind: &str, text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", serde_json::json!({ "type": kind }))?;
    } else {
        writeln!(out, "{text}")?;
    }
    Ok(out.flush()?)
}
