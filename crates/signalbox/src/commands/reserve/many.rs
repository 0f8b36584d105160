//! `signalbox reserve --flows N`: the same reservation for N flows, to consecutive destination ports. If one of them is
//! refused before all are granted, all are released. What is lost afterwards is asked for again, flow by flow.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde::Serialize;
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::reserve_response::Event;
use tokio::sync::{Semaphore, mpsc, watch};

use super::{Call, RELEASE_TIMEOUT, ReserveArgs, print};
use crate::arguments::{Signaling, microseconds, ports};
use crate::client::{AfterAttempt, End, Loss, Retry, Shared, Termination, refusal, wait_until};
use crate::exit::Exit;
use crate::print::{json_event, json_line, now_unix_us};

/// Requests and tears at a time: more of them overflow the sockets of the nodes on the path, and wait for
/// retransmissions.
const CONCURRENT: usize = 128;
/// A request that has waited for a grant as long as this lets another begin: with RSVP the grant comes when a receiver
/// reserves.
const PERMIT_TIME: Duration = Duration::from_millis(500);
/// Calls on one connection. An HTTP/2 server takes 200 at most.
const PER_CONNECTION: u16 = 180;

/// A report of one flow.
#[derive(Debug)]
enum Outcome {
    /// It is granted, or not any more.
    Granted(bool),
    /// It is granted, but not by the far end.
    Short,
    /// The event with which a node refused or withdrew the reservation, or the error that ended the call.
    Failed(Box<Result<v1::ReserveResponse, anyhow::Error>>),
    Released {
        confirmed: bool,
    },
    /// The command was stopped before it sent this request.
    NotRequested,
    /// It is lost, and asked for again. `stood`: it was granted until now.
    Retrying {
        stood: bool,
        retrying: v1::Retrying,
    },
}

/// Reserves for each flow, holds all reservations, releases all, and prints events.
pub(super) async fn run(arguments: &ReserveArgs, open: &v1::ReserveOpen, flows: u16) -> Result<Exit> {
    let ports = ports(arguments.request.flow.destination_port, flows)?;
    let mut termination = Termination::new(None)?;
    let (stopping, stopped) = watch::channel(false);
    let (standing, stand) = watch::channel(false);
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(CONCURRENT));
    let begin = Instant::now();
    let socket = &arguments.node.socket;
    let mut connection = Shared::to(socket);
    for (number, port) in (0_u16..).zip(ports) {
        if number > 0 && number.is_multiple_of(PER_CONNECTION) {
            connection = Shared::to(socket);
        }
        let mut open = open.clone();
        // The hold begins when all are granted.
        open.hold_us = None;
        if let Some(flow) = &mut open.flow {
            flow.destination_port = Some(port.into());
        }
        let flow = Flow {
            connection: connection.clone(),
            stand: stand.clone(),
            asks_again: arguments.retry.asks_again(),
            gate: Arc::clone(&gate),
            stopped: stopped.clone(),
            waits: arguments.signaling == Signaling::Rsvp,
            accepts_part: arguments.accepts_part(),
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            let last = flow.hold(open, &sender).await;
            // The receiver is gone only when the command ends.
            let _ = sender.send(last);
        });
    }
    drop(sender);
    let (json, mut out) = (arguments.output.json, std::io::stdout());
    let mut count = Count { wanted: flows, ..Count::default() };
    loop {
        tokio::select! {
            outcome = outcomes.recv() => match outcome {
                None => break,
                Some(outcome) => if let Some(response) = count.take(outcome) {
                    let response = response?;
                    if !matches!(response.event, Some(Event::Retrying(_))) {
                        stopping.send_replace(true);
                    }
                    match &response.event {
                        _ if json => json_event(&mut out, &response)?,
                        Some(event) => print::text(&mut out, event, arguments)?,
                        None => {}
                    }
                },
            },
            () = termination.wait() => { stopping.send_replace(true); }
        }
        if count.all_granted() {
            count.printed = true;
            let took = count.lost_since.take().unwrap_or(begin).elapsed();
            granted(&mut out, flows, took, (json, count.short))?;
            if !standing.send_replace(true) {
                termination.end_after(arguments.lifetime.hold);
            }
        }
        out.flush()?;
    }
    count.released(&mut out, arguments.confirms(), json)?;
    out.flush()?;
    let confirmed = count.confirmed == flows || !arguments.confirms();
    Ok(Exit::yes_if(!count.failed && !count.short && count.printed && confirmed))
}

/// One of the reservations.
struct Flow {
    connection: Shared,
    /// All are granted, or were.
    stand: watch::Receiver<bool>,
    asks_again: bool,
    /// Has a permit for each request or tear that is under way.
    gate: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
    /// The grant may take long, and others may begin in the meantime.
    waits: bool,
    /// A grant will do although the far end did not answer.
    accepts_part: bool,
}

