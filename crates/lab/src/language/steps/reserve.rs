//! The step `reserve`: a reservation of a user.

use serde::Deserialize;
use signalbox_units::{BitRate, Span};
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};
use crate::protocols;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reserve {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    pub(crate) port: u16,
    pub(crate) rate: BitRate,
    #[serde(default = "qos_nslp")]
    pub(crate) signaling: Spanned<String>,
    #[serde(default)]
    pub(crate) options: Vec<String>,
    #[serde(default = "budget")]
    pub(crate) within: Span,
    #[serde(default = "one")]
    pub(crate) flows: Spanned<u32>,
    #[serde(default)]
    pub(crate) fails: bool,
}

/// The protocol that reserves where the file names none.
pub(crate) const QOS: &str = "qos";

fn qos_nslp() -> Spanned<String> {
    Spanned::new(0..0, QOS.to_owned())
}

const fn budget() -> Span {
    Span::millis(15_000)
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

impl StepKeys for Reserve {
    const NAME: &'static str = "reserve";
    const MEANING: &'static str = "Runs `signalbox reserve --json` for UDP. The next step begins when the request is answered; the reservation is held until a `stop` of its id or the end.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "where the command runs"),
        key("to", "node", "the other end of the flow"),
        key("port", "port", "the destination port of the flow"),
        key("rate", "rate", "what is reserved"),
        key("signaling", "protocol", "the protocol that reserves: qos, rsvp, boomerang, casp").or("\"qos\""),
        key("options", "list of texts", "more arguments of the command").or("[]"),
        key("within", "time", "the next step begins after the answer, at the latest then").or("\"15s\""),
        key("flows", "number", "one command for this number of flows to ports that follow each other")
            .or("1"),
        key("fails", "boolean", "its first answer is to be another one than `granted`, or to be missing")
            .or("false"),
    ];
    const MOMENT_IS_END: bool = true;

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        let reserving = || protocols::all().filter(|protocol| protocol.reserves());
        let Some(protocol) = reserving().find(|protocol| protocol.name() == self.signaling.as_ref()) else {
            let known: Vec<_> = reserving().map(|protocol| protocol.name()).collect();
            let what = format!(
                "`{}` reserves nothing, expected one of {}",
                self.signaling.as_ref(),
                known.join(", ")
            );
            return Err(Mistake::new(self.signaling.span(), what));
        };
        scope.runs(protocol, &self.from)?;
        scope.node(&self.to)?;
        scope.rate(self.rate, self.from.span())?;
        scope.ports(self.port, &self.flows)
    }
}
