//! The steps of a workload: what happens in a scenario, one after the other.
//!
//! A step is one type in a file of its own that implements [`Step`], and one line in [`STEPS`].

mod cost;
mod daemons;
mod join;
mod links;
pub(crate) mod program;
mod queues;
mod show;
pub(crate) mod traffic;
mod udp;
mod wait_for;
mod watch;

use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use cost::{COST, CostRun};
pub(crate) use queues::{QUEUES, QueuesRun};
pub(crate) use udp::UdpRun;

use crate::evidence::Evidence;
use crate::kinds::{self, Key, Kind};
use crate::protocols::{gist, ping, qos, rsvp};
use crate::report::Section;
use crate::run::Run;
use crate::scenario::{Mistake, Scope};

/// All kinds of steps, in the order in which they are listed.
pub(crate) const STEPS: &[StepKind] = &[
    kind::<udp::Udp>(),
    kind::<ping::step::Ping>(),
    kind::<program::RunProgram>(),
    kind::<program::Hear>(),
    kind::<program::End>(),
    kind::<show::Show>(),
    kind::<wait_for::WaitFor>(),
    kind::<watch::Watch>(),
    kind::<gist::flood_step::FloodStep>(),
    kind::<traffic::Traffic>(),
    kind::<qos::reserve::Reserve>(),
    kind::<queues::LookAtQueues>(),
    kind::<cost::Cost>(),
    kind::<join::Join>(),
    kind::<gist::probe_expired::ProbeExpired>(),
    kind::<rsvp::resend::Resend>(),
    kind::<links::SetLoss>(),
    kind::<links::LinkDown>(),
    kind::<links::LinkUp>(),
    kind::<daemons::Stop>(),
    kind::<daemons::Kill>(),
    kind::<daemons::Start>(),
];

/// A kind of step. The fields of the type are the keys in the file, without `step`.
pub(crate) trait Step: Debug + DeserializeOwned + 'static {
    /// The value of `step` in the file.
    const NAME: &'static str;
    /// What the step does, in a sentence for `signalbox lab steps`.
    const MEANING: &'static str;
    const KEYS: &'static [Key];

    /// Checks what the types of the keys cannot: names that exist, numbers in range. Adds the names that the step
    /// gives for later steps and checks.
    ///
    /// # Errors
    /// The first mistake.
    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake>;

    /// Does the step. What is observed goes into the run's evidence.
    ///
    /// # Errors
    /// What keeps the run from going on. What a check can judge is no error.
    fn run(&self, run: &mut Run<'_>) -> Result<()>;

    /// Returns the measurement of all steps of this kind, with its name in the report.
    fn measure(_evidence: &Evidence) -> Option<(&'static str, Value)> {
        None
    }

    /// Returns what the report shows people of all steps of this kind.
    fn report(_evidence: &Evidence) -> Vec<Section> {
        Vec::new()
    }

    /// Returns when something happened that a plot should mark, in the time since 1970, and a label for it.
    fn marks(_evidence: &Evidence) -> Vec<(Duration, String)> {
        Vec::new()
    }
}

/// A step of any kind.
pub(crate) trait AnyStep: Debug {
    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake>;
    fn run(&self, run: &mut Run<'_>) -> Result<()>;
}

impl<S: Step> AnyStep for S {
    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        Step::validate(self, scope)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        Step::run(self, run)
    }
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct StepKind {
    pub(crate) kind: Kind<dyn AnyStep>,
    pub(crate) measure: fn(&Evidence) -> Option<(&'static str, Value)>,
    pub(crate) report: fn(&Evidence) -> Vec<Section>,
    pub(crate) marks: fn(&Evidence) -> Vec<(Duration, String)>,
}

const fn kind<S: Step>() -> StepKind {
    StepKind {
        kind: Kind {
            name: S::NAME,
            meaning: S::MEANING,
            keys: S::KEYS,
            parse: |element| Ok(Box::new(kinds::parse::<S>(element)?)),
        },
        measure: S::measure,
        report: S::report,
        marks: S::marks,
    }
}
