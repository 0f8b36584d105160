//! The translations of ports that a former daemon left in the kernel, as parts of what the node takes over.

use std::time::Duration;

use signalbox_core::handover::{Entries, write_part};
use signalbox_core::ports::Binding;
use signalbox_node::natfw::left_binding;

/// The protocols that keep ports besides NATFW. Each keeps those of its own range.
const OTHERS: [&str; 2] = ["casp", "gist_nat"];

/// The parts. The kernel keeps none of the bindings longer than `most`.
pub(crate) fn parts(bindings: &[(Binding, Duration)], most: Duration) -> Vec<u8> {
    let all = |write: fn(&Binding, Duration) -> Vec<u8>| {
        let mut entries = Entries::default();
        for (binding, left) in bindings.iter().filter(|_| !most.is_zero()) {
            entries.push(&write(binding, (*left).min(most)));
        }
        entries
    };
    let mut octets = Vec::new();
    write_part(&mut octets, "natfw", &all(left_binding));
    let entries = all(Binding::write);
    OTHERS.iter().for_each(|name| write_part(&mut octets, name, &entries));
    octets
}
