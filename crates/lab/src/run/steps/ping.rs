//! The step `ping`: Ping signals by the real `signalbox ping`.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use signalbox_api::ping::v1::{PingResponse, ping_response};
use signalbox_core::Random;
use signalbox_node::ping::{self, Format, PingRequest};
use signalbox_node::{Command, Event};
use signalbox_show::ping as show;

use super::Act;
use crate::language::steps::ping::{Ping, Signaling};
use crate::plan::PlannedNode;
use crate::run::command::signalbox;
use crate::run::evidence::Evidence;
use crate::run::simulation::Simulation;
use crate::run::simulation::client::Client;
use crate::run::{Background, Run, kernel, wait};

/// What came of one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct PingRun {
    /// The `id` of the step.
    pub(crate) id: Option<String>,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) replies: Vec<Reply>,
    /// Why probes were not answered.
    pub(crate) lost: Vec<String>,
    /// The error output of the command.
    pub(crate) complaint: String,
}

/// An answered probe, as the command showed it.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// Since 1970.
    pub(crate) sent: Duration,
    pub(crate) rtt_ms: f64,
    /// The nodes that the probe visited, in order.
    pub(crate) hops: Vec<Hop>,
    pub(crate) last_link_ms: Option<f64>,
    /// Octets of padding that came back unchanged.
    pub(crate) padding: usize,
}

/// A node that a probe visited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    pub(crate) address: IpAddr,
    /// On the link from the hop before.
    pub(crate) link_ms: Option<f64>,
    /// Inside the node.
    pub(crate) node_ms: Option<f64>,
}

impl Act for Ping {
    fn unsimulated(&self) -> Option<String> {
        let casp = self.signaling == Signaling::Casp;
        casp.then(|| "the simulator pings by gist, not by casp".to_owned())
    }

    fn simulate(&self, run: &mut Simulation<'_>, id: &str) -> Result<()> {
        let (from, to, destination) = run.ends(self.from.as_ref(), self.to.as_ref())?;
        let begin = run.now();
        for start in starts(run.seed, *self.sessions.as_ref(), self.spread.0) {
            run.advance((begin + start).saturating_sub(run.now()));
            let request = PingRequest {
                count: Some(self.count),
                interval: self.interval.0,
                padding: *self.size.as_ref(),
                format: self.format,
                ..PingRequest::to(destination)
            };
            let command = |id| Command::Ping { id, command: ping::Command::Start(request) };
            let left = (begin + self.within.0).saturating_sub(run.now());
            let ping = PingRun { id: Some(id.to_owned()), from, to, ..PingRun::default() };
            run.begin(id, from, left, command, Box::new(Simulated { ping, ended: false }));
        }
        if self.background {
            let left = (begin + self.within.0).saturating_sub(run.now());
            run.wait(left, |run| run.answered(id) || run.all_ended(id));
        } else {
            run.wait_end(id);
        }
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()> {
        let (from, to, destination) = run.ends(self.from.as_ref(), self.to.as_ref())?;
        let sessions = *self.sessions.as_ref();
        let (name, far) = (self.from.as_ref(), self.to.as_ref());
        run.progress(&format!("{sessions} Ping session(s) from {name} to {far}"));
        let (count, interval) = (self.count, self.interval.0);
        let (size, format, signaling) = (*self.size.as_ref(), self.format, self.signaling);
        let id_of = id.to_owned();
        let order = Order { id: id_of, from, to, destination, count, interval, size, format, signaling };
        let deadline = Instant::now() + self.within.0;
        let mut pings = Pings::new();
        let begin = Instant::now();
        for start in starts(run.seed, sessions, self.spread.0) {
            pings.listen_until(begin + start)?;
            pings.start(&run.lab.plan.name, &run.lab.plan.nodes[from], &order)?;
        }
        while !pings.all_ended() && Instant::now() < deadline {
            pings.listen(wait::STEP)?;
            if self.background && pings.all_answered() {
                run.in_background(id, Waiting { pings, deadline });
                return Ok(());
            }
        }
        pings.finish()?.into_iter().for_each(|ping| run.evidence.record(ping));
        Ok(())
    }
}

/// A session in the simulator. What its node reports is read as the lines of the command are.
#[derive(Debug)]
struct Simulated {
    ping: PingRun,
    ended: bool,
}

impl Client for Simulated {
    fn event(&mut self, at: Duration, event: Event) {
        let Event::Ping { event, .. } = event else { return };
        let time_unix_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        match show::event(event) {
            Ok(event) => {
                self.ended |= matches!(event, ping_response::Event::Done(_));
                let response = PingResponse { time_unix_us, event: Some(event) };
                // A message that the API has always has a line.
                if let Ok(Some(line)) = signalbox_json::event(&response) {
                    let _ = self.ping.take(&line);
                }
            }
            Err(refusal) => {
                self.ping.complaint = refusal.to_string();
                self.ended = true;
            }
        }
    }

