//! HOPS: the list of the nodes that opened the path of a CREATE. The CREATE collects it on its way. The RESPONSE brings it back, unless
//! the CREATE itself goes to who asked, because it answers a PATH.

use signalbox_core::Key;
use signalbox_wire::Writer;
use signalbox_wire::hops::{Hop, Hops, Part, Path};

use super::NatfwClient;
use crate::clients::shared::with_node;
use crate::engine::OwnedArrival;
use crate::wire::Listed;
use crate::wire::natfw::{NatfwMessage, NatfwObject, NatfwType, NatfwValue, Tlvs};

/// The list of a message or of a STATUS, if it has one.
pub(super) fn listed<'a>(objects: &Tlvs<'a>) -> Option<Listed<'a>> {
    objects.iter().find(|tlv| tlv.kind == NatfwObject::HOPS).and_then(|tlv| Listed::parse(tlv.contents))
}

/// Whether an object of a message has the type of the list, and its contents are not a list.
pub(super) fn is_foreign(objects: &Tlvs<'_>) -> bool {
    objects.iter().any(|tlv| tlv.kind == NatfwObject::HOPS && Listed::parse(tlv.contents).is_none())
}

/// The contents of HOPS.
fn contents(last_hops: u8, hops: &[u8]) -> Option<Vec<u8>> {
    let hops = Hops::from_octets(hops)?;
    let mut octets = Vec::new();
    Listed { last_hops, hops }.encode(&mut Writer::new(&mut octets));
    Some(octets)
}

/// The objects of a request with this list in place of its own. Contents that are not a list are left out. `rest`: the objects, if some
/// were taken out before.
pub(super) fn with_list<'a>(
    message: &NatfwMessage<'a>,
    rest: Option<Vec<NatfwValue<'a>>>,
    list: Option<&'a [u8]>,
) -> Option<Vec<NatfwValue<'a>>> {
    if list.is_none() && !is_foreign(&message.objects) {
        return rest;
    }
    let mut values = rest.unwrap_or_else(|| message.values().collect());
    values.retain(|value| value.kind() != NatfwObject::HOPS);
    values.extend(list.map(|list| NatfwValue::Unknown(NatfwObject::HOPS, list)));
    Some(values)
}

impl NatfwClient {
    /// The contents of the list of a CREATE with this node. `answers`: it ends here.
    pub(super) fn list_with_own(
        &self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        answers: bool,
    ) -> Option<Vec<u8>> {
        let listed = listed(&message.objects).filter(|_| message.kind == NatfwType::CREATE)?;
        let end = if job.reverse { job.flow.src() } else { job.flow.dst() };
        let bound = self.records.get(key).is_some_and(|record| record.binding.is_some());
        let part = if answers && self.local.has(end) {
            Part::End
        } else if bound {
            Part::Translated
        } else if self.config.role.opens() {
            Part::Opened
        } else {
            Part::Passed
        };
        contents(job.hops, &with_node(&listed, job.hops, self.local.like(end), part, answers))
    }

    /// The contents of a list that begins at this node, which is the end of the flow and answers a PATH by a CREATE.
    pub(super) fn list_begun(&self, job: &OwnedArrival, message: &NatfwMessage<'_>) -> Option<Vec<u8>> {
        listed(&message.objects).filter(|_| message.kind == NatfwType::PATH)?;
        let mut list = Vec::new();
        if let Some(address) = self.local.like(job.flow.dst()) {
            Hop { answered: true, ..Hop::new(address, Part::End) }.append(&mut list);
        }
        contents(0, &list)
    }

    /// What the last answer says of the path of a user's passage.
    #[must_use]
    pub fn path_of(&self, id: u64) -> Path {
        let list = self.by_user.get(&id).and_then(|key| self.lists.get(*key)).unwrap_or_default();
        // The other end began the list where it answered by a CREATE.
        let backwards = list.iter().next().is_some_and(|first| first.answered);
        Path::of(list, backwards)
    }
}
