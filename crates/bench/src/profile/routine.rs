//! Which function belongs to which routine, by its module.

/// A part of the work on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Routine {
    Receive,
    Parse,
    Find,
    Machine,
    Route,
    Admission,
    Compose,
    Send,
    Timers,
    Node,
    Memory,
    Other,
}

impl Routine {
    pub(super) const ALL: [Self; 12] = [
        Self::Receive,
        Self::Parse,
        Self::Find,
        Self::Machine,
        Self::Route,
        Self::Admission,
        Self::Compose,
        Self::Send,
        Self::Timers,
        Self::Node,
        Self::Memory,
        Self::Other,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            // Checks of a packet before it is parsed.
            Self::Receive => "receive",
            Self::Parse => "parse",
            // Hashing a key, and looking for a record.
            Self::Find => "find",
            // State machines and the state itself.
            Self::Machine => "machine",
            // Lookups of routes, and what depends on them.
            Self::Route => "route",
            Self::Admission => "admission",
            Self::Compose => "compose",
            // Outputs on their way to the driver.
            Self::Send => "send",
            Self::Timers => "timers",
            // The composition of the protocols.
            Self::Node => "node",
            // Allocating, freeing and copying.
            Self::Memory => "memory",
            Self::Other => "other",
        }
    }

    /// The routine of a function of one of our crates, or of the allocator. Library functions have none: they count for
    /// their callers.
    pub(super) fn of(function: &str) -> Option<Self> {
        RULES
            .iter()
            .find(|(words, _)| words.iter().all(|word| function.contains(word)))
            .map(|(_, routine)| *routine)
    }
}

/// The first line whose words all occur in the name decides.
const RULES: &[(&[&str], Routine)] = &[
    (&["siphash"], Routine::Find),
    (&["hashbrown"], Routine::Find),
    (&["signalbox_core::index"], Routine::Find),
    (&["signalbox_core::slab"], Routine::Find),
    (&["signalbox_core::intern"], Routine::Find),
    (&["::engine::table"], Routine::Find),
    (&["::routing::table"], Routine::Find),
    (&["::routing::Records"], Routine::Find),
    (&["::engine::finding"], Routine::Find),
    (&["signalbox_core::wheel"], Routine::Timers),
    (&["::engine", "::timers"], Routine::Timers),
    (&["::engine::sweep"], Routine::Timers),
    (&["::applications::sweep"], Routine::Timers),
    (&["::outbox"], Routine::Send),
    (&["::engine::send"], Routine::Send),
    (&["::applications::send"], Routine::Send),
    (&["::engine", "::outbound"], Routine::Send),
    (&["signalbox_resources"], Routine::Admission),
    (&["::engine::rmf"], Routine::Admission),
    (&["::engine::grant"], Routine::Admission),
    (&["::engine::admit"], Routine::Admission),
    (&["signalbox_qos::qspec"], Routine::Admission),
    (&["::engine::policy"], Routine::Admission),
    (&["::engine::lookup"], Routine::Route),
    (&["::engine::route"], Routine::Route),
    (&["::engine::destinations"], Routine::Route),
    (&["::engine::discovery"], Routine::Route),
    (&["::engine::interfaces"], Routine::Route),
    (&["signalbox_node::routes"], Routine::Route),
    (&["::engine::compose"], Routine::Compose),
    (&["::path_out"], Routine::Compose),
    (&["::resv_out"], Routine::Compose),
    (&["::encode"], Routine::Compose),
    (&["::compose"], Routine::Compose),
    (&["::writer::"], Routine::Compose),
    (&["signalbox_wire::write"], Routine::Compose),
    (&["Writer"], Routine::Compose),
    (&["::wire::"], Routine::Parse),
    (&["signalbox_wire"], Routine::Parse),
    (&["::engine::receive"], Routine::Receive),
    (&["::engine", "::inbound"], Routine::Receive),
    (&["::engine", "::verify"], Routine::Receive),
    (&["::association::reception"], Routine::Receive),
    (&["signalbox_core::packet"], Routine::Receive),
    (&["signalbox_core::bucket"], Routine::Receive),
    (&["signalbox_core::shares"], Routine::Receive),
    (&["signalbox_gist"], Routine::Machine),
    (&["signalbox_rsvp"], Routine::Machine),
    (&["signalbox_qos"], Routine::Machine),
    (&["signalbox_natfw"], Routine::Machine),
    (&["signalbox_boomerang"], Routine::Machine),
    (&["signalbox_casp"], Routine::Machine),
    (&["signalbox_ping"], Routine::Machine),
    (&["signalbox_node"], Routine::Node),
    (&["signalbox_transport"], Routine::Node),
    (&["malloc"], Routine::Memory),
    (&["calloc"], Routine::Memory),
    (&["realloc"], Routine::Memory),
    (&["cfree"], Routine::Memory),
    (&["_int_free"], Routine::Memory),
    (&["free"], Routine::Memory),
    (&["mem", "_avx"], Routine::Memory),
    (&["memcpy"], Routine::Memory),
    (&["memmove"], Routine::Memory),
    (&["memset"], Routine::Memory),
    (&["bench::"], Routine::Other),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_decides() {
        for (function, routine) in [
            ("signalbox_gist::wire::message::Message::parse", Some(Routine::Parse)),
            ("signalbox_rsvp::wire::writer::Writer::hop", Some(Routine::Compose)),
            ("<signalbox_core::index::Index as Default>::find", Some(Routine::Find)),
            ("signalbox_rsvp::engine::path::Rsvp::path", Some(Routine::Machine)),
            ("signalbox_resources::admission::Resources::admit", Some(Routine::Admission)),
            ("_int_malloc", Some(Routine::Memory)),
            ("core::slice::sort::merge", None),
        ] {
            assert_eq!(Routine::of(function), routine, "{function}");
        }
    }
}
