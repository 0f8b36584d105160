//! `signalbox run`: a program, and reservations for the flows that it opens.

mod flow;
mod held;
mod print;
mod signals;
mod wanted;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use clap::{Args, ValueEnum};
use signalbox_api::v1;
use signalbox_linux::launch::{Launched, Look, Transport, shell_status};
use tokio::sync::{mpsc, watch};

use super::Run;
use super::reserve::{ReserveArgs, Terms};
use crate::arguments::values::{partial, rate, time};
use crate::arguments::{
    AuthorityArgs, FlowArgs, NodeArgs, OutputArgs, RequestArgs, RetryArgs, ServiceArgs, Signaling,
    TrafficArgs,
};
use crate::client::{self, Shared, block_on};
use crate::exit::Exit;
use flow::Flow;
use held::{Held, Report};
use print::Printer;
use signals::Signals;
use wanted::{Ports, Wanted};

/// The time between two looks at the sockets of the program. It is longer where a look takes more than a twentieth of it.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
const PART_FOR_LOOKS: u32 = 20;
/// A flow is over when so many looks in a row did not find it.
const MISSES: u8 = 2;
/// The exit status where a program cannot be started, as of a shell: it is missing; something else.
const MISSING: u8 = 127;
const CANNOT_START: u8 = 126;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct RunArgs {
    /// Rate of the IP packets of each flow, in bits a second: 64kbit, 20mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: u64,
    /// Only flows to this address, prefix or host. May be given several times.
    #[arg(long, value_name = "DESTINATION")]
    to: Vec<String>,
    /// Only flows to this port, or to ports FIRST-LAST. May be given several times.
    #[arg(long = "dport", value_name = "PORT[-LAST]", value_parser = wanted::ports)]
    ports: Vec<Ports>,
    /// Only flows of this protocol.
    #[arg(long = "proto", value_enum, value_name = "IP-PROTOCOL")]
    protocol: Option<Protocol>,
    /// Reserve for connections that others open to the program, too.
    #[arg(long)]
    accepted: bool,
    /// Most flows at a time. Further ones have no reservation until one of them ends.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=128))]
    flows: u16,
    /// Signaling protocol.
    #[arg(long, value_enum, default_value_t = Signaling::Qos)]
    signaling: Signaling,
    /// Least rate that will do if the rate is not available, with qos, boomerang and casp.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    at_least: Option<u64>,
    /// Reserve for the reverse direction as well, with qos, boomerang and casp.
    #[arg(long)]
    bidirectional: bool,
    /// A part of the path will do, as for `signalbox reserve`.
    #[arg(long, value_name = "N[/M]", value_parser = partial, num_args = 0..=1, default_missing_value = "0")]
    partial: Option<v1::PartialReservation>,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    service: ServiceArgs,
    /// Bound of the queueing delay, with --service guaranteed.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Service")]
    delay: Option<Duration>,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[command(flatten)]
    retry: RetryArgs,
    /// Write what becomes of the flows to this file instead of standard error.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Say nothing of the flows.
    #[arg(long, conflicts_with_all = ["events", "json"])]
    quiet: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Tcp,
    Udp,
}

const HELP: &str = concat!(
    "EXIT STATUS:\n",
    "  that of the program; 128 and the number of a signal that ended it\n",
    "  2    the command line is wrong\n",
    "  3    no daemon, or a missing right: the program was not started\n",
    "  126  the program cannot be started\n",
    "  127  there is no such program\n\n",
    "EXAMPLES:\n",
    "  signalbox run --rate 5mbit -- iperf3 --client 192.0.2.9 --udp --bitrate 4M\n",
    "  signalbox run --rate 20mbit --to 192.0.2.9 -- curl --upload-file film.mkv https://192.0.2.9/upload\n",
    "  signalbox run --rate 4mbit --to 192.0.2.9 --dport 5004 -- ffmpeg -re -i film.mkv -f rtp rtp://192.0.2.9:5004\n",
    "  signalbox run --rate 2mbit --proto tcp --accepted --flows 64 -- /usr/local/bin/streaming-server\n",
    "  signalbox run --rate 8mbit --bidirectional --json --events flows.json -- curl --remote-name https://host.example/film.mkv\n\n",
    "The program has a cgroup of its own, where this user may make one (cgroups of version 2), and otherwise the processes that\n",
    "descend from it are followed. Their sockets of TCP and UDP are looked up ten times a second, and for each flow that they send\n",
    "there is a reservation of --rate while its socket is open. All are released when the program ends. What one of its processes does in another\n",
    "network namespace is not seen. Flows to this host itself have no reservation, unless --to names it. A flow that is refused goes on as best effort,\n",
    "and is asked for again, after 0.25 s and then after longer waits; --once asks once.\n\n",
    "A socket of UDP that is not connected (ffmpeg has such) does not show where it sends. It has a reservation from its port to each host of\n",
    "--to and each single port of --dport, if both are given.\n\n",
    "Signals go to the program: SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2. Standard input and output are the program's.\n",
    "What becomes of flows is printed on standard error, or with --events to a file. JSON: the events of docs/schema/reserve.json, each with\n",
    "flow; beside them running (pid; cgroup: false if there is none, with reason), unreserved (flow, reason), notice (message), and ended\n",
    "(status, flows: how many there were).",
);

