//! MESSAGE_IDs that a neighbor lists in an Srefresh (RFC 2961 §5).

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::slab::Key;

use super::message_ids::NeighborId;
use super::{Arrival, Neighbors};
use crate::engine::ahead::{AT_ONCE, Group};
use crate::engine::packet::IpReceived;
use crate::wire::{Class, IdList, ListedId, MessageId, Objects};

/// The lists of an Srefresh that are not handled yet.
#[derive(Debug, Clone)]
pub(super) struct Lists<'p> {
    pub(super) peer: Key,
    pub(super) objects: Objects<'p>,
    pub(super) list: Option<(IdList<'p>, usize)>,
    /// Number of MESSAGE_ID_NACKs that may answer.
    pub(super) nacks: usize,
}

/// An unknown MESSAGE_ID of a multicast neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown {
    /// The source.
    pub source: IpAddr,
    /// The group.
    pub group: IpAddr,
    /// The incoming interface of the Srefresh.
    pub ifindex: IfIndex,
    peer: Key,
    message_id: MessageId,
}

impl Neighbors {
    /// The next identifiers of an Srefresh (RFC 2961 §5.3).
    pub(super) fn listed(&mut self, packet: &IpReceived<'_>, lists: &mut Lists<'_>) -> Option<Arrival> {
        loop {
            let Some((list, at)) = &mut lists.list else {
                let object = lists.objects.find_map(|object| {
                    object.ok().filter(|object| object.kind.class == Class::MESSAGE_ID_LIST)
                })?;
                lists.list = IdList::parse(&object).ok().map(|list| (list, 0));
                continue;
            };
            // One of a multicast source is an item of its own if it is unknown.
            let count = if list.get(*at).is_some_and(|listed| listed.source.is_some()) { 1 } else { AT_ONCE };
            let listed: Group<ListedId> = (*at..).map_while(|at| list.get(at)).take(count).collect();
            let epoch = list.epoch;
            *at += listed.len();
            if listed.is_empty() {
                lists.list = None;
                continue;
            }
            let peer = lists.peer;
            let ids: Group<NeighborId> = listed.iter().map(|one| (peer.index(), epoch, one.id)).collect();
            let (mut tags, mut unknown) = (Group::new(), Group::<ListedId>::new());
            let mut all = listed.into_iter();
            self.received.find_all(&ids, |found| match (found, all.next()) {
                (Some(tag), _) => tags.push(tag),
                (None, listed) => unknown.extend(listed),
            });
            self.counters.states_refreshed += tags.len() as u64;
            for listed in unknown {
                if let Some(unknown) = self.unknown(packet, lists, epoch, listed) {
                    return Some(Arrival::Unknown(unknown));
                }
            }
            if !tags.is_empty() {
                return Some(Arrival::Refreshed { tags });
            }
        }
    }

    /// Answers an unknown identifier of an Srefresh. Returns one of a multicast source, about which the engine decides.
    fn unknown(
        &mut self,
        packet: &IpReceived<'_>,
        lists: &mut Lists<'_>,
        epoch: u32,
        listed: ListedId,
    ) -> Option<Unknown> {
        self.counters.names_unknown += 1;
        tracing::debug!(peer = %packet.src, id = listed.id, "Srefresh of an unknown MESSAGE_ID");
        let Some(left) = lists.nacks.checked_sub(1) else {
            self.counters.nacks_limited += 1;
            return None;
        };
        lists.nacks = left;
        let message_id = MessageId { ack_desired: false, epoch, id: listed.id };
        let Some(source) = listed.source else {
            self.acknowledge(lists.peer, packet, message_id, true);
            return None;
        };
        let group = listed.group.unwrap_or(packet.dst);
        Some(Unknown { source, group, ifindex: packet.ifindex, peer: lists.peer, message_id })
    }

    /// Sends a MESSAGE_ID_NACK for an unknown MESSAGE_ID of a multicast source, because this node is on the tree (RFC
    /// 2961 §5.3).
    pub fn nack(&mut self, unknown: &Unknown) {
        self.queue_ack(unknown.peer, unknown.ifindex, unknown.message_id, true, unknown.group.is_multicast());
    }
}