/// One attempt of a flow.
struct Attempt {
    /// The number of the connection that did not serve.
    broken: Option<u32>,
    /// That of the one in use.
    number: Option<u32>,
    /// There was a grant.
    stood: bool,
}

impl Flow {
    /// Reserves, and asks again after a loss, once all were granted.
    async fn hold(mut self, open: v1::ReserveOpen, sender: &mpsc::UnboundedSender<Outcome>) -> Outcome {
        let mut retry = Retry::new(self.asks_again);
        let mut broken = None;
        loop {
            let mut attempt = Attempt { broken, number: None, stood: false };
            let outcome = self.reserve(open.clone(), &mut attempt, sender).await;
            let Outcome::Failed(result) = outcome else { return outcome };
            if !*self.stand.borrow() || *self.stopped.borrow() {
                return Outcome::Failed(result);
            }
            broken = attempt.number.filter(|_| result.is_err()).or(broken);
            if attempt.stood {
                retry.granted();
            }
            let (end, event) = match *result {
                Ok(response) => (Ok(End::Lost(loss(&response))), Some(response)),
                Err(error) => (Err(error), None),
            };
            let (retrying, wait) = match (retry.follow(end), event) {
                (Ok(AfterAttempt::Retry(retrying, wait)), _) => (retrying, wait),
                (Ok(AfterAttempt::Over(_)), Some(response)) => {
                    return Outcome::Failed(Box::new(Ok(response)));
                }
                (Ok(AfterAttempt::Over(_)), None) => return Outcome::NotRequested,
                (Err(error), _) => return Outcome::Failed(Box::new(Err(error))),
            };
            // The receiver is gone only when the command ends.
            let _ = sender.send(Outcome::Retrying { stood: attempt.stood, retrying });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = self.stopped.wait_for(|stopped| *stopped) => return Outcome::NotRequested,
            }
        }
    }

    async fn open(&self, open: v1::ReserveOpen, attempt: &mut Attempt) -> Result<Call> {
        let (number, channel) = self.connection.channel(attempt.broken).await?;
        attempt.number = Some(number);
        Call::open(&mut ReservationsClient::new(channel), open).await
    }

    async fn reserve(
        &mut self,
        open: v1::ReserveOpen,
        attempt: &mut Attempt,
        sender: &mpsc::UnboundedSender<Outcome>,
    ) -> Outcome {
        let failed = |error: anyhow::Error| Outcome::Failed(Box::new(Err(error)));
        let mut permit = Arc::clone(&self.gate).acquire_owned().await.ok();
        if *self.stopped.borrow() {
            return Outcome::NotRequested;
        }
        let mut call = match self.open(open, attempt).await {
            Ok(call) => call,
            Err(error) => return failed(error),
        };
        let mut started = false;
        let mut yields = self.waits.then(|| tokio::time::Instant::now() + PERMIT_TIME);
        let mut deadline = None;
        let mut stopped = self.stopped.clone();
        loop {
            let release_now = async {
                // The sender outlives all flows.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            tokio::select! {
                response = call.events.message() => match response {
                    Ok(Some(response)) => match &response.event {
                        Some(Event::Started(_)) => started = true,
                        Some(Event::Granted(grant)) => {
                            permit = None;
                            if grant.far_end == Some(false) && !self.accepts_part {
                                let _ = sender.send(Outcome::Short);
                            }
                            // It comes again after a change of the path or of the receiver's request.
                            if !std::mem::replace(&mut attempt.stood, true) {
                                let _ = sender.send(Outcome::Granted(true));
                            }
                        }
                        Some(Event::Interrupted(_)) => {
                            attempt.stood = false;
                            let _ = sender.send(Outcome::Granted(false));
                        }
                        Some(Event::Failed(_) | Event::Lost(_)) => {
                            return Outcome::Failed(Box::new(Ok(response)));
                        }
                        Some(Event::Released(released)) => {
                            return Outcome::Released { confirmed: released.confirmed };
                        }
                        // The daemon is newer than this command.
                        Some(Event::ChangeRefused(_) | Event::Retrying(_)) | None => {}
                    },
                    Ok(None) => return failed(anyhow!("the daemon ended before all was released")),
                    Err(status) => return failed(refusal(status)),
                },
                () = release_now, if started && deadline.is_none() => {
                    if permit.is_none() {
                        permit = Arc::clone(&self.gate).acquire_owned().await.ok();
                    }
                    call.release().await;
                    deadline = Some(tokio::time::Instant::now() + RELEASE_TIMEOUT);
                }
                () = wait_until(yields) => (permit, yields) = (None, None),
                // The daemon releases a reservation when the call that made it ends.
                () = wait_until(deadline) => return Outcome::Released { confirmed: false },
            }
        }
    }
}

