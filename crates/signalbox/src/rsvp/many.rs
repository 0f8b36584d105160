//! Many sessions in one command: the same to destination ports that follow each other.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use signalbox_api::v1;
use signalbox_api::v1::rsvp_client::RsvpClient;
use signalbox_api::v1::rsvp_upcall::Upcall;
use tokio::sync::{Semaphore, mpsc, watch};
use tonic::transport::Channel;

use super::{Call, Role, SessionArgs, Stop, at, print};
use crate::client;
use crate::reserve::many::ports;

/// So many register, or wait for what they asked for, at a time: more would overflow the sockets on the way.
const TOGETHER: usize = 128;
/// Who has waited so long for what it asked for lets others ask.
const PATIENCE: Duration = Duration::from_millis(500);
/// Calls on one connection; servers of HTTP/2 take 200 at most.
const PER_CONNECTION: u16 = 180;
/// Errors that are printed; further ones are counted.
const ERRORS: u32 = 10;

/// What one of the sessions has to say.
#[derive(Debug)]
enum Told {
    Registered,
    /// It has what it wants, or has lost it.
    Stands(bool),
    /// An error or refusal, of the session to this port.
    Trouble(u32, Box<Upcall>),
    /// The command cannot go on.
    Failed(anyhow::Error),
}

/// Plays `role` in each session until it is to stop, and prints what happens.
pub(super) async fn run<R: Role + Clone + Send + 'static>(
    socket: &Path,
    arguments: &SessionArgs,
    flows: u16,
    mut stop: Stop,
    role: R,
) -> Result<ExitCode> {
    let ports = ports(arguments.destination_port.map(Into::into), flows)?;
    let (stopping, stopped) = watch::channel(false);
    let (sender, mut heard) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(TOGETHER));
    let mut client = RsvpClient::new(client::channel(socket).await?);
    for (number, port) in (0_u16..).zip(ports) {
        if number > 0 && number.is_multiple_of(PER_CONNECTION) {
            client = RsvpClient::new(client::channel(socket).await?);
        }
        let register = v1::RsvpRegister { port: port.into(), ..arguments.register() };
        let part = Part { role: role.clone(), gate: Arc::clone(&gate), tell: sender.clone() };
        let (client, mut stopped) = (client.clone(), stopped.clone());
        tokio::spawn(async move {
            let tell = part.tell.clone();
            let result = tokio::select! {
                result = part.play(client, register) => result,
                // The daemon tears down what was done in a call that ends.
                _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
            };
            if let Err(error) = result {
                // Nobody listens any more only when the command ends.
                let _ = tell.send(Told::Failed(error));
            }
        });
    }
    drop(sender);
    let mut all = All::new(flows, R::BEGUN, R::STANDS, arguments.json);
    let mut out = std::io::stdout();
    loop {
        tokio::select! {
            told = heard.recv() => match told {
                Some(told) => all.take(told, Instant::now(), &mut out)?,
                None => break,
            },
            () = stop.wait(), if !*stopping.borrow() => { stopping.send_replace(true); }
        }
        out.flush()?;
    }
    all.end(&mut out)?;
    out.flush()?;
    Ok(ExitCode::from(u8::from(!all.is_whole())))
}

/// One of the sessions.
struct Part<R> {
    role: R,
    gate: Arc<Semaphore>,
    tell: mpsc::UnboundedSender<Told>,
}

impl<R: Role> Part<R> {
    /// Goes on until the call fails.
    async fn play(mut self, mut client: RsvpClient<Channel>, register: v1::RsvpRegister) -> Result<()> {
        let port = register.port;
        let mut place = self.gate.acquire().await.ok();
        let mut call = Call::open(&mut client, register).await?;
        for request in self.role.begin() {
            call.ask(request).await?;
        }
        let mut patience = None;
        loop {
            let upcall = tokio::select! {
                upcall = call.next() => upcall?,
                () = at(patience) => {
                    (place, patience) = (None, None);
                    continue;
                }
            };
            let before = self.role.stands();
            let next = self.role.hear(&upcall);
            let told = match upcall {
                Upcall::Registered(_) => Some(Told::Registered),
                Upcall::Refused(_) | Upcall::PathError(_) | Upcall::ReservationError(_) => {
                    Some(Told::Trouble(port, Box::new(upcall)))
                }
                _ => None,
            };
            let stands = self.role.stands();
            if told.is_some() || stands {
                (place, patience) = (None, None);
            }
            let change = (stands != before).then_some(Told::Stands(stands));
            for told in told.into_iter().chain(change) {
                // Nobody listens any more only when the command ends.
                let _ = self.tell.send(told);
            }
            if let Some(request) = next {
                if place.is_none() {
                    place = self.gate.acquire().await.ok();
                }
                patience = Some(tokio::time::Instant::now() + PATIENCE);
                call.ask(request).await?;
            }
        }
    }
}

/// How far all of them are.
#[derive(Debug)]
struct All {
    wanted: u16,
    begun: (&'static str, &'static str),
    what_stands: &'static str,
    json: bool,
    registered: u16,
    standing: u16,
    /// Since when some are missing.
    since: Instant,
    /// All were there once.
    told: bool,
    errors: u32,
}

