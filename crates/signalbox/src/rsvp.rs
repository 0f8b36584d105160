//! `signalbox rsvp`: sessions of this host, and what the node knows of others'.

mod args;
mod many;
mod print;
mod receive;
mod send;
mod show;
mod trace;

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
use tonic::transport::Channel;

use crate::client;
pub(crate) use args::{PolicyArgs, SessionArgs, TrafficArgs};
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
    /// Ask the nodes on the way to a sender, one after the other, what is reserved for it.
    Trace(Box<trace::TraceArgs>),
}

const EXAMPLES: &str = "\
Examples:
  at the sender:    signalbox rsvp send 192.0.2.9 --proto udp --dport 5004 --rate 20mbit
  at the receiver:  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004
  on any node:      signalbox rsvp show
  from anywhere:    signalbox rsvp trace 192.0.2.9 --proto udp --dport 5004 --sender 198.51.100.7/4000

Senders announce, receivers reserve (RFC 2205): what is reserved is what the receiver asks for. Both commands hold what
they did until Ctrl-C, SIGTERM or the end of --hold, and then tear it down. With --flows they do the same for so many
sessions, to destination ports from --dport on, and tell when all are there.";

/// Does what is asked.
pub(crate) async fn run(socket: &Path, arguments: &RsvpArgs) -> Result<ExitCode> {
    match &arguments.what {
        What::Send(arguments) => send::run(socket, arguments).await,
        What::Receive(arguments) => receive::run(socket, arguments).await,
        What::Show(arguments) => show::run(socket, arguments).await,
        What::Trace(arguments) => trace::run(arguments),
    }
}

/// Announces a sender, for `signalbox reserve --protocol rsvp`.
pub(crate) async fn send(socket: &Path, arguments: &SendArgs) -> Result<ExitCode> {
    send::run(socket, arguments).await
}

/// What a command does in a session.
trait Role {
    /// What is told when sessions are registered: for programs and for people.
    const BEGUN: (&'static str, &'static str);
    /// What flows are that have what they want.
    const STANDS: &'static str;

    /// What is asked for when the session is registered, one after the other.
    fn begin(&self) -> Vec<Request>;

    /// Takes in what the session hears; gives what is asked for because of it.
    fn hear(&mut self, upcall: &Upcall) -> Option<Request>;

    /// It has what it wants.
    fn stands(&self) -> bool;
}

/// Does a command's part in its sessions until it is to stop, and prints what happens.
async fn play<R: Role + Clone + Send + 'static>(
    socket: &Path,
    arguments: &SessionArgs,
    role: R,
) -> Result<ExitCode> {
    let stop = Stop::new(arguments.hold)?;
    match arguments.flows {
        Some(flows) => many::run(socket, arguments, flows, stop, role).await,
        None => alone(socket, arguments, stop, role).await,
    }
}

async fn alone<R: Role>(
    socket: &Path,
    arguments: &SessionArgs,
    mut stop: Stop,
    mut role: R,
) -> Result<ExitCode> {
    let json = arguments.json;
    let mut client = RsvpClient::new(client::channel(socket).await?);
    let mut call = Call::open(&mut client, arguments.register()).await?;
    for request in role.begin() {
        call.ask(request).await?;
    }
    loop {
        let upcall = tokio::select! {
            upcall = call.next() => upcall?,
            // The daemon tears down what was done in a call that ends.
            () = stop.wait() => {
                tell(json, "released", "released")?;
                return Ok(ExitCode::from(u8::from(!role.stands())));
            }
        };
        if matches!(upcall, Upcall::Registered(_)) {
            tell(json, R::BEGUN.0, R::BEGUN.1)?;
            continue;
        }
        say(json, &upcall)?;
        let next = role.hear(&upcall);
        if matches!(upcall, Upcall::Refused(_)) {
            return Ok(ExitCode::from(crate::FAILED));
        }
        if let Some(request) = next {
            call.ask(request).await?;
        }
    }
}

/// The call of a session that registers.
struct Call {
    requests: mpsc::Sender<v1::RsvpRequest>,
    upcalls: Streaming<v1::RsvpUpcall>,
}

impl Call {
    async fn open(client: &mut RsvpClient<Channel>, register: v1::RsvpRegister) -> Result<Self> {
        let (requests, stream) = mpsc::channel(4);
        let first = v1::RsvpRequest { request: Some(Request::Register(register)) };
        requests.send(first).await.context("cannot register")?;
        let upcalls = client.session(ReceiverStream::new(stream)).await;
        Ok(Self { requests, upcalls: upcalls.map_err(|status| client::said_no(&status))?.into_inner() })
    }

    async fn ask(&self, request: Request) -> Result<()> {
        let request = v1::RsvpRequest { request: Some(request) };
        self.requests.send(request).await.context("the daemon ended the session")
    }

    /// What the session hears next.
    async fn next(&mut self) -> Result<Upcall> {
        loop {
            match self.upcalls.message().await.map_err(|status| client::said_no(&status))? {
                Some(v1::RsvpUpcall { upcall: Some(upcall) }) => return Ok(upcall),
                // Of a daemon that is newer than this command.
                Some(_) => {}
                None => bail!("the daemon ended the session"),
            }
        }
    }
}

/// What ends a command: a signal, or the end of its time.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    end: Option<tokio::time::Instant>,
}

impl Stop {
    /// `hold`: it ends after this time.
    fn new(hold: Option<Duration>) -> Result<Self> {
        let cannot = "cannot wait for signals";
        let interrupt = signal(SignalKind::interrupt()).context(cannot)?;
        let terminate = signal(SignalKind::terminate()).context(cannot)?;
        Ok(Self { interrupt, terminate, end: hold.map(|hold| tokio::time::Instant::now() + hold) })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = at(self.end) => {}
        }
    }
}

/// Waits until then; `None`: for ever.
async fn at(end: Option<tokio::time::Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
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
