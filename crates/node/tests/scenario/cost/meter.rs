//! Instruction counts of single inputs of a node, by callgrind.
//!
//! The test runs its own program again under valgrind. There, callgrind collects only inside [`cost_counted`], and
//! writes one file with the sum at each call of [`cost_mark`]. Instructions repeat from run to run; times do not.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use signalbox_boomerang::wire as boomerang;
use signalbox_casp::wire as casp;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::{Entry, EntryRequest, NslpId, Time};
use signalbox_gist::wire::MAGIC;
use signalbox_natfw::wire as natfw;
use signalbox_node::{Event, Node};
use signalbox_qos::wire as qos;
use signalbox_rsvp::wire as rsvp;

/// Set in the environment of the program that callgrind runs.
const CHILD: &str = "SIGNALBOX_COST_CHILD";

/// The number of instructions of an input, by the kind of the input: the largest of one life, and the smallest of these of
/// all lives. What happens once in many sessions, such as the growth of a table by a fixed part, is not counted so.
pub(crate) type Costs = BTreeMap<String, u64>;

/// Switches the counting on, and keeps the kinds of the inputs in order.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    on: Cell<bool>,
    life: Cell<u16>,
    kinds: RefCell<Vec<(u16, String)>>,
}

impl Meter {
    pub(crate) fn start(&self, life: u16) {
        self.life.set(life);
        self.on.set(true);
    }

    /// Ends the counting and prints the kinds for the parent.
    pub(crate) fn stop(&self) {
        cost_mark();
        self.on.set(false);
        for (life, kind) in self.kinds.borrow().iter() {
            println!("input {life} {kind}");
        }
    }
}

/// A node whose inputs are counted, each with the outputs that it causes.
pub(crate) struct Metered {
    pub(crate) node: Node,
    meter: Rc<Meter>,
}

impl Metered {
    pub(crate) const fn new(node: Node, meter: Rc<Meter>) -> Self {
        Self { node, meter }
    }
}

#[inline(never)]
fn cost_counted<T>(work: impl FnOnce() -> T) -> T {
    // Without this the compiler may put the work into the caller.
    core::hint::black_box(work())
}

#[inline(never)]
fn cost_mark() {
    core::hint::black_box(());
}

impl NodeEngine for Metered {
    type Command = signalbox_node::Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Self::Command>) {
        if !self.meter.on.get() {
            return self.node.handle(now, input);
        }
        let kind = kind(&input);
        cost_mark();
        self.meter.kinds.borrow_mut().push((self.meter.life.get(), kind));
        cost_counted(|| self.node.handle(now, input));
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        if self.meter.on.get() { cost_counted(|| self.node.poll()) } else { self.node.poll() }
    }

    fn entries(&self) -> Vec<EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

fn kind(input: &Input<'_, signalbox_node::Command>) -> String {
    match input {
        Input::Packet(packet) => match packet.entry {
            Entry::Udp(270) => gist(packet.payload),
            Entry::Udp(_) => casp_message(packet.payload),
            Entry::Ip(_) => rsvp_message(packet.payload),
            Entry::IcmpEcho(_) => boomerang_message(packet.payload),
        },
        Input::Timer => "timer".to_owned(),
        Input::Route { .. } => "answer about a route".to_owned(),
        Input::Reserved { .. } | Input::PinholeOpened { .. } | Input::FlowFound { .. } => {
            "answer of the kernel".to_owned()
        }
        Input::Command(_) => "command".to_owned(),
        Input::StreamOctets { .. } => "octets of an association".to_owned(),
        Input::Interfaces(_)
        | Input::RouteChanged(_)
        | Input::NeighborMoved { .. }
        | Input::TransmitFailed { .. }
        | Input::Undeliverable { .. }
        | Input::StreamAccepted { .. }
        | Input::StreamConnected { .. }
        | Input::StreamDrained { .. }
        | Input::StreamClosed { .. }
        | Input::ListenFailed { .. }
        | Input::Multicast { .. }
        | Input::Handover(_) => "event of the driver".to_owned(),
    }
}

