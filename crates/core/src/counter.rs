//! Counters of the engines: plain structs that the daemon exports.

/// Declares a struct of `u64` counters. The documentation of each becomes its help text, so that the code,
/// the metrics and their documentation cannot disagree.
///
/// ```
/// signalbox_core::counters! {
///     /// Counters of a port of entry.
///     pub struct Counters {
///         /// Packets that were received.
///         entered: u64,
///         /// Packets that were refused.
///         refused: u64,
///     }
/// }
/// let counters = Counters { entered: 2, ..Counters::default() };
/// let all: Vec<_> = counters.iter().collect();
/// assert_eq!(all[0], ("entered", "Packets that were received.", 2));
/// assert_eq!(all.len(), 2);
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $( $(#[doc = $help:literal])+ $counter:ident: u64 ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        $vis struct $name {
            $( $(#[doc = $help])+ pub $counter: u64, )*
        }

        impl $name {
            /// Each counter's name, help text and value, as declared.
            $vis fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + use<> {
                [$( (stringify!($counter), concat!($($help),+).trim_ascii(), self.$counter) ),*].into_iter()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    counters! {
        /// Nothing much.
        pub(crate) struct Counters {
            /// One line
            /// and another.
            lines: u64,
        }
    }

    #[test]
    fn help_of_several_lines_is_one_text() {
        let counters = Counters { lines: 3 };
        assert_eq!(counters.iter().next(), Some(("lines", "One line and another.", 3)));
    }
}
