//! The seeds of a campaign, which the environment can change, and the tests that share them.

use signalbox_sim::seed_from_environment;

/// Runs the seeds of one of the `parts` tests that share a campaign. `SIGNALBOX_SEEDS` in the environment is the number of
/// seeds instead of `usual`; with `SIGNALBOX_SEED` this seed runs alone. The result is the number of seeds if there were as
/// many as usual, so that what the campaign met can be judged.
pub(crate) fn run_part(part: u64, parts: u64, usual: u64, mut run: impl FnMut(u64)) -> Option<u64> {
    if std::env::var_os("SIGNALBOX_SEED").is_some() {
        let seed = seed_from_environment(0);
        if seed % parts == part {
            run(seed);
        }
        return None;
    }
    let seeds = std::env::var("SIGNALBOX_SEEDS").ok().map_or(usual, |text| text.parse().unwrap());
    (0..seeds).filter(|seed| seed % parts == part).for_each(run);
    (seeds >= usual).then_some(seeds)
}