impl All {
    fn new(wanted: u16, begun: (&'static str, &'static str), what_stands: &'static str, json: bool) -> Self {
        let since = Instant::now();
        Self { wanted, begun, what_stands, json, registered: 0, standing: 0, since, told: false, errors: 0 }
    }

    const fn is_whole(&self) -> bool {
        self.standing == self.wanted
    }

    /// Takes in what a session told, and prints what it means for all.
    fn take(&mut self, told: Told, now: Instant, out: &mut impl Write) -> Result<()> {
        if let Some((line, text)) = self.line(told, now)? {
            if self.json { writeln!(out, "{line}")? } else { writeln!(out, "{text}")? }
        }
        Ok(())
    }

    /// What it means for all, for programs and for people.
    fn line(&mut self, told: Told, now: Instant) -> Result<Option<(Value, String)>> {
        let Self { wanted, begun: (kind, text), what_stands, .. } = *self;
        Ok(match told {
            Told::Registered => {
                self.registered += 1;
                let line = json!({ "type": kind, "flows": wanted });
                (self.registered == wanted).then(|| (line, format!("{wanted} flows {text}")))
            }
            Told::Stands(true) => {
                self.standing += 1;
                self.told |= self.is_whole();
                let seconds = now.saturating_duration_since(self.since).as_secs_f64();
                let line = json!({ "type": what_stands, "flows": wanted, "seconds": seconds });
                let text = format!("{wanted} flows {what_stands} in {seconds:.2} s");
                self.is_whole().then_some((line, text))
            }
            Told::Stands(false) => {
                if self.is_whole() {
                    self.since = now;
                }
                self.standing = self.standing.saturating_sub(1);
                let line = json!({ "type": "gone", "flows": wanted });
                let text = format!("of {wanted} flows none is {what_stands} any more");
                (self.told && self.standing == 0).then_some((line, text))
            }
            Told::Trouble(port, upcall) => {
                self.errors += 1;
                let mut line = print::json(&upcall);
                line["port"] = port.into();
                let text = format!("port {port}: {}", print::text(&upcall));
                (self.errors <= ERRORS).then_some((line, text))
            }
            Told::Failed(error) => return Err(error),
        })
    }

    fn end(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Self { wanted, standing, errors, what_stands, .. } = self;
        if self.json {
            let line = json!({ "type": "released", "flows": wanted, "standing": standing, "errors": errors });
            return writeln!(out, "{line}");
        }
        write!(out, "released {wanted} flows")?;
        if !self.is_whole() {
            write!(out, ", of which {standing} were {what_stands}")?;
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

    fn said(all: &mut All, told: Vec<Told>) -> String {
        let mut out = Vec::new();
        let now = all.since + Duration::from_secs(2);
        told.into_iter().for_each(|told| all.take(told, now, &mut out).unwrap());
        String::from_utf8(out).unwrap()
    }

    fn all(json: bool) -> All {
        All::new(2, ("announced", "announced; waiting"), "reserved", json)
    }

    fn trouble() -> Told {
        let error = v1::RsvpError { meaning: "No path information".into(), ..v1::RsvpError::default() };
        Told::Trouble(5001, Box::new(Upcall::ReservationError(error)))
    }

    #[test]
    fn it_is_told_when_all_are_there_and_when_none_is() {
        let mut all = all(false);
        let told = vec![Told::Registered, Told::Registered, Told::Stands(true), Told::Stands(true)];
        assert_eq!(said(&mut all, told), "2 flows announced; waiting\n2 flows reserved in 2.00 s\n");
        assert_eq!(
            said(&mut all, vec![Told::Stands(false), Told::Stands(true)]),
            "2 flows reserved in 0.00 s\n"
        );
        let gone = said(&mut all, vec![Told::Stands(false), Told::Stands(false)]);
        assert_eq!((gone.as_str(), all.is_whole()), ("of 2 flows none is reserved any more\n", false));
    }

    #[test]
    fn who_lost_some_of_its_flows_is_told_at_the_end() {
        let mut all = all(false);
        assert_eq!(said(&mut all, vec![Told::Stands(true), Told::Stands(false)]), "", "never all");
        let lines = said(&mut all, (0..ERRORS + 3).map(|_| trouble()).collect());
        assert_eq!(lines.lines().count(), 10);
        assert!(lines.starts_with("port 5001: reservation error: No path information"), "{lines}");
        let mut out = Vec::new();
        all.end(&mut out).unwrap();
        let end = "released 2 flows, of which 0 were reserved; there were 13 errors\n";
        assert_eq!(String::from_utf8(out).unwrap(), end);
    }

    #[test]
    fn programs_read_types_and_numbers() {
        let mut all = all(true);
        let lines = said(&mut all, vec![Told::Registered, Told::Registered, trouble()]);
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "type": "announced", "flows": 2 }));
        assert_eq!((&lines[1]["type"], &lines[1]["port"]), (&json!("reservation-error"), &json!(5001)));
    }
}
