//! The steps of a workload: what happens in a scenario, one after the other.
//!
//! A step is one type in a file of its own that implements [`Step`], and one line in [`STEPS`].

pub(crate) mod cost;
mod daemon;
mod expect;
mod flood;
mod inject;
mod link;
pub(crate) mod ping;
pub(crate) mod program;
pub(crate) mod queries;
pub(crate) mod reserve;
mod routing;
mod stop;
pub(crate) mod traffic;
mod wait;

use std::fmt::Debug;

use anyhow::{Result, bail};
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::expectation::Expectation;
use crate::kinds::{self, Key, Kind};
use crate::run::Run;
use crate::scenario::{Element, Mistake, Scope};
use crate::simulation::Simulation;

/// All kinds of steps, in the order in which they are listed.
pub(crate) const STEPS: &[Kind<dyn AnyStep>] = &[
    kind::<program::RunProgram>(),
    kind::<reserve::Reserve>(),
    kind::<ping::Ping>(),
    kind::<traffic::Traffic>(),
    kind::<flood::Flood>(),
    kind::<inject::Inject>(),
    kind::<link::Link>(),
    kind::<daemon::Daemon>(),
    kind::<routing::Routing>(),
    kind::<wait::Wait>(),
    kind::<expect::Expect>(),
    kind::<stop::Stop>(),
];

/// A kind of step. The fields of the type are the keys in the file, without `id`.
pub(crate) trait Step: Debug + DeserializeOwned + 'static {
    /// The key of the file that names the kind.
    const NAME: &'static str;
    /// What the step does, in a sentence for `signalbox lab steps`.
    const MEANING: &'static str;
    const KEYS: &'static [Key];

    /// The moment of the step, for `after`, is its end: it waits for something.
    const MOMENT_IS_END: bool = false;

    /// Reads the keys.
    ///
    /// # Errors
    /// The first mistake.
    fn parse(element: Element<'_>) -> Result<Self, Mistake> {
        kinds::parse(element)
    }

    /// Checks what the types of the keys cannot: names that exist, numbers in range.
    ///
    /// # Errors
    /// The first mistake.
    fn validate(&self, scope: &Scope<'_>, id: Option<&Spanned<String>>) -> Result<(), Mistake>;

    /// Whether the moment of this step is its end.
    fn moment_is_end(&self) -> bool {
        Self::MOMENT_IS_END
    }

    /// Does the step. What is observed goes into the run's evidence, by the `id` of the step.
    ///
    /// # Errors
    /// What keeps the run from going on. What a check can judge is no error.
    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()>;

    /// Returns what the step looks at, which may have to stay so until the next step of another kind.
    fn expectation(&self) -> Option<&Expectation> {
        None
    }

    /// Returns why the simulator cannot take the step; `None` if it can.
    fn unsimulated(&self) -> Option<String> {
        Some("it needs a kernel or real programs".to_owned())
    }

    /// Does the step in the simulator, if it can be done there.
    ///
    /// # Errors
    /// What keeps the run from going on.
    fn simulate(&self, _run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        bail!("{}", self.unsimulated().unwrap_or_default())
    }
}

/// A step of any kind.
pub(crate) trait AnyStep: Debug {
    fn validate(&self, scope: &Scope<'_>, id: Option<&Spanned<String>>) -> Result<(), Mistake>;
    fn moment_is_end(&self) -> bool;
    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()>;
    fn expectation(&self) -> Option<&Expectation>;
    fn unsimulated(&self) -> Option<String>;
    fn simulate(&self, run: &mut Simulation<'_>, id: &str) -> Result<()>;
}

impl<S: Step> AnyStep for S {
    fn validate(&self, scope: &Scope<'_>, id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        Step::validate(self, scope, id)
    }

    fn moment_is_end(&self) -> bool {
        Step::moment_is_end(self)
    }

    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()> {
        Step::run(self, run, id)
    }

    fn expectation(&self) -> Option<&Expectation> {
        Step::expectation(self)
    }

    fn unsimulated(&self) -> Option<String> {
        Step::unsimulated(self)
    }

    fn simulate(&self, run: &mut Simulation<'_>, id: &str) -> Result<()> {
        Step::simulate(self, run, id)
    }
}

const fn kind<S: Step>() -> Kind<dyn AnyStep> {
    Kind {
        name: S::NAME,
        meaning: S::MEANING,
        keys: S::KEYS,
        parse: |element| Ok(Box::new(S::parse(element)?)),
    }
}