impl Run for RunArgs {
    fn run(self) -> Result<Exit> {
        block_on(self.supervise())
    }
}

/// A flow of the program.
enum State {
    /// A reservation is asked for, or held. `misses`: so many looks in a row did not find it.
    Open { stop: watch::Sender<bool>, misses: u8 },
    /// It has ended, and is released.
    Closing,
    /// There is no reservation, and no further one is asked for.
    Over,
    /// There were too many others.
    Unreserved,
}

impl RunArgs {
    /// The request for a flow, and the arguments by which `signalbox reserve` would make it.
    fn reserve(&self, flow: &Flow) -> ReserveArgs {
        let request = RequestArgs {
            destination: flow.destination.ip().to_string(),
            rate: self.rate,
            flow: FlowArgs {
                source: flow.source,
                ip_protocol: Some(flow.transport.number()),
                source_port: Some(flow.source_port),
                destination_port: Some(flow.destination.port()),
                ..FlowArgs::default()
            },
            traffic: self.traffic,
            service: self.service.clone(),
            delay: self.delay,
            authority: self.authority.clone(),
        };
        let terms = Terms {
            signaling: self.signaling,
            at_least: self.at_least,
            bidirectional: self.bidirectional,
            partial: self.partial,
            node: self.node.clone(),
        };
        ReserveArgs::on_terms(terms, request)
    }

    async fn supervise(self) -> Result<Exit> {
        let wanted = Wanted::new(
            &self.to,
            &self.ports,
            self.protocol.map(|protocol| match protocol {
                Protocol::Tcp => Transport::Tcp,
                Protocol::Udp => Transport::Udp,
            }),
            self.accepted,
        )?;
        // What is wrong in any request, and a daemon that is away, end the command before the program starts.
        self.reserve(&Flow::example()).open()?;
        drop(client::channel(&self.node.socket).await?);
        let printer = Printer::new(self.events.as_deref(), self.output.json, self.quiet)?;
        let mut signals = Signals::new()?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        let program = match Launched::start(command) {
            Ok(program) => program,
            Err(error) => return Ok(cannot_start(&self.command[0], &error, self.output.json)),
        };
        let (sender, mut reports) = mpsc::unbounded_channel();
        let connection = Shared::to(&self.node.socket);
        let mut session = Session {
            arguments: &self,
            wanted,
            program,
            printer,
            connection,
            sender,
            flows: BTreeMap::new(),
            count: 0,
        };
        session.printer.running(session.program.id(), session.program.lacks_cgroup());
        let status = session.watch(&mut signals, &mut reports).await?;
        session.release(&mut signals, &mut reports).await;
        let status = shell_status(status);
        session.printer.ended(status, session.count);
        Ok(Exit::Of(ExitCode::from(status)))
    }
}

/// Reports that the program cannot be started, and returns the exit status of a shell.
fn cannot_start(program: &OsStr, error: &io::Error, json: bool) -> Exit {
    let status = if error.kind() == io::ErrorKind::NotFound { MISSING } else { CANNOT_START };
    let text = format!("cannot start {}: {error}", program.to_string_lossy());
    crate::exit::report(&Error::msg(text), json);
    Exit::Of(ExitCode::from(status))
}

/// A program that runs, and its flows.
struct Session<'a> {
    arguments: &'a RunArgs,
    wanted: Wanted,
    program: Launched,
    printer: Printer,
    connection: Shared,
    sender: mpsc::UnboundedSender<Report>,
    flows: BTreeMap<Flow, State>,
    /// The number of flows with a reservation, or a request for one, until now.
    count: u64,
}

