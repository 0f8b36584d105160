//! What a run leaves behind for the checks and the report.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::observe::trace::{Session, Trace};
use crate::plan::Plan;

/// Everything that was observed.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) plan: Plan,
    pub(crate) trace: Trace,
    pub(crate) udp: Vec<UdpRun>,
    pub(crate) pings: Vec<PingRun>,
    pub(crate) programs: Vec<ProgramRun>,
    /// By label, in the order in which the daemons were asked.
    pub(crate) snapshots: Vec<(String, Snapshot)>,
    /// Since 1970, by label: from when to when the lab watched.
    pub(crate) windows: BTreeMap<String, (Duration, Duration)>,
    pub(crate) probes: Vec<ExpiredProbe>,
    pub(crate) losses: Vec<LossCount>,
    /// Since 1970, by label: when something was done to a link or a daemon.
    pub(crate) moments: BTreeMap<String, Duration>,
    pub(crate) floods: Vec<FloodRun>,
    pub(crate) traffic: Vec<TrafficRun>,
    pub(crate) reserves: Vec<ReserveRun>,
    pub(crate) queues: Vec<QueuesRun>,
    pub(crate) costs: Vec<CostRun>,
    pub(crate) stops: Vec<Stop>,
    /// What tshark found in the captures, if a check wants it.
    pub(crate) dissected: Option<Result<Vec<Dissected>, String>>,
}

/// RSVP messages on a link, as tshark read them.
#[derive(Debug, Clone)]
pub(crate) struct Dissected {
    pub(crate) link: String,
    pub(crate) messages: usize,
    /// Lines that tell of something wrong.
    pub(crate) faults: Vec<String>,
}

/// A `udp` step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UdpRun {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sent: u32,
    pub(crate) arrived: u32,
}

/// One session of a `ping` step.
#[derive(Debug, Clone, Default)]
pub(crate) struct PingRun {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) replies: Vec<Reply>,
    /// Why probes were not answered.
    pub(crate) lost: Vec<String>,
    /// What the command wrote last, if it wrote a summary.
    pub(crate) summary: Option<Value>,
    /// What the command complained of.
    pub(crate) complaint: String,
}

/// A `run` step.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramRun {
    pub(crate) label: String,
    pub(crate) node: usize,
    /// What it wrote to its standard output.
    pub(crate) lines: Vec<String>,
    /// What it wrote to its standard error.
    pub(crate) complaint: String,
    /// How it ended, if it did so in time.
    pub(crate) status: Option<String>,
    /// It ended with status 0.
    pub(crate) good: bool,
}

/// An answered probe, as the command showed it.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// Since 1970.
    pub(crate) sent: Duration,
    pub(crate) rtt_ms: f64,
    /// Nodes on the way there, in order.
    pub(crate) hops: Vec<Hop>,
    pub(crate) last_link_ms: Option<f64>,
    /// Octets of padding that came back as they went.
    pub(crate) padding: usize,
}

/// A node that a probe visited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    pub(crate) address: IpAddr,
    /// On the way from the hop before.
    pub(crate) link_ms: Option<f64>,
    /// Inside the node.
    pub(crate) node_ms: Option<f64>,
}

/// What the daemons said of themselves, by the index of the node.
pub(crate) type Snapshot = BTreeMap<usize, Shown>;

/// What a daemon said of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    pub(crate) sessions: Vec<Value>,
    pub(crate) associations: Vec<Value>,
    pub(crate) counters: Vec<Value>,
    /// Of nodes with QoS.
    pub(crate) reservations: Vec<Value>,
    /// Of nodes that reserve, what their kernels held then, one thing a line.
    pub(crate) kernel: Vec<String>,
    /// RSVP sessions, of nodes that speak it.
    pub(crate) rsvp: Vec<Value>,
    /// RSVP neighbours, of the same.
    pub(crate) rsvp_neighbours: Vec<Value>,
}

impl Shown {
    /// The counter of this name, like `gist.queries`; 0 if there is none.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let (room, name) = name.split_once('.').unwrap_or(("", name));
        let counter = self.counters.iter().find(|counter| counter["room"] == room && counter["name"] == name);
        counter.and_then(|counter| counter["value"].as_u64()).unwrap_or(0)
    }
}

