//! The checks of a scenario: what has to hold.
//!
//! A check is one type in a file of its own that implements [`CheckKeys`], and one line in the table at the end of this file.
//! How it is judged is in `judge`.

pub(crate) mod clean;
pub(crate) mod counter;
pub(crate) mod dissected;
pub(crate) mod forwarding;
pub(crate) mod kernel;
pub(crate) mod load;
pub(crate) mod messages;
pub(crate) mod output;
pub(crate) mod path;
pub(crate) mod sequence;
pub(crate) mod show;
pub(crate) mod traffic;

use std::fmt::Debug;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::expectation::Expectation;
use super::kinds::{self, Key, Kind};
use super::{Element, Mistake, Scope};

/// Something that a check compares, to be read when the step `at` has ended.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// What the kernel of a node holds; after `holds` it is read again, and what it holds then counts.
    Kernel { at: String, node: String, holds: Duration },
    /// The counters of a node's daemon, in the same way.
    Counters { at: String, node: String, holds: Duration },
}

impl Wanted {
    /// Returns the `id` of the step, and the node.
    pub(crate) fn place(&self) -> (&str, &str) {
        match self {
            Self::Kernel { at, node, .. } | Self::Counters { at, node, .. } => (at, node),
        }
    }

    /// Returns the time after which it is read again.
    pub(crate) const fn holds(&self) -> Duration {
        match self {
            Self::Kernel { holds, .. } | Self::Counters { holds, .. } => *holds,
        }
    }
}

/// A kind of check. The fields of the type are the keys in the file, without `expect`.
pub(crate) trait CheckKeys: Debug + DeserializeOwned {
    /// The key of the file that names the kind.
    const NAME: &'static str;
    /// When the check holds, in a sentence for `signalbox lab checks`.
    const MEANING: &'static str;
    const KEYS: &'static [Key];

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
    fn validate(&self, _scope: &Scope<'_>) -> Result<(), Mistake> {
        Ok(())
    }

    /// Returns what the check compares, to be read in the course of the run.
    fn needs(&self) -> Vec<Wanted> {
        Vec::new()
    }

    /// Returns what the daemons have to show after the last step, if the check judges that.
    fn expectation(&self) -> Option<&Expectation> {
        None
    }

    /// Returns how long packets are captured after the last step.
    fn listens(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns how long the kernels have to stay as the daemons left them.
    fn rests(&self) -> Duration {
        Duration::ZERO
    }
}

/// Makes the table of the kinds of checks, and the type of a check of any kind.
macro_rules! checks {
    ($($kind:ident in $module:ident),+ $(,)?) => {
        /// A check of any kind.
        #[derive(Debug)]
        pub(crate) enum Check {
            $($kind(Box<$module::$kind>)),+
        }

        /// All kinds of checks, in the order in which they are listed.
        pub(crate) const CHECKS: &[Kind<Check>] = &[$(Kind {
            name: <$module::$kind as CheckKeys>::NAME,
            meaning: <$module::$kind as CheckKeys>::MEANING,
            keys: <$module::$kind as CheckKeys>::KEYS,
            parse: |element| Ok(Check::$kind(Box::new(CheckKeys::parse(element)?))),
        }),+];

        impl Check {
            /// Checks what the types of the keys cannot.
            pub(super) fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
                match self { $(Self::$kind(keys) => keys.validate(scope)),+ }
            }

            /// Returns what the check compares, to be read in the course of the run.
            pub(crate) fn needs(&self) -> Vec<Wanted> {
                match self { $(Self::$kind(keys) => keys.needs()),+ }
            }

            /// Returns what the daemons have to show after the last step, if the check judges that.
            pub(crate) fn expectation(&self) -> Option<&Expectation> {
                match self { $(Self::$kind(keys) => keys.expectation()),+ }
            }

            /// Returns how long packets are captured after the last step.
            pub(crate) fn listens(&self) -> Duration {
                match self { $(Self::$kind(keys) => keys.listens()),+ }
            }

            /// Returns how long the kernels have to stay as the daemons left them.
            pub(crate) fn rests(&self) -> Duration {
                match self { $(Self::$kind(keys) => keys.rests()),+ }
            }
        }
    };
}

checks! {
    Show in show,
    Messages in messages,
    Sequence in sequence,
    Path in path,
    Output in output,
    Traffic in traffic,
    Kernel in kernel,
    Counter in counter,
    Load in load,
    Forwarding in forwarding,
    Dissected in dissected,
    Clean in clean,
}
