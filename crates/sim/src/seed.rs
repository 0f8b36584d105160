//! Seeds: all randomness of a run follows from one number.

use signalbox_core::Random;

/// The seed in `SIGNALBOX_SEED` (decimal, or hexadecimal after `0x`), else `default`.
///
/// # Panics
/// It panics if the variable has any other value.
#[must_use]
pub fn seed_from_environment(default: u64) -> u64 {
    let Ok(text) = std::env::var("SIGNALBOX_SEED") else { return default };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    // A test that ran with another seed without notice would mislead its user.
    parsed.unwrap_or_else(|error| panic!("SIGNALBOX_SEED={text:?}: {error}"))
}

/// Purpose of a random generator of the simulation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// Engine of a node, by node number and incarnation.
    Engine = 1,
    /// Direction of a link, by link number and sending end.
    Link = 2,
    /// Helpers that build topologies.
    Topology = 3,
    /// Streams.
    Stream = 4,
}

/// The generator of `seed` for one purpose. Generators are independent of each other.
pub(crate) fn stream(seed: u64, purpose: Purpose, first: u32, second: u32) -> Random {
    let mut octets = [0; 32];
    octets[..8].copy_from_slice(&seed.to_le_bytes());
    octets[8] = purpose as u8;
    octets[12..16].copy_from_slice(&first.to_le_bytes());
    octets[16..20].copy_from_slice(&second.to_le_bytes());
    Random::new(octets)
}
