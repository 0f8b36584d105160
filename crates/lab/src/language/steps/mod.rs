//! The steps of a workload: what happens in a scenario, one after the other.
//!
//! A step is one type in a file of its own that implements [`StepKeys`], and one line in the table at the end of this file.
//! What it does is in `run::steps`.

pub(crate) mod daemon;
pub(crate) mod expect;
pub(crate) mod flood;
pub(crate) mod inject;
pub(crate) mod link;
pub(crate) mod ping;
pub(crate) mod program;
pub(crate) mod reserve;
pub(crate) mod routing;
pub(crate) mod stop;
pub(crate) mod traffic;
pub(crate) mod wait;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use toml::Spanned;

use super::expectation::Expectation;
use super::kinds::{self, Key, Kind};
use super::{Element, Mistake, Scope};

/// A kind of step. The fields of the type are the keys in the file, without `id`.
pub(crate) trait StepKeys: Debug + DeserializeOwned {
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

    /// Returns what the step looks at, which may have to stay so until the next step of another kind.
    fn expectation(&self) -> Option<&Expectation> {
        None
    }
}

/// Makes the table of the kinds of steps, and the type of a step of any kind.
macro_rules! steps {
    ($($kind:ident in $module:ident),+ $(,)?) => {
        /// A step of any kind.
        #[derive(Debug)]
        pub(crate) enum Step {
            $($kind(Box<$module::$kind>)),+
        }

        /// All kinds of steps, in the order in which they are listed.
        pub(crate) const STEPS: &[Kind<Step>] = &[$(Kind {
            name: <$module::$kind as StepKeys>::NAME,
            meaning: <$module::$kind as StepKeys>::MEANING,
            keys: <$module::$kind as StepKeys>::KEYS,
            parse: |element| Ok(Step::$kind(Box::new(StepKeys::parse(element)?))),
        }),+];

        impl Step {
            /// Checks what the types of the keys cannot.
            pub(super) fn validate(
                &self,
                scope: &Scope<'_>,
                id: Option<&Spanned<String>>,
            ) -> Result<(), Mistake> {
                match self { $(Self::$kind(keys) => keys.validate(scope, id)),+ }
            }

            /// Whether the moment of this step is its end.
            pub(crate) fn moment_is_end(&self) -> bool {
                match self { $(Self::$kind(keys) => keys.moment_is_end()),+ }
            }

            /// Returns what the step looks at.
            pub(crate) fn expectation(&self) -> Option<&Expectation> {
                match self { $(Self::$kind(keys) => keys.expectation()),+ }
            }
        }
    };
}

steps! {
    RunProgram in program,
    Reserve in reserve,
    Ping in ping,
    Traffic in traffic,
    Flood in flood,
    Inject in inject,
    Link in link,
    Daemon in daemon,
    Routing in routing,
    Wait in wait,
    Expect in expect,
    Stop in stop,
}
