//! Standing requests: what the configuration asks for by itself (`[[reserve]]`, `[[pinhole]]`, `[[expose]]`).
//!
//! Each is held by a task ([`hold`]) that asks by the same way as the calls of users, and after a refusal or a loss asks again with
//! the waits of the command. A reload gives each task what is wanted now ([`wanted`]): a request whose keys did not change notices
//! nothing. What became of it is a row ([`row`]), which the service `Node` lists.

mod hold;
mod row;
mod wanted;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signalbox_api::v1;
use signalbox_config::Standing;
use tokio::sync::watch;

use crate::api::Api;
use row::Row;
use wanted::{Key, Wanted, all};

/// The standing requests; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct StandingRequests(Arc<Mutex<BTreeMap<Key, Held>>>);

/// The other end of a task.
struct Held {
    /// `None`: it is to end.
    wanted: watch::Sender<Option<Wanted>>,
    row: Arc<Row>,
}

impl StandingRequests {
    /// Makes the requests of a configuration those that are held. It needs the runtime of the control thread.
    pub(crate) fn apply(&self, api: &Api, standing: &Standing) {
        let mut new: HashMap<Key, Wanted> = all(standing).collect();
        let mut held = self.held();
        held.retain(|key, held| {
            let wanted = new.remove(key);
            let stays = wanted.is_some();
            held.wanted.send_if_modified(|present| {
                let changes = *present != wanted;
                if let (true, Some(wanted)) = (changes, &wanted) {
                    held.row.becomes(wanted);
                }
                *present = wanted;
                changes
            });
            stays
        });
        for (key, wanted) in new {
            let row = Arc::new(Row::new(&key, &wanted));
            let (sender, receiver) = watch::channel(Some(wanted));
            tokio::spawn(hold::hold(api.clone(), Arc::clone(&row), receiver));
            held.insert(key, Held { wanted: sender, row });
        }
    }

    /// All of them, by kind and name.
    pub(crate) fn list(&self) -> Vec<v1::StandingRequest> {
        self.held().values().map(|held| held.row.get()).collect()
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Key, Held>> {
        // No change of the map is left half made.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
