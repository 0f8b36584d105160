//! A scenario from its first step to its evidence.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use signalbox_core::Random;
use signalbox_linux::multicast::MulticastRouter;

use crate::checks::signal;
use crate::command::{self, Order, Pings};
use crate::evidence::{Evidence, ExpiredProbe, ReserveRun, Snapshot, UdpRun};
use crate::flood::Flood;
use crate::lab::Lab;
use crate::observe::capture::Captures;
use crate::observe::packet::{GIST_PORT, Kind};
use crate::observe::trace::{Carrier, PROBE_PAYLOAD, Trace};
use crate::plan::Plan;
use crate::program::Program;
use crate::reserve::Reserve;
use crate::scenario::{
    CheckKind, Condition, FloodStep, LinkStep, NodeStep, PingStep, ProbeStep, ReserveStep, Scenario, Step,
    TrafficStep, UdpStep, WaitStep,
};
use crate::traffic::{self, Traffic};
use crate::{cost, dissect, flood, kernel, net, queues, resend, wait};

/// Where the lab's own datagrams go; port 9 is "discard".
const PROBE_PORT: u16 = 9;
/// A datagram that has not arrived by then is lost.
const ARRIVAL: Duration = Duration::from_secs(1);
/// An answer to a probe for an expired session comes at once, if at all.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two questions to all daemons.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Tells a person how far the run is.
pub(crate) type Progress<'a> = dyn Fn(&str) + 'a;

/// A run under way.
pub(crate) struct Run<'a> {
    scenario: &'a Scenario,
    lab: &'a mut Lab,
    captures: Captures,
    evidence: Evidence,
    /// The kernels forward multicast for as long as these live.
    routers: Vec<MulticastRouter>,
    /// Those that may still run.
    programs: Vec<Program>,
    background: BTreeMap<String, Background>,
    /// Frames that the lab altered and sent.
    forged: Vec<Vec<u8>>,
    progress: &'a Progress<'a>,
}

/// What goes on while other steps are taken.
enum Background {
    Pings { pings: Pings, deadline: Instant },
    Flood(Flood),
    Traffic(Traffic),
    Reserve(Reserve),
}

impl<'a> Run<'a> {
    /// Starts captures and daemons of a lab whose network stands.
    pub(crate) fn start(
        scenario: &'a Scenario,
        lab: &'a mut Lab,
        progress: &'a Progress<'a>,
    ) -> Result<Self> {
        let captures = Captures::start(&lab.plan)?;
        progress("starting the daemons");
        lab.start_all()?;
        let evidence = Evidence {
            plan: lab.plan.clone(),
            trace: Trace::default(),
            udp: Vec::new(),
            pings: Vec::new(),
            programs: Vec::new(),
            snapshots: Vec::new(),
            windows: BTreeMap::new(),
            probes: Vec::new(),
            losses: Vec::new(),
            moments: BTreeMap::new(),
            floods: Vec::new(),
            traffic: Vec::new(),
            reserves: Vec::new(),
            queues: Vec::new(),
            costs: Vec::new(),
            stops: Vec::new(),
            dissected: None,
        };
        let routers = multicast(scenario, &lab.plan)?;
        let (programs, background) = (Vec::new(), BTreeMap::new());
        let forged = Vec::new();
        Ok(Self { scenario, lab, captures, evidence, routers, programs, background, forged, progress })
    }

    /// Does the workload, and waits for the programs that it started.
    pub(crate) fn work(&mut self) -> Result<()> {
        let scenario = self.scenario;
        for step in &scenario.workload {
            wait::check()?;
            self.step(step)?;
        }
        let left: Vec<String> = self.background.keys().cloned().collect();
        left.iter().try_for_each(|name| self.join(name))?;
        for program in self.programs.drain(..) {
            self.evidence.programs.push(program.finish()?);
        }
        Ok(())
    }

