//! The configuration of a node: a TOML file and the files that it includes, described in `docs/config.md`.
//!
//! Every key is declared once (module `keys`). From the declarations follow the parser with its ranges, the list of all keys
//! with their values (`signalbox config show`), and `docs/config.md`. All mistakes of a configuration are reported at
//! once, each with its place and with a right value; nothing falls back to a default without a report.

mod access;
mod document;
mod enforcement;
mod findings;
mod firewall;
pub mod fuzz;
mod general;
mod include;
mod interfaces;
mod keys;
mod kind;
pub mod log;
mod machine;
mod old;
mod openings;
mod policy;
mod privileges;
mod protocols;
mod reload;
mod restart;
mod secret;
mod secrets;
mod show;
mod standing;
mod tree;
mod vrf;

use std::io;
use std::path::{Path, PathBuf};

use signalbox_core::{EntryRequest, NslpId};
use signalbox_linux::traffic::TrafficConfig;
use signalbox_linux::{IoConfig, Leftovers};
use signalbox_node::resources;

pub use access::{Access, Role};
pub use findings::{Finding, Level};
pub use general::{Audit, Control, DEFAULT_SOCKET, Log, LogFormat, Metrics, Node, Record};
pub use reload::Reload;
pub use restart::Restart;
pub use standing::{Expose, Flow, Passage, Pinhole, Reserve, Standing};

use enforcement::Enforcement;
use findings::Findings;
use firewall::Firewall;
use general::{Kernel, Sockets};
use interfaces::Interfaces;
use keys::{Keys, Pass, whole};
use kind::{list, number, path};
use privileges::Privileges;
use protocols::{Protocol, Protocols};
use secrets::Secrets;

/// The version of the language.
const VERSION: u32 = 1;

/// The configuration of a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    version: Option<u32>,
    include: Vec<PathBuf>,
    /// The node itself.
    pub node: Node,
    /// The control socket.
    pub control: Control,
    kernel: Kernel,
    io: Sockets,
    /// The log.
    pub log: Log,
    /// Metrics over HTTP.
    pub metrics: Metrics,
    /// The audit file.
    pub audit: Audit,
    /// Recording of the node's inputs.
    pub record: Record,
    privileges: Privileges,
    /// What a planned restart keeps.
    pub restart: Restart,
    protocols: Protocols,
    resources: policy::Admission,
    enforcement: Enforcement,
    firewall: Firewall,
    interfaces: Interfaces,
    /// What the daemon asks for by itself.
    pub standing: Standing,
    secrets: Secrets,
}

/// What reading a configuration gave.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration; `None` if it has a mistake.
    pub config: Option<Config>,
    /// All mistakes and warnings, in the order of their places.
    pub findings: Vec<Finding>,
}

impl Loaded {
    /// The configuration and the warnings.
    ///
    /// # Errors
    /// All mistakes and warnings.
    pub fn usable(self) -> Result<(Config, Vec<Finding>), Vec<Finding>> {
        match self.config {
            Some(config) => Ok((config, self.findings)),
            None => Err(self.findings),
        }
    }
}

/// Reads and checks the configuration at `path`, the files that it includes, and the keys and certificates that it
/// names.
///
/// # Errors
/// The file itself cannot be read.
pub fn load(path: &Path) -> io::Result<Loaded> {
    Ok(read(path, std::fs::read_to_string(path)?, true, None))
}

/// The same on the machine for which it is, which has these interfaces: a table of another interface is a mistake.
///
/// # Errors
/// The file itself cannot be read.
pub fn load_here(path: &Path, interfaces: &[String]) -> io::Result<Loaded> {
    Ok(read(path, std::fs::read_to_string(path)?, true, Some(interfaces)))
}

/// Reads and checks a text as the configuration at `path`. No file is read: a text that includes files gets a warning, and
/// keys and certificates are not checked.
#[must_use]
pub fn parse(path: &Path, text: &str) -> Loaded {
    read(path, text.to_owned(), false, None)
}

fn read(path: &Path, text: String, files: bool, present: Option<&[String]>) -> Loaded {
    let mut findings = Findings::default();
    let table = include::load(path, text, files, &mut findings);
    let mut pass = Pass::Read(findings);
    let mut config = Config::default();
    config.interfaces.present = present.map(<[_]>::to_vec);
    let mut keys = whole(Some(&table), &mut pass);
    config.declare(&mut keys);
    config.check(&mut keys, files.then(|| path.parent().unwrap_or(Path::new(""))));
    keys.finish();
    let Pass::Read(findings) = pass else { return Loaded { config: None, findings: Vec::new() } };
    let sound = !findings.any();
    Loaded { config: sound.then_some(config), findings: findings.sorted() }
}