/// Why a flow's reservation is lost.
fn loss(response: &v1::ReserveResponse) -> Loss {
    match &response.event {
        Some(Event::Failed(failure) | Event::Lost(failure)) => Loss::of(failure, None),
        Some(
            Event::Started(_)
            | Event::Granted(_)
            | Event::Interrupted(_)
            | Event::Released(_)
            | Event::ChangeRefused(_)
            | Event::Retrying(_),
        )
        | None => Loss::because("the daemon ended"),
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
    /// The far end of a flow did not answer.
    short: bool,
    /// The grant of all was printed.
    printed: bool,
    /// When the first of those that are asked for again was lost.
    lost_since: Option<Instant>,
}

#[derive(Debug, Serialize)]
struct GrantedLine {
    r#type: &'static str,
    time_unix_us: u64,
    flows: u16,
    elapsed_us: u64,
    /// False: the far end of a flow did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    far_end: Option<bool>,
}

#[derive(Debug, Serialize)]
struct ReleasedLine {
    r#type: &'static str,
    time_unix_us: u64,
    flows: u16,
    confirmed: bool,
}

impl Count {
    /// Counts an outcome. Returns the first failure, which is to be printed.
    fn take(&mut self, outcome: Outcome) -> Option<Result<v1::ReserveResponse>> {
        match outcome {
            Outcome::Granted(true) => self.granted += 1,
            Outcome::Short => self.short = true,
            Outcome::Granted(false) => self.granted = self.granted.saturating_sub(1),
            Outcome::Released { confirmed: true } => self.confirmed += 1,
            Outcome::Released { confirmed: false } => self.unconfirmed += 1,
            Outcome::NotRequested => {}
            Outcome::Retrying { stood, retrying } => {
                self.granted = self.granted.saturating_sub(u16::from(stood));
                // One line for all that are lost with the first one.
                if std::mem::replace(&mut self.printed, false) {
                    self.lost_since = Some(Instant::now());
                    let event = Some(Event::Retrying(retrying));
                    return Some(Ok(v1::ReserveResponse { time_unix_us: now_unix_us(), event }));
                }
            }
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

    /// `confirms`: the far end confirms releases.
    fn released(&self, out: &mut impl Write, confirms: bool, json: bool) -> Result<()> {
        let Self { confirmed, unconfirmed, .. } = self;
        let flows = confirmed + unconfirmed;
        if json {
            let (time_unix_us, confirmed) = (now_unix_us(), *unconfirmed == 0);
            return json_line(out, &ReleasedLine { r#type: "released", time_unix_us, flows, confirmed });
        }
        write!(out, "released {flows} flows")?;
        if *unconfirmed > 0 && confirms {
            write!(out, ", of which the far end has not confirmed {unconfirmed}")?;
        }
        Ok(writeln!(out)?)
    }
}

fn granted(out: &mut impl Write, flows: u16, took: Duration, (json, short): (bool, bool)) -> Result<()> {
    if json {
        let (time_unix_us, elapsed_us) = (now_unix_us(), microseconds(took));
        let far_end = short.then_some(false);
        return json_line(out, &GrantedLine { r#type: "granted", time_unix_us, flows, elapsed_us, far_end });
    }
    let rate = f64::from(flows) / took.as_secs_f64().max(1e-9);
    let took = crate::print::duration(microseconds(took));
    writeln!(out, "granted: {flows} flows in {took}, {rate:.0} a second; Ctrl-C releases them")?;
    if short {
        writeln!(out, "the far end did not answer: what is behind the last node is not reserved")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_and_the_last_grant_are_printed() {
        let mut count = Count { wanted: 2, ..Count::default() };
        assert!(count.take(Outcome::Granted(true)).is_none() && !count.all_granted());
        assert!(count.take(Outcome::Granted(true)).is_none() && count.all_granted());
        count.printed = true;
        assert!(!count.all_granted());
        // Two are lost and asked for again: one line says so, and one says that all stand again.
        let lost = || Outcome::Retrying { stood: true, retrying: v1::Retrying::default() };
        assert!(count.take(lost()).is_some() && count.take(lost()).is_none());
        assert!(count.take(Outcome::Retrying { stood: false, retrying: v1::Retrying::default() }).is_none());
        assert!(count.take(Outcome::Granted(true)).is_none() && !count.all_granted());
        assert!(count.take(Outcome::Granted(true)).is_none() && count.all_granted());
        count.printed = true;
        let lost = || Outcome::Failed(Box::new(Ok(v1::ReserveResponse::default())));
        assert!(count.take(lost()).is_some());
        assert!(count.take(lost()).is_none() && count.failed);
    }

    #[test]
    fn the_last_line_says_whether_all_tears_are_confirmed() {
        let count = Count { confirmed: 3, unconfirmed: 1, ..Count::default() };
        let mut out = Vec::new();
        count.released(&mut out, true, false).unwrap();
        count.released(&mut out, true, true).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("released 4 flows, of which the far end has not confirmed 1\n"), "{text}");
        assert!(text.contains(r#""flows":4,"confirmed":false"#), "{text}");
        let mut out = Vec::new();
        count.released(&mut out, false, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "released 4 flows\n");
    }
}