    /// Ends the daemons (unless they are to stay) and gathers what was seen.
    pub(crate) fn finish(mut self, keep: bool, pcap: Option<&Path>) -> Result<Evidence> {
        self.evidence.losses = net::losses(&self.lab.plan)?;
        if !keep {
            (self.progress)("stopping the daemons");
            self.evidence.stops.extend(self.lab.stop_all()?);
        }
        self.captures.stop()?;
        self.evidence.trace = self.captures.trace();
        if self.scenario.checks.iter().any(|check| matches!(check.kind, CheckKind::Dissected(_))) {
            (self.progress)("reading the captures with tshark");
            let dissected = dissect::links(&self.captures, &self.lab.plan);
            self.evidence.dissected = Some(dissected.map_err(|error| format!("{error:#}")));
        }
        self.routers.clear();
        if let Some(directory) = pcap {
            self.captures.write(&self.lab.plan, directory)?;
        }
        Ok(self.evidence)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Udp(step) => self.udp(step),
            Step::Ping(step) => self.ping(step),
            Step::Run(step) => {
                (self.progress)(&format!("{} in {}", step.label.as_ref(), step.node.as_ref()));
                self.evidence.moments.insert(step.label.as_ref().clone(), now()?);
                let mut program = Program::start(&self.lab.plan, step)?;
                program.wait(step.until.as_deref())?;
                self.programs.push(program);
                Ok(())
            }
            Step::Hear(step) => {
                let label = step.label.as_ref();
                (self.progress)(&format!("{label}: waiting for {:?}", step.text));
                self.programs
                    .iter_mut()
                    .find(|program| program.label() == label)
                    .map_or(Ok(()), |program| program.hear(&step.text, step.within.0))
            }
            Step::End(step) => {
                let label = step.label.as_ref();
                (self.progress)(&format!("{label} shall end"));
                if let Some(at) = self.programs.iter().position(|program| program.label() == label) {
                    let mut program = self.programs.remove(at);
                    program.interrupt()?;
                    self.evidence.programs.push(program.finish()?);
                }
                Ok(())
            }
            Step::Show(step) => {
                let snapshot = self.ask_all()?;
                self.evidence.snapshots.push((step.label.clone(), snapshot));
                Ok(())
            }
            Step::WaitFor(step) => self.wait_for(step),
            Step::Watch(step) => {
                (self.progress)(&format!("watching the links for {} ({})", step.span, step.label));
                let from = now()?;
                wait::pass(step.span.0)?;
                let to = now()?;
                self.evidence.windows.insert(step.label.clone(), (from, to));
                self.evidence.moments.insert(step.label.clone(), to);
                Ok(())
            }
            Step::ProbeExpired(step) => self.probe_expired(step),
            Step::Resend(step) => {
                let (from, to) = (self.node(step.from.as_ref())?, self.node(step.to.as_ref())?);
                (self.progress)(&format!(
                    "the last {:?} from {} to {} again, {} times{}",
                    step.message,
                    step.from.as_ref(),
                    step.to.as_ref(),
                    step.count,
                    if step.alter { ", altered" } else { "" }
                ));
                self.remember(step.label.as_ref(), step.from.as_ref())?;
                let leg = self.lab.plan.leg(from, to).ok_or_else(|| anyhow!("no link between the two"))?;
                resend::resend(&self.lab.plan, &self.captures, step, leg, &mut self.forged)
            }
            Step::SetLoss(step) => {
                let link = self.link(step.link.as_ref())?;
                net::set_loss(&self.lab.plan, link, step.loss)
            }
            Step::Flood(step) => self.flood(step),
            Step::Traffic(step) => self.traffic(step),
            Step::Reserve(step) => self.reserve(step),
            Step::Queues(step) => {
                (self.progress)(&format!("looking at the queues: {}", step.label.as_ref()));
                self.evidence.queues.push(queues::watch(&self.lab.plan, step)?);
                Ok(())
            }
            Step::Cost(step) => {
                let (from, to, destination) = self.ends(step.from.as_ref(), step.to.as_ref())?;
                (self.progress)(&format!("what a packet costs: {}", step.label.as_ref()));
                let plan = &self.lab.plan;
                let cost =
                    self.captures.resting(plan, || cost::measure(plan, step, from, to, destination))?;
                self.evidence.costs.push(cost);
                Ok(())
            }
            Step::Join(step) => self.join(step.name.as_ref()),
            Step::LinkDown(step) => self.set_link(step, false),
            Step::LinkUp(step) => self.set_link(step, true),
            Step::Stop(step) => {
                let node = self.moment(step)?;
                let stop = self.lab.stop(node)?;
                self.evidence.stops.push(stop);
                Ok(())
            }
            Step::Kill(step) => {
                let node = self.moment(step)?;
                self.lab.kill(node)
            }
            Step::Start(step) => {
                self.lab.start(self.node(step.node.as_ref())?)?;
                self.moment(step).map(drop)
            }
        }
    }

    /// Remembers what is done to a node's daemon now; gives the node.
    fn moment(&mut self, step: &NodeStep) -> Result<usize> {
        self.remember(step.label.as_ref(), step.node.as_ref())?;
        self.node(step.node.as_ref())
    }

    fn set_link(&mut self, step: &LinkStep, up: bool) -> Result<()> {
        self.remember(step.label.as_ref(), step.link.as_ref())?;
        net::set_link(&self.lab.plan, self.link(step.link.as_ref())?, up)
    }

    fn remember(&mut self, label: Option<&String>, what: &str) -> Result<()> {
        if let Some(label) = label {
            (self.progress)(&format!("{what}: {label}"));
            self.evidence.moments.insert(label.clone(), now()?);
        }
        Ok(())
    }

    fn node(&self, name: &str) -> Result<usize> {
        self.lab.plan.node(name).ok_or_else(|| anyhow!("no node {name}"))
    }

    fn link(&self, name: &str) -> Result<usize> {
        self.lab.plan.link(name).ok_or_else(|| anyhow!("no link {name}"))
    }

    fn ends(&self, from: &str, to: &str) -> Result<(usize, usize, IpAddr)> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let address = self.lab.plan.address(to).ok_or_else(|| anyhow!("{} has no address", to))?;
        Ok((from, to, address))
    }

    fn udp(&mut self, step: &UdpStep) -> Result<()> {
        (self.progress)(&format!("datagrams from {} to {}", step.from.as_ref(), step.to.as_ref()));
        let (from, to, address) = self.ends(step.from.as_ref(), step.to.as_ref())?;
        let bind = |plan: &Plan, node: usize, address: SocketAddr| {
            let namespace = kernel::namespace(&plan.nodes[node].namespace)?;
            let socket = namespace.run(|| UdpSocket::bind(address))??;
            socket.set_read_timeout(Some(ARRIVAL))?;
            anyhow::Ok(socket)
        };
        let destination = SocketAddr::new(address, PROBE_PORT);
        let receiver = bind(&self.lab.plan, to, destination)?;
        let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let sender = bind(&self.lab.plan, from, SocketAddr::new(any, 0))?;
        let mut arrived = 0;
        let mut buffer = [0; 64];
        for number in 0..step.count {
            let payload = [PROBE_PAYLOAD, &number.to_be_bytes()].concat();
            sender.send_to(&payload, destination).context("cannot send a datagram")?;
            match receiver.recv(&mut buffer) {
                Ok(length) if buffer.get(..length) == Some(&payload[..]) => arrived += 1,
                _ => {}
            }
        }
        self.evidence.udp.push(UdpRun { from, to, sent: step.count, arrived });
        Ok(())
    }

    fn ping(&mut self, step: &PingStep) -> Result<()> {
        let (from, to, destination) = self.ends(step.from.as_ref(), step.to.as_ref())?;
        let sessions = *step.sessions.as_ref();
        (self.progress)(&format!(
            "{sessions} Ping session(s) from {} to {}",
            step.from.as_ref(),
            step.to.as_ref()
        ));
        let (count, interval, size) = (step.count, step.interval.0, *step.size.as_ref());
        let order = Order { from, to, destination, count, interval, size };
        let deadline = Instant::now() + step.within.0;
        let mut pings = Pings::new();
        let begin = Instant::now();
        for start in starts(self.scenario.seed, sessions, step.spread.0) {
            pings.listen_until(begin + start)?;
            pings.start(&self.lab.plan.name, &self.lab.plan.nodes[from], &order)?;
        }
        let mut to_show = step.show.as_ref();
        while !pings.all_ended() && Instant::now() < deadline {
            pings.listen(wait::STEP)?;
            if !pings.all_answered() {
                continue;
            }
            if let Some(label) = to_show.take() {
                let snapshot = self.ask_all()?;
                self.evidence.snapshots.push((label.clone(), snapshot));
            }
            if let Some(name) = &step.background {
                self.background.insert(name.clone(), Background::Pings { pings, deadline });
                return Ok(());
            }
        }
        self.evidence.pings.extend(pings.finish()?);
        Ok(())
    }

    fn flood(&mut self, step: &FloodStep) -> Result<()> {
        let (from, to, destination) = self.ends(step.from.as_ref(), step.to.as_ref())?;
        let via = self.node(step.via.as_ref())?;
        let rate = *step.rate.as_ref();
        (self.progress)(&format!(
            "{rate} Queries a second with invented sources from {} to {} for {}",
            step.from.as_ref(),
            self.lab.plan.nodes[to].name,
            step.span
        ));
        let order = flood::Order {
            from,
            via,
            to: destination,
            sources: *step.sources.as_ref(),
            rate,
            span: step.span.0,
            seed: self.scenario.seed,
            daemon: self.lab.process(via)?,
        };
        let flood = Flood::start(&self.lab.plan, order)?;
        match &step.background {
            Some(name) => {
                self.background.insert(name.clone(), Background::Flood(flood));
            }
            None => self.evidence.floods.push(flood.join()?),
        }
        Ok(())
    }

    fn traffic(&mut self, step: &TrafficStep) -> Result<()> {
        let (from, to, destination) = self.ends(step.from.as_ref(), step.to.as_ref())?;
        let name = step.name.as_ref().clone();
        (self.progress)(&format!(
            "{name}: {} kbit/s from {} to {}",
            step.rate.0 / 1000,
            step.from.as_ref(),
            step.to.as_ref()
        ));
        let (port, rate, size) = (step.port, step.rate.0, *step.size.as_ref());
        let source_port = step.source_port;
        let order =
            traffic::Order { name: name.clone(), from, to, destination, port, source_port, rate, size };
        let traffic = Traffic::start(&self.lab.plan, order)?;
        self.background.insert(name, Background::Traffic(traffic));
        Ok(())
    }

    fn reserve(&mut self, step: &ReserveStep) -> Result<()> {
        let (from, _, destination) = self.ends(step.from.as_ref(), step.to.as_ref())?;
        let name = step.name.as_ref().clone();
        (self.progress)(&format!("{name}: reserving from {} to {}", step.from.as_ref(), step.to.as_ref()));
        let mut words: Vec<String> = vec![destination.to_string()];
        let [port, rate] = [step.port.to_string(), format!("{}bit", step.rate.0)];
        words.extend(["--proto", "udp", "--dport", &port, "--rate", &rate].map(str::to_owned));
        words.extend(step.options.iter().cloned());
        if *step.flows.as_ref() > 1 {
            words.extend(["--flows".to_owned(), step.flows.as_ref().to_string()]);
        }
        let run = ReserveRun { name: name.clone(), started: now()?, ..ReserveRun::default() };
        let plan = &self.lab.plan;
        let mut reserve = Reserve::start(&plan.name, &plan.nodes[from], &words, *step.flows.as_ref(), run)?;
        reserve.wait_answer(step.within.0)?;
        self.background.insert(name.clone(), Background::Reserve(reserve));
        self.remember(step.label.as_ref(), &name)
    }

    /// Waits for the end of something in the background; what has ended before is no mistake.
    fn join(&mut self, name: &str) -> Result<()> {
        match self.background.remove(name) {
            Some(Background::Pings { mut pings, deadline }) => {
                (self.progress)(&format!("waiting for {name}"));
                while !pings.all_ended() && Instant::now() < deadline {
                    pings.listen(wait::STEP)?;
                }
                self.evidence.pings.extend(pings.finish()?);
            }
            Some(Background::Flood(flood)) => self.evidence.floods.push(flood.join()?),
            Some(Background::Traffic(traffic)) => self.evidence.traffic.push(traffic.finish()?),
            Some(Background::Reserve(reserve)) => {
                (self.progress)(&format!("releasing {name}"));
                self.evidence.reserves.push(reserve.finish()?);
            }
            None => {}
        }
        Ok(())
    }

    fn ask_all(&self) -> Result<Snapshot> {
        let plan = &self.lab.plan;
        self.lab.running().map(|node| Ok((node, command::shown(&plan.name, &plan.nodes[node])?))).collect()
    }

    fn wait_for(&mut self, step: &WaitStep) -> Result<()> {
        let budget = step.within.0;
        let (what, empty) = match step.condition {
            Condition::NoSessions => ("no daemon holds routing state", true),
            Condition::Sessions => ("every daemon holds routing state", false),
            Condition::NoRsvp => ("the nodes know no RSVP session", true),
        };
        (self.progress)(&format!("waiting until {what}"));
        let deadline = Instant::now() + budget;
        loop {
            let plan = &self.lab.plan;
            let mut hold = true;
            if step.condition == Condition::NoRsvp {
                for node in &step.nodes {
                    let planned = &plan.nodes[self.node(node.as_ref())?];
                    hold &= command::table(&plan.name, planned, &["rsvp", "show"])?.is_empty();
                }
            }
            let gist = step.condition != Condition::NoRsvp;
            for node in self.lab.running().filter(|node| gist && plan.nodes[*node].ping) {
                let sessions = command::show(&plan.name, &plan.nodes[node], "sessions")?;
                hold &= signal::session_ids(&sessions).is_empty() == empty;
            }
            if hold {
                return Ok(());
            }
            if Instant::now() > deadline {
                // Not an error of the run: the checks say what it means.
                (self.progress)(&format!("after {budget:?} it still is not so that {what}"));
                return Ok(());
            }
            wait::pass(ASK_AGAIN)?;
        }
    }

    /// Takes the last Data message from one node to its neighbour out of the capture and sends it once more.
    fn probe_expired(&mut self, step: &ProbeStep) -> Result<()> {
        (self.progress)(&format!("Data for an expired session to {}", step.to.as_ref()));
        let (from, to) = (self.node(step.from.as_ref())?, self.node(step.to.as_ref())?);
        let planned = &self.lab.plan.nodes[from];
        let Some(interface) = planned.interfaces.iter().find(|interface| interface.peer.0 == to) else {
            bail!("{} is no neighbour of {}", step.to.as_ref(), step.from.as_ref());
        };
        let trace = self.captures.trace();
        let link = &trace.links[interface.link];
        let leg = crate::plan::Leg { link: interface.link, from, to };
        let data = link
            .messages
            .iter()
            .rev()
            .filter(|message| message.carrier == Carrier::Datagram && message.kind == Kind::Data)
            .find(|message| link.along(message.outgoing, leg));
        let Some((session, payload)) =
            data.and_then(|data| Some((data.session?, data.packet.get(data.payload_at..)?)))
        else {
            // The check finds that nothing was sent.
            return Ok(());
        };
        let local = SocketAddr::new(interface.address.address, 0);
        let namespace = kernel::namespace(&planned.namespace)?;
        let socket = namespace.run(|| UdpSocket::bind(local))??;
        let at = now()?;
        socket.send_to(payload, SocketAddr::new(interface.peer.1, GIST_PORT))?;
        self.evidence.probes.push(ExpiredProbe { to, at, session });
        let answered = |trace: &Trace| {
            let mut messages = trace.links[interface.link].messages.iter();
            messages.any(|message| message.kind == Kind::Error && message.at >= at)
        };
        wait::until(ANSWER, || wait::check().is_err() || answered(&self.captures.trace()));
        wait::check()
    }
}