pub(crate) fn gist(payload: &[u8]) -> String {
    use signalbox_gist::wire::{Encapsulation, Message, MessageType};
    let Some(octets) = payload.strip_prefix(&MAGIC) else { return "GIST, wrong magic number".to_owned() };
    let parsed = |encapsulation| Message::parse(octets, encapsulation).ok();
    let Some(message) = parsed(Encapsulation::Normal).or_else(|| parsed(Encapsulation::QMode)) else {
        return "GIST, malformed".to_owned();
    };
    let name = message.header.kind.name().unwrap_or("?");
    let data = message.nslp_data.filter(|_| message.header.kind == MessageType::DATA);
    let payload_name = |data| match message.header.nslp {
        NslpId::NATFW => Some(format!("NATFW {}", natfw::Message::parse(data).ok()?.kind.name()?)),
        NslpId::QOS => Some(format!("QoS {}", qos::Message::parse(data).ok()?.kind.name()?)),
        _ => None,
    };
    match data.and_then(payload_name) {
        Some(data) => format!("GIST {name}, {data}"),
        None => format!("GIST {name}"),
    }
}

pub(crate) fn casp_message(octets: &[u8]) -> String {
    use casp::{Body, Flags, Message};
    let message = match Message::parse(octets) {
        Ok(Message::Signaling(message)) => message,
        Ok(Message::ScoutRequest(_)) => return "CASP Scout Request".to_owned(),
        Ok(Message::ScoutResponse { .. }) => return "CASP Scout Response".to_owned(),
        Err(_) => return "CASP, malformed".to_owned(),
    };
    let has = |flags| message.flags.contains(flags);
    let kind = match message.body {
        Body::Error(_) => "error",
        _ if has(Flags::TEAR_DOWN) => "tear-down",
        Body::Client { .. } if has(Flags::REVERSE) => "message upstream",
        Body::Client { .. } => "message downstream",
        Body::Empty => "refresh",
    };
    let proof = if message.proof.is_some() { ", cookie" } else { "" };
    format!("CASP {kind}{proof}")
}

pub(crate) fn boomerang_message(octets: &[u8]) -> String {
    let Ok(message) = boomerang::Message::parse(octets, false) else {
        return "Boomerang, malformed".to_owned();
    };
    let rates = message.body.and_then(|body| body.qos.rates());
    let kind = if rates.is_some_and(boomerang::Rates::is_zero) { "release" } else { "reservation" };
    format!(
        "Boomerang {kind}, {}",
        if message.pass == boomerang::Pass::Request { "request" } else { "reply" }
    )
}

pub(crate) fn rsvp_message(payload: &[u8]) -> String {
    match rsvp::Message::parse(payload) {
        Ok(message) => format!("RSVP {}", message.kind.name().unwrap_or("?")),
        Err(_) => "RSVP, malformed".to_owned(),
    }
}

/// The number of sessions, in the program that callgrind runs; `None` in the test itself.
pub(crate) fn child() -> Option<u16> {
    std::env::var(CHILD).ok().map(|sessions| sessions.parse().unwrap())
}

/// Runs the test `name` of this program under callgrind with so many sessions. `None`: valgrind is not installed.
pub(crate) fn measured(name: &str, sessions: u16) -> Option<Costs> {
    let directory =
        std::env::temp_dir().join(format!("signalbox-cost-{}-{name}-{sessions}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*cost_counted*"])
        .args(["--dump-before=*cost_mark*", "--combine-dumps=no"])
        .arg(format!("--callgrind-out-file={}/out", directory.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, sessions.to_string())
        .output();
    let run = match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        run => run.unwrap(),
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).unwrap();
    // Before the name of the test, libtest prints its own on the same line.
    let kinds: Vec<_> =
        text.lines().filter_map(|line| line.split_once("input ").map(|(_, kind)| kind)).collect();
    let mut lives = BTreeMap::<&str, Costs>::new();
    for (at, input) in kinds.iter().enumerate() {
        let (life, kind) = input.split_once(' ').unwrap();
        // File 1 was written before the first input.
        let cost = instructions(&directory.join(format!("out.{}", at + 2)));
        let most = lives.entry(life).or_default().entry(kind.to_owned()).or_default();
        *most = cost.max(*most);
    }
    let mut costs = Costs::new();
    for (kind, cost) in lives.into_values().flatten() {
        let least = costs.entry(kind).or_insert(cost);
        *least = cost.min(*least);
    }
    std::fs::remove_dir_all(directory).unwrap();
    assert!(!costs.is_empty(), "nothing was counted: {text}");
    Some(costs)
}

fn instructions(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let sum = text.lines().find_map(|line| line.strip_prefix("summary: ")).unwrap();
    sum.trim().parse().unwrap()
}
