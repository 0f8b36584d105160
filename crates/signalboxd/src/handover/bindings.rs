//! The translations of ports that a former daemon left in the kernel, as a part of what the node takes over.

use std::time::Duration;

use signalbox_core::handover::{Entries, write_part};
use signalbox_core::ports::Binding;
use signalbox_node::natfw::left_binding;

/// The protocol that keeps ports.
const NAME: &str = "natfw";

/// The part. The kernel keeps none of them longer than `most`.
pub(crate) fn part(bindings: &[(Binding, Duration)], most: Duration) -> Vec<u8> {
    let mut entries = Entries::default();
    for (binding, left) in bindings.iter().filter(|_| !most.is_zero()) {
        entries.push(&left_binding(binding, (*left).min(most)));
    }
    let mut octets = Vec::new();
    write_part(&mut octets, NAME, &entries);
    octets
}
