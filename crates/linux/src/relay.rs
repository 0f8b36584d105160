//! A wire with delay and loss, for kernels without netem: the relay takes the frames that come in by one interface,
//! holds them, and sends them by another, in both directions.
//!
//! A link `a0 – b0` with delay becomes `a0 – x` and `y – b0` with `x` and `y` in a namespace of their own and a
//! relay between them. Checksum offload must be off at `a0` and `b0` ([`crate::topology::disable_offload`]). Otherwise
//! the relay forwards frames whose checksums are not filled in.

use std::collections::VecDeque;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::capture::{Capture, CaptureConfig};
use crate::io::Waker;
use crate::netns::Namespace;
use crate::sys;

/// Number of frames held in each direction; more are dropped, as a full wire would drop them.
const HELD: usize = 100_000;

/// The properties of the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelayConfig {
    /// Time for which each frame is held, in each direction.
    pub delay: Duration,
    /// Share of IP frames that are lost in each direction, 0–100.
    pub loss_percent: f64,
    /// Seed of the choice of lost frames: the same seed loses the same frames of the same sequence.
    pub seed: u64,
}

signalbox_core::counters! {
    /// The counters of a relay, both directions together.
    pub struct RelayCounters {
        /// Frames passed on.
        passed: u64,
        /// Frames lost on purpose.
        lost: u64,
        /// Frames dropped because too many were held or the other interface refused them.
        dropped: u64,
    }
}

/// A running relay; it ends when it is dropped.
#[derive(Debug)]
pub struct Relay {
    thread: Option<JoinHandle<RelayCounters>>,
    waker: Waker,
}

impl Relay {
    /// Joins two interfaces of `namespace`, which have no addresses, by a wire with the properties in `config`.
    ///
    /// # Errors
    /// CAP_NET_RAW is missing, or there is no such interface.
    pub fn start(namespace: &Namespace, a: &str, b: &str, config: RelayConfig) -> io::Result<Self> {
        let inward = CaptureConfig { outgoing: false, ..CaptureConfig::default() };
        let ends = [Capture::open(namespace, a, inward)?, Capture::open(namespace, b, inward)?];
        let waker = Waker::new()?;
        let stop = waker.clone();
        let thread = std::thread::Builder::new()
            .name(format!("relay {a}-{b}"))
            .spawn(move || Wire::new(ends, config).run(&stop))?;
        Ok(Self { thread: Some(thread), waker })
    }

    /// Ends the relay and returns its counters. Frames that are still held are lost.
    #[must_use]
    pub fn stop(mut self) -> RelayCounters {
        self.end()
    }

    fn end(&mut self) -> RelayCounters {
        self.waker.wake();
        // A relay that panicked has no counters; its panic was printed.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}

struct Wire {
    ends: [Capture; 2],
    /// The frames held for each end, in order of time.
    held: [VecDeque<(Instant, Vec<u8>)>; 2],
    config: RelayConfig,
    dice: u64,
    counters: RelayCounters,
}

impl Wire {
    fn new(ends: [Capture; 2], config: RelayConfig) -> Self {
        let held = [VecDeque::new(), VecDeque::new()];
        Self { ends, held, config, dice: config.seed, counters: RelayCounters::default() }
    }

    fn run(mut self, stop: &Waker) -> RelayCounters {
        loop {
            let next = self.held.iter().filter_map(|held| held.front()).map(|(due, _)| *due).min();
            let timeout = next.map(|due| due.saturating_duration_since(Instant::now()));
            let [a, b] = self.ends.each_ref().map(Capture::fd);
            let mut fds = [a, b, stop.fd()].map(|fd| sys::poll_fd(fd, libc::POLLIN));
            if sys::poll(&mut fds, timeout).is_err() || fds[2].revents != 0 {
                return self.counters;
            }
            for from in 0..2 {
                self.take_in(from);
            }
            for to in 0..2 {
                self.send_due(to);
            }
        }
    }

    fn take_in(&mut self, from: usize) {
        let Self { ends, held, config, dice, counters } = self;
        let held = &mut held[1 - from];
        let due = Instant::now() + config.delay;
        // An error concerns the present state of this end only; later reads are tried all the same.
        let _ = ends[from].read(Duration::ZERO, |frame| {
            if is_lossy(frame.octets) && share(dice) < config.loss_percent {
                counters.lost += 1;
            } else if held.len() == HELD {
                counters.dropped += 1;
            } else {
                held.push_back((due, frame.octets.to_vec()));
            }
        });
    }

    fn send_due(&mut self, to: usize) {
        let now = Instant::now();
        while self.held[to].front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, frame)) = self.held[to].pop_front() else { return };
            match self.ends[to].send(&frame) {
                Ok(()) => self.counters.passed += 1,
                Err(_) => self.counters.dropped += 1,
            }
        }
    }
}

/// Whether the frame is IP, but not neighbor discovery: the loss of neighbor discovery would delay everything by
/// seconds.
fn is_lossy(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => true,
        Some([0x86, 0xdd]) => {
            let discovery = frame.get(20) == Some(&58) && matches!(frame.get(54), Some(133..=137));
            !discovery
        }
        _ => false,
    }
}

/// The next random number, 0–100 (splitmix64, which is even and repeatable, as required).
fn share(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let bits = (z ^ (z >> 31)) >> 11;
    bits as f64 / (1_u64 << 53) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_are_even_and_repeatable() {
        let lost = |seed: u64| {
            let mut state = seed;
            (0..10_000).filter(|_| share(&mut state) < 20.0).count()
        };
        assert!((1900..2100).contains(&lost(1)), "{}", lost(1));
        assert_eq!(lost(7), lost(7));
    }

    #[test]
    fn only_ip_is_lost_and_no_neighbor_discovery() {
        let frame = |kind: [u8; 2], next: u8, icmp: u8| {
            let mut frame = vec![0; 60];
            frame[12..14].copy_from_slice(&kind);
            (frame[20], frame[54]) = (next, icmp);
            frame
        };
        assert!(is_lossy(&frame([8, 0], 17, 0)) && is_lossy(&frame([0x86, 0xdd], 17, 135)));
        assert!(is_lossy(&frame([0x86, 0xdd], 58, 128)));
        assert!(!is_lossy(&frame([8, 6], 0, 0)) && !is_lossy(&frame([0x86, 0xdd], 58, 135)));
        assert!(!is_lossy(&[]));
    }
}
