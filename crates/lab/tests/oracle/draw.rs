//! Random choices, and the number of draws.

use std::ops::Range;
use std::panic::resume_unwind;

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

/// What a test counts, to show that it judged something.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) dropped: u64,
    /// Packets that passed two firewalls.
    pub(crate) both: u64,
    /// Those that passed one whose daemon had ended before.
    pub(crate) later: u64,
    /// Those that passed by what a crash had left.
    pub(crate) left: u64,
}

/// The seeds to draw from: as many as usual, or `SIGNALBOX_SEEDS` in the environment, a number or two such as 100000..200000.
fn seeds(usual: u64) -> Range<u64> {
    let number = |text: &str| text.parse().unwrap();
    let text = std::env::var("SIGNALBOX_SEEDS").ok();
    text.map_or(0..usual, |text| match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    })
}

/// Runs the draws of a test, by as many threads: those of `seeds`, or with `SIGNALBOX_SEED` this one alone. `start` makes what the draws
/// of one thread share. A draw that fails prints how it is run again, and the others go on without it. The result is what was judged.
pub(crate) fn draws<S>(
    usual: u64,
    threads: usize,
    start: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, u64, &mut Counts) -> Result<(), String> + Sync,
) -> Counts {
    let again = |fault: &str, seed: u64| format!("{fault}\nrun again with SIGNALBOX_SEED={seed}");
    if std::env::var_os("SIGNALBOX_SEED").is_some() {
        let seed = seed_from_environment(0);
        if let Err(fault) = run(&mut start(), seed, &mut Counts::default()) {
            panic!("{}", again(&fault, seed));
        }
        return Counts::default();
    }
    let seeds = seeds(usual);
    let part = |first: u64| {
        let (mut shared, mut counts, mut failed) = (start(), Counts::default(), Vec::new());
        for seed in (seeds.start + first..seeds.end).step_by(threads) {
            if let Err(fault) = run(&mut shared, seed, &mut counts) {
                eprintln!("{}", again(if failed.is_empty() { &fault } else { "another fault" }, seed));
                failed.push(seed);
                // What is left of a draw that fails would fail the next.
                drop(shared);
                shared = start();
            }
        }
        (counts, failed)
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let part = &part;
        let all: Vec<_> = (0..seeds.end - seeds.start)
            .take(threads)
            .map(|first| scope.spawn(move || part(first)))
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap_or_else(|fault| resume_unwind(fault))).collect()
    });
    let (counts, failed): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let all = Counts {
        passed: sum(|one| one.passed),
        dropped: sum(|one| one.dropped),
        both: sum(|one| one.both),
        later: sum(|one| one.later),
        left: sum(|one| one.left),
    };
    let (number, failed) = (seeds.end - seeds.start, failed.concat());
    eprintln!("{number} draws: {all:?}");
    assert!(failed.is_empty(), "{} draws fail, of the seeds {failed:?}", failed.len());
    let Counts { passed, dropped, .. } = all;
    // Draws that let nothing pass, or everything, would judge nothing.
    assert!(number < usual || passed > number && dropped > number);
    all
}

/// As many threads as there are processors.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
