//! What belongs to no protocol: `[node]`, `[control]`, `[kernel]`, `[log]`, `[metrics]`, `[audit]`, `[record]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use signalbox_core::{EntryRequest, Unproved};
use signalbox_linux::{IoConfig, Scope, accounts};

use crate::access::{self, Access};
use crate::keys::Keys;
use crate::kind::{choice, duration, file_mode, flag, list, listener, mark, number, path, size, text};
use crate::log::{Filter, LogFilter};
use crate::openings::open;
use crate::protocols::NAMES;

/// Path of the control socket unless the configuration has another.
pub const DEFAULT_SOCKET: &str = "/run/signalbox/signalboxd.sock";

/// `[node]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Name for logs and status.
    pub name: String,
    /// The protocols that run.
    pub protocols: Vec<&'static str>,
    /// The VRF that the daemon works in; `None`: all of the network.
    pub vrf: Option<String>,
    families: Vec<Family>,
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            name: host_name().to_owned(),
            protocols: vec!["gist", "ping", "qos"],
            vrf: None,
            families: vec![Family::V4, Family::V6],
        }
    }
}

/// The host name at the start. It is read once: a daemon that has limited its files cannot read it any more, and a reload would
/// find another name.
fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        text.trim().to_owned()
    })
}

impl Node {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "name",
            &mut self.name,
            text(64),
            "Name of the node in logs and in `signalbox show status`; the host name if it is absent.",
        );
        keys.key(
            "protocols",
            &mut self.protocols,
            list(choice(NAMES)),
            "The protocols that run. `ping` and `qos` are signaling applications and need `gist`. A section of a \
             protocol that is not named here has no effect, and is a warning.",
        );
        keys.key(
            "families",
            &mut self.families,
            list(choice(&[("ipv4", Family::V4), ("ipv6", Family::V6)])),
            "Versions of IP that all protocols signal over; one at least.",
        );
        keys.option(
            "vrf",
            &mut self.vrf,
            text(15),
            "none",
            "Name of a VRF (Linux): the daemon takes packets, routes and interfaces of this VRF only, and enforces at its interfaces \
             only. One daemon for each VRF, each with its own `control.socket` ([operation.md](operation.md#vrf)). The VRF must \
             exist at the start. Not with `gist_nat`, and firewalls and NATs of `natfw` and `casp`.",
        );
        let possible =
            |name: &String| !name.is_empty() && !name.contains(|c: char| c == '/' || c.is_whitespace());
        let message = "no name of an interface: write that of a VRF, as `ip vrf` shows it";
        keys.check(self.vrf.as_ref().is_none_or(possible), &["vrf"], message);
        keys.check(
            !self.families.is_empty(),
            &["families"],
            "empty: write one version at least, such as [\"ipv4\"]",
        );
    }

    /// The part of the network that the daemon works in.
    pub(crate) fn scope(&self) -> Scope {
        Scope::of(self.vrf.clone())
    }

    /// Whether a protocol runs.
    #[must_use]
    pub fn runs(&self, protocol: &str) -> bool {
        self.protocols.contains(&protocol)
    }
}

/// `[control]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// Its file permissions.
    pub mode: u32,
    /// The group that owns it, by name or number; `None`: the group of the daemon.
    pub group: Option<String>,
    /// Connections at one time, at most.
    pub max_connections: u32,
    /// Calls at one time that hold or ask for something, at most.
    pub max_calls: u32,
    /// The roles of users and groups. If it is empty, every process that may open the socket may make every call.
    pub access: Vec<Access>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            socket: DEFAULT_SOCKET.into(),
            mode: 0o660,
            group: None,
            max_connections: 4096,
            max_calls: 16_384,
            access: Vec::new(),
        }
    }
}

impl Control {
    /// Checks that users and groups exist on this host.
    pub(crate) fn check(&self, keys: &mut Keys<'_>) {
        if let Some(group) = &self.group {
            access::check(accounts::group(group), "group", group, "control.group", keys);
        }
        access::check_all(&self.access, keys);
    }

    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "socket",
            &mut self.socket,
            path(DEFAULT_SOCKET),
            "Absolute path, at most 107 octets. Missing directories are created. The socket of a daemon that has ended \
             is replaced. A socket in use stops the start.",
        );
        keys.key("mode", &mut self.mode, file_mode(), "File permissions of the socket, in octal.");
        let meaning = "Group that owns the socket, by name or number, so that its members may open it with `mode = \"0660\"`.";
        keys.option("group", &mut self.group, text(64), "the group of the daemon", meaning);
        keys.key(
            "max_connections",
            &mut self.max_connections,
            number(16..=65_536),
            "Connections of all users at one time. While three quarters are not in use, one user may take all of these; the \
             last quarter is for users that have few. Root, the user of the daemon and administrators find 16 more. The calls of \
             a connection beyond the limit are refused with the reason `TOO_MANY`. Each takes a descriptor.",
        );
        keys.key(
            "max_calls",
            &mut self.max_calls,
            number(16..=1_000_000),
            "Calls at one time that hold or ask for something (reservations, passages, pings, RSVP sessions), shared as \
             connections are. Each takes some 20 kB.",
        );
        access::declare(&mut self.access, keys);
        // The kernel's limit is 108 octets with the closing zero.
        let short = self.socket.as_os_str().len() <= 107;
        let message = "longer than 107 octets, the limit of Unix sockets: write a shorter path";
        keys.check(short, &["socket"], message);
        let message = "a relative path: write an absolute one, such as \"/run/signalbox/signalboxd.sock\"";
        keys.check(self.socket.is_absolute(), &["socket"], message);
    }
}