/// A `flood` step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodRun {
    pub(crate) from: usize,
    /// The node that got it.
    pub(crate) node: usize,
    pub(crate) sent: u64,
    pub(crate) span: Duration,
    /// Time of a processor that the node's daemon took meanwhile.
    pub(crate) cpu: Duration,
    /// Octets of the daemon's memory before and after.
    pub(crate) memory: [u64; 2],
}

/// A `traffic` step.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrafficRun {
    pub(crate) name: String,
    /// Bits a second that were to be sent.
    pub(crate) rate: u64,
    /// Octets of a packet, IP header included.
    pub(crate) size: u16,
    /// In the order in which they were sent.
    pub(crate) packets: Vec<Packet>,
}

/// A packet of a flow; times since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) sent: Duration,
    pub(crate) arrived: Option<Duration>,
}

/// A `reserve` step.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReserveRun {
    pub(crate) name: String,
    /// When the command was started, since 1970.
    pub(crate) started: Duration,
    /// What it wrote, and when.
    pub(crate) events: Vec<(Duration, Value)>,
    /// What it complained of.
    pub(crate) complaint: String,
    /// How it ended, if it did so in time.
    pub(crate) status: Option<i32>,
}

/// A `queues` step.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueuesRun {
    pub(crate) label: String,
    /// They became as they should be.
    pub(crate) good: bool,
    /// What was seen last of each, in words.
    pub(crate) seen: Vec<String>,
    /// How long they were looked at.
    pub(crate) took: Duration,
}

/// A `cost` step.
#[derive(Debug, Clone, Default)]
pub(crate) struct CostRun {
    pub(crate) label: String,
    /// Microseconds a packet, of each run in which every packet arrived while it went on; sorted.
    pub(crate) micros: Vec<f64>,
    /// Runs that do not count: something else went on meanwhile.
    pub(crate) disturbed: usize,
}

impl CostRun {
    /// Microseconds a packet when nothing else goes on.
    pub(crate) fn least(&self) -> Option<f64> {
        self.micros.first().copied()
    }
}

/// What comes out of a reserving command.
#[derive(Debug)]
pub(crate) enum Said {
    Event(Duration, Value),
    Complaint(String),
}

impl ReserveRun {
    /// Takes in what the command says.
    pub(crate) fn take(&mut self, said: Said) {
        match said {
            Said::Event(at, event) => self.events.push((at, event)),
            Said::Complaint(complaint) => self.complaint = complaint,
        }
    }

    /// The first event of this type, and when it was told.
    pub(crate) fn event(&self, kind: &str) -> Option<&(Duration, Value)> {
        self.events.iter().find(|(_, event)| event["type"] == kind)
    }

    /// The whole path granted it.
    pub(crate) fn granted(&self) -> Option<&(Duration, Value)> {
        self.event("granted")
    }

    /// It was not granted.
    pub(crate) fn refused(&self) -> Option<&(Duration, Value)> {
        self.event("refused")
    }
}

/// A Data message sent for a session that should be gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiredProbe {
    pub(crate) to: usize,
    pub(crate) at: Duration,
    pub(crate) session: Session,
}

/// Packets that came to one end of a link, and what of them was thrown away there.
#[derive(Debug, Clone)]
pub(crate) struct LossCount {
    /// Index of the link.
    pub(crate) link: usize,
    /// Index of the node that they came to.
    pub(crate) node: usize,
    pub(crate) seen: u64,
    pub(crate) dropped: u64,
}

/// How a daemon ended.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) node: usize,
    /// Why the end was not clean, if it was not.
    pub(crate) fault: Option<String>,
    /// Lines of the kernel's rules that were not there before (`+`) or are gone (`-`).
    pub(crate) changed: Vec<String>,
}

impl Evidence {
    /// What the daemons said under a label.
    pub(crate) fn snapshot(&self, label: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|(known, _)| known == label).map(|(_, snapshot)| snapshot)
    }

    /// The nodes that a reply visited, the sender first.
    pub(crate) fn visited(&self, ping: &PingRun, reply: &Reply) -> Vec<&str> {
        let name = |node: usize| self.plan.nodes.get(node).map_or("?", |node| node.name.as_str());
        let mut visited = vec![name(ping.from)];
        for hop in &reply.hops {
            match self.plan.owner(hop.address) {
                // Whether the sender counts itself is the application's affair.
                Some(node) if node == ping.from && visited.len() == 1 => {}
                Some(node) => visited.push(name(node)),
                None => visited.push("?"),
            }
        }
        visited
    }
}
