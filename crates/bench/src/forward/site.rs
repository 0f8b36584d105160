//! The network of the benchmark: three namespaces in a row, and the daemon in the middle one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::process::Identity;
use signalbox_linux::program::find;
use signalbox_linux::topology;

use super::MIDDLE_PROCESSOR;
use signalbox_lab::scratch::Scratch;

/// The names of the namespaces of all benchmarks begin with it. No lab has such a name, because of the underscore.
const PREFIX: &str = "sbx-bench_";
pub(super) const PORT: u16 = 270;
pub(super) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 91, 1, 1);
pub(super) const MIDDLE_UP: Ipv4Addr = Ipv4Addr::new(10, 91, 1, 2);
pub(super) const MIDDLE_DOWN: Ipv4Addr = Ipv4Addr::new(10, 91, 2, 1);
pub(super) const SINK: Ipv4Addr = Ipv4Addr::new(10, 91, 2, 2);
const PREFIX_LEN: u8 = 24;
/// The links of the middle, in the configuration of its daemon. Reservations can be enforced at named ones only.
pub(super) const MIDDLE_LINKS: &str =
    "[interfaces.middle0]\ncapacity = \"40gbit\"\n[interfaces.middle1]\ncapacity = \"40gbit\"\n";
/// The time that the daemon may take to start, and to stop; under callgrind it is fifty times slower.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for its notice before looking whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Files of a daemon.
const SOCKET: &str = "control";
const LOG: &str = "log";
const DECISIONS: &str = "decisions";
/// Lines of the log in a report of a failure.
const SAID: usize = 20;

/// Three namespaces: source, middle, sink. Their names contain the process that made them, so that several benchmarks
/// can run at one time. Dropping it removes them.
pub(in super::super) struct Site {
    pub(super) source: Namespace,
    pub(super) middle: Namespace,
    pub(super) sink: Namespace,
}

