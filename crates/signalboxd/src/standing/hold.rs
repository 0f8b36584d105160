//! The task that holds one standing request.

use std::sync::Arc;
use std::time::Duration;

use signalbox_api::retry::{Pace, Waits, spread};
use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event as PassageEvent;
use signalbox_api::v1::reserve_response::Event;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::row::Row;
use super::wanted::{Wanted, differ_in_traffic_only};
use crate::api::Api;
use crate::api::errors::Reason;
use crate::api::opener::Opened;
use crate::api::pinholes::opener;
use crate::api::reservations::reserver;
use crate::api::reserver::{Standing, reached};

/// How one attempt ended.
enum End {
    /// The configuration has it no more, or the daemon stops.
    Over,
    /// Something else is wanted.
    Changed,
    /// It is refused or lost.
    Lost(v1::Failure, Pace),
    /// It cannot be asked for.
    Wrong(v1::Failure),
}

/// What is wanted now.
type Wish = watch::Receiver<Option<Wanted>>;

/// Holds what is wanted until it is no more. After a refusal or a loss it asks again.
pub(super) async fn hold(api: Api, row: Arc<Row>, mut wish: Wish) {
    let mut waits = Waits::new();
    loop {
        let Some(wanted) = wish.borrow_and_update().clone() else { return };
        row.attempt();
        let end = match wanted {
            Wanted::Reservation(open) => reservation(&api, &row, open, &mut wish, &mut waits).await,
            Wanted::Passage(open) => passage(&api, &row, &open, &mut wish, &mut waits).await,
        };
        let wait = match end {
            End::Over => return,
            End::Changed => {
                waits.anew();
                row.anew();
                continue;
            }
            End::Lost(failure, pace) => {
                let wait = spread(waits.next(waits.pace(pace)));
                row.waits(failure, waits.attempts(), wait);
                Some(wait)
            }
            End::Wrong(failure) => {
                row.wrong(failure);
                None
            }
        };
        tokio::select! {
            () = reached(after(wait)) => {}
            changed = wish.changed() => {
                if changed.is_err() {
                    return;
                }
                waits.anew();
            }
        }
    }
}

fn after(wait: Option<Duration>) -> Option<Instant> {
    wait.map(|wait| Instant::now() + wait)
}

/// A reservation that was begun.
struct Begun<'a> {
    row: &'a Row,
    waits: &'a mut Waits,
    standing: Box<dyn Standing>,
    /// This host's address in the flow.
    own: Option<String>,
    /// What it was begun with.
    open: v1::ReserveOpen,
    /// What was asked for last.
    asked: Option<v1::TokenBucket>,
    stage: Stage,
}

/// How far a reservation that was begun is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The path has not granted it, or it is interrupted.
    Asked,
    Granted,
    /// A change is under way.
    Changing,
    /// A change was refused, and is asked for again at this time. `stands`: the path grants what stood before.
    Refused {
        again: Instant,
        stands: bool,
    },
}

impl Stage {
    const fn stands(self) -> bool {
        match self {
            Self::Asked => false,
            Self::Granted | Self::Changing => true,
            Self::Refused { stands, .. } => stands,
        }
    }

    /// When a change that was refused is asked for again.
    const fn again(self) -> Option<Instant> {
        match self {
            Self::Refused { again, .. } => Some(again),
            Self::Asked | Self::Granted | Self::Changing => None,
        }
    }

    /// The stage without a change that was refused.
    const fn without_refusal(self) -> Self {
        match self {
            Self::Refused { stands: false, .. } => Self::Asked,
            Self::Refused { stands: true, .. } => Self::Granted,
            other @ (Self::Asked | Self::Granted | Self::Changing) => other,
        }
    }
}

/// What comes next in the life of a reservation.
enum Step {
    Event(Result<Event, Status>),
    /// Another wish; false: the daemon ends.
    Wish(bool),
    Again,
}

async fn reservation(api: &Api, row: &Row, open: v1::ReserveOpen, wish: &mut Wish, waits: &mut Waits) -> End {
    let opened = match reserver(api, open.protocol) {
        Ok(reserver) => reserver.open(api, &open, None).await,
        Err(status) => Err(status),
    };
    let (started, standing) = match opened {
        Ok(opened) => opened,
        Err(status) => return failed(&status),
    };
    let mut own = None;
    if let Event::Started(started) = started {
        own = started.flow.as_ref().and_then(|flow| flow.source.clone());
        row.started(started.flow, started.session_id);
    }
    let asked = open.traffic;
    let mut begun = Begun { row, waits, standing, own, open, asked, stage: Stage::Asked };
    let end = loop {
        let step = tokio::select! {
            event = begun.standing.next() => Step::Event(event),
            changed = wish.changed() => Step::Wish(changed.is_ok()),
            () = reached(begun.stage.again()) => Step::Again,
        };
        let end = match step {
            Step::Event(Ok(event)) => begun.event(event),
            Step::Event(Err(status)) => Some(failed(&status)),
            Step::Wish(true) => None,
            Step::Wish(false) => Some(End::Over),
            Step::Again => {
                (begun.stage, begun.asked) = (begun.stage.without_refusal(), None);
                None
            }
        };
        if let Some(end) = end {
            break end;
        }
        let wanted = wish.borrow_and_update().clone();
        if let Some(end) = begun.comply(wanted).await {
            break end;
        }
    };
    begun.standing.close().await;
    end
}

