//! `signalbox rsvp send|receive --flows N`: the same for N sessions, to consecutive destination ports.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use signalbox_api::v0;
use signalbox_api::v0::rsvp_client::RsvpClient;
use signalbox_api::v0::rsvp_upcall::Upcall;
use tokio::sync::{Semaphore, mpsc, watch};
use tonic::transport::Channel;

use super::args::SessionArgs;
use super::print;
use super::session::{Call, Role};
use crate::arguments::ports;
use crate::client::{self, Stop, wait_until};

/// Sessions at a time that register or wait for the result of a request: more of them overflow the sockets of the nodes
/// on the path.
const CONCURRENT: usize = 128;
/// A session that has waited for a result as long as this gives its permit to another.
const PERMIT_TIME: Duration = Duration::from_millis(500);
/// Calls on one connection. An HTTP/2 server takes 200 at most.
const PER_CONNECTION: u16 = 180;
/// Errors that are printed. Further ones are only counted.
const ERRORS: u32 = 10;

/// A report of one session.
#[derive(Debug)]
enum Report {
    Registered,
    /// Whether the role is fulfilled, on each change.
    Fulfilled(bool),
    /// An error or refusal in the session to this port.
    Error(u32, Box<Upcall>),
    /// The command cannot go on.
    Failed(anyhow::Error),
}

/// Acts in each session until the command is stopped, and prints the progress of all.
pub(super) async fn run<R: Role + Clone + Send + 'static>(
    socket: &Path,
    arguments: &SessionArgs,
    flows: u16,
    mut stop: Stop,
    role: R,
) -> Result<ExitCode> {
    let ports = ports(arguments.destination_port, flows)?;
    let (stopping, stopped) = watch::channel(false);
    let (sender, mut reports) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(CONCURRENT));
    let mut client = RsvpClient::new(client::channel(socket).await?);
    for (number, port) in (0_u16..).zip(ports) {
        if number > 0 && number.is_multiple_of(PER_CONNECTION) {
            client = RsvpClient::new(client::channel(socket).await?);
        }
        let register = v0::RsvpRegister { port: port.into(), ..arguments.register() };
        let flow = Flow { role: role.clone(), gate: Arc::clone(&gate), reports: sender.clone() };
        let (client, mut stopped) = (client.clone(), stopped.clone());
        tokio::spawn(async move {
            let reports = flow.reports.clone();
            let result = tokio::select! {
                result = flow.run(client, register) => result,
                // The daemon tears down the state of a call that ends.
                _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
            };
            if let Err(error) = result {
                // The receiver is gone only when the command ends.
                let _ = reports.send(Report::Failed(error));
            }
        });
    }
    drop(sender);
    let mut progress = Progress::new(flows, R::REGISTERED, R::FULFILLED, arguments.json);
    let mut out = std::io::stdout();
    loop {
        tokio::select! {
            report = reports.recv() => match report {
                Some(report) => progress.take(report, Instant::now(), &mut out)?,
                None => break,
            },
            () = stop.wait(), if !*stopping.borrow() => { stopping.send_replace(true); }
        }
        out.flush()?;
    }
    progress.end(&mut out)?;
    out.flush()?;
    Ok(ExitCode::from(u8::from(!progress.is_complete())))
}

/// One of the sessions.
struct Flow<R> {
    role: R,
    gate: Arc<Semaphore>,
    reports: mpsc::UnboundedSender<Report>,
}

impl<R: Role> Flow<R> {
    /// Acts in the session until the call fails.
    async fn run(mut self, mut client: RsvpClient<Channel>, register: v0::RsvpRegister) -> Result<()> {
        let port = register.port;
        let mut permit = self.gate.acquire().await.ok();
        let mut call = Call::open(&mut client, register).await?;
        for request in self.role.first_requests() {
            call.send(request).await?;
        }
        let mut deadline = None;
        loop {
            let upcall = tokio::select! {
                upcall = call.next() => upcall?,
                () = wait_until(deadline) => {
                    (permit, deadline) = (None, None);
                    continue;
                }
            };
            let before = self.role.is_fulfilled();
            let next = self.role.upcall(&upcall);
            let report = match upcall {
                Upcall::Registered(_) => Some(Report::Registered),
                Upcall::Refused(_) | Upcall::PathError(_) | Upcall::ReservationError(_) => {
                    Some(Report::Error(port, Box::new(upcall)))
                }
                Upcall::Path(_)
                | Upcall::PathGone(_)
                | Upcall::Reserved(_)
                | Upcall::ReservedGone(_)
                | Upcall::Confirmed(_) => None,
            };
            let fulfilled = self.role.is_fulfilled();
            if report.is_some() || fulfilled {
                (permit, deadline) = (None, None);
            }
            let change = (fulfilled != before).then_some(Report::Fulfilled(fulfilled));
            for report in report.into_iter().chain(change) {
                // The receiver is gone only when the command ends.
                let _ = self.reports.send(report);
            }
            if let Some(request) = next {
                if permit.is_none() {
                    permit = self.gate.acquire().await.ok();
                }
                deadline = Some(tokio::time::Instant::now() + PERMIT_TIME);
                call.send(request).await?;
            }
        }
    }
}

/// The progress of all sessions.
#[derive(Debug)]
struct Progress {
    wanted: u16,
    registered_line: (&'static str, &'static str),
    fulfilled_word: &'static str,
    json: bool,
    registered: u16,
    fulfilled: u16,
    /// Since when not all are fulfilled.
    since: Instant,
    /// All were fulfilled at some time.
    was_complete: bool,
    errors: u32,
}

