//! Pinholes at random: whatever the octets that the real code emits let pass is what an open pinhole allows, translated as it
//! says, and what one denies does not pass.

use std::sync::{Arc, Mutex};

use signalbox_linux::pinhole::{PinholeConfig, Pinholes};
use signalbox_linux::simulated::{self, Shared};

use crate::draw::{Draw, draws, processors};
use crate::holes::{self, EXTERNAL, Open};
use crate::kernel::{Fate, Kernel};

const DRAWS: u64 = 2_000;

/// The real code on a kernel of this test.
pub(crate) fn open(kernel: Kernel) -> (Arc<Mutex<Kernel>>, Pinholes) {
    let kernel = Arc::new(Mutex::new(kernel));
    let pinholes = open_again(&kernel);
    (kernel, pinholes)
}

/// The real code once more, on a kernel that has something of a former process.
pub(crate) fn open_again(kernel: &Arc<Mutex<Kernel>>) -> Pinholes {
    let shared: Shared = kernel.clone();
    simulated::run(&shared, || Pinholes::open(&PinholeConfig::default())).unwrap()
}

#[test]
fn what_passes_is_what_pinholes_allow() {
    draws(
        DRAWS,
        processors(),
        || (),
        |(), seed, counts| {
            let draw = &mut Draw::new(seed, 1);
            let local = EXTERNAL.map(|address| address.parse().unwrap()).to_vec();
            let (kernel, mut pinholes) = open(Kernel::new(local));
            let mut open = Open::default();
            for _ in 0..3 {
                open.change(draw, &mut pinholes);
                let near: Vec<_> = open.holes.values().cloned().collect();
                for number in 0..10 {
                    let (_, packet) = holes::packet(draw, &near, [number; 8]);
                    let fate = kernel.lock().unwrap().forward(&packet);
                    open.judge(&packet, &fate)?;
                    let passed = matches!(fate, Fate::Passed(_));
                    *if passed { &mut counts.passed } else { &mut counts.dropped } += 1;
                }
            }
            Ok(())
        },
    );
}