impl Begun<'_> {
    /// Takes an event; the result is how the attempt ended.
    fn event(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Granted(grant) => {
                let rate = grant.traffic.map(|traffic| traffic.rate_octets_per_s);
                if let Stage::Refused { stands, .. } = &mut self.stage {
                    // What stood before stands, and the change that was refused is still due.
                    *stands = true;
                    self.row.stands(rate);
                    return None;
                }
                self.stage = Stage::Granted;
                self.waits.granted();
                self.row.granted(rate, None);
            }
            Event::ChangeRefused(failure) => {
                let wait = spread(self.waits.next(Pace::after(&failure, self.own.as_deref())));
                self.stage = Stage::Refused { again: Instant::now() + wait, stands: self.stage.stands() };
                self.row.change_refused(failure, self.waits.attempts(), wait);
            }
            Event::Interrupted(failure) => {
                match &mut self.stage {
                    Stage::Refused { stands, .. } => *stands = false,
                    stage @ (Stage::Asked | Stage::Granted | Stage::Changing) => *stage = Stage::Asked,
                }
                self.row.interrupted(failure);
            }
            Event::Failed(failure) | Event::Lost(failure) => {
                let pace = Pace::after(&failure, self.own.as_deref());
                return Some(End::Lost(failure, pace));
            }
            Event::Released(_) => return Some(End::Lost(released(), Pace::Soon)),
            Event::Started(_) | Event::Retrying(_) => {}
        }
        None
    }

    /// Changes the reservation to what is wanted; the result is how the attempt ended.
    async fn comply(&mut self, wanted: Option<Wanted>) -> Option<End> {
        let Some(wanted) = wanted else { return Some(End::Over) };
        let Wanted::Reservation(new) = wanted else { return Some(End::Changed) };
        if !differ_in_traffic_only(&self.open, &new) {
            return Some(End::Changed);
        }
        let Some(traffic) = new.traffic else { return Some(End::Changed) };
        if self.asked == Some(traffic) {
            return None;
        }
        if !self.stage.stands() {
            // Nothing stands that a new request could put at risk.
            return Some(End::Changed);
        }
        if matches!(self.stage, Stage::Changing) {
            // After its answer.
            return None;
        }
        if self.asked.is_some() {
            self.row.asks();
        }
        (self.asked, self.stage) = (Some(traffic), Stage::Granted);
        match self.standing.change(&traffic).await {
            Ok(None) => {
                self.stage = Stage::Changing;
                None
            }
            // The protocol cannot change such a reservation: another one takes its place.
            Ok(Some(Event::ChangeRefused(failure))) if failure.cause() == v1::Cause::Protocol => {
                Some(End::Changed)
            }
            Ok(Some(event)) => self.event(event),
            // The protocol cannot express it: what stands is not given up for that.
            Err(status) => match failed(&status) {
                End::Wrong(failure) => self.event(Event::ChangeRefused(failure)),
                end => Some(end),
            },
        }
    }
}

async fn passage(api: &Api, row: &Row, open: &v1::PinholeOpen, wish: &mut Wish, waits: &mut Waits) -> End {
    let opened = match opener(api, open.protocol) {
        Ok(opener) => opener.open(api, open, None).await,
        Err(status) => Err(status),
    };
    let (started, mut opened) = match opened {
        Ok(opened) => opened,
        Err(status) => return failed(&status),
    };
    let mut own = None;
    if let PassageEvent::Started(started) = started {
        own = started.flow.as_ref().and_then(|flow| flow.source.clone());
        row.started(started.flow, Some(started.session_id));
    }
    let end = opened_passage(row, open, &mut *opened, own.as_deref(), wish, waits).await;
    opened.close().await;
    end
}

async fn opened_passage(
    row: &Row,
    open: &v1::PinholeOpen,
    opened: &mut dyn Opened,
    own: Option<&str>,
    wish: &mut Wish,
    waits: &mut Waits,
) -> End {
    let mut granted = false;
    loop {
        let event = tokio::select! {
            event = opened.next() => event,
            changed = wish.changed() => {
                match &*wish.borrow_and_update() {
                    Some(Wanted::Passage(wanted)) if wanted == open => continue,
                    Some(_) if changed.is_ok() => return End::Changed,
                    _ => return End::Over,
                }
            }
        };
        match event {
            Ok(PassageEvent::Granted(grant)) => {
                granted = true;
                waits.granted();
                row.granted(None, grant.external);
            }
            Ok(PassageEvent::Accepted(_)) => {
                granted = true;
                waits.granted();
                row.granted(None, None);
            }
            Ok(PassageEvent::Notified(failure)) => row.notified(failure),
            Ok(PassageEvent::Failed(failure)) => {
                let pace =
                    if granted { Pace::after_standing(&failure, own) } else { Pace::after(&failure, own) };
                return End::Lost(failure, pace);
            }
            Ok(PassageEvent::Released(_)) => return End::Lost(released(), Pace::Soon),
            Ok(PassageEvent::Started(_) | PassageEvent::Ended(_) | PassageEvent::Retrying(_)) => {}
            Err(status) => return failed(&status),
        }
    }
}

/// What an error of a call means.
fn failed(status: &Status) -> End {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    let is = |one: Reason| reason == one.name();
    let cause = if is(Reason::NoRoute) { v1::Cause::NoRoute } else { v1::Cause::Conflict };
    let failure =
        v1::Failure { cause: cause.into(), message: status.message().to_owned(), ..v1::Failure::default() };
    if is(Reason::Stopping) {
        End::Over
    } else if status.code() == Code::InvalidArgument
        || is(Reason::ProtocolNotRunning)
        || is(Reason::Stateless)
    {
        End::Wrong(failure)
    } else {
        let pace = Pace::after(&failure, None);
        End::Lost(failure, pace)
    }
}

fn released() -> v1::Failure {
    v1::Failure {
        cause: v1::Cause::Conflict.into(),
        message: "it was released here".to_owned(),
        ..v1::Failure::default()
    }
}
