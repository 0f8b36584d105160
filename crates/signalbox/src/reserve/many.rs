//! Many reservations in one command: the same for flows to destination ports that follow each other. All are granted,
//! or none is held.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use signalbox_api::v1;
use signalbox_api::v1::reserve_event::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};

use super::{FAREWELL, ReserveArgs, print};
use crate::client::{self, Client};

/// So many are asked for, or torn down, at a time: more would overflow the sockets on the way, and wait for it.
const TOGETHER: usize = 128;
/// Calls on one connection; servers of HTTP/2 take 200 at most, and each of ours may ask for its release as well.
const PER_CONNECTION: u16 = 90;

/// What a flow's reservation came to.
#[derive(Debug)]
enum Outcome {
    Granted,
    /// Refused, or lost later; an event where a node said so.
    Failed(Box<Result<Event, anyhow::Error>>),
    Released {
        confirmed: bool,
    },
    /// All were stopped before it was asked for.
    NotAsked,
}

/// Reserves for each flow, holds all, releases all, and prints what happens.
pub(super) async fn run(socket: &Path, arguments: &ReserveArgs, flows: u16) -> Result<ExitCode> {
    let request = arguments.request()?;
    let ports = ports(request.wanted.as_ref().and_then(|wanted| wanted.destination_port), flows)?;
    let cannot = "cannot wait for signals";
    let mut interrupt = signal(SignalKind::interrupt()).context(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).context(cannot)?;
    let (stop, stopped) = watch::channel(false);
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(TOGETHER));
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
            // Nobody listens any more only when the command ends.
            let _ = sender.send(last);
        });
    }
    drop(sender);
    let (json, mut out) = (arguments.wanted.json, std::io::stdout());
    let mut count = Count { wanted: flows, ..Count::default() };
    let mut deadline = None;
    loop {
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = outcomes.recv() => match outcome {
                None => break,
                Some(outcome) => if let Some(event) = count.take(outcome) {
                    stop.send_replace(true);
                    print_event(&mut out, &event?, json)?;
                },
            },
            _ = interrupt.recv() => { stop.send_replace(true); }
            _ = terminate.recv() => { stop.send_replace(true); }
            () = late => { deadline = None; stop.send_replace(true); }
        }
        if count.all_granted() {
            count.told = true;
            granted(&mut out, flows, begin.elapsed(), json)?;
            deadline = arguments.hold.map(|hold| tokio::time::Instant::now() + hold);
        }
        out.flush()?;
    }
    count.released(&mut out, json)?;
    out.flush()?;
    Ok(ExitCode::from(u8::from(count.failed || !count.told || count.confirmed < flows)))
}

/// The flows' ports.
pub(crate) fn ports(first: Option<u32>, flows: u16) -> Result<std::ops::RangeInclusive<u16>> {
    let first = first.and_then(|port| u16::try_from(port).ok()).context("--flows needs --dport")?;
    let Some(last) = flows.checked_sub(1).and_then(|more| first.checked_add(more)) else {
        bail!("there are no {flows} ports from {first}");
    };
    Ok(first..=last)
}

/// One of the reservations.
struct Flow {
    client: Client,
    /// A place for one that is asked for or torn down at this moment.
    gate: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl Flow {
    async fn reserve(
        mut self,
        request: v1::ReserveRequest,
        sender: &mpsc::UnboundedSender<Outcome>,
    ) -> Outcome {
        let failed = |error: anyhow::Error| Outcome::Failed(Box::new(Err(error)));
        let place = Arc::clone(&self.gate).acquire_owned().await;
        let mut place = place.ok();
        if *self.stopped.borrow() {
            return Outcome::NotAsked;
        }
        let mut events = match self.client.reserve(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return failed(client::said_no(&status)),
        };
        let (mut id, mut deadline) = (None, None);
        loop {
            let release_now = async {
                // The sender outlives all flows.
                let _ = self.stopped.wait_for(|stopped| *stopped).await;
            };
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.message() => match event.map(|event| event.map(|event| event.event)) {
                    Ok(Some(Some(Event::Started(started)))) => id = Some(started.id),
                    Ok(Some(Some(Event::Granted(_)))) => {
                        place = None;
                        let _ = sender.send(Outcome::Granted);
                    }
                    Ok(Some(Some(event @ (Event::Failed(_) | Event::Lost(_))))) => {
                        return Outcome::Failed(Box::new(Ok(event)));
                    }
                    Ok(Some(Some(Event::Released(_)))) => return Outcome::Released { confirmed: true },
                    // The path changed, or the daemon is newer than this command.
                    Ok(Some(Some(Event::Rerouted(_)) | None)) => {}
                    Ok(None) => return failed(anyhow::anyhow!("the daemon ended before all was released")),
                    Err(status) => return failed(client::said_no(&status)),
                },
                () = release_now, if id.is_some() && deadline.is_none() => {
                    if place.is_none() {
                        place = Arc::clone(&self.gate).acquire_owned().await.ok();
                    }
                    let id = id.unwrap_or_default();
                    if let Err(status) = self.client.release(v1::ReleaseRequest { id }).await {
                        return failed(client::said_no(&status));
                    }
                    deadline = Some(tokio::time::Instant::now() + FAREWELL);
                }
                // The daemon releases what nobody listens to.
                () = late => return Outcome::Released { confirmed: false },
            }
        }
    }
}

/// How far all of them are.
#[derive(Debug, Default)]
struct Count {
    wanted: u16,
    granted: u16,
    confirmed: u16,
    unconfirmed: u16,
    failed: bool,
    /// The grant was told.
    told: bool,
}

impl Count {
    /// What of it is to be told: the first failure.
    fn take(&mut self, outcome: Outcome) -> Option<Result<Event>> {
        match outcome {
            Outcome::Granted => self.granted += 1,
            Outcome::Released { confirmed: true } => self.confirmed += 1,
            Outcome::Released { confirmed: false } => self.unconfirmed += 1,
            Outcome::NotAsked => {}
            Outcome::Failed(event) => {
                let first = !std::mem::replace(&mut self.failed, true);
                return first.then_some(*event);
            }
        }
        None
    }

    /// All are granted, and nobody was told so yet.
    const fn all_granted(&self) -> bool {
        self.granted == self.wanted && !self.told
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
    fn ports_follow_each_other() {
        assert_eq!(ports(Some(5000), 3).unwrap(), 5000..=5002);
        assert_eq!(ports(Some(65_535), 1).unwrap(), 65_535..=65_535);
        for (first, flows) in [(None, 2), (Some(65_535), 2), (Some(70_000), 1), (Some(1), 0)] {
            assert!(ports(first, flows).is_err(), "{first:?} {flows}");
        }
    }

    #[test]
    fn the_first_failure_is_told_and_all_grants_once() {
        let mut count = Count { wanted: 2, ..Count::default() };
        assert!(count.take(Outcome::Granted).is_none() && !count.all_granted());
        assert!(count.take(Outcome::Granted).is_none() && count.all_granted());
        count.told = true;
        assert!(!count.all_granted());
        let lost = || Outcome::Failed(Box::new(Ok(Event::Lost(v1::PathRefusal::default()))));
        assert!(count.take(lost()).is_some());
        assert!(count.take(lost()).is_none() && count.failed);
    }

    #[test]
    fn what_is_told_has_a_type() {
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
