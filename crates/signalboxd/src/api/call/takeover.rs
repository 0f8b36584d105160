//! Calls that take over what a call held that broke.
//!
//! A client that gives `request_id` can make its call again: the same user with the same octets gets the same reservation
//! or passage, which stands in the meantime. If the later call of a reservation asks for other traffic, it changes the
//! reservation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::Status;

use super::{Attached, Held};
use crate::api::errors::{FieldError, Reason};

/// How long a reservation or passage stands whose call broke.
pub(super) const STANDS: Duration = Duration::from_secs(10);

type Key = (Option<u32>, [u8; 16]);
type Table<H> = Arc<Mutex<HashMap<Key, Entry<H>>>>;

/// All reservations, or all passages, with a `request_id`; cheap to clone. Each has the place of a call, so that their number has a limit.
pub(crate) struct Takeovers<H: Held>(Table<H>);

impl<H: Held> Clone for Takeovers<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H: Held> Default for Takeovers<H> {
    fn default() -> Self {
        Self(Table::default())
    }
}

struct Entry<H: Held> {
    open: H::Open,
    calls: mpsc::Sender<Attached<H>>,
}

/// What a call with a `request_id` is.
pub(super) enum Place<H: Held> {
    /// The first one: it begins.
    New(TakeoverPlace<H>),
    /// A later one: it takes over.
    Taken(EarlierCall<H>),
}

/// A place in the table; it is free when this is dropped.
pub(super) struct TakeoverPlace<H: Held> {
    table: Takeovers<H>,
    key: Key,
    /// Calls that take over.
    pub(super) calls: mpsc::Receiver<Attached<H>>,
}

impl<H: Held> Drop for TakeoverPlace<H> {
    fn drop(&mut self) {
        self.table.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// What an earlier call began.
pub(super) struct EarlierCall<H: Held> {
    calls: mpsc::Sender<Attached<H>>,
    /// What makes it what the later call asks for.
    change: Option<H::Request>,
}

impl<H: Held> EarlierCall<H> {
    /// Gives it to a call.
    pub(super) async fn attach(self, call: Attached<H>) -> Result<(), Status> {
        let call = Attached { change: self.change, ..call };
        self.calls.send(call).await.map_err(|_| ended::<H>())
    }
}

/// The error of a call that comes while what has its `request_id` ends.
pub(super) fn ended<H: Held>() -> Status {
    let text = format!("open.request_id: that {} has just ended; use other octets", H::NAME);
    Reason::RequestIdTaken.status(text)
}

impl<H: Held> Takeovers<H> {
    /// The place of a call; `None` for one without `request_id`.
    pub(super) fn place(&self, user: Option<u32>, open: &H::Open) -> Result<Option<Place<H>>, Status> {
        let Some(id) = H::request_id(open) else { return Ok(None) };
        let id = id.try_into();
        let key = (user, id.map_err(|_| FieldError::new("open.request_id", "16 random octets"))?);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = table.get_mut(&key) {
            let change = H::change(&entry.open, open).map_err(|()| {
                let text = "open.request_id: another request of this user has it; use other octets";
                Reason::RequestIdTaken.status(text)
            })?;
            entry.open = open.clone();
            return Ok(Some(Place::Taken(EarlierCall { calls: entry.calls.clone(), change })));
        }
        let (calls, attach) = mpsc::channel(1);
        table.insert(key, Entry { open: open.clone(), calls });
        Ok(Some(Place::New(TakeoverPlace { table: self.clone(), key, calls: attach })))
    }
}
