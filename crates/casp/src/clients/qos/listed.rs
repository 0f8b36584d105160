//! HOPS: the list of the nodes that granted a request. A Reserve and a Query collect it on their way, and the answer, or the Commit
//! that answers, brings it back.

use core::net::IpAddr;

use signalbox_core::{Key, invariant};
use signalbox_wire::hops::{Hop, Part, Path};

use super::QosClient;
use super::amount::Amount;
use super::node::Job;
use super::record::Record;
use crate::clients::shared::with_node;
use crate::wire::Listed;
use crate::wire::qos::{QosMessage, QosType};

impl QosClient {
    /// The list of a request of this node: it is the first of it. `receives`: the data end here.
    pub(super) fn list_begun(&self, like: IpAddr, receives: bool, amount: &Amount) -> Vec<u8> {
        let mut list = Vec::new();
        let part = if receives { Part::End } else { Part::Rate(rate_of(amount)) };
        if let Some(address) = self.local.like(like) {
            Hop::new(address, part).append(&mut list);
        }
        list
    }

    /// The list of a request with this node, which has `amount` for it. A Commit is no new decision.
    pub(super) fn list_with_own(
        &self,
        key: Key,
        job: &Job,
        message: &QosMessage<'_>,
        amount: &Amount,
    ) -> Option<Vec<u8>> {
        let listed = message.listed?;
        if message.kind == QosType::COMMIT {
            return Some(listed.hops.octets().to_vec());
        }
        let end = if job.reverse { job.flow.src() } else { job.flow.dst() };
        let skipped = message.age.is_some()
            && self.records.get(key).is_some_and(|record| record.skipped == message.age);
        let part = if job.last && !job.reverse && self.local.has(end) {
            Part::End
        } else if skipped {
            Part::Passed
        } else {
            Part::Rate(rate_of(amount))
        };
        Some(with_node(&listed, job.hops, self.local.like(end), part, job.last))
    }

    /// Keeps the list that an answer brought to the user of this node.
    pub(super) fn keep_list(&mut self, key: Key, listed: Option<Listed<'_>>) {
        if self.records.get(key).is_some_and(|record| record.own.is_some()) {
            self.lists.keep(key, listed);
        }
    }

    /// What the last answer says of the path of a user's reservation or query.
    #[must_use]
    pub fn path_of(&self, id: u64) -> Path {
        let Some(key) = self.by_user.get(&id).copied() else { return Path::default() };
        let list = self.lists.get(key).unwrap_or_default();
        let Some(own) = invariant!(
            self.records.get(key).and_then(Record::own),
            "a user's request has a record with its own part"
        ) else {
            return Path::default();
        };
        let mut path = Path::of(list, false);
        if own.reverse || own.suggests {
            // The receiver of the data asked: both ends take part.
            path.far_end = path.far_end.map(|_| true);
        }
        if own.suggests {
            path.hops.reverse();
        }
        path
    }
}

/// Octets a second.
fn rate_of(amount: &Amount) -> u64 {
    amount.asked().map_or(0, |(traffic, _, _)| traffic.rate)
}