impl Site {
    /// Makes the namespaces and links; removes those of benchmarks that have ended without removing them.
    pub(in super::super) fn build() -> Result<Self> {
        ensure!(netns::is_permitted(), "making network namespaces is not permitted: run it as root");
        sweep(|owner| !owner.is_alive())?;
        let own = Identity::of(std::process::id())?;
        let make = |node: &str| {
            let name = name(&own, node);
            Namespace::create(&name).with_context(|| format!("cannot make the namespace {name}"))
        };
        let site = Self { source: make("source")?, middle: make("middle")?, sink: make("sink")? };
        topology::create_veth(&site.source, "source0", &site.middle, "middle0")?;
        topology::create_veth(&site.middle, "middle1", &site.sink, "sink0")?;
        for (namespace, interface, address) in [
            (&site.source, "source0", SOURCE),
            (&site.middle, "middle0", MIDDLE_UP),
            (&site.middle, "middle1", MIDDLE_DOWN),
            (&site.sink, "sink0", SINK),
        ] {
            topology::add_address(namespace, interface, IpAddr::V4(address), PREFIX_LEN)?;
            topology::set_up(namespace, interface, true)?;
        }
        topology::set_forwarding(&site.middle, true)?;
        let everywhere = signalbox_core::node::Prefix { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
        topology::add_route(&site.source, everywhere, Some(IpAddr::V4(MIDDLE_UP)), None)?;
        topology::add_route(&site.sink, everywhere, Some(IpAddr::V4(MIDDLE_DOWN)), None)?;
        Ok(site)
    }

    /// Returns the ICMP Echo Requests that reached the sink so far, which answers none
    /// ([`Site::silence`]).
    pub(super) fn echoes(&self) -> Result<u64> {
        counter(&self.sink, "Icmp: ", "InEchos")
    }

    /// Makes the sink leave Echo Requests unanswered.
    pub(super) fn silence(&self) -> Result<()> {
        let written = self.sink.run(|| fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1"))?;
        written.context("cannot keep the sink from answering pings")
    }

    /// Returns the UDP datagrams that reached the sink's port so far. Its socket is not read, so that the kernel counts
    /// each of them as a drop by a full buffer.
    pub(super) fn arrived(&self) -> Result<u64> {
        counter(&self.sink, "Udp: ", "RcvbufErrors")
    }

    /// Returns the UDP datagrams that the middle node dropped because it was too slow.
    pub(super) fn overrun(&self) -> Result<u64> {
        counter(&self.middle, "Udp: ", "RcvbufErrors")
    }

    /// Opens a socket in `namespace` with this address and port.
    pub(super) fn socket(namespace: &Namespace, address: SocketAddr) -> Result<UdpSocket> {
        let bound = namespace.run(|| UdpSocket::bind(address))?;
        bound.with_context(|| format!("cannot bind {address}"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // An error cannot be reported here; the next run removes what is left.
        let _ = sweep(|owner| owner.pid == std::process::id());
    }
}

/// Returns the name of a benchmark's namespace.
fn name(owner: &Identity, node: &str) -> String {
    format!("{PREFIX}{}_{}-{node}", owner.pid, owner.start)
}

/// Returns the process that made the namespace with this name; `None`: it is not of a benchmark.
fn owner(name: &str) -> Option<Identity> {
    let (owner, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let (pid, start) = owner.split_once('_')?;
    Some(Identity { pid: pid.parse().ok()?, start: start.parse().ok()? })
}

/// Removes the namespaces of these benchmarks, and what runs in them.
fn sweep(of: impl Fn(&Identity) -> bool) -> Result<()> {
    for name in netns::list(PREFIX)?.into_iter().filter(|name| owner(name).is_some_and(|owner| of(&owner))) {
        // Another benchmark that starts now may have removed it.
        let Ok(namespace) = Namespace::open(&name) else { continue };
        for process in namespace.processes()? {
            process.terminate(Duration::from_secs(1))?;
        }
        netns::delete(&name)?;
    }
    Ok(())
}

/// A counter of `group`, which the lines of its names and of its values begin with.
fn counter(namespace: &Namespace, group: &str, name: &str) -> Result<u64> {
    let text = namespace.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let found = lines.next().zip(lines.next());
    let (names, values) = found.with_context(|| format!("no {group}in /proc/net/snmp"))?;
    let pair = names.split(' ').zip(values.split(' ')).find(|(found, _)| *found == name);
    let value = pair.with_context(|| format!("no {name} in /proc/net/snmp"))?.1;
    value.parse().with_context(|| format!("{name} in /proc/net/snmp is {value}"))
}

/// Whether nothing is bound to a processor in this process.
static UNPINNED: AtomicBool = AtomicBool::new(false);

/// Lets the kernel choose the processors of all that is measured from now on.
pub(super) fn leave_unpinned() {
    UNPINNED.store(true, Ordering::Relaxed);
}

/// Binds the calling thread, and what it starts, to one processor; on a machine with one there is nothing to do.
pub(in super::super) fn pin(processor: usize) -> Result<()> {
    if UNPINNED.load(Ordering::Relaxed) {
        return Ok(());
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Ok(());
    }
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot bind to processor {processor}"))
}

/// The daemon under test. Dropping it ends it.
pub(in super::super) struct Daemon {
    child: Child,
    directory: Scratch,
}

impl Daemon {
    /// Starts it in the middle, on the processor for what is measured, and waits until it is ready.
    /// `settings` are the protocols of the node, and their sections.
    pub(super) fn start(site: &Site, settings: &str) -> Result<Self> {
        Self::start_below(site, Vec::new(), settings)
    }

    /// Starts it by another program, whose words stand before its own.
    pub(in super::super) fn start_below(
        site: &Site,
        mut words: Vec<OsString>,
        settings: &str,
    ) -> Result<Self> {
        let directory = Scratch::new("bench")?;
        let config = directory.join("signalboxd.toml");
        // As an operator has it: each decision is a line of the log and of a file.
        let text = format!(
            "version = 1\nnode.name = \"middle\"\ncontrol.socket = \"{}\"\naudit.file = \"{}\"\n{settings}",
            directory.join(SOCKET).display(),
            directory.join(DECISIONS).display()
        );
        fs::write(&config, text).with_context(|| config.display().to_string())?;
        words.extend([program()?.into(), "--config".into(), config.into()]);
        let name = words.remove(0);
        let place = directory.join("notify");
        let notes = UnixDatagram::bind(&place).with_context(|| place.display().to_string())?;
        notes.set_read_timeout(Some(LOOK))?;
        let errors = File::create(directory.join(LOG))?;
        let started = site.middle.run(|| -> Result<Child> {
            pin(MIDDLE_PROCESSOR)?;
            let mut command = Command::new(&name);
            command.args(words).env("NOTIFY_SOCKET", &place);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
            command.spawn().with_context(|| format!("cannot start {}", name.display()))
        })?;
        let mut daemon = Self { child: started?, directory };
        let deadline = Instant::now() + PATIENCE;
        let mut note = [0; 64];
        // Its control socket exists long before it is ready.
        while !notes.recv(&mut note).is_ok_and(|length| note[..length].starts_with(b"READY=1")) {
            if daemon.child.try_wait()?.is_some() {
                bail!("signalboxd did not start: {}", daemon.said().trim());
            }
            ensure!(Instant::now() < deadline, "signalboxd did not start within {} s", PATIENCE.as_secs());
        }
        Ok(daemon)
    }

    /// Returns the daemon's process.
    pub(in super::super) fn process(&self) -> Result<Identity> {
        Identity::of(self.child.id()).context("the daemon has ended")
    }

    /// Returns the most memory that it ever had resident, in octets.
    pub(super) fn peak(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.context("no VmHWM in the status of the daemon")? << 10)
    }

    /// Returns the path of its control socket.
    fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Lists its sessions of RSVP by `signalbox show`. Returns their number.
    pub(in super::super) fn rsvp_sessions(&self) -> Result<usize> {
        let given = std::env::var_os("SIGNALBOX").map(PathBuf::from);
        let program = given.or_else(|| find("signalbox"));
        let program =
            program.context("no signalbox: install its package, build it, or name one in SIGNALBOX")?;
        let mut show = Command::new(program);
        show.args(["show", "--socket"]).arg(self.socket()).args(["--json", "rsvp", "sessions"]);
        show.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
        let mut child = show.spawn().context("cannot start signalbox")?;
        let mut rows = 0;
        // A million rows are read as they come.
        if let Some(mut shown) = child.stdout.take() {
            let mut octets = vec![0; 1 << 16];
            while let count @ 1.. = shown.read(&mut octets).context("cannot read the list")? {
                rows += octets.iter().take(count).filter(|octet| **octet == b'\n').count();
            }
        }
        ensure!(child.wait()?.success(), "signalbox show failed");
        Ok(rows)
    }

    /// Ends it, and waits until it has ended.
    pub(in super::super) fn end(mut self) -> Result<()> {
        self.process()?.terminate(PATIENCE)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "signalboxd: {status}: {}", self.said().trim());
        Ok(())
    }

    /// The end of its log.
    fn said(&self) -> String {
        let text = fs::read_to_string(self.directory.join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(SAID).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(process) = Identity::of(self.child.id()) {
            // If it cannot be ended, the next run tries again.
            let _ = process.terminate(PATIENCE);
        }
        let _ = self.child.wait();
    }
}

/// Returns the path of the daemon: the value of `SIGNALBOXD`, or else beside this program, or in `PATH`.
pub(in super::super) fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SIGNALBOXD") {
        return Ok(path.into());
    }
    find("signalboxd")
        .context("no signalboxd: install the package signalbox, build it, or name one in SIGNALBOXD")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_the_process_that_made_it() {
        let own = Identity::of(std::process::id()).unwrap();
        assert_eq!(owner(&name(&own, "middle")), Some(own));
        for other in
            ["sbx-bench-12_34-middle", "sbx-bench_12-middle", "sbx-bench_12_x-middle", "bench_1_2-sink"]
        {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
