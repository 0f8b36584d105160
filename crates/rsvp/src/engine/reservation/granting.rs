//! The nodes that granted a reservation, for a sender that asks for them ([`granting`]).

use core::net::IpAddr;
use std::collections::BTreeSet;

use signalbox_core::Key;
use signalbox_wire::hops::{Hop, Hops, Part, Path};

use super::branch::Request;
use crate::engine::output::MOST_CARRIED;
use crate::engine::path::{NON_RSVP, Sender};
use crate::engine::session::is_application;
use crate::engine::{Rsvp, merging};
use crate::wire::{FlowSpec, Objects, granting};

impl Rsvp {
    /// The requests that go into a Resv for these senders and carry objects, each once.
    pub(in crate::engine) fn carrying(&self, flows: &[(Key, FlowSpec)]) -> Vec<&Request> {
        let (mut all, mut visited) = (Vec::new(), BTreeSet::new());
        for sender in flows.iter().filter_map(|(key, _)| self.senders.get(*key)) {
            for (key, branch) in self.branches_of(sender) {
                // The senders of a shared style meet the same reservations.
                if branch.carries() && sender.leaves_by(branch.oif) && visited.insert(key) {
                    all.extend(branch.requests().filter(|request| !request.carried().is_empty()));
                }
            }
        }
        all
    }

    /// Appends to the objects of a Resv the lists of the nodes that granted what it requests, with this node of the address
    /// `own`. It begins one if a sender asks for it, and the next nodes have none.
    pub(in crate::engine) fn name_granting(
        &self,
        flows: &[(Key, FlowSpec)],
        own: IpAddr,
        objects: &mut Vec<u8>,
    ) {
        let asking = |sender: &&Sender| granting::asks(sender.carried());
        let Some(sender) = flows.iter().filter_map(|(key, _)| self.senders.get(*key)).find(asking) else {
            return;
        };
        for list in self.lists(flows, sender, own) {
            if objects.len() + list.len() > MOST_CARRIED {
                tracing::debug!(reason = "too many octets", "lists of some next hops left out");
                return;
            }
            objects.extend_from_slice(&list);
        }
    }

    /// What the lists say of the path of a sender of this node, for its user.
    pub(in crate::engine) fn granting_path(&self, key: Key, flowspec: FlowSpec) -> Path {
        let Some(sender) = self.senders.get(key).filter(|sender| granting::asks(sender.carried())) else {
            return Path::default();
        };
        let own = self.filter_of(sender).src;
        let lists = self.lists(&[(key, flowspec)], sender, own);
        let first = lists.first().and_then(|list| Objects::at(list, 0).next()?.ok());
        let mut path =
            first.and_then(|object| Some(Path::of(granting::list(&object)?, true))).unwrap_or_default();
        // Each receiver of a group has a path of its own, and one is named.
        path.gaps |= lists.len() > 1;
        path
    }

    /// The lists with this node at their ends: one of each request, however many its node sent.
    fn lists(&self, flows: &[(Key, FlowSpec)], sender: &Sender, own: IpAddr) -> Vec<Vec<u8>> {
        let reserved = flows.iter().map(|(_, flowspec)| *flowspec).reduce(|a, b| merging::merged(&a, &b));
        let node = Hop {
            after_gap: sender.has(NON_RSVP),
            ..Hop::new(own, Part::Rate(reserved.map_or(0, |one| octets_per_s(&one))))
        };
        let mut all = Vec::new();
        for request in self.carrying(flows) {
            let mut objects = Objects::at(request.carried(), 0).map_while(Result::ok);
            let Some(list) = objects.find_map(|object| granting::list(&object)) else { continue };
            let next = self.hops.lookup(request.hop).map(|hop| hop.addr);
            // A node of another make passed the list on.
            let passed = list.iter().last().map(|last| last.address) != next;
            all.push(granting::with(list, &Hop { after_gap: node.after_gap || passed, ..node }));
        }
        if all.is_empty() {
            let here = self
                .branches_of(sender)
                .flat_map(|(_, branch)| branch.requests())
                .any(|one| is_application(one.hop));
            let end = Hop { part: Part::End, answered: true, ..node };
            all.push(granting::with(Hops::EMPTY, if here { &end } else { &node }));
        }
        all
    }
}

/// The rate of a reservation, whole octets a second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are finite and not negative, and a cast of larger ones gives the largest number"
)]
fn octets_per_s(flowspec: &FlowSpec) -> u64 {
    flowspec.rspec.map_or(flowspec.tspec.rate(), |rspec| rspec.rate()) as u64
}