impl Config {
    /// Declares every key. The order is that of `docs/config.md`.
    fn declare(&mut self, keys: &mut Keys<'_>) {
        let meaning = "The version of the configuration language: 1. It must be there.";
        keys.option("version", &mut self.version, number(1..=VERSION), "needed", meaning);
        keys.key(
            "include",
            &mut self.include,
            list(path("conf.d/*.toml")),
            "Further files, relative to this one; `*` in the name of a file stands for any text. They are read in the \
             order of their names and merged: tables key by key, lists of tables one after the other; for other values \
             the later file decides.",
        );
        keys.table("node", "The node and what it runs.", |keys| self.node.declare(keys));
        let meaning = "The control interface is a Unix socket ([api.md](api.md)).";
        keys.table("control", meaning, |keys| self.control.declare(keys));
        let meaning = "What the daemon uses of the kernel. It installs an nftables table `signalbox`, a rule and a route \
                       for the mark, and removes them when it stops.";
        keys.table("kernel", meaning, |keys| self.kernel.declare(keys));
        let meaning = "How the daemon waits for the network.";
        keys.table("io", meaning, |keys| self.io.declare(keys));
        let meaning = "The log goes to standard error. Events that other nodes can cause are logged at most once a second \
                       for each cause.";
        keys.table("log", meaning, |keys| self.log.declare(keys));
        keys.table("metrics", "Metrics over HTTP.", |keys| self.metrics.declare(keys));
        let meaning =
            "What became of requests, for good ([operation.md](operation.md#what-became-of-a-request)).";
        keys.table("audit", meaning, |keys| self.audit.declare(keys));
        keys.table("record", "Recording of inputs ([debugging.md](debugging.md)).", |keys| {
            self.record.declare(keys)
        });
        keys.table("privileges", privileges::MEANING, |keys| self.privileges.declare(keys));
        keys.table("restart", restart::MEANING, |keys| self.restart.declare(keys));
        for (name, meaning, section) in self.protocols.each_mut() {
            let runs = keys.samples() || !keys.lists() || self.node.runs(name);
            if runs {
                keys.table(name, meaning, |keys| section.declare(keys));
            }
        }
        keys.table("admission", policy::ADMISSION, |keys| policy::admission(&mut self.resources.0, keys));
        keys.table("policy", policy::POLICY, |keys| policy::policy(&mut self.resources.0, keys));
        keys.table("enforcement", enforcement::MEANING, |keys| self.enforcement.declare(keys));
        keys.table("firewall", firewall::MEANING, |keys| self.firewall.declare(keys));
        self.interfaces.declare(keys, &mut self.protocols, self.enforcement.mode);
        self.standing.declare(keys);
        self.secrets.declare(keys);
        for (_, _, section) in self.protocols.each_mut() {
            section.take_keys(&self.secrets);
        }
    }

    /// Checks what concerns several tables, and reads the files that are named.
    fn check(&mut self, keys: &mut Keys<'_>, directory: Option<&Path>) {
        if !keys.given("version") {
            let message = "missing: write version = 1 at the top. A file without it is in the language before version 1; \
                           keys that changed since are named below";
            keys.fault(&["version"], message);
        }
        let Self { node, protocols, .. } = self;
        for (name, section) in protocols.each() {
            if !node.runs(name) {
                if keys.given(name) {
                    let message =
                        "a section without effect: add the protocol to node.protocols, or remove the section";
                    keys.warn(&[name], message);
                }
                continue;
            }
            if section.needs_gist() && !node.runs("gist") {
                let message = format!("{name} needs gist: add \"gist\", or remove \"{name}\"");
                keys.fault(&["node.protocols"], &message);
            }
            if section.needs_natfw() && !node.runs("natfw") {
                let message = format!("{name} needs natfw: add \"natfw\" and \"gist\", or remove \"{name}\"");
                keys.fault(&["node.protocols"], &message);
                continue;
            }
            section.check(protocols, keys);
            section.openings(keys);
        }
        self.check_zones(keys);
        openings::check(self, keys);
        self.check_helper(keys);
        self.check_vrf(keys);
        self.check_standing(keys);
        let Self { node, protocols, control, .. } = self;
        let Some(directory) = directory else { return };
        control.check(keys);
        for (name, _, section) in protocols.each_mut() {
            if node.runs(name) {
                section.read_files(directory, keys);
            }
        }
        self.resources.0.keys = self.secrets.tokens(directory, keys);
    }

    fn running(&self) -> impl Iterator<Item = &dyn Protocol> {
        self.protocols.each().filter(|(name, _)| self.node.runs(name)).map(|(_, section)| section)
    }

    /// The section of a protocol, if it runs.
    fn running_named(&self, protocol: &str) -> Option<&dyn Protocol> {
        let mut running = self.protocols.each().filter(|(name, _)| self.node.runs(name));
        running.find(|(name, _)| *name == protocol).map(|(_, section)| section)
    }