/// Lays the multicast routes that the file gives.
fn multicast(scenario: &Scenario, plan: &Plan) -> Result<Vec<MulticastRouter>> {
    let mut routers: BTreeMap<usize, MulticastRouter> = BTreeMap::new();
    let index = |name: &str| plan.node(name).ok_or_else(|| anyhow!("no node {name}"));
    for tree in &scenario.multicast {
        let (node, source) = (index(tree.node.as_ref())?, index(tree.source.as_ref())?);
        let planned = &plan.nodes[node];
        let source = plan.address(source).ok_or_else(|| anyhow!("a sender without an address"))?;
        let interface = |neighbour: &str| -> Result<String> {
            let peer = index(neighbour)?;
            let found = planned.interfaces.iter().find(|interface| interface.peer.0 == peer);
            Ok(found.ok_or_else(|| anyhow!("no link to {neighbour}"))?.name.clone())
        };
        let iif = interface(tree.from.as_ref())?;
        let oifs = tree.to.iter().map(|to| interface(to.as_ref())).collect::<Result<Vec<_>>>()?;
        let namespace = kernel::namespace(&planned.namespace)?;
        let router = routers.entry(node).or_default();
        router
            .set_route(&namespace, *tree.group.as_ref(), source, &iif, &oifs)
            .with_context(|| format!("cannot lay the multicast route of {}", planned.name))?;
    }
    Ok(routers.into_values().collect())
}

/// When each of many sessions starts: drawn from the seed, in order, the first at once.
fn starts(seed: u64, sessions: u32, spread: Duration) -> Vec<Duration> {
    let mut random = Random::from_number(seed);
    let mut starts: Vec<_> = (1..sessions).map(|_| spread.mul_f64(random.unit())).collect();
    starts.push(Duration::ZERO);
    starts.sort();
    starts
}

/// Since 1970.
pub(crate) fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_come_from_the_seed() {
        let spread = Duration::from_secs(1);
        let first = starts(1, 20, spread);
        assert_eq!((first.len(), first[0]), (20, Duration::ZERO));
        assert!(first.is_sorted() && first[19] <= spread);
        assert_eq!(first, starts(1, 20, spread));
        assert_ne!(first, starts(2, 20, spread));
        assert_eq!(starts(1, 1, spread), [Duration::ZERO]);
    }
}
