//! Refresh reduction, Hello and integrity between neighbours.
//!
//! A table of `[[rsvp.interface]]` overrides the table of `[rsvp]`, which overrides the engine's defaults. A mechanism
//! whose table is there is on, unless the table switches it off.

use std::time::Duration;

use serde::Deserialize;
use signalbox_node::rsvp::neighbour::{HelloConfig, IntegrityConfig, Interface, Reduction};

use super::some_duration;

/// The tables that `[rsvp]` and `[[rsvp.interface]]` have alike.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Tables {
    pub(super) refresh_reduction: Option<ReductionSection>,
    pub(super) hello: Option<HelloSection>,
    pub(super) integrity: Option<IntegritySection>,
}

impl Tables {
    /// The settings of `base`, overridden by these tables.
    pub(super) fn over(&self, base: Interface) -> Interface {
        Interface {
            reduction: self.refresh_reduction.map_or(base.reduction, |own| own.over(base.reduction)),
            hello: self.hello.map_or(base.hello, |own| own.over(base.hello)),
            integrity: self.integrity.map_or(base.integrity, |own| own.over(base.integrity)),
            trust: base.trust,
        }
    }
}

/// `rsvp.refresh_reduction`
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReductionSection {
    /// Whether it is on.
    enabled: Option<bool>,
    /// Bundles and summary refreshes, and the bit that offers them.
    summaries: Option<bool>,
    /// All nodes behind the interface do it: Paths to groups are summarised.
    everybody: Option<bool>,
    /// Rf, the first retransmission interval (RFC 2961 §6.1).
    #[serde(deserialize_with = "some_duration")]
    first_retransmission: Option<Duration>,
    /// Rl, the most transmissions of a message (RFC 2961 §6.1).
    transmissions: Option<u8>,
    /// Delta, the growth of that interval (RFC 2961 §6.1).
    backoff: Option<f64>,
    #[serde(deserialize_with = "some_duration")]
    ack_delay: Option<Duration>,
    #[serde(deserialize_with = "some_duration")]
    multicast_ack_delay: Option<Duration>,
    #[serde(deserialize_with = "some_duration")]
    bundle_delay: Option<Duration>,
    #[serde(deserialize_with = "some_duration")]
    summary_delay: Option<Duration>,
    /// Summaries of a state until its message is sent again.
    summaries_in_a_row: Option<u8>,
    /// Octets of the largest Bundle or Srefresh.
    max_packet: Option<u16>,
}

impl ReductionSection {
    fn over(&self, base: Reduction) -> Reduction {
        let reliable = self.enabled.unwrap_or(true);
        Reduction {
            reliable,
            summary: reliable && self.summaries.unwrap_or(base.summary || !base.reliable),
            everybody: self.everybody.unwrap_or(base.everybody),
            first: self.first_retransmission.unwrap_or(base.first),
            limit: self.transmissions.unwrap_or(base.limit),
            delta: self.backoff.unwrap_or(base.delta),
            ack_delay: self.ack_delay.unwrap_or(base.ack_delay),
            multicast_ack_delay: self.multicast_ack_delay.unwrap_or(base.multicast_ack_delay),
            bundle_delay: self.bundle_delay.unwrap_or(base.bundle_delay),
            summary_delay: self.summary_delay.unwrap_or(base.summary_delay),
            summaries: self.summaries_in_a_row.unwrap_or(base.summaries),
            largest: self.max_packet.unwrap_or(base.largest),
        }
    }
}

/// `rsvp.hello`
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HelloSection {
    /// Whether requests are sent.
    enabled: Option<bool>,
    /// Between requests.
    #[serde(deserialize_with = "some_duration")]
    interval: Option<Duration>,
    /// Intervals of silence after which a neighbour is lost.
    misses: Option<f64>,
    /// Requests in a row with a wrong instance of ours.
    wrong: Option<u32>,
}

impl HelloSection {
    fn over(&self, base: Option<HelloConfig>) -> Option<HelloConfig> {
        let base = base.unwrap_or_default();
        self.enabled.unwrap_or(true).then(|| HelloConfig {
            interval: self.interval.unwrap_or(base.interval),
            misses: self.misses.unwrap_or(base.misses),
            wrong: self.wrong.unwrap_or(base.wrong),
        })
    }
}

/// `rsvp.integrity`
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IntegritySection {
    /// What is sent is signed.
    sign: Option<bool>,
    /// Messages without a valid signature are discarded.
    require: Option<bool>,
    /// Sequence numbers that may come out of order.
    window: Option<u8>,
    /// Senders have to answer a challenge.
    challenge: Option<bool>,
    /// Messages of senders that do not answer challenges are accepted.
    accept_unchallenged: Option<bool>,
    /// Time until a challenge is repeated.
    #[serde(deserialize_with = "some_duration")]
    challenge_interval: Option<Duration>,
    /// Most challenges that the node answers in a second.
    pub(super) challenge_answers: Option<u32>,
}

impl IntegritySection {
    fn over(&self, base: IntegrityConfig) -> IntegrityConfig {
        IntegrityConfig {
            sending: self.sign.unwrap_or(true),
            receiving: self.require.unwrap_or(true),
            window: self.window.unwrap_or(base.window),
            handshake: self.challenge.unwrap_or(base.handshake),
            without_handshake: self.accept_unchallenged.unwrap_or(base.without_handshake),
            challenge: self.challenge_interval.unwrap_or(base.challenge),
            answers: self.challenge_answers.unwrap_or(base.answers),
        }
    }
}

/// The key of the file, with its table, for a setting of the engine.
pub(super) fn ours(field: &str) -> Option<&'static str> {
    Some(match field {
        "reduction.first" => "refresh_reduction.first_retransmission",
        "reduction.limit" => "refresh_reduction.transmissions",
        "reduction.delta" => "refresh_reduction.backoff",
        "reduction.ack_delay" => "refresh_reduction.ack_delay",
        "reduction.multicast_ack_delay" => "refresh_reduction.multicast_ack_delay",
        "reduction.bundle_delay" => "refresh_reduction.bundle_delay",
        "reduction.summary_delay" => "refresh_reduction.summary_delay",
        "reduction.largest" => "refresh_reduction.max_packet",
        "hello.interval" => "hello.interval",
        "hello.misses" => "hello.misses",
        "hello.wrong" => "hello.wrong",
        "integrity.window" => "integrity.window",
        "integrity.challenge" => "integrity.challenge_interval",
        "integrity.answers" => "integrity.challenge_answers",
        _ => return None,
    })
}