impl Progress {
    fn new(
        wanted: u16,
        registered_line: (&'static str, &'static str),
        fulfilled_word: &'static str,
        json: bool,
    ) -> Self {
        let since = Instant::now();
        Self {
            wanted,
            registered_line,
            fulfilled_word,
            json,
            registered: 0,
            fulfilled: 0,
            since,
            was_complete: false,
            errors: 0,
        }
    }

    const fn is_complete(&self) -> bool {
        self.fulfilled == self.wanted
    }

    /// Takes the report of a session, and prints a line if it matters for all.
    fn take(&mut self, report: Report, now: Instant, out: &mut impl Write) -> Result<()> {
        if let Some((line, text)) = self.line(report, now)? {
            if self.json { writeln!(out, "{line}")? } else { writeln!(out, "{text}")? }
        }
        Ok(())
    }

    /// The line to print because of a report, as JSON and as text.
    fn line(&mut self, report: Report, now: Instant) -> Result<Option<(Value, String)>> {
        let Self { wanted, registered_line: (kind, text), fulfilled_word, .. } = *self;
        Ok(match report {
            Report::Registered => {
                self.registered += 1;
                let line = json!({ "type": kind, "flows": wanted });
                (self.registered == wanted).then(|| (line, format!("{wanted} flows {text}")))
            }
            Report::Fulfilled(true) => {
                self.fulfilled += 1;
                self.was_complete |= self.is_complete();
                let seconds = now.saturating_duration_since(self.since).as_secs_f64();
                let line = json!({ "type": fulfilled_word, "flows": wanted, "seconds": seconds });
                let text = format!("{wanted} flows {fulfilled_word} in {seconds:.2} s");
                self.is_complete().then_some((line, text))
            }
            Report::Fulfilled(false) => {
                if self.is_complete() {
                    self.since = now;
                }
                self.fulfilled = self.fulfilled.saturating_sub(1);
                let line = json!({ "type": "gone", "flows": wanted });
                let text = format!("of {wanted} flows none is {fulfilled_word} any more");
                (self.was_complete && self.fulfilled == 0).then_some((line, text))
            }
            Report::Error(port, upcall) => {
                self.errors += 1;
                let mut line = print::json(&upcall);
                line["port"] = port.into();
                let text = format!("port {port}: {}", print::text(&upcall));
                (self.errors <= ERRORS).then_some((line, text))
            }
            Report::Failed(error) => return Err(error),
        })
    }

    fn end(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Self { wanted, fulfilled, errors, fulfilled_word, .. } = self;
        if self.json {
            let line =
                json!({ "type": "released", "flows": wanted, "standing": fulfilled, "errors": errors });
            return writeln!(out, "{line}");
        }
        write!(out, "released {wanted} flows")?;
        if !self.is_complete() {
            write!(out, ", of which {fulfilled} were {fulfilled_word}")?;
        }
        if *errors > 0 {
            write!(out, "; there were {errors} errors")?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(progress: &mut Progress, reports: Vec<Report>) -> String {
        let mut out = Vec::new();
        let now = progress.since + Duration::from_secs(2);
        reports.into_iter().for_each(|report| progress.take(report, now, &mut out).unwrap());
        String::from_utf8(out).unwrap()
    }

    fn progress(json: bool) -> Progress {
        Progress::new(2, ("announced", "announced; waiting"), "reserved", json)
    }

    fn error() -> Report {
        let error = v0::RsvpError { meaning: "No path information".into(), ..v0::RsvpError::default() };
        Report::Error(5001, Box::new(Upcall::ReservationError(error)))
    }

    #[test]
    fn a_line_reports_that_all_are_fulfilled_or_none() {
        let mut progress = progress(false);
        let reports =
            vec![Report::Registered, Report::Registered, Report::Fulfilled(true), Report::Fulfilled(true)];
        assert_eq!(
            printed(&mut progress, reports),
            "2 flows announced; waiting\n2 flows reserved in 2.00 s\n"
        );
        assert_eq!(
            printed(&mut progress, vec![Report::Fulfilled(false), Report::Fulfilled(true)]),
            "2 flows reserved in 0.00 s\n"
        );
        let gone = printed(&mut progress, vec![Report::Fulfilled(false), Report::Fulfilled(false)]);
        assert_eq!(
            (gone.as_str(), progress.is_complete()),
            ("of 2 flows none is reserved any more\n", false)
        );
    }

    #[test]
    fn the_last_line_counts_missing_flows_and_errors() {
        let mut progress = progress(false);
        assert_eq!(
            printed(&mut progress, vec![Report::Fulfilled(true), Report::Fulfilled(false)]),
            "",
            "never all"
        );
        let lines = printed(&mut progress, (0..ERRORS + 3).map(|_| error()).collect());
        assert_eq!(lines.lines().count(), 10);
        assert!(lines.starts_with("port 5001: reservation error: No path information"), "{lines}");
        let mut out = Vec::new();
        progress.end(&mut out).unwrap();
        let end = "released 2 flows, of which 0 were reserved; there were 13 errors\n";
        assert_eq!(String::from_utf8(out).unwrap(), end);
    }

    #[test]
    fn json_lines_have_types_and_numbers() {
        let mut progress = progress(true);
        let lines = printed(&mut progress, vec![Report::Registered, Report::Registered, error()]);
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "type": "announced", "flows": 2 }));
        assert_eq!((&lines[1]["type"], &lines[1]["port"]), (&json!("reservation-error"), &json!(5001)));
    }
}
