//! Random choices, and the number of draws.

use signalbox_core::Random;
use signalbox_sim::seed_from_environment;

/// The choices of one draw.
pub(crate) struct Draw(Random);

impl Draw {
    /// That of a seed, apart from those of other tests with the same seed.
    pub(crate) fn new(seed: u64, test: u8) -> Self {
        let mut octets = [test; 32];
        octets[..8].copy_from_slice(&seed.to_le_bytes());
        Self(Random::new(octets))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.range(0..limit)
    }

    /// Whether one of a hundred chances falls within these.
    pub(crate) fn percent(&mut self, chances: u64) -> bool {
        self.below(100) < chances
    }

    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()].clone()
    }
}

/// Runs the draws of a test: as many as usual, or `SIGNALBOX_SEEDS` in the environment; with `SIGNALBOX_SEED` this one alone.
/// A draw that fails prints how it is run again. The result is the number of draws, if there were as many as usual.
pub(crate) fn draws(usual: u64, mut run: impl FnMut(u64) -> Result<(), String>) -> Option<u64> {
    let mut checked = |seed: u64| {
        if let Err(fault) = run(seed) {
            panic!("{fault}\nrun again with SIGNALBOX_SEED={seed}");
        }
    };
    if std::env::var_os("SIGNALBOX_SEED").is_some() {
        checked(seed_from_environment(0));
        return None;
    }
    let seeds = std::env::var("SIGNALBOX_SEEDS").ok().map_or(usual, |text| text.parse().unwrap());
    (0..seeds).for_each(checked);
    (seeds >= usual).then_some(seeds)
}
