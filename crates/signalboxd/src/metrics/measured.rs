//! What the daemon measures with its own clock.

use std::time::Duration;

use signalbox_core::metrics::Family;

use super::Measured;
use super::histogram::Histogram;

const SETUP: Family = Family::histogram(
    "setup_seconds",
    &["protocol"],
    "Time from the request of a client of this daemon to the confirmation that its reservation stands.",
)
.of_unit("seconds");
const EVENT_LOOP: Family = Family::histogram(
    "event_loop_seconds",
    &[],
    "Time that one turn of the event loop took, waiting not included.",
)
.of_unit("seconds");
const PING_RTT: Family = Family::histogram(
    "ping_rtt_seconds",
    &[],
    "Round-trip times of the Ping application's requests of this node.",
)
.of_unit("seconds");

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Round trips: from one link to the retransmissions of a lossy path.
const NETWORK: &[Duration] = &[
    us(250),
    us(500),
    ms(1),
    us(2500),
    ms(5),
    ms(10),
    ms(25),
    ms(50),
    ms(100),
    ms(250),
    ms(500),
    ms(1000),
    ms(2500),
    ms(5000),
    ms(10_000),
];
/// Turns: a turn of 10 ms already delays the messages that follow.
const TURNS: &[Duration] = &[
    us(10),
    us(25),
    us(50),
    us(100),
    us(250),
    us(500),
    ms(1),
    us(2500),
    ms(5),
    ms(10),
    ms(50),
    ms(100),
    ms(500),
];

/// What an event says about durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// What the client asked for last stands now.
    SetUp,
    /// A round trip of the Ping application.
    RoundTrip(Duration),
}

/// All histograms.
#[derive(Debug, Clone)]
pub(crate) struct Measurements {
    event_loop: Histogram,
    ping_rtt: Histogram,
    /// By the name of the protocol; few.
    setup: Vec<(&'static str, Histogram)>,
}

impl Default for Measurements {
    fn default() -> Self {
        let (event_loop, ping_rtt) = (Histogram::new(TURNS), Histogram::new(NETWORK));
        Self { event_loop, ping_rtt, setup: Vec::new() }
    }
}

impl Measurements {
    /// A turn of the event loop took this long.
    pub(crate) fn turn(&mut self, took: Duration) {
        self.event_loop.observe(took);
    }

    /// A round trip of the Ping application took this long.
    pub(crate) fn round_trip(&mut self, took: Duration) {
        self.ping_rtt.observe(took);
    }

    /// A reservation of this protocol was set up in this time.
    pub(crate) fn set_up(&mut self, protocol: &'static str, took: Duration) {
        let at = self.setup.iter().position(|(of, _)| *of == protocol).unwrap_or_else(|| {
            self.setup.push((protocol, Histogram::new(NETWORK)));
            self.setup.len() - 1
        });
        if let Some((_, histogram)) = self.setup.get_mut(at) {
            histogram.observe(took);
        }
    }

    /// All histograms, with their names.
    pub(crate) fn all(&self) -> Vec<Measured> {
        let named = |family, histogram: &Histogram| Measured {
            family,
            labels: Vec::new(),
            histogram: histogram.clone(),
        };
        let setup = self
            .setup
            .iter()
            .map(|(protocol, histogram)| Measured { labels: vec![*protocol], ..named(&SETUP, histogram) });
        [named(&EVENT_LOOP, &self.event_loop), named(&PING_RTT, &self.ping_rtt)]
            .into_iter()
            .chain(setup)
            .collect()
    }
}
