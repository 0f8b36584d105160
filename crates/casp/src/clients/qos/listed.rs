//! HOPS: the list of the nodes that granted a request. A Reserve and a Query collect it on their way, and the answer, or the Commit
//! that answers, brings it back.

use core::net::IpAddr;

use signalbox_core::{Key, invariant};
use signalbox_wire::hops::{Hop, Hops, Part, Path};

use super::QosClient;
use super::amount::Amount;
use super::node::Job;
use super::record::Record;
use crate::wire::Listed;
use crate::wire::qos::{QosMessage, QosType};

impl QosClient {
    /// An address of this node of the IP version of another one, else any.
    pub(super) fn own_address(&self, like: IpAddr) -> Option<IpAddr> {
        let own = self.local.iter().find(|address| address.is_ipv4() == like.is_ipv4());
        own.or(self.local.first()).copied()
    }

    /// The list of a request of this node: it is the first of it. `receives`: the data end here.
    pub(super) fn list_begun(&self, like: IpAddr, receives: bool, amount: &Amount) -> Vec<u8> {
        let mut list = Vec::new();
        let part = if receives { Part::End } else { Part::Rate(rate_of(amount)) };
        if let Some(address) = self.own_address(like) {
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
        let mut list = listed.hops.octets().to_vec();
        if message.kind == QosType::COMMIT {
            return Some(list);
        }
        let end = if job.reverse { job.flow.src() } else { job.flow.dst() };
        let skipped = message.age.is_some()
            && self.records.get(key).is_some_and(|record| record.skipped == message.age);
        let part = if job.last && !job.reverse && self.is_local(end) {
            Part::End
        } else if skipped {
            Part::Passed
        } else {
            Part::Rate(rate_of(amount))
        };
        // Nodes without the client, and of other makes, only passed the message on.
        let unaware = listed.unaware(job.hops);
        if let Some(address) = self.own_address(end) {
            let hop = Hop::new(address, part);
            Hop { after_gap: unaware > 0, routers: unaware, answered: job.last, ..hop }.append(&mut list);
        }
        Some(list)
    }

    /// Keeps the list that an answer brought to the user of this node.
    pub(super) fn keep_list(&mut self, key: Key, listed: Option<Listed<'_>>) {
        let own = self.records.get(key).is_some_and(|record| record.own.is_some());
        if let Some(listed) = listed.filter(|_| own) {
            self.lists.insert(key, listed.hops.octets().into());
        }
    }

    /// The list that the last answer brought.
    pub(super) fn kept_list(&self, key: Key) -> Option<Hops<'_>> {
        self.lists.get(&key).and_then(|list| Hops::from_octets(list))
    }

    /// What the last answer says of the path of a user's reservation or query.
    #[must_use]
    pub fn path_of(&self, id: u64) -> Path {
        let Some(key) = self.by_user.get(&id).copied() else { return Path::default() };
        let list = self.kept_list(key).unwrap_or_default();
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
