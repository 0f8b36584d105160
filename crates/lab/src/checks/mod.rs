//! The checks of a scenario: what has to hold. A check judges packets and kernel state, observed from outside the
//! daemons; some also judge what the commands print.
//!
//! A check is one type in a file of its own that implements [`Check`], and one line in [`CHECKS`].

mod clean_stop;
mod cost;
mod forwarding;
mod gap;
mod kernel;
mod loss;
mod program;
mod queues;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod traffic;

use std::fmt::Debug;

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::evidence::Evidence;
use crate::kinds::{self, Key, Kind};
use crate::observe::capture::Captures;
use crate::protocols::{gist, ping, qos, rsvp};
use crate::report::Section;
use crate::run::Progress;
use crate::scenario::{Mistake, NamedCheck, Scope};

/// All kinds of checks, in the order in which they are listed.
pub(crate) const CHECKS: &[Kind<dyn AnyCheck>] = &[
    kind::<forwarding::Forwarding>(),
    kind::<ping::path::Path>(),
    kind::<gist::handshake::Handshake>(),
    kind::<gist::passes_query::PassesQuery>(),
    kind::<gist::set_up::SetUp>(),
    kind::<program::Program>(),
    kind::<gist::associations::Associations>(),
    kind::<gist::refused::Refused>(),
    kind::<gist::whole::Whole>(),
    kind::<gist::repaired::Repaired>(),
    kind::<gist::flood::Flood>(),
    kind::<traffic::Traffic>(),
    kind::<qos::granted::Granted>(),
    kind::<qos::granted::NotGranted>(),
    kind::<qos::reservations::Reservations>(),
    kind::<queues::Queues>(),
    kind::<cost::Cost>(),
    kind::<kernel::Kernel>(),
    kind::<gap::Gap>(),
    kind::<rsvp::held::Held>(),
    kind::<rsvp::messages::Messages>(),
    kind::<rsvp::repaired::Repaired>(),
    kind::<rsvp::neighbour::Neighbour>(),
    kind::<rsvp::load::Load>(),
    kind::<rsvp::dissected::Dissected>(),
    kind::<loss::Loss>(),
    kind::<gist::state::State>(),
    kind::<gist::silent::Silent>(),
    kind::<gist::no_routing_state::NoRoutingState>(),
    kind::<gist::no_errors::NoErrors>(),
    kind::<clean_stop::CleanStop>(),
];

/// The observation that holds, or the observation that does not.
pub(crate) type Verdict = Result<String, String>;

/// A kind of check. The fields of the type are the keys in the file, without `name` and `kind`.
pub(crate) trait Check: Debug + DeserializeOwned + 'static {
    /// The value of `kind` in the file.
    const NAME: &'static str;
    /// When the check holds, in a sentence for `signalbox lab checks`.
    const MEANING: &'static str;
    const KEYS: &'static [Key];
    /// The check judges captured packets, so that it cannot hold if a capture ran full.
    const READS_CAPTURES: bool = true;

    /// Checks what the types of the keys cannot: names that exist, numbers in range.
    ///
    /// # Errors
    /// The first mistake.
    fn validate(&self, _scope: &Scope<'_>) -> Result<(), Mistake> {
        Ok(())
    }

    /// Collects evidence of its own when the captures have ended.
    fn collect(&self, _captures: &Captures, _evidence: &mut Evidence, _progress: &Progress<'_>) {}

    /// Judges the evidence.
    ///
    /// # Errors
    /// Why the check does not hold.
    fn judge(&self, evidence: &Evidence) -> Verdict;

    /// Returns what the check measured, with the name of the measurement that lists it by the check's name.
    fn measure(&self, _evidence: &Evidence) -> Option<(&'static str, Value)> {
        None
    }

    /// Returns what the report shows people besides the verdict. Sections with the same title become one.
    fn report(&self, _evidence: &Evidence) -> Option<Section> {
        None
    }
}

/// A check of any kind.
pub(crate) trait AnyCheck: Debug {
    fn reads_captures(&self) -> bool;
    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake>;
    fn collect(&self, captures: &Captures, evidence: &mut Evidence, progress: &Progress<'_>);
    fn judge(&self, evidence: &Evidence) -> Verdict;
    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)>;
    fn report(&self, evidence: &Evidence) -> Option<Section>;
}

impl<C: Check> AnyCheck for C {
    fn reads_captures(&self) -> bool {
        C::READS_CAPTURES
    }

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        Check::validate(self, scope)
    }

    fn collect(&self, captures: &Captures, evidence: &mut Evidence, progress: &Progress<'_>) {
        Check::collect(self, captures, evidence, progress);
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        Check::judge(self, evidence)
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        Check::measure(self, evidence)
    }

    fn report(&self, evidence: &Evidence) -> Option<Section> {
        Check::report(self, evidence)
    }
}

const fn kind<C: Check>() -> Kind<dyn AnyCheck> {
    Kind {
        name: C::NAME,
        meaning: C::MEANING,
        keys: C::KEYS,
        parse: |element| Ok(Box::new(kinds::parse::<C>(element)?)),
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) detail: String,
}

/// Judges the evidence by a check.
pub(crate) fn judge(check: &NamedCheck, evidence: &Evidence) -> Outcome {
    let missed: u64 = evidence.trace.links.iter().map(|link| link.missed).sum();
    let verdict = if missed > 0 && check.check.reads_captures() {
        Err(format!("the captures had no room for {missed} frames, so that nothing is certain"))
    } else {
        check.check.judge(evidence)
    };
    let (ok, detail) = match verdict {
        Ok(detail) => (true, detail),
        Err(detail) => (false, detail),
    };
    Outcome { name: check.name.clone(), ok, detail }
}