    /// The settings of the node, whose clock began at `wall_clock_us` microseconds since 1970. The kernel has SCTP if
    /// `kernel_sctp` is true. Protocols that do not run are absent.
    #[must_use]
    pub fn settings(&self, wall_clock_us: u64, kernel_sctp: bool) -> signalbox_node::Config {
        let mut node = signalbox_node::Config {
            wall_clock_us,
            resources: self.enforcement.limit(self.admission()),
            ..signalbox_node::Config::empty()
        };
        for section in self.running() {
            section.install(&mut node);
        }
        if let Some(qos) = &mut node.qos {
            qos.report_rule = self.resources.0.report_rule;
        }
        if let Some(gist) = &mut node.gist {
            gist.channels.kernel_sctp = kernel_sctp;
            let ports = &gist.engine.associations;
            let none = [ports.tcp_port, ports.tls_port, ports.sctp_port].iter().all(Option::is_none);
            // Without a port GIST has no associations, and would refuse each message that needs one.
            if let Some(natfw) = node.natfw.as_mut().filter(|_| none) {
                natfw.reliable = false;
            }
        }
        if let Some(casp) = &mut node.casp {
            casp.channels.kernel_sctp = kernel_sctp;
        }
        node
    }

    fn admission(&self) -> resources::Config {
        resources::Config { links: self.interfaces.links(), zones: self.zones(), ..self.resources.0.clone() }
    }

    /// What to open in the kernel; `entries` are the ports of entry that the node asks for.
    #[must_use]
    pub fn io(&self, mut entries: Vec<EntryRequest>) -> IoConfig {
        let mut io = IoConfig::default();
        self.kernel.install(&self.node, &mut io);
        self.io.install(&mut io);
        for section in self.running() {
            section.adapt(&mut io, &mut entries);
        }
        self.kernel.compare(&mut entries);
        IoConfig { entries, helper: self.privileges.helper.clone(), ..io }
    }

    /// What the kernel shall enforce; `None` if no protocol reserves.
    #[must_use]
    pub fn traffic(&self) -> Option<TrafficConfig> {
        self.reserves().then(|| self.enforcer())
    }

    fn enforcer(&self) -> TrafficConfig {
        self.enforcement.enforcer(&self.admission(), self.kernel.own_mark, self.node.scope())
    }

    /// What a daemon of this node may have left in the kernel, also one with other protocols.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        Leftovers {
            io: self.io(Vec::new()),
            traffic: self.enforcer(),
            pinholes: self.pinholes_with(protocols::Openings::Bindings),
        }
    }

    /// Whether a protocol that reserves runs.
    #[must_use]
    pub fn reserves(&self) -> bool {
        self.running().any(|section| section.reserver().is_some())
    }

    /// Whether the node decides about requests and data of other hosts that pass by.
    fn judges_others(&self) -> bool {
        self.kernel.intercepts() && (self.reserves() && !self.admission().links.is_empty() || self.opens())
    }

    /// Whether a protocol that opens firewalls or NATs runs.
    pub(crate) fn opens(&self) -> bool {
        self.running().any(|section| section.opens() != protocols::Openings::Nothing)
    }

    /// NSLPIDs of the signaling applications that run.
    #[must_use]
    pub fn nslps(&self) -> Vec<NslpId> {
        self.running().flat_map(Protocol::nslps).collect()
    }

    /// Every key that is in force, with its value, as TOML. Secrets are in files, which it names only.
    #[must_use]
    pub fn effective(&self) -> String {
        show::effective(&self.lines(false))
    }

    /// SHA-256 of [`Config::effective`], by which two configurations are compared.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.effective().as_bytes());
        digest.as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// The keys whose values differ from those of `other`, with their tables, joined by dots.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        show::differences(&self.lines(false), &other.lines(false))
    }

    fn lines(&self, samples: bool) -> Vec<keys::Line> {
        let mut pass = Pass::List { lines: Vec::new(), samples };
        let mut config = self.clone();
        config.declare(&mut whole(None, &mut pass));
        match pass {
            Pass::List { lines, .. } => lines,
            Pass::Read(_) => Vec::new(),
        }
    }
}

/// Every key with its default, its range and its meaning, as TOML.
#[must_use]
pub fn defaults() -> String {
    show::defaults(&reference().lines(true))
}

/// `docs/config.md`.
#[must_use]
pub fn document() -> String {
    document::document(&reference().lines(true))
}

/// The defaults that are the same on every machine.
fn reference() -> Config {
    let mut config = Config { version: Some(VERSION), ..Config::default() };
    config.node.name = "r1".to_owned();
    config
}
