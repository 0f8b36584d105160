//! `signalbox reserve --flows N`: the same reservation for N flows, to consecutive destination ports. If one of them is
//! refused, all are released.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use signalbox_api::v0;
use signalbox_api::v0::reserve_event::Event;
use tokio::sync::{Semaphore, mpsc, watch};

use super::{RELEASE_TIMEOUT, ReserveArgs, print};
use crate::arguments::ports;
use crate::client::{self, Client, Stop, refusal, wait_until};

/// Requests and tears at a time: more of them overflow the sockets of the nodes on the path, and wait for
/// retransmissions.
const CONCURRENT: usize = 128;
/// Calls on one connection. An HTTP/2 server takes 200 at most, and each reservation needs a second call for its
/// release.
const PER_CONNECTION: u16 = 90;

/// A report of one flow.
#[derive(Debug)]
enum Outcome {
    Granted,
    /// The event with which a node refused or withdrew the reservation, or the error that ended the call.
    Failed(Box<Result<Event, anyhow::Error>>),
    Released {
        confirmed: bool,
    },
    /// The command was stopped before it sent this request.
    NotRequested,
}

/// Reserves for each flow, holds all reservations, releases all, and prints events.
pub(super) async fn reserve(socket: &Path, arguments: &ReserveArgs, flows: u16) -> Result<ExitCode> {
    let request = super::request(arguments)?;
    let ports = ports(arguments.wanted.destination_port, flows)?;
    let mut stop = Stop::new(None)?;
    let (stopping, stopped) = watch::channel(false);
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(CONCURRENT));
    let begin = Instant::now();
    let mut client = client::connect(socket).await?;
    for (number, port) in (0_u16..).zip(ports) {
        if number > 0 && number.is_multiple_of(PER_CONNECTION) {
            client = client::connect(socket).await?;
        }
        let mut request = request.clone();
        // The hold begins when all are granted.
        request.hold_ms = None;
        if let Some(wanted) = &mut request.wanted {
            wanted.destination_port = Some(port.into());
        }
        let flow = Flow { client: client.clone(), gate: Arc::clone(&gate), stopped: stopped.clone() };
        let sender = sender.clone();
        tokio::spawn(async move {
            let last = flow.reserve(request, &sender).await;
            // The receiver is gone only when the command ends.
            let _ = sender.send(last);
        });
    }
    drop(sender);
    let (json, mut out) = (arguments.wanted.json, std::io::stdout());
    let mut count = Count { wanted: flows, ..Count::default() };
    loop {
        tokio::select! {
            outcome = outcomes.recv() => match outcome {
                None => break,
                Some(outcome) => if let Some(event) = count.take(outcome) {
                    stopping.send_replace(true);
                    print_event(&mut out, &event?, json)?;
                },
            },
            () = stop.wait() => { stopping.send_replace(true); }
        }
        if count.all_granted() {
            count.printed = true;
            granted(&mut out, flows, begin.elapsed(), json)?;
            stop.end_after(arguments.hold);
        }
        out.flush()?;
    }
    count.released(&mut out, json)?;
    out.flush()?;
    Ok(ExitCode::from(u8::from(count.failed || !count.printed || count.confirmed < flows)))
}

