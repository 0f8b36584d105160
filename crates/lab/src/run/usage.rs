//! What daemons use of a processor and of memory, over the whole run and in each span of it that has a name.

use std::time::Duration;

use signalbox_linux::process::{Identity, Usage};

use super::lab::Lab;

/// What daemons used in a span of the run.
#[derive(Debug, Clone)]
pub(crate) struct UsageRun {
    /// The name of a `wait` step; nothing: the whole run.
    pub(crate) of: Option<String>,
    pub(crate) span: Duration,
    pub(crate) daemons: Vec<Used>,
}

/// What one of them used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) node: usize,
    pub(crate) cpu: Duration,
    /// Octets of resident memory at the begin and at the end.
    pub(crate) memory: [u64; 2],
}

/// The daemons at a moment.
#[derive(Debug)]
pub(crate) struct Reading {
    at: Duration,
    daemons: Vec<(usize, Identity, Usage)>,
}

impl Reading {
    /// Reads what the daemons of a lab have used until now, which is some time since 1970.
    pub(crate) fn new(lab: &Lab, at: Duration) -> Self {
        // What has ended meanwhile is left out.
        let usage = |(node, process): (usize, Identity)| Some((node, process, Usage::of(&process).ok()?));
        Self { at, daemons: lab.processes().filter_map(usage).collect() }
    }

    /// Returns what daemons used since an earlier reading, without those that were started meanwhile.
    pub(crate) fn since(&self, earlier: &Self, of: Option<&str>) -> UsageRun {
        let used = |(node, process, now): &(usize, Identity, Usage)| {
            let (.., then) = earlier.daemons.iter().find(|(_, known, _)| known == process)?;
            Some(Used {
                node: *node,
                cpu: now.cpu.saturating_sub(then.cpu),
                memory: [then.memory, now.memory],
            })
        };
        let daemons = self.daemons.iter().filter_map(used).collect();
        UsageRun { of: of.map(str::to_owned), span: self.at.saturating_sub(earlier.at), daemons }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_was_started_again_has_no_sum() {
        let process = |pid| Identity { pid, start: 1 };
        let usage = |ms, memory| Usage { cpu: Duration::from_millis(ms), memory };
        let first = Reading {
            at: Duration::from_secs(5),
            daemons: vec![(0, process(7), usage(10, 4096)), (1, process(8), usage(10, 4096))],
        };
        let then = Reading {
            at: Duration::from_secs(8),
            daemons: vec![(0, process(7), usage(40, 8192)), (1, process(9), usage(20, 4096))],
        };
        let run = then.since(&first, Some("rest"));
        assert_eq!((run.of.as_deref(), run.span), (Some("rest"), Duration::from_secs(3)));
        assert_eq!(run.daemons, [Used { node: 0, cpu: Duration::from_millis(30), memory: [4096, 8192] }]);
    }
}