    fn node_ended(&mut self, _at: Duration) {
        self.ping.complaint = "the daemon ended".to_owned();
        self.ended = true;
    }

    fn answered(&self) -> bool {
        !self.ping.replies.is_empty()
    }

    fn ended(&self) -> bool {
        self.ended
    }

    /// It has a set number of messages, and is waited for.
    fn stop(&mut self, _id: u64) -> Option<Command> {
        None
    }

    fn close(&self, id: u64) -> Option<Command> {
        Some(Command::Ping { id, command: ping::Command::Stop })
    }

    fn record(self: Box<Self>, evidence: &mut Evidence) {
        evidence.record(self.ping);
    }
}

/// Pings that go on while other steps are taken.
#[derive(Debug)]
struct Waiting {
    pings: Pings,
    deadline: Instant,
}

impl Background for Waiting {
    fn stop(mut self: Box<Self>, id: &str, run: &mut Run<'_>) -> Result<()> {
        run.progress(&format!("waiting for {id}"));
        while !self.pings.all_ended() && Instant::now() < self.deadline {
            self.pings.listen(wait::STEP)?;
        }
        self.pings.finish()?.into_iter().for_each(|ping| run.evidence.record(ping));
        Ok(())
    }
}

/// Draws from the seed when each of many sessions starts, in order, the first at once.
fn starts(seed: u64, sessions: u32, spread: Duration) -> Vec<Duration> {
    let mut random = Random::from_number(seed);
    let mut starts: Vec<_> = (1..sessions).map(|_| spread.mul_f64(random.unit())).collect();
    starts.push(Duration::ZERO);
    starts.sort();
    starts
}

/// Pings that run at the same time.
#[derive(Debug)]
struct Pings {
    runs: Vec<PingRun>,
    children: Vec<Child>,
    lines: Receiver<Line>,
    sender: Option<Sender<Line>>,
    open: usize,
}

/// What a ping command prints: by its number, a line of output, its error output, or the end.
#[derive(Debug)]
enum Line {
    Output(usize, String),
    Complaint(usize, String),
    End,
}

/// The arguments of a ping command.
#[derive(Debug, Clone)]
struct Order {
    id: String,
    from: usize,
    to: usize,
    destination: IpAddr,
    count: u32,
    interval: Duration,
    /// Octets of padding.
    size: u16,
    format: Format,
    signaling: Signaling,
}

impl Pings {
    /// Returns a set without a session.
    fn new() -> Self {
        let (sender, lines) = channel();
        Self { runs: Vec::new(), children: Vec::new(), lines, sender: Some(sender), open: 0 }
    }

    /// Starts one more session.
    fn start(&mut self, lab: &str, node: &PlannedNode, order: &Order) -> Result<()> {
        let mut command = signalbox(lab, node)?;
        command
            .arg("ping")
            .arg(order.destination.to_string())
            .args(["--count", &order.count.to_string()])
            .args(["--interval", &format!("{}us", order.interval.as_micros())])
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match (order.signaling, order.format) {
            (Signaling::Casp, _) => command.args(["--signaling", "casp"]),
            (Signaling::Gist, Format::Signalbox) => command.args(["--size", &order.size.to_string()]),
            (Signaling::Gist, Format::Nsis) => command.args(["--format", "nsis"]),
        };
        let namespace = kernel::namespace(&node.namespace)?;
        let mut child = namespace.spawn(&mut command).context("cannot start the ping command")?;
        let number = self.runs.len();
        let id = Some(order.id.clone());
        let run = PingRun { id, from: order.from, to: order.to, ..PingRun::default() };
        let pipes = (child.stdout.take(), child.stderr.take());
        self.runs.push(run);
        self.children.push(child);
        let (Some(stdout), Some(mut stderr), Some(sender)) = (pipes.0, pipes.1, self.sender.clone()) else {
            bail!("the ping command has no output");
        };
        self.open += 1;
        thread::spawn(move || {
            // A send fails only when the run is over.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(Line::Output(number, line));
            }
            let mut complaint = String::new();
            let _ = stderr.read_to_string(&mut complaint);
            let _ = sender.send(Line::Complaint(number, complaint));
            let _ = sender.send(Line::End);
        });
        Ok(())
    }

    /// Reads what the commands print until `deadline`.
    fn listen_until(&mut self, deadline: Instant) -> Result<()> {
        while self.listen(deadline.saturating_duration_since(Instant::now()))? {}
        Ok(())
    }

