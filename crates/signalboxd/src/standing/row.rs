//! What became of a standing request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use signalbox_api::v1;
use v1::StandingState as State;

use super::wanted::{Key, Wanted};
use crate::api::types::{micros, unix_us};

/// The row of a request, which its task changes and the service reads.
pub(super) struct Row(Mutex<v1::StandingRequest>);

impl Row {
    pub(super) fn new((kind, name): &Key, wanted: &Wanted) -> Self {
        let row = v1::StandingRequest {
            name: name.clone(),
            kind: (*kind).into(),
            since_unix_us: unix_us(),
            state: State::Asking.into(),
            ..v1::StandingRequest::default()
        };
        let row = Self(Mutex::new(row));
        row.becomes(wanted);
        row
    }

    pub(super) fn get(&self) -> v1::StandingRequest {
        self.with(|row| row.clone())
    }

    /// Something else is wanted. What was refused before says nothing about it.
    pub(super) fn becomes(&self, wanted: &Wanted) {
        self.with(|row| {
            row.protocol = wanted.protocol();
            row.flow = wanted.flow().cloned();
            row.rate_octets_per_s = wanted.rate();
            set(row, State::Asking);
            (row.last_refusal, row.last_refusal_unix_us) = (None, None);
        });
    }

    /// Something that it was not before is asked for.
    pub(super) fn asks(&self) {
        self.with(|row| set(row, State::Asking));
    }

    /// What stood before is released, and another request is made.
    pub(super) fn anew(&self) {
        self.with(|row| gone(row, State::Asking));
    }

    /// It is asked for, or again. What was refused goes on waiting until it is granted.
    pub(super) fn attempt(&self) {
        self.with(|row| row.next_attempt_unix_us = None);
    }

    /// Signaling began.
    pub(super) fn started(&self, flow: Option<v1::FlowSpec>, session_id: Option<Vec<u8>>) {
        self.with(|row| {
            row.flow = flow.or_else(|| row.flow.take());
            row.session_id = session_id.filter(|id| !id.is_empty());
        });
    }

    /// It stands as it is wanted.
    pub(super) fn granted(&self, rate: Option<u64>, external: Option<v1::Endpoint>) {
        self.with(|row| {
            if row.state() != State::Granted {
                tracing::info!(request = row.name, kind = kind(row), "a standing request is granted");
            }
            set(row, State::Granted);
            (row.granted_octets_per_s, row.external) = (rate, external);
            (row.attempts, row.next_attempt_unix_us) = (0, None);
        });
    }

    /// What stood before a change that was refused stands.
    pub(super) fn stands(&self, rate: Option<u64>) {
        self.with(|row| row.granted_octets_per_s = rate);
    }

    /// A rate that is wanted is refused; what stood before stands. It is asked for again after this time.
    pub(super) fn change_refused(&self, failure: v1::Failure, attempts: u32, wait: Duration) {
        self.with(|row| {
            refuse(row, failure);
            set(row, State::ChangeRefused);
            later(row, attempts, wait);
        });
    }

    /// It is refused or lost. It is asked for again after this time.
    pub(super) fn waits(&self, failure: v1::Failure, attempts: u32, wait: Duration) {
        self.with(|row| {
            refuse(row, failure);
            gone(row, State::Waiting);
            later(row, attempts, wait);
        });
    }

    /// It stands no more, and the protocol goes on asking for it.
    pub(super) fn interrupted(&self, failure: v1::Failure) {
        self.with(|row| {
            refuse(row, failure);
            gone(row, State::Asking);
        });
    }

    /// A node reported an event, and what stood is being confirmed.
    pub(super) fn notified(&self, failure: v1::Failure) {
        self.with(|row| refuse(row, failure));
    }

    /// It cannot be asked for.
    pub(super) fn wrong(&self, failure: v1::Failure) {
        self.with(|row| {
            refuse(row, failure);
            gone(row, State::Wrong);
            row.next_attempt_unix_us = None;
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut v1::StandingRequest) -> T) -> T {
        // A row has no invariant that a panic could break.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn set(row: &mut v1::StandingRequest, state: State) {
    if row.state() != state {
        row.since_unix_us = unix_us();
        row.set_state(state);
    }
}

fn gone(row: &mut v1::StandingRequest, state: State) {
    set(row, state);
    (row.granted_octets_per_s, row.external) = (None, None);
}

fn later(row: &mut v1::StandingRequest, attempts: u32, wait: Duration) {
    row.attempts = attempts;
    row.next_attempt_unix_us = Some(unix_us().saturating_add(micros(wait)));
}

/// Notes why, and logs what was not logged before.
fn refuse(row: &mut v1::StandingRequest, failure: v1::Failure) {
    if row.last_refusal.as_ref() != Some(&failure) || row.state() == State::Granted {
        tracing::warn!(
            request = row.name,
            kind = kind(row),
            node = failure.node,
            reason = failure.message,
            rule = failure.rule.as_ref().or(failure.detail.as_ref()),
            "a standing request is refused or lost"
        );
    }
    (row.last_refusal, row.last_refusal_unix_us) = (Some(failure), Some(unix_us()));
}

/// The name of its table in the configuration.
fn kind(row: &v1::StandingRequest) -> &'static str {
    match row.kind() {
        v1::StandingKind::Reserve => "reserve",
        v1::StandingKind::Pinhole => "pinhole",
        v1::StandingKind::Expose => "expose",
        v1::StandingKind::Unspecified => "unspecified",
    }
}
