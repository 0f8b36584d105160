//! `signalboxd`: the daemon of a Signalbox node.
//!
//! The daemon gives a [`Node`] a clock, sockets, routes, a log, and clients over a Unix socket.
//!
//! * [`driver`] is the event loop. It has the main thread for itself and waits in the kernel.
//! * [`server`] is a second thread, for the clients of the control socket and for signals. It sends [`requests`] to the
//!   event loop and never touches the node.
//! * [`clients`] is the life cycle that the clients of all protocols have.
//! * [`protocols`] holds a folder for each protocol: its conversions between the API's types and ours, its service. [`api`]
//!   is what the services share, and those that belong to no protocol.
//! * [`standing`] holds what the configuration asks for by itself.
//! * [`access`] is what the users of this host may do over the control socket.
//! * [`metrics`] are the numbers that monitoring systems read.
//! * [`mod@handover`] is the file that a planned stop leaves to the next start.
//! * [`sessions`] makes the session identifiers of users, the same after a crash.
//! * [`decisions`] takes what became of requests to the log, the audit file and clients.
//! * [`report`] logs counters that grow, [`record`] records inputs. The crate `signalbox-config` reads the configuration.

mod access;
mod api;
mod clean;
mod clients;
mod connection;
mod course;
mod decisions;
mod driver;
mod handover;
mod limits;
mod log;
mod metrics;
mod notify;
mod own_file;
mod protocols;
mod record;
mod report;
mod requests;
mod resolvers;
#[cfg(test)]
mod rig;
mod server;
mod services;
mod sessions;
mod socket;
mod standing;
mod view;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use signalbox_config::{Config, Finding, Loaded};
use signalbox_core::IfIndex;
use signalbox_linux::clock::{self, Clock};
use signalbox_linux::confine::{self, Confinement, FileAccess};
use signalbox_linux::helper::Helper;
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::traffic::Enforcer;
use signalbox_linux::{Io, IoConfig, OpenError, accounts, capability, kernel_speaks_sctp, process};
use signalbox_node::{KeptInKernel, Node};

use api::{CurrentConfig, InterfaceNames};
use decisions::{AuditFile, DecisionHistory, Decisions};
use driver::{Driver, Enforced};
use handover::HandoverFile;
use log::LogLevel;
use notify::Notifier;
use record::Recorder;
use server::{ControlRuntime, Server};
use sessions::Sessions;
use socket::ControlSocket;

/// Exit status of a configuration that cannot be used.
const WRONG_CONFIG: u8 = 2;

/// The daemon of a Signalbox node: GIST with its signaling applications, RSVP, Boomerang and CASP.
#[derive(Debug, Parser)]
#[command(name = "signalboxd", version, after_help = HELP)]
struct Arguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/signalbox/signalboxd.toml")]
    config: PathBuf,
    /// Only read the configuration, and print OK or all mistakes and warnings.
    #[arg(long)]
    check: bool,
    /// Hold the privileges for a daemon that has none, at the socket privileges.helper, and do nothing else.
    #[arg(long, conflicts_with = "check")]
    helper: bool,
    /// Only remove what a daemon that crashed left in the kernel, and print it: rules, routes, tables of nftables and queues.
    #[arg(long, conflicts_with_all = ["check", "helper"])]
    clean: bool,
}

const HELP: &str = "\
EXIT STATUS:
  0  it was stopped, or the configuration is fine, or all is removed
  1  it could not run
  2  the command line or the configuration is wrong

EXAMPLES:
  signalboxd --config /etc/signalbox/signalboxd.toml
  signalboxd --config r1.toml --check
  ip netns exec r1 signalboxd --config r1.toml
  signalboxd --config r1.toml --helper
  signalboxd --config r1.toml --clean

It needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE, and gives up at its start what it does not need later
([privileges]); or its helper has them. It logs to standard error, stops cleanly on SIGTERM and SIGINT, and reads its
configuration again on SIGHUP.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (config, warnings) = match load(&arguments.config) {
        Ok(loaded) => loaded,
        Err(mistakes) => return fail(&mistakes, WRONG_CONFIG),
    };
    if arguments.check {
        for warning in warnings {
            let _ = writeln!(io::stderr(), "signalboxd: {warning}");
        }
        // Where the line cannot be printed, the exit status gives the result.
        let _ = writeln!(io::stdout(), "{}: OK", arguments.config.display());
        return ExitCode::SUCCESS;
    }
    if arguments.clean {
        return match clean::clean(&config) {
            Ok(removed) => {
                let lines = removed.iter().map(|what| format!("removed: {what}\n")).collect::<String>();
                let text = if lines.is_empty() { "nothing is left to remove\n" } else { &lines };
                // Where it cannot be printed, the exit status gives the result.
                let _ = io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Err(error) => fail(&format_args!("{error:#}"), 1),
        };
    }
    let log = log::start(&config.log);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let lines = log::stderr::Flush;
    let result = if arguments.helper { help(&config) } else { run(&config, arguments.config, log) };
    drop(lines);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format_args!("{error:#}"), 1),
    }
}