    /// Reads one line; `false` if none came within `budget`.
    fn listen(&mut self, budget: Duration) -> Result<bool> {
        wait::check()?;
        match self.lines.recv_timeout(budget) {
            Ok(Line::Output(number, line)) => self.runs[number].take(&line)?,
            Ok(Line::Complaint(number, complaint)) => self.runs[number].complaint = complaint,
            Ok(Line::End) => self.open -= 1,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(false),
        }
        Ok(true)
    }

    /// Whether every session has had a reply.
    fn all_answered(&self) -> bool {
        self.runs.iter().all(|run| !run.replies.is_empty())
    }

    /// Whether every command has ended.
    fn all_ended(&self) -> bool {
        self.open == 0
    }

    /// Ends the commands that still run and returns what came of all.
    fn finish(mut self) -> Result<Vec<PingRun>> {
        for child in &mut self.children {
            if child.try_wait()?.is_none() {
                child.kill()?;
            }
            child.wait()?;
        }
        self.sender = None;
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.open > 0 && Instant::now() < deadline {
            self.listen(wait::STEP)?;
        }
        Ok(std::mem::take(&mut self.runs))
    }
}

impl PingRun {
    /// Takes a line that the command prints with `--json`.
    fn take(&mut self, line: &str) -> Result<()> {
        let value: Value =
            serde_json::from_str(line).with_context(|| format!("the ping command wrote no JSON: {line}"))?;
        match value["type"].as_str() {
            Some("reply") if value["reached_end"] == true => self.replies.extend(reply(&value)),
            Some("lost") => {
                let reason = ["message", "reason"]
                    .iter()
                    .find_map(|key| value[key].as_str().filter(|text| !text.is_empty()));
                self.lost.push(reason.unwrap_or("?").to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        // After an error some may still run.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads the event of a reply. The times on links follow from the clocks of the nodes.
fn reply(value: &Value) -> Option<Reply> {
    let sent_us = value["sent_unix_us"].as_u64()?;
    let rtt_us = value["rtt_us"].as_u64()?;
    let mut left_us = Some(sent_us);
    let mut hop = |value: &Value| {
        let [received, sent] = ["received_unix_us", "sent_unix_us"].map(|key| value[key].as_u64());
        let before = std::mem::replace(&mut left_us, sent);
        Some(Hop {
            address: value["address"].as_str()?.parse().ok()?,
            link_ms: between_ms(before, received),
            node_ms: between_ms(received, sent),
        })
    };
    let hops = value["hops"].as_array()?.iter().filter_map(&mut hop).collect();
    for value in value["reverse_hops"].as_array().into_iter().flatten() {
        hop(value);
    }
    Some(Reply {
        sent: Duration::from_micros(sent_us),
        rtt_ms: between_ms(Some(0), Some(rtt_us))?,
        hops,
        last_link_ms: between_ms(left_us, Some(sent_us.saturating_add(rtt_us))),
        padding: value["padding_octets"]
            .as_u64()
            .and_then(|octets| usize::try_from(octets).ok())
            .unwrap_or(0),
    })
}

/// Milliseconds from one time in microseconds to another; negative where two clocks disagree.
#[expect(clippy::cast_precision_loss, reason = "times far below 2^53 µs")]
fn between_ms(earlier: Option<u64>, later: Option<u64>) -> Option<f64> {
    let (earlier, later) = (earlier?, later?);
    let us = earlier.abs_diff(later) as f64 / 1e3;
    Some(if later >= earlier { us } else { -us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_from_the_command_s_lines() {
        let line = r#"{"type":"reply","sequence":0,"sent_unix_us":1700000000000123,"padding_octets":8,"rtt_us":1250,
            "reached_end":true,"hops":[{"address":"10.0.1.2","received_unix_us":1700000000000423,
            "sent_unix_us":1700000000000473}],"reverse_hops":[]}"#;
        let reply = reply(&serde_json::from_str(line).expect("JSON")).expect("complete");
        assert_eq!((reply.rtt_ms, reply.last_link_ms), (1.25, Some(0.9)));
        assert_eq!((reply.sent, reply.padding), (Duration::from_micros(1_700_000_000_000_123), 8));
        assert_eq!((reply.hops[0].link_ms, reply.hops[0].node_ms), (Some(0.3), Some(0.05)));
        assert_eq!(reply.hops[0].address.to_string(), "10.0.1.2");
        let mut pings = Pings::new();
        pings.runs.push(PingRun::default());
        assert!(pings.runs[0].take("no JSON").is_err());
        pings.runs[0].take(r#"{"type":"lost","sequence":1,"reason":"timeout","message":""}"#).expect("JSON");
        assert!(!pings.all_answered());
        assert_eq!(pings.runs[0].lost, ["timeout"]);
    }

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
