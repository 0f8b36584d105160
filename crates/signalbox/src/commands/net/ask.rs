//! Questions to nodes: the command of each is started with the same words, and prints JSON or a table.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::inventory::Node;
use crate::exit::{Exit, Refusal};
use crate::print::{json_line, now_unix_us};

/// Commands that run at a time.
const AT_ONCE: usize = 16;

/// Who is asked, and how.
pub(super) struct Asked {
    pub(super) nodes: Vec<Node>,
    pub(super) timeout: Duration,
    pub(super) json: bool,
}

/// Why a node gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// As in the errors of all commands.
    pub(super) reason: String,
    pub(super) message: String,
}

/// What a node printed.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) node: String,
    pub(super) text: Result<String, Fault>,
    /// Microseconds since 1970, by the clock of this machine: when the question left, and when the answer was there.
    pub(super) between: (u64, u64),
}

impl Answer {
    /// The objects of an answer in JSON.
    pub(super) fn rows(&self) -> impl Iterator<Item = Value> {
        let text = self.text.as_deref().unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok())
    }
}

impl Asked {
    /// Asks all nodes `show` with these words. The answers are in the order of the nodes.
    pub(super) async fn show(&self, words: &[&str], json: bool) -> Result<Vec<Answer>> {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asked = JoinSet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let command = command(node, words, json)?;
            let (places, name, timeout) = (Arc::clone(&places), node.name.clone(), self.timeout);
            asked.spawn(async move {
                let _place = places.acquire_owned().await;
                let begin = now_unix_us();
                let text = run(command, timeout).await;
                (at, Answer { node: name, text, between: (begin, now_unix_us()) })
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Prints why nodes gave no answer. Returns whether there are such nodes.
    pub(super) fn report<'a>(&self, faults: impl Iterator<Item = (&'a str, &'a Fault)>) -> Result<bool> {
        let mut some = false;
        for (node, Fault { reason, message }) in faults {
            some = true;
            if self.json {
                let content = json!({"node": node, "reason": reason, "message": message});
                object(&mut std::io::stdout(), "net_error", content)?;
            } else {
                eprintln!("{node}: {message}");
            }
        }
        Ok(some)
    }
}

/// Prints an object of this type as a line.
pub(super) fn object(out: &mut impl Write, kind: &str, content: Value) -> Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'a str,
        #[serde(flatten)]
        content: Value,
    }
    json_line(out, &Line { r#type: kind, content })
}

/// The faults of some answers.
pub(super) fn faults(answers: &[Answer]) -> impl Iterator<Item = (&str, &Fault)> {
    answers.iter().filter_map(|answer| Some((answer.node.as_str(), answer.text.as_ref().err()?)))
}

fn command(node: &Node, words: &[&str], json: bool) -> Result<Command> {
    let mut given = node.command.iter();
    let mut command = match given.next() {
        Some(program) => Command::new(program),
        None => Command::new(std::env::current_exe().context("this program does not find itself")?),
    };
    command.args(given).arg("show").args(words);
    if let Some(socket) = &node.socket {
        command.arg("--socket").arg(socket);
    }
    if json && !words.contains(&"--json") {
        command.arg("--json");
    }
    // A socket of this machine is none of another one.
    command.env_remove("SIGNALBOX_SOCKET").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

async fn run(mut command: Command, timeout: Duration) -> Result<String, Fault> {
    let fault = |reason: &str, message: String| Fault { reason: reason.to_owned(), message };
    let output = match tokio::time::timeout(timeout, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            let program = command.as_std().get_program().to_string_lossy().into_owned();
            return Err(fault("no_command", format!("cannot start {program}: {error}")));
        }
        Err(_) => return Err(fault("timeout", format!("no answer within {timeout:?}"))),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    match serde_json::from_str::<Value>(last) {
        Ok(error) if error["type"] == "error" => {
            let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
            Err(fault(&text("reason"), text("message")))
        }
        _ => {
            let text = said.trim().trim_start_matches("signalbox: ").trim_start_matches("error: ");
            let text = if text.is_empty() { format!("{}", output.status) } else { text.to_owned() };
            Err(fault(if output.status.code() == Some(2) { "usage" } else { "failed" }, text))
        }
    }
}

/// Fails if the words of the question are wrong: no node understood them.
pub(super) fn understood(answers: &[Answer]) -> Result<()> {
    let mut wrong = faults(answers).map(|(_, fault)| fault).filter(|fault| fault.reason == "usage");
    match wrong.next() {
        Some(fault) if wrong.count() + 1 == answers.len() => {
            let (reason, message) = (fault.reason.clone(), fault.message.clone());
            Err(Refusal { exit: Exit::Usage, reason, message }.into())
        }
        _ => Ok(()),
    }
}
