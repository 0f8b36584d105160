//! Policy elements that this node reads from POLICY_DATA (RFC 2750): preemption priorities (RFC 3181) and identities of
//! users and applications (RFC 3182). POLICY_DATA objects are forwarded unchanged.

use std::sync::Arc;

use signalbox_resources::Priority;

use crate::wire::{
    Class, HEADER_OCTETS, HeaderFlags, Identity, MessageType, Object, Objects, PolicyElement, PolicyElements,
    Preemption, RsvpHop, Writer,
};

/// PREEMPTION_PRI's error code for "the flow was preempted".
const PREEMPTED: u8 = 1;

/// The elements in the carried objects of several requests. Objects for another node (RFC 2750 §3.2), and objects that
/// cannot be read, have none.
fn elements<'a>(
    carried: impl Iterator<Item = &'a [u8]>,
    own: impl Fn(&RsvpHop) -> bool,
) -> impl Iterator<Item = PolicyElement<'a>> {
    let objects = carried.flat_map(|carried| Objects::at(carried, 0).map_while(Result::ok));
    let elements = objects.filter_map(move |object| {
        let Ok(Object::Policy(data)) = object.read() else { return None };
        let options = data.options().ok()?;
        options.destination.is_none_or(|hop| own(&hop)).then(|| data.elements().ok()).flatten()
    });
    elements.flat_map(active)
}

/// The active elements of one object: an empty element deletes those of its P-Type before it (RFC 2750 §3.4). Elements of
/// one P-Type that were sent together, such as several users, are all active.
fn active(all: PolicyElements<'_>) -> impl Iterator<Item = PolicyElement<'_>> {
    all.clone().enumerate().map(move |(at, element)| (element, all.clone().skip(at + 1))).filter_map(
        |(element, mut later)| {
            let deleted = later.any(|other| other.p_type == element.p_type && other.data.is_empty());
            (!deleted && !element.data.is_empty()).then_some(element)
        },
    )
}

/// The highest preemption and defending priorities of several requests, and the names of users and applications, if
/// there are any.
pub(in crate::engine) fn read<'a>(
    carried: impl Iterator<Item = &'a [u8]>,
    own: impl Fn(&RsvpHop) -> bool,
) -> (Priority, Option<Arc<Vec<String>>>) {
    let mut highest = Preemption::default();
    let mut names = Vec::new();
    for element in elements(carried, own) {
        if let Some(preemption) = Preemption::of(&element) {
            highest = highest.max(preemption);
        } else if let Some(identity) = Identity::of(&element) {
            names.extend([Some(identity.name), identity.locator].into_iter().flatten().map(str::to_owned));
        }
    }
    let Preemption { setup, defending } = highest;
    // A request must be able to keep what its setup priority gets.
    let priority = Priority { setup, defending: defending.max(setup) };
    (priority, (!names.is_empty()).then(|| Arc::new(names)))
}

/// POLICY_DATA objects with the error code "preempted" in each PREEMPTION_PRI (RFC 3181).
pub(super) fn with_preempted(policy: &[u8]) -> Box<[u8]> {
    let mut marked = Vec::with_capacity(policy.len());
    for object in Objects::at(policy, 0).map_while(Result::ok) {
        let start = marked.len();
        marked.extend_from_slice(object.octets);
        let Ok(Object::Policy(data)) = object.read() else { continue };
        let Ok(elements) = data.elements() else { continue };
        let of_all: usize = elements.clone().map(|element| element.data.len() + 4).sum();
        let mut at = start + object.octets.len().saturating_sub(of_all);
        for element in elements {
            // Length, P-Type, flags, merge strategy, error code.
            if Preemption::of(&element).is_some()
                && let Some(code) = marked.get_mut(at + 6)
            {
                *code = PREEMPTED;
            }
            at += element.data.len() + 4;
        }
    }
    marked.into_boxed_slice()
}

/// A POLICY_DATA object without elements, with its origin (RFC 2750 §3.2).
pub(super) fn empty_object(node: &RsvpHop) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, MessageType::RESV_ERR, HeaderFlags::default(), 0);
    writer.hop(node);
    let written = writer.finish_without_checksum().is_ok();
    let hop = octets.get(HEADER_OCTETS..).filter(|_| written).unwrap_or_default();
    let Ok(length) = u16::try_from(8 + hop.len()) else { return Vec::new() };
    let [l1, l0] = length.to_be_bytes();
    [&[l1, l0, Class::POLICY_DATA.0, 1, l1, l0, 0, 0], hop].concat()
}