impl Session<'_> {
    /// Follows the program to its end.
    async fn watch(
        &mut self,
        signals: &mut Signals,
        reports: &mut mpsc::UnboundedReceiver<Report>,
    ) -> Result<std::process::ExitStatus> {
        let mut next = tokio::time::Instant::now();
        loop {
            tokio::select! {
                signal = signals.next() => if let Some(number) = signal {
                    // It may have ended meanwhile.
                    let _ = self.program.signal(number);
                },
                Some(report) = reports.recv() => self.take(report),
                () = tokio::time::sleep_until(next) => {
                    let begin = Instant::now();
                    match self.program.look() {
                        Ok(look) => self.compare(&look)?,
                        // The program goes on, and so does what is held.
                        Err(error) => {
                            self.printer.notice(&format!("cannot see the sockets of the program: {error}"));
                        }
                    }
                    next = tokio::time::Instant::now() + BETWEEN_LOOKS.max(begin.elapsed() * PART_FOR_LOOKS);
                }
            }
            if let Some(status) = self.program.ended()? {
                return Ok(status);
            }
        }
    }

    /// Compares the flows that there are now with those of the last look.
    fn compare(&mut self, look: &Look) -> Result<()> {
        if let Some(process) = look.hidden {
            self.printer.notice(&format!(
                "the sockets of process {process} cannot be seen: it belongs to another user; run this command as root"
            ));
        }
        let found = self.wanted.flows(&look.sockets);
        if let Some(port) = found.unknown {
            self.printer.notice(&format!(
                "a socket of UDP (port {port}) is not connected, so that it is not known where it sends: name the host by --to and the port \
                 by --dport"
            ));
        }
        self.flows.retain(|flow, state| match state {
            State::Open { stop, misses } => {
                *misses = if found.flows.contains(flow) { 0 } else { *misses + 1 };
                if *misses >= MISSES {
                    stop.send_replace(true);
                    *state = State::Closing;
                }
                true
            }
            State::Closing => true,
            State::Over | State::Unreserved => found.flows.contains(flow),
        });
        for flow in found.flows {
            if matches!(self.flows.get(&flow), None | Some(State::Unreserved)) {
                self.begin(flow)?;
            }
        }
        Ok(())
    }

    /// Reserves for a flow, if there is room for one more.
    fn begin(&mut self, flow: Flow) -> Result<()> {
        let held =
            self.flows.values().filter(|state| matches!(state, State::Open { .. } | State::Closing)).count();
        if held >= usize::from(self.arguments.flows) {
            if self.flows.len() < wanted::MOST && self.flows.insert(flow, State::Unreserved).is_none() {
                let most = self.arguments.flows;
                self.printer.unreserved(
                    &flow,
                    &format!("{most} flows have reservations, and --flows allows no more"),
                );
            }
            return Ok(());
        }
        let reserve = self.arguments.reserve(&flow);
        let (stop, stopped) = watch::channel(false);
        let held = Held {
            flow,
            open: reserve.open()?,
            confirms: reserve.confirms(),
            accepts_part: reserve.accepts_part(),
            asks_again: self.arguments.retry.asks_again(),
            connection: self.connection.clone(),
            reports: self.sender.clone(),
        };
        tokio::spawn(held.keep(stopped));
        self.count += 1;
        self.flows.insert(flow, State::Open { stop, misses: 0 });
        Ok(())
    }

    /// Prints what became of a flow.
    fn take(&mut self, report: Report) {
        match report {
            Report::Event(flow, response) => self.printer.event(&flow, &response, self.arguments.signaling),
            Report::Over(flow, error) => {
                if let Some(error) = error {
                    self.printer.unreserved(&flow, &format!("{error:#}"));
                }
                match self.flows.get(&flow) {
                    Some(State::Closing) => self.flows.remove(&flow),
                    _ => self.flows.insert(flow, State::Over),
                };
            }
        }
    }

    /// Releases all. A signal ends that early; the daemon releases what is left when this process ends.
    async fn release(&mut self, signals: &mut Signals, reports: &mut mpsc::UnboundedReceiver<Report>) {
        for state in self.flows.values_mut() {
            if let State::Open { stop, .. } = state {
                stop.send_replace(true);
                *state = State::Closing;
            }
        }
        while self.flows.values().any(|state| matches!(state, State::Closing)) {
            tokio::select! {
                Some(report) = reports.recv() => self.take(report),
                signal = signals.next() => if signal.is_some() {
                    return;
                },
            }
        }
    }
}