/// `[io]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sockets {
    busy_poll: Duration,
}

impl Sockets {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "busy_poll",
            &mut self.busy_poll,
            duration(Duration::ZERO..=Duration::from_secs(1)),
            "How long the daemon looks for more messages after the last one before it sleeps. It takes a whole processor \
             for this time, and saves the time to wake up for messages that follow each other closely, such as those of a \
             handshake ([performance.md](performance.md#waking-up-iobusy_poll)). `\"0s\"`: it sleeps at once.",
        );
    }

    /// Puts the settings into those of the sockets.
    pub(crate) const fn install(&self, io: &mut IoConfig) {
        io.busy_poll = self.busy_poll;
    }
}

/// The priority `mangle` of nftables.
const MANGLE: i32 = -150;

/// `[kernel]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    intercept: bool,
    mark: u32,
    pub(crate) own_mark: u32,
    table: u32,
    rule_preference: u32,
    keep_rule_first: bool,
    priority: i32,
    pub(crate) reverse_path: bool,
    asymmetric: Vec<String>,
}

impl Default for Kernel {
    fn default() -> Self {
        let IoConfig { intercept, mark, own_mark, table, rule_preference, keep_rule_first, priority, .. } =
            IoConfig::default();
        let (reverse_path, asymmetric) = (true, Vec::new());
        Self {
            intercept,
            mark,
            own_mark,
            table,
            rule_preference,
            keep_rule_first,
            priority,
            reverse_path,
            asymmetric,
        }
    }
}

impl Kernel {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "intercept",
            &mut self.intercept,
            flag(),
            "Take signaling packets that pass by, as a router does. `false`: only packets that are addressed to this \
             node, as a host does.",
        );
        keys.key(
            "mark",
            &mut self.mark,
            mark(),
            "Packet mark of intercepted packets. No other program uses it.",
        );
        keys.key(
            "own_mark",
            &mut self.own_mark,
            mark(),
            "Packet mark of packets that the daemon sends, by which its queues recognize them. It is not `mark`, and no \
             other program uses it.",
        );
        keys.key(
            "table",
            &mut self.table,
            number(1..=u32::MAX),
            "Routing table for packets with `mark`. No other program uses it. With `node.vrf` it is this number times 65,536 plus the \
             VRF's table.",
        );
        keys.key(
            "rule_preference",
            &mut self.rule_preference,
            number(0..=32_765),
            "Preference of the policy rule for packets with `mark`, as `ip rule` shows it, when it is added. Rules before it can take intercepted \
             packets away ([operation.md](operation.md#beside-other-programs)).",
        );
        keys.key(
            "keep_rule_first",
            &mut self.keep_rule_first,
            flag(),
            "Put that rule above a rule of another program that stands before it and can take intercepted packets, also one that comes later.",
        );
        keys.key(
            "priority",
            &mut self.priority,
            choice(&[("before-mangle", MANGLE - 1), ("mangle", MANGLE), ("after-mangle", MANGLE + 1)]),
            "Priority of the chains of nftables that mark and redirect, at the hook prerouting: behind chains of other programs \
             of the priority mangle (-150), of which some change the mark of all packets, such as that of wg-quick; or at it, or before it.",
        );
        keys.key(
            "reverse_path",
            &mut self.reverse_path,
            choice(&[("strict", true), ("off", false)]),
            "Messages that make state and whose source nothing proves are taken only if they come in by the interface of the route to \
             their source, as a strict reverse path filter does it: those of Boomerang without `prove_return` and `integrity`, \
             of RSVP without `[rsvp.integrity]`, and datagrams of CASP where `casp.neighbors` is given. `\"off\"`: for networks \
             whose ways there and back differ ([security.md](security.md#reverse-path)).",
        );
        keys.key(
            "asymmetric",
            &mut self.asymmetric,
            list(text(15)),
            "Names of interfaces at which `reverse_path` is off.",
        );
        let message = "there is nothing to except: write reverse_path = \"strict\", or remove it";
        keys.check(self.reverse_path || self.asymmetric.is_empty(), &["asymmetric"], message);
        let message = "the same as kernel.mark: write another mark that no other program uses";
        keys.check(self.own_mark != self.mark, &["own_mark", "mark"], message);
        let message =
            "253 to 255 are the kernel's own tables: write the number of a table that no other program uses";
        keys.check(!matches!(self.table, 253..=255), &["table"], message);
    }

    /// Whether messages that pass by are taken.
    pub(crate) const fn intercepts(&self) -> bool {
        self.intercept
    }

    /// Warns about interfaces at which the way of a message proves nothing.
    pub(crate) fn openings(&self, keys: &mut Keys<'_>) {
        let what = "messages with forged sources count by whatever interface they come in: write \"strict\", and name the interfaces \
                    where the ways there and back differ in kernel.asymmetric, or filter forged sources by rp_filter";
        if !self.intercept {
            return;
        }
        if !self.reverse_path {
            open(keys, &["kernel.reverse_path"], what);
        } else if !self.asymmetric.is_empty() {
            let all = self.asymmetric.join(", ");
            let what = format!(
                "messages with forged sources count by {all}: filter them there, write a rule of netfilter (fib saddr . iif oif 0 drop)"
            );
            open(keys, &["kernel.asymmetric"], &what);
        }
    }

    /// Leaves the comparison of sources with routes out where the configuration does not want it.
    pub(crate) fn compare(&self, entries: &mut [EntryRequest]) {
        for entry in entries {
            if !self.reverse_path {
                entry.unproved = None;
            }
            let Some(Unproved { at, .. }) = &mut entry.unproved else { continue };
            at.named.retain(|(name, _)| !self.asymmetric.contains(name));
            at.named.extend(self.asymmetric.iter().map(|name| (name.clone(), false)));
        }
    }

    /// Puts the settings into those of the sockets.
    pub(crate) fn install(&self, node: &Node, io: &mut IoConfig) {
        io.intercept = self.intercept;
        io.mark = self.mark;
        io.own_mark = self.own_mark;
        io.table = self.table;
        io.rule_preference = self.rule_preference;
        io.keep_rule_first = self.keep_rule_first;
        io.priority = self.priority;
        io.scope = node.scope();
        io.ipv4 = node.families.contains(&Family::V4);
        io.ipv6 = node.families.contains(&Family::V6);
    }
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// The least important level that is logged, for each module.
    pub level: Filter,
    /// The format of its lines.
    pub format: LogFormat,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// The native protocol of journald, with a field of the journal for each field of a line.
    Journal,
}

