//! The real `signalbox` command, run inside a node.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::evidence::{Hop, PingRun, Reply, Shown};
use crate::plan::PlannedNode;
use crate::{daemon, kernel, net, state, wait};

/// Where the command is.
pub(crate) fn place() -> Result<PathBuf> {
    match std::env::var_os("SIGNALBOX") {
        Some(_) => daemon::program("SIGNALBOX", "signalbox"),
        None => std::env::current_exe().context("cannot find the command itself"),
    }
}

/// The command, told to ask the daemon of a node.
pub(crate) fn signalbox(lab: &str, node: &PlannedNode) -> Result<Command> {
    let mut command = Command::new(place()?);
    command.arg("--socket").arg(state::socket(lab, &node.name)).stdin(Stdio::null());
    Ok(command)
}

/// What a daemon says of itself.
pub(crate) fn shown(lab: &str, node: &PlannedNode) -> Result<Shown> {
    let [sessions, associations, counters] =
        ["sessions", "associations", "counters"].map(|what| show(lab, node, what));
    let (sessions, associations, counters) = (sessions?, associations?, counters?);
    let mut shown = Shown { sessions, associations, counters, ..Shown::default() };
    if node.qos {
        shown.reservations = show(lab, node, "reservations")?;
    }
    if node.reserves() {
        shown.kernel = net::rules(&kernel::namespace(&node.namespace)?)?;
    }
    if node.rsvp {
        shown.rsvp = table(lab, node, &["rsvp", "show"])?;
        shown.rsvp_neighbours = table(lab, node, &["rsvp", "show", "neighbours"])?;
    }
    Ok(shown)
}

/// A table of a node, as `show … --json` prints it.
pub(crate) fn show(lab: &str, node: &PlannedNode, what: &str) -> Result<Vec<Value>> {
    table(lab, node, &["show", what])
}

pub(crate) fn table(lab: &str, node: &PlannedNode, words: &[&str]) -> Result<Vec<Value>> {
    let mut command = signalbox(lab, node)?;
    let what = words.join(" ");
    command.args(words).arg("--json");
    let output = kernel::namespace(&node.namespace)?.run(|| command.output())??;
    if !output.status.success() {
        bail!("{} does not {what}: {}", node.name, String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("what {what} of {} says is no JSON", node.name))
}

/// Pings that run at the same time.
#[derive(Debug)]
pub(crate) struct Pings {
    runs: Vec<PingRun>,
    children: Vec<Child>,
    lines: Receiver<Line>,
    sender: Option<Sender<Line>>,
    open: usize,
}

/// What a ping command says: by its number, a line of output, a complaint, or the end.
#[derive(Debug)]
enum Line {
    Output(usize, String),
    Complaint(usize, String),
    End,
}

/// What a ping command is to do.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) destination: std::net::IpAddr,
    pub(crate) count: u32,
    pub(crate) interval: Duration,
    /// Octets of padding.
    pub(crate) size: u16,
}

impl Pings {
    /// None yet.
    pub(crate) fn new() -> Self {
        let (sender, lines) = channel();
        Self { runs: Vec::new(), children: Vec::new(), lines, sender: Some(sender), open: 0 }
    }

