//! The step `ping`: Ping signals.

use serde::Deserialize;
use signalbox_node::ping::Format;
use signalbox_units::Span;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};
use crate::protocols;

/// Each session is a process.
const SESSIONS_MAX: u32 = 1_000;

/// The most padding that Ping has.
const SIZE_MAX: u16 = 16_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ping {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    #[serde(default = "three")]
    pub(crate) count: u32,
    #[serde(default = "interval")]
    pub(crate) interval: Span,
    #[serde(default = "one")]
    pub(crate) sessions: Spanned<u32>,
    #[serde(default = "no_time")]
    pub(crate) spread: Span,
    #[serde(default = "budget")]
    pub(crate) within: Span,
    #[serde(default = "no_octets")]
    pub(crate) size: Spanned<u16>,
    #[serde(default)]
    pub(crate) format: Format,
    #[serde(default)]
    pub(crate) signaling: Signaling,
    #[serde(default)]
    pub(crate) background: bool,
    #[serde(default)]
    pub(crate) fails: bool,
}

/// The protocol that carries the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Signaling {
    #[default]
    Gist,
    Casp,
}

const fn three() -> u32 {
    3
}

const fn interval() -> Span {
    Span::millis(200)
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

const fn no_time() -> Span {
    Span::millis(0)
}

const fn budget() -> Span {
    Span::millis(30_000)
}

fn no_octets() -> Spanned<u16> {
    Spanned::new(0..0, 0)
}

impl StepKeys for Ping {
    const NAME: &'static str = "ping";
    const MEANING: &'static str =
        "Runs `signalbox ping` from one node to another, in one or many sessions at once.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the node that signals"),
        key("to", "node", "the end of the path"),
        key("count", "number", "probes of each session").or("3"),
        key("interval", "time", "between two probes").or("\"200ms\""),
        key("sessions", "number", "1 to 1000").or("1"),
        key("spread", "time", "the sessions start at random within this time").or("\"0ms\""),
        key("within", "time", "all sessions have to end within this time").or("\"30s\""),
        key("size", "octets", "padding of each probe, a multiple of 4 up to 16000").or("0"),
        key("format", "`signalbox` or `nsis`", "octets of the probes over GIST").or("\"signalbox\""),
        key("signaling", "`gist` or `casp`", "the protocol that carries the probes").or("\"gist\""),
        key(
            "background",
            "boolean",
            "the next step begins once each session has had a reply; a `wait` or `stop` of its id waits for the rest",
        )
        .or("false"),
        key("fails", "boolean", "a session is to end without a reply").or("false"),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        let name = if self.signaling == Signaling::Casp { "casp" } else { "ping" };
        match protocols::all().find(|protocol| protocol.name() == name) {
            Some(protocol) if !self.fails => scope.runs(protocol, &self.from)?,
            _ => scope.daemon(&self.from)?,
        }
        scope.node(&self.to)?;
        // The last probe leaves after all pauses between them.
        let last = self.interval.0.saturating_mul(self.count.saturating_sub(1)).saturating_add(self.spread.0);
        if last > self.within.0 && !self.background && !self.fails {
            let what = format!("its probes take {}, more than `within` ({})", Span(last), self.within);
            return Err(Mistake::new(self.from.span(), what));
        }
        if *self.size.as_ref() > SIZE_MAX || !self.size.as_ref().is_multiple_of(4) {
            let what = format!("`size` is a multiple of 4 between 0 and {SIZE_MAX}");
            return Err(Mistake::new(self.size.span(), what));
        }
        if self.format == Format::Nsis && *self.size.as_ref() > 0 {
            return Err(Mistake::new(self.size.span(), "the format `nsis` has no padding: leave `size` out"));
        }
        if self.signaling == Signaling::Casp && (*self.size.as_ref() > 0 || self.format != Format::default())
        {
            let what = "probes of CASP have one format and no padding: leave `size` and `format` out";
            return Err(Mistake::new(self.from.span(), what));
        }
        if (1..=SESSIONS_MAX).contains(self.sessions.as_ref()) {
            return Ok(());
        }
        Err(Mistake::new(self.sessions.span(), format!("`sessions` lies between 1 and {SESSIONS_MAX}")))
    }
}
