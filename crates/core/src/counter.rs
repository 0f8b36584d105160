//! Counters of the engines: plain structs that the daemon exports.

use core::fmt;

use crate::metrics::{Family, PREFIX, Subsystem};

/// A counter of a struct of counters, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Name of the field.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// The family that it shares with other counters; `None`: it has a family of its own.
    pub family: Option<&'static Family>,
    /// Labels within the family, without `protocol`.
    pub labels: &'static [(&'static str, &'static str)],
    /// The count since the start.
    pub value: u64,
}

/// A counter of a part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The part.
    pub subsystem: Subsystem,
    /// The counter.
    pub count: Count,
}

impl Counter {
    /// Makes counters of this part.
    pub fn of(subsystem: Subsystem) -> impl Fn(Count) -> Self + Copy {
        move |count| Self { subsystem, count }
    }

    /// The part and the field, such as `gist.malformed`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.subsystem.name, self.count.name)
    }

    /// Name of its family, without prefix and `_total`.
    #[must_use]
    pub fn family_name(&self) -> String {
        match self.count.family {
            Some(family) => family.name.to_owned(),
            None => format!("{}_{}", self.subsystem.name, self.count.name),
        }
    }

    /// Its labels, in the order of the family.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let protocol = self.count.family.is_some_and(|family| family.labels.contains(&"protocol"));
        let protocol = protocol.then_some(("protocol", self.subsystem.protocol));
        protocol.into_iter().chain(self.count.labels.iter().copied())
    }
}

/// The name and labels of the metric, such as `signalbox_messages_sent_total{protocol="gist",type="query"}`.
impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_total", self.family_name())?;
        // Values are of closed sets that need no escapes.
        for (at, (label, value)) in self.labels().enumerate() {
            write!(f, "{}{label}=\"{value}\"", if at == 0 { "{" } else { "," })?;
        }
        if self.labels().next().is_some() { f.write_str("}") } else { Ok(()) }
    }
}

/// Declares a struct of `u64` counters. The documentation of each becomes its help text, so that the code,
/// the metrics and their documentation cannot disagree.
///
/// A counter is a metric family of its own, named after its part of the program and its field, unless `=>` gives the
/// [family](crate::metrics) that it shares with others, and its labels there.
///
/// ```
/// use signalbox_core::metrics::MESSAGES_DROPPED;
///
/// signalbox_core::counters! {
///     /// Counters of a port of entry.
///     pub struct Counters {
///         /// Packets received.
///         entered: u64,
///         /// Packets that are too short.
///         too_short: u64 => MESSAGES_DROPPED { reason: "too_short" },
///     }
/// }
/// let counters = Counters { too_short: 2, ..Counters::default() };
/// let all: Vec<_> = counters.iter().collect();
/// assert_eq!(all.len(), 2);
/// assert_eq!((all[1].name, all[1].value), ("too_short", 2));
/// assert_eq!(all[1].family, Some(&MESSAGES_DROPPED));
/// assert_eq!(all[1].labels, [("reason", "too_short")]);
/// ```
#[macro_export]
macro_rules! counters {
    (@family) => { None };
    (@family $family:ident) => { Some(&$family) };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $counter:ident: u64 $(=> $family:ident $({ $($label:ident: $value:literal),+ })?)?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        $vis struct $name {
            $( $(#[doc = $help])+ pub $counter: u64, )*
        }

        impl $name {
            /// All counters, as declared.
            $vis fn iter(&self) -> impl Iterator<Item = $crate::counter::Count> + use<> {
                [$( $crate::counter::Count {
                    name: stringify!($counter),
                    help: concat!($($help),+).trim_ascii(),
                    family: $crate::counters!(@family $($family)?),
                    labels: &[$($($((stringify!($label), $value)),+)?)?],
                    value: self.$counter,
                } ),*].into_iter()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{MESSAGES_SENT, RETRANSMISSIONS};

    counters! {
        /// Counters of a test.
        pub(crate) struct Counters {
            /// One line
            /// and another.
            lines: u64,
            /// Queries sent.
            queries_sent: u64 => MESSAGES_SENT { type: "query" },
            /// Queries sent again.
            repeated: u64 => RETRANSMISSIONS,
        }
    }

    fn counters(subsystem: Subsystem) -> Vec<Counter> {
        Counters { lines: 3, ..Counters::default() }.iter().map(Counter::of(subsystem)).collect()
    }

    #[test]
    fn help_of_several_lines_is_one_text() {
        let lines = counters(Subsystem::shared("toy"))[0].count;
        assert_eq!((lines.name, lines.help, lines.value), ("lines", "One line and another.", 3));
    }

    #[test]
    fn a_counter_without_a_shared_family_has_its_own() {
        let lines = counters(Subsystem::protocol("toy"))[0];
        assert_eq!((lines.family_name().as_str(), lines.labels().count()), ("toy_lines", 0));
        assert_eq!(lines.path(), "toy.lines");
    }

    #[test]
    fn the_subsystem_gives_the_label_of_the_protocol() {
        let all = counters(Subsystem::part("toy_wire", "toy"));
        let labels: Vec<Vec<_>> = all.iter().map(|counter| counter.labels().collect()).collect();
        assert_eq!(labels[1], [("protocol", "toy"), ("type", "query")]);
        assert_eq!(labels[2], [("protocol", "toy")]);
        assert_eq!(all[0].to_string(), "signalbox_toy_wire_lines_total");
        assert_eq!(all[1].to_string(), r#"signalbox_messages_sent_total{protocol="toy",type="query"}"#);
    }
}