    /// Starts one more session.
    pub(crate) fn start(&mut self, lab: &str, node: &PlannedNode, order: &Order) -> Result<()> {
        let mut command = signalbox(lab, node)?;
        command
            .arg("ping")
            .arg(order.destination.to_string())
            .args(["--count", &order.count.to_string()])
            .args(["--interval", &format!("{}us", order.interval.as_micros())])
            .args(["--size", &order.size.to_string()])
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let namespace = kernel::namespace(&node.namespace)?;
        let mut child = namespace.spawn(&mut command).context("cannot start the ping command")?;
        let number = self.runs.len();
        let run = PingRun { from: order.from, to: order.to, ..PingRun::default() };
        let pipes = (child.stdout.take(), child.stderr.take());
        self.runs.push(run);
        self.children.push(child);
        let (Some(stdout), Some(mut stderr), Some(sender)) = (pipes.0, pipes.1, self.sender.clone()) else {
            bail!("the ping command has no output");
        };
        self.open += 1;
        thread::spawn(move || {
            // A send fails only when nobody listens any more; then there is nothing to tell.
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

    /// Takes in what the commands say until `deadline`.
    pub(crate) fn listen_until(&mut self, deadline: Instant) -> Result<()> {
        while self.listen(deadline.saturating_duration_since(Instant::now()))? {}
        Ok(())
    }

    /// Takes in one line; `false` if none came within `budget`.
    pub(crate) fn listen(&mut self, budget: Duration) -> Result<bool> {
        wait::check()?;
        match self.lines.recv_timeout(budget) {
            Ok(Line::Output(number, line)) => self.take(number, &line)?,
            Ok(Line::Complaint(number, complaint)) => self.runs[number].complaint = complaint,
            Ok(Line::End) => self.open -= 1,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(false),
        }
        Ok(true)
    }

    /// Whether every session has had a reply.
    pub(crate) fn all_answered(&self) -> bool {
        self.runs.iter().all(|run| !run.replies.is_empty())
    }

    /// Whether every command has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.open == 0
    }

    /// What came of them; commands that still run are ended.
    pub(crate) fn finish(mut self) -> Result<Vec<PingRun>> {
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

    fn take(&mut self, number: usize, line: &str) -> Result<()> {
        let value: Value =
            serde_json::from_str(line).with_context(|| format!("the ping command wrote no JSON: {line}"))?;
        let run = &mut self.runs[number];
        match value["type"].as_str() {
            Some("reply") if value["reached_end"] == true => run.replies.extend(reply(&value)),
            Some("lost") => run.lost.push(value["reason"].as_str().unwrap_or("?").to_owned()),
            Some("summary") => run.summary = Some(value),
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        // After `finish` there are none left that run; after an error nobody wants them any more.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn reply(value: &Value) -> Option<Reply> {
    let hops = value["hops"].as_array()?.iter();
    Some(Reply {
        sent: Duration::from_micros(value["sent_us"].as_u64()?),
        rtt_ms: value["rtt_ms"].as_f64()?,
        hops: hops
            .filter_map(|hop| {
                Some(Hop {
                    address: hop["address"].as_str()?.parse().ok()?,
                    link_ms: hop["link_ms"].as_f64(),
                    node_ms: hop["node_ms"].as_f64(),
                })
            })
            .collect(),
        last_link_ms: value["last_link_ms"].as_f64(),
        padding: value["padding"].as_u64().and_then(|octets| usize::try_from(octets).ok()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_from_the_command_s_lines() {
        let line = r#"{"type":"reply","seq":0,"sent_us":1700000000000123,"padding":8,"rtt_ms":1.25,"reached_end":true,"hops":[
            {"address":"10.0.1.2","link_ms":0.3,"node_ms":0.05,"ip_distance":1}],"back":[],"last_link_ms":0.31}"#;
        let reply = reply(&serde_json::from_str(line).expect("JSON")).expect("complete");
        assert_eq!((reply.rtt_ms, reply.last_link_ms), (1.25, Some(0.31)));
        assert_eq!((reply.sent, reply.padding), (Duration::from_micros(1_700_000_000_000_123), 8));
        assert_eq!(reply.hops[0].address.to_string(), "10.0.1.2");
        let mut pings = Pings::new();
        pings.runs.push(PingRun::default());
        assert!(pings.take(0, "no JSON").is_err());
        pings.take(0, r#"{"type":"lost","seq":1,"reason":"timeout"}"#).expect("JSON");
        assert!(!pings.all_answered());
        assert_eq!(pings.runs[0].lost, ["timeout"]);
    }
}
