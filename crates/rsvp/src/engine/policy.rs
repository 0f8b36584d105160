//! What POLICY_DATA say to this node (RFC 2750), as far as it knows their elements: preemption priorities (RFC 3181). All
//! of it is passed on as it came, whatever it says.

use signalbox_resources::Priority;

use crate::wire::{Class, HEADER_OCTETS, HeaderFlags, MessageType, Object, Objects, RsvpHop, Writer};

/// P-Type of PREEMPTION_PRI.
const PREEMPTION_PRI: u16 = 3;
/// Its error code for "the flow was preempted".
const PREEMPTED: u8 = 1;

/// The highest preemption and defending priorities in what goes along with several requests; of objects that are for
/// another node (§3.2), or that cannot be read, nothing counts.
pub(super) fn priority<'a>(
    carried: impl Iterator<Item = &'a [u8]>,
    own: impl Fn(&RsvpHop) -> bool,
) -> Priority {
    let mut highest = Priority::default();
    for object in carried.flat_map(|carried| Objects::at(carried, 0).map_while(Result::ok)) {
        let Ok(Object::Policy(data)) = object.read() else { continue };
        let (Ok(options), Ok(elements)) = (data.options(), data.elements()) else { continue };
        if options.destination.is_some_and(|hop| !own(&hop)) {
            continue;
        }
        for element in elements.filter(|element| element.p_type == PREEMPTION_PRI) {
            let &[_, _, _, _, s1, s0, d1, d0] = element.data else { continue };
            highest.setup = highest.setup.max(u16::from_be_bytes([s1, s0]));
            highest.defending = highest.defending.max(u16::from_be_bytes([d1, d0]));
        }
    }
    // Nobody gets what he would lose to himself.
    highest.defending = highest.defending.max(highest.setup);
    highest
}

/// POLICY_DATA objects with the word that the flow was preempted in each PREEMPTION_PRI.
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
            if element.p_type == PREEMPTION_PRI
                && element.data.len() == 8
                && let Some(code) = marked.get_mut(at + 6)
            {
                *code = PREEMPTED;
            }
            at += element.data.len() + 4;
        }
    }
    marked.into_boxed_slice()
}

/// A POLICY_DATA object that says no more than whose it is.
pub(super) fn of(node: &RsvpHop) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, MessageType::RESV_ERR, HeaderFlags::default(), 0);
    writer.hop(node);
    let written = writer.finish_without_checksum().is_ok();
    let hop = octets.get(HEADER_OCTETS..).filter(|_| written).unwrap_or_default();
    let Ok(length) = u16::try_from(8 + hop.len()) else { return Vec::new() };
    let [l1, l0] = length.to_be_bytes();
    [&[l1, l0, Class::POLICY_DATA.0, 1, l1, l0, 0, 0], hop].concat()
}