/// Reads the configuration for the interfaces of this machine.
fn read(path: &Path) -> io::Result<Loaded> {
    match signalbox_linux::interface_names() {
        Ok(names) => signalbox_config::load_here(path, &names),
        // Without netlink the start fails later, with a better reason.
        Err(_) => signalbox_config::load(path),
    }
}

/// Reads the configuration, and gives its warnings with it. An error is the text of all mistakes.
fn load(path: &Path) -> Result<(Config, Vec<String>), String> {
    let loaded = read(path).map_err(|error| {
        let path = path.display();
        format!("{path}: cannot read the configuration: {error}; give an existing file with --config")
    })?;
    let text = |findings: Vec<Finding>| findings.iter().map(Finding::to_string).collect::<Vec<_>>();
    let (config, findings) = loaded.usable().map_err(|findings| text(findings).join("\nsignalboxd: "))?;
    let machine_warnings = config.machine_warnings(path);
    Ok((config, text([findings, machine_warnings].concat())))
}

fn fail(error: &dyn std::fmt::Display, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "signalboxd: {error}");
    ExitCode::from(status)
}

fn run(config: &Config, path: PathBuf, log: LogLevel) -> Result<()> {
    let control_runtime = ControlRuntime::new()?;
    let user = config.user()?;
    // The control socket comes first: it shows whether another daemon runs with this configuration.
    let group = config.control.group.as_deref().map(accounts::group).transpose()?.flatten();
    let control = ControlSocket::bind(&config.control.socket, (config.control.mode, group), &user)?;
    let notifier = Notifier::open();
    let clock = Clock::start();
    let mut settings = config.settings(clock.start_unix_us(), kernel_speaks_sctp());
    resolvers::complete(&mut settings)?;
    let io = open(config, &settings)?;
    let (handover, predecessor) = handover(config);
    let sessions = Sessions::open(&config.control.socket)?;
    let enforcer = enforcer(config, predecessor.as_deref())?;
    let pinholes = config.pinholes().map(|pinholes| Pinholes::open(&pinholes)).transpose();
    let pinholes = pinholes.context("cannot open pinholes")?;
    let seed = clock::seed().context("the kernel gives no random numbers")?;
    let recorder = Recorder::open(&config.record, &settings, &seed)?;
    // What the kernel must open is open. Messages of others, clients and files come later.
    let kernel = Enforced { reservations: enforcer, pinholes };
    let audit = config.audit.file.as_deref().map(|path| AuditFile::open(path, &user)).transpose()?;
    confine(&config.confinement(&path, user))?;
    // Threads that write have no more privileges than the event loop.
    log::stderr::start().context("cannot start the thread of the log")?;
    let history = DecisionHistory::default();
    let decisions = Decisions::start(history.clone(), audit)?;
    // The node accepts every configuration that has passed its own check.
    let node = Node::new(settings, seed)?;
    let waker = io.waker();
    let names = InterfaceNames::default();
    let mut driver =
        Driver::new(node, io, kernel, clock, recorder, names.clone(), (notifier.clone(), decisions));

    take_over(&mut driver, predecessor, config.restart.adopt_pinholes);

    let current = CurrentConfig::new(path, config.clone());
    let (mut server, mut requests) = Server::start(
        control_runtime,
        (control, notifier.clone()),
        config,
        waker,
        names,
        current,
        (log, history, sessions),
    )?;
    tracing::info!(
        node = config.node.name,
        version = env!("CARGO_PKG_VERSION"),
        socket = %config.control.socket.display(),
        "ready"
    );
    notifier.send("READY=1");
    let result = driver.run(&mut requests);
    notifier.send("STOPPING=1");

    driver.end_clients();
    let mut kept = KeptInKernel::default();
    let left = handover.map(|file| {
        let mut octets = driver.hand_over();
        if let Some(queues) = driver.keep_queues(config.restart.keep_queues) {
            handover::kept::write(&mut octets, &queues);
            kept.queues = true;
        }
        let written = file.leave(&octets);
        kept.pinholes = written.is_ok() && driver.keep_pinholes(config.restart.keep_pinholes);
        written
    });
    driver.announce_stop(left.as_ref().is_some_and(Result::is_ok));
    driver.record_stop(kept);
    if let Some(Err(error)) = left {
        tracing::warn!("{error:#}; reservations come back with the refreshes of neighbors");
    }
    drop(requests);
    server.stop();
    let closed = driver.close();
    tracing::info!("stopped");
    result.and(closed)
}

