//! Calls that take over the reservation of a call that broke.
//!
//! A client that gives `request_id` can make its call again: the same user with the same octets gets the same
//! reservation, which stands in the meantime. If the later call asks for other traffic, it changes the reservation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signalbox_api::v1;
use tokio::sync::mpsc;
use tonic::Status;

use super::call::Attached;
use crate::api::errors::{Reason, Wrong};

/// How long a reservation stands whose call broke.
pub(super) const STANDS: Duration = Duration::from_secs(10);
/// Most reservations with a `request_id`.
const MOST: usize = 4096;

type Key = (Option<u32>, [u8; 16]);

/// All reservations with a `request_id`; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Takeovers(Arc<Mutex<HashMap<Key, Entry>>>);

struct Entry {
    open: v1::ReserveOpen,
    calls: mpsc::Sender<Attached>,
}

/// What a call with a `request_id` is.
pub(super) enum Place {
    /// The first one: it makes the reservation.
    New(Seat),
    /// A later one: it takes over the reservation.
    Taken(Earlier),
}

/// The place of a reservation in the table; it is free when this is dropped.
pub(super) struct Seat {
    table: Takeovers,
    key: Key,
    /// Calls that take the reservation over.
    pub(super) calls: mpsc::Receiver<Attached>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.table.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// A reservation of an earlier call.
pub(super) struct Earlier {
    calls: mpsc::Sender<Attached>,
    /// The traffic that the later call asks for, if it is another.
    change: Option<v1::TokenBucket>,
}

impl Earlier {
    /// Gives it to a call.
    pub(super) async fn attach(self, call: Attached) -> Result<(), Status> {
        self.calls.send(call.changing(self.change)).await.map_err(|_| ended())
    }
}

/// The error of a call that comes while the reservation of its `request_id` ends.
pub(super) fn ended() -> Status {
    Reason::RequestIdTaken.status("open.request_id: that reservation has just ended; use other octets")
}

impl Takeovers {
    /// The place of a call; `None` for one without `request_id`.
    pub(super) fn place(&self, user: Option<u32>, open: &v1::ReserveOpen) -> Result<Option<Place>, Status> {
        let Some(id) = &open.request_id else { return Ok(None) };
        let id = id.as_slice().try_into();
        let key = (user, id.map_err(|_| Wrong::new("open.request_id", "16 random octets"))?);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = table.get_mut(&key) {
            let other = (entry.open.traffic != open.traffic).then_some(open.traffic.unwrap_or_default());
            if (v1::ReserveOpen { traffic: open.traffic, ..entry.open.clone() }) != *open {
                return Err(Reason::RequestIdTaken
                    .status("open.request_id: another request of this user has it; use other octets"));
            }
            entry.open.traffic = open.traffic;
            return Ok(Some(Place::Taken(Earlier { calls: entry.calls.clone(), change: other })));
        }
        if table.len() >= MOST {
            return Err(Reason::TableFull.status(format!("{MOST} reservations have a request_id already")));
        }
        let (calls, attach) = mpsc::channel(1);
        table.insert(key, Entry { open: open.clone(), calls });
        Ok(Some(Place::New(Seat { table: self.clone(), key, calls: attach })))
    }
}
