//! `signalbox rsvp send|receive --flows N`: the same for N sessions, to consecutive destination ports.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::rsvp::v1::session_response::Upcall;
use tokio::sync::{Semaphore, mpsc, watch};

use super::args::SessionArgs;
use super::print;
use super::session::{Call, Role};
use crate::arguments::{microseconds, ports};
use crate::client::{Shared, Termination, wait_until};
use crate::exit::Exit;
use crate::print::{duration, json_line, now_unix_us};

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
    Error(u32, Box<v1::SessionResponse>),
    /// The command cannot go on.
    Failed(anyhow::Error),
}

/// Acts in each session until the command is stopped, and prints the progress of all.
pub(super) async fn run<R: Role + Clone + Send + 'static>(
    arguments: &SessionArgs,
    destination: IpAddr,
    flows: u16,
    mut termination: Termination,
    role: R,
) -> Result<Exit> {
    let socket = &arguments.node.socket;
    let ports = ports(arguments.data.destination_port, flows)?;
    let (stopping, stopped) = watch::channel(false);
    let (sender, mut reports) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(CONCURRENT));
    let mut connection = Shared::to(socket);
    for (number, port) in (0_u16..).zip(ports) {
        if number > 0 && number.is_multiple_of(PER_CONNECTION) {
            connection = Shared::to(socket);
        }
        let register =
            v1::Register { destination_port: Some(port.into()), ..arguments.data.session(destination) };
        let flow = Flow { role: role.clone(), gate: Arc::clone(&gate), reports: sender.clone() };
        let (connection, mut stopped) = (connection.clone(), stopped.clone());
        tokio::spawn(async move {
            let reports = flow.reports.clone();
            let result = tokio::select! {
                result = flow.run(&connection, register) => result,
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
    let mut progress = Progress::new(flows, R::WAITS, R::FULFILLED, arguments.output.json);
    let mut out = std::io::stdout();
    loop {
        tokio::select! {
            report = reports.recv() => match report {
                Some(report) => progress.take(report, Instant::now(), &mut out)?,
                None => break,
            },
            () = termination.wait(), if !*stopping.borrow() => { stopping.send_replace(true); }
        }
        out.flush()?;
    }
    progress.end(&mut out)?;
    out.flush()?;
    Ok(Exit::yes_if(progress.is_complete()))
}

/// One of the sessions.
struct Flow<R> {
    role: R,
    gate: Arc<Semaphore>,
    reports: mpsc::UnboundedSender<Report>,
}

impl<R: Role> Flow<R> {
    /// Acts in the session until the call fails.
    async fn run(mut self, connection: &Shared, register: v1::Register) -> Result<()> {
        let port = register.destination_port.unwrap_or(0);
        let mut permit = self.gate.acquire().await.ok();
        let mut client = RsvpClient::new(connection.channel(None).await?.1);
        let mut call = Call::open(&mut client, register).await?;
        for request in self.role.first_requests() {
            call.send(request).await?;
        }
        let mut deadline = None;
        loop {
            let response = tokio::select! {
                response = call.next() => response?,
                () = wait_until(deadline) => {
                    (permit, deadline) = (None, None);
                    continue;
                }
            };
            let Some(upcall) = &response.upcall else { continue };
            let before = self.role.is_fulfilled();
            let next = self.role.upcall(upcall);
            let report = match upcall {
                Upcall::Registered(_) => Some(Report::Registered),
                Upcall::Refused(_) | Upcall::PathError(_) | Upcall::ReservationError(_) => {
                    Some(Report::Error(port, Box::new(response)))
                }
                Upcall::Path(_)
                | Upcall::PathRemoved(_)
                | Upcall::Reserved(_)
                | Upcall::ReservedRemoved(_)
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
    waits: &'static str,
    /// The word for what is fulfilled, and for what is not any more.
    fulfilled_words: [&'static str; 2],
    json: bool,
    registered: u16,
    fulfilled: u16,
    /// Since when not all are fulfilled.
    since: Instant,
    /// All were fulfilled at some time.
    was_complete: bool,
    errors: u32,
}

/// A line about all sessions.
#[derive(Debug, Default, Serialize)]
struct Line<'a> {
    r#type: &'a str,
    time_unix_us: u64,
    flows: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_us: Option<u64>,
    /// Sessions in which the role was fulfilled at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    fulfilled: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<u32>,
}

impl Progress {
    fn new(wanted: u16, waits: &'static str, fulfilled_words: [&'static str; 2], json: bool) -> Self {
        Self {
            wanted,
            waits,
            fulfilled_words,
            json,
            registered: 0,
            fulfilled: 0,
            since: Instant::now(),
            was_complete: false,
            errors: 0,
        }
    }

    const fn is_complete(&self) -> bool {
        self.fulfilled == self.wanted
    }

    /// Takes the report of a session, and prints a line if it matters for all.
    fn take(&mut self, report: Report, now: Instant, out: &mut impl Write) -> Result<()> {
        let Self { wanted, waits, fulfilled_words: [fulfilled, removed], .. } = *self;
        match report {
            Report::Registered => {
                self.registered += 1;
                if self.registered == wanted {
                    self.line(out, "registered", None, &format!("{wanted} flows {waits}"))?;
                }
            }
            Report::Fulfilled(true) => {
                self.fulfilled += 1;
                self.was_complete |= self.is_complete();
                let elapsed = microseconds(now.saturating_duration_since(self.since));
                if self.is_complete() {
                    let text = format!("{wanted} flows {fulfilled} in {}", duration(elapsed));
                    self.line(out, fulfilled, Some(elapsed), &text)?;
                }
            }
            Report::Fulfilled(false) => {
                if self.is_complete() {
                    self.since = now;
                }
                self.fulfilled = self.fulfilled.saturating_sub(1);
                if self.was_complete && self.fulfilled == 0 {
                    let text = format!("of {wanted} flows none is {fulfilled} any more");
                    self.line(out, removed, None, &text)?;
                }
            }
            Report::Error(port, response) => {
                self.errors += 1;
                if self.errors <= ERRORS {
                    self.error(out, port, &response)?;
                }
            }
            Report::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn line(&self, out: &mut impl Write, kind: &str, elapsed_us: Option<u64>, text: &str) -> Result<()> {
        if !self.json {
            return Ok(writeln!(out, "{text}")?);
        }
        let (flows, time_unix_us) = (self.wanted, now_unix_us());
        json_line(out, &Line { r#type: kind, time_unix_us, flows, elapsed_us, ..Line::default() })
    }

    fn error(&self, out: &mut impl Write, port: u32, response: &v1::SessionResponse) -> Result<()> {
        let Some(upcall) = &response.upcall else { return Ok(()) };
        if !self.json {
            return Ok(writeln!(out, "port {port}: {}", print::text(upcall))?);
        }
        // The event's line with one more field.
        let line = signalbox_json::event(response)?.unwrap_or_default();
        let line = line.strip_suffix('}').unwrap_or(&line);
        Ok(writeln!(out, "{line},\"destination_port\":{port}}}")?)
    }

    fn end(&self, out: &mut impl Write) -> Result<()> {
        let Self { wanted, fulfilled, errors, fulfilled_words: [word, _], .. } = *self;
        if self.json {
            let (fulfilled, errors) = (Some(fulfilled), Some(errors));
            let (flows, time_unix_us) = (wanted, now_unix_us());
            let line = Line { r#type: "released", time_unix_us, flows, elapsed_us: None, fulfilled, errors };
            return json_line(out, &line);
        }
        write!(out, "released {wanted} flows")?;
        if !self.is_complete() {
            write!(out, ", of which {fulfilled} were {word}")?;
        }
        if errors > 0 {
            write!(out, "; there were {errors} errors")?;
        }
        Ok(writeln!(out)?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use signalbox_api::v1 as shared;

    use super::*;

    fn printed(progress: &mut Progress, reports: Vec<Report>) -> String {
        let mut out = Vec::new();
        let now = progress.since + Duration::from_secs(2);
        reports.into_iter().for_each(|report| progress.take(report, now, &mut out).unwrap());
        String::from_utf8(out).unwrap()
    }

    fn progress(json: bool) -> Progress {
        Progress::new(2, "announced; waiting", ["reserved", "reserved_removed"], json)
    }

    fn error() -> Report {
        let failure = shared::Failure { message: "No path information".into(), ..Default::default() };
        let upcall = Upcall::ReservationError(v1::Error { failure: Some(failure), ..Default::default() });
        Report::Error(5001, Box::new(v1::SessionResponse { time_unix_us: 1, upcall: Some(upcall) }))
    }

    #[test]
    fn a_line_reports_that_all_are_fulfilled_or_none() {
        let mut progress = progress(false);
        let reports =
            vec![Report::Registered, Report::Registered, Report::Fulfilled(true), Report::Fulfilled(true)];
        assert_eq!(printed(&mut progress, reports), "2 flows announced; waiting\n2 flows reserved in 2.0s\n");
        assert_eq!(
            printed(&mut progress, vec![Report::Fulfilled(false), Report::Fulfilled(true)]),
            "2 flows reserved in 0us\n"
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
        assert_eq!((&lines[0]["type"], &lines[0]["flows"]), (&json!("registered"), &json!(2)));
        assert!(lines[0]["time_unix_us"].is_u64());
        let (kind, port) = (&lines[1]["type"], &lines[1]["destination_port"]);
        assert_eq!((kind, port), (&json!("reservation_error"), &json!(5001)));
    }
}