/// Holds the privileges for a daemon that has none, until a signal ends it.
fn help(config: &Config) -> Result<()> {
    let path = config.helper().context(
        "the configuration has no privileges.helper: set it to the path of a Unix socket, or leave --helper out",
    )?;
    let io = config.io(config.settings(0, kernel_speaks_sctp()).entries());
    let user = config.user()?;
    if user.is_shared() {
        tracing::warn!(
            "every process of the user nobody can take the sockets: set privileges.user to a user of the daemon alone"
        );
    }
    let helper = Helper::open(path, &user, IoConfig { helper: None, ..io })?;
    confine(&config.helper_confinement(path))?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %path.display(), "the helper is ready");
    Notifier::open().send("READY=1");
    helper.run().context("cannot wait for the daemon")?;
    tracing::info!("stopped");
    Ok(())
}

/// Opens the file for the next daemon, and reads that of the daemon before this one. Without it the daemon works as well.
fn handover(config: &Config) -> (Option<HandoverFile>, Option<Vec<u8>>) {
    if !config.restart.handover {
        return (None, None);
    }
    match HandoverFile::open(&config.control.socket) {
        Ok((file, before)) => (Some(file), before),
        Err(error) => {
            tracing::warn!(
                "{error:#}; after a planned restart reservations come back with the refreshes of neighbors"
            );
            (None, None)
        }
    }
}

/// Gives the node what the daemon before this one left, in the file and in the kernel. After a planned stop, nobody owns what no
/// session of the file is for. After a crash nobody knows whose it is, until those who asked for it come again: that is what `adopt`
/// gives them time for.
fn take_over(driver: &mut Driver, predecessor: Option<Vec<u8>>, adopt: Duration) {
    let (adopt, keep) =
        if predecessor.is_some() { (Duration::ZERO, handover::MAX_AGE) } else { (adopt, adopt) };
    let mut octets = predecessor.unwrap_or_default();
    if !octets.is_empty() {
        tracing::info!(octets = octets.len(), "the daemon before this one left its sessions");
    }
    octets.extend(driver.bindings_left(keep));
    if !octets.is_empty() {
        driver.take_over(&octets);
    }
    driver.adopt_pinholes(adopt);
}

/// Gives up the privileges that the daemon does not need after its start.
fn confine(confinement: &Confinement) -> Result<()> {
    let confined = confine::confine(confinement).context("cannot give up privileges")?;
    let capabilities = confined.capabilities.join(" ");
    tracing::info!(
        user = confined.user,
        capabilities,
        files = %confined.files,
        system_calls = if confined.system_calls { "limited" } else { "unlimited" },
        "privileges given up"
    );
    if confinement.files.is_some() && confined.files != FileAccess::Limited {
        tracing::warn!("files are {}: this kernel has no landlock, or an older one", confined.files);
    }
    Ok(())
}

/// Makes the queues at the links that can be reserved at, on a node with a protocol that reserves, or adopts those that the daemon
/// before this one left in force.
fn enforcer(config: &Config, predecessor: Option<&[u8]>) -> Result<Option<Enforcer>> {
    let Some(traffic) = config.traffic() else { return Ok(None) };
    let enforcer = Enforcer::open_with(&traffic, predecessor.and_then(handover::kept::read))
        .context("cannot enforce reservations (enforcement.mode says whether that is needed)")?;
    // The driver reports links that are not there yet, when they come.
    for link in
        enforcer.capabilities().filter(|link| link.ifindex != IfIndex::NONE && !link.lacking.is_empty())
    {
        let lacking = link.lacking.join("; ");
        tracing::warn!(interface = link.name, lacking, "reservations are not enforced whole here");
    }
    Ok(Some(enforcer))
}

/// Descriptors that accepted connections leave to everything else than clients, which have their own; at most half of all.
const KEPT_BACK: u64 = 256;

/// Opens sockets and interception. If that fails, the error names everything that is missing, not only the first.
fn open(config: &Config, node: &signalbox_node::Config) -> Result<Io> {
    let mut io = config.io(node.entries());
    match process::raise_file_limit() {
        Ok(files) => {
            // Peers never take the descriptors that the control socket and the own streams need.
            let clients = limits::descriptors(&config.control);
            let most = files.saturating_sub(KEPT_BACK + u64::from(clients)).max(files / 2);
            io.streams.accept_limit = io.streams.accept_limit.min(u32::try_from(most).unwrap_or(u32::MAX));
        }
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
    Io::open(&io).map_err(|first| {
        let missing = capability::check(&io);
        let missing = if missing.is_empty() { vec![first] } else { missing };
        let lines: Vec<String> = missing.iter().map(OpenError::to_string).collect();
        anyhow!("cannot reach the network:\n  {}", lines.join("\n  "))
    })
}