impl Log {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "level",
            &mut self.level,
            LogFilter,
            "The least important level that is logged: `\"error\"`: the daemon cannot do its work; `\"warn\"`: somebody \
             should act; `\"info\"`: decisions about requests, start, stop and other rare events; `\"debug\"`: state transitions and dropped \
             messages; `\"trace\"`: each message. Levels of single modules may follow: \
             `\"info,signalbox_gist=debug,signalbox_rsvp::engine=trace\"`. A module's level holds for the modules \
             inside it, and each line then names its module.",
        );
        keys.key(
            "format",
            &mut self.format,
            choice(&[("text", LogFormat::Text), ("json", LogFormat::Json), ("journal", LogFormat::Journal)]),
            "The format: text, one JSON object a line, or the native protocol of journald: each field of a line is then a field \
             of the journal, such as `SIGNALBOX_RULE`. Without journald it is text.",
        );
    }
}

/// `[audit]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Where to write each decision as a line of JSON; `None`: nowhere.
    pub file: Option<PathBuf>,
}

impl Audit {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.option(
            "file",
            &mut self.file,
            path("/var/log/signalbox/audit.jsonl"),
            "none",
            "The daemon appends each decision to this file, one JSON object a line \
             ([schema](schema/decision.json)); `signalbox audit` reads it. SIGHUP opens it again, for logrotate: the directory must be \
             writable for `privileges.user`, else the lines go to the former file. A full disk loses lines, which are \
             counted, and nothing else.",
        );
    }
}

/// `[record]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where to write the node's inputs as JSON lines; `None`: nowhere.
    pub file: Option<PathBuf>,
    /// Octets at which the recording ends.
    pub limit: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self { file: None, limit: 1 << 30 }
    }
}

impl Record {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.option(
            "file",
            &mut self.file,
            path("/var/lib/signalbox/inputs.jsonl"),
            "none",
            "The daemon writes every input of the node to this file, one JSON object a line, for `signalbox replay`. The \
             file is replaced at each start and readable by its owner only: it contains the node's seed, which \
             determines session identifiers and cookies, and its private key for TLS. It does not contain the secrets of \
             `[[keys]]` for RSVP, only values that identify them.",
        );
        keys.key("limit", &mut self.limit, size(1..=u64::MAX), "Size at which the recording ends.");
    }
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Where monitoring systems can read the metrics over HTTP; `None`: nowhere.
    pub listen: Option<SocketAddr>,
}

impl Metrics {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.option(
            "listen",
            &mut self.listen,
            listener(),
            "none",
            "Address and port where the daemon answers `GET /metrics` over HTTP ([metrics.md](metrics.md)). Without it \
             nothing listens. The numbers are neither encrypted nor protected by authentication, so an address that other \
             machines reach is a warning.",
        );
        if self.listen.is_some_and(|address| !address.ip().is_loopback()) {
            let what = "metrics are reached from other machines, without encryption and without authentication: use \
                        127.0.0.1 or [::1], or protect the port by a firewall";
            open(keys, &["listen"], what);
        }
    }
}