/// One of the reservations.
struct Flow {
    client: Client,
    /// Has a permit for each request or tear that is under way.
    gate: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl Flow {
    async fn reserve(
        mut self,
        request: v0::ReserveRequest,
        sender: &mpsc::UnboundedSender<Outcome>,
    ) -> Outcome {
        let failed = |error: anyhow::Error| Outcome::Failed(Box::new(Err(error)));
        let mut permit = Arc::clone(&self.gate).acquire_owned().await.ok();
        if *self.stopped.borrow() {
            return Outcome::NotRequested;
        }
        let mut events = match self.client.reserve(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return failed(refusal(status)),
        };
        let (mut id, mut deadline) = (None, None);
        loop {
            let release_now = async {
                // The sender outlives all flows.
                let _ = self.stopped.wait_for(|stopped| *stopped).await;
            };
            tokio::select! {
                event = events.message() => match event.map(|event| event.map(|event| event.event)) {
                    Ok(Some(Some(Event::Started(started)))) => id = Some(started.id),
                    Ok(Some(Some(Event::Granted(_)))) => {
                        permit = None;
                        let _ = sender.send(Outcome::Granted);
                    }
                    Ok(Some(Some(event @ (Event::Failed(_) | Event::Lost(_))))) => {
                        return Outcome::Failed(Box::new(Ok(event)));
                    }
                    Ok(Some(Some(Event::Released(_)))) => return Outcome::Released { confirmed: true },
                    // The path changed, or the daemon is newer than this command.
                    Ok(Some(Some(Event::Rerouted(_)) | None)) => {}
                    Ok(None) => return failed(anyhow::anyhow!("the daemon ended before all was released")),
                    Err(status) => return failed(refusal(status)),
                },
                () = release_now, if id.is_some() && deadline.is_none() => {
                    if permit.is_none() {
                        permit = Arc::clone(&self.gate).acquire_owned().await.ok();
                    }
                    let id = id.unwrap_or_default();
                    if let Err(status) = self.client.release(v0::ReleaseRequest { id }).await {
                        return failed(refusal(status));
                    }
                    deadline = Some(tokio::time::Instant::now() + RELEASE_TIMEOUT);
                }
                // The daemon releases a reservation when the call that made it ends.
                () = wait_until(deadline) => return Outcome::Released { confirmed: false },
            }
        }
    }
}

/// The progress of all flows.
#[derive(Debug, Default)]
struct Count {
    wanted: u16,
    granted: u16,
    confirmed: u16,
    unconfirmed: u16,
    failed: bool,
    /// The grant of all was printed.
    printed: bool,
}

impl Count {
    /// Counts an outcome. Returns the first failure, which is to be printed.
    fn take(&mut self, outcome: Outcome) -> Option<Result<Event>> {
        match outcome {
            Outcome::Granted => self.granted += 1,
            Outcome::Released { confirmed: true } => self.confirmed += 1,
            Outcome::Released { confirmed: false } => self.unconfirmed += 1,
            Outcome::NotRequested => {}
            Outcome::Failed(event) => {
                let first = !std::mem::replace(&mut self.failed, true);
                return first.then_some(*event);
            }
        }
        None
    }

    /// All are granted, and this was not printed yet.
    const fn all_granted(&self) -> bool {
        self.granted == self.wanted && !self.printed
    }

    fn released(&self, out: &mut impl Write, json: bool) -> std::io::Result<()> {
        let Self { confirmed, unconfirmed, .. } = self;
        if json {
            let value = json!({"type": "released", "flows": confirmed, "confirmed": *unconfirmed == 0});
            return writeln!(out, "{value}");
        }
        write!(out, "released {confirmed} flows")?;
        if *unconfirmed > 0 {
            write!(out, "; of {unconfirmed} more the far end has not confirmed it")?;
        }
        writeln!(out)
    }
}

fn print_event(out: &mut impl Write, event: &Event, json: bool) -> std::io::Result<()> {
    if json { print::json(out, event) } else { print::text(out, event, None) }
}

fn granted(out: &mut impl Write, flows: u16, took: Duration, json: bool) -> std::io::Result<()> {
    let seconds = took.as_secs_f64();
    let rate = f64::from(flows) / seconds.max(1e-9);
    if json {
        return writeln!(out, "{}", json!({"type": "granted", "flows": flows, "seconds": seconds}));
    }
    writeln!(out, "granted: {flows} flows in {seconds:.2} s, {rate:.0} a second; Ctrl-C releases them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_and_the_last_grant_are_printed() {
        let mut count = Count { wanted: 2, ..Count::default() };
        assert!(count.take(Outcome::Granted).is_none() && !count.all_granted());
        assert!(count.take(Outcome::Granted).is_none() && count.all_granted());
        count.printed = true;
        assert!(!count.all_granted());
        let lost = || Outcome::Failed(Box::new(Ok(Event::Lost(v0::PathRefusal::default()))));
        assert!(count.take(lost()).is_some());
        assert!(count.take(lost()).is_none() && count.failed);
    }

    #[test]
    fn json_lines_have_a_type() {
        let mut out = Vec::new();
        granted(&mut out, 10, Duration::from_secs(2), true).unwrap();
        let count = Count { confirmed: 9, unconfirmed: 1, ..Count::default() };
        count.released(&mut out, true).unwrap();
        count.released(&mut out, false).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"flows\":10,\"seconds\":2.0,\"type\":\"granted\"}\n\
             {\"confirmed\":false,\"flows\":9,\"type\":\"released\"}\n\
             released 9 flows; of 1 more the far end has not confirmed it\n"
        );
    }
}
