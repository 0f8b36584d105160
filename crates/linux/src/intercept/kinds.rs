//! What the rules of the interception use that older kernels lack.

/// What a kernel supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    /// The tables belong to this process (from Linux 5.12 on).
    pub(super) owned: bool,
    /// The kernel compares sources with the interface by which they came in (from Linux 5.19 on).
    pub(super) compares: bool,
}

impl Kinds {
    /// These, and what is left of them on older kernels, in the order in which they are tried. `judges`: there are sources to compare.
    pub(super) fn and_less(self, judges: bool) -> impl Iterator<Item = Self> {
        let all = [(true, true), (true, false), (false, true), (false, false)];
        let all = all.into_iter().map(|(owned, compares)| Self { owned, compares });
        all.filter(move |less| {
            (self.owned || !less.owned)
                && (less.compares == self.compares || judges && self.compares && !less.compares)
        })
    }

    /// What is missing of these where the kernel takes `less`, and what that costs: a line for each.
    pub(super) fn lacking(self, less: Self) -> impl Iterator<Item = &'static str> {
        let lines = [
            (
                self.owned && !less.owned,
                "the kernel has no tables of nftables with an owner (from Linux 5.12 on): other programs can remove the rules \
                 of the interception, which this process puts back, and the rules stay after a crash until the next start",
            ),
            (
                self.compares && !less.compares,
                "the kernel does not compare the source of a message with the route to it (nft_fib, from Linux 5.19 on): \
                 filter forged sources by rp_filter",
            ),
        ];
        lines.into_iter().filter_map(|(lacks, line)| lacks.then_some(line))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use signalbox_core::metrics::Subsystem;
    use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept, Unproved};

    use super::*;
    use crate::intercept::lay;
    use crate::io::IoConfig;
    use crate::netlink::codec::{Attributes, Messages, find};
    use crate::netlink::nftables::tests::expressions;
    use crate::simulated::{self, Kernel, Shared};

    const NEW_TABLE: u16 = 0xa00;
    const NEW_RULE: u16 = 0xa06;
    const TABLE_FLAGS: u16 = 2;

    /// A kernel that lacks something, and takes all else.
    struct Old {
        owners: bool,
        fib: bool,
    }

    impl Old {
        fn refuses(&self, kind: u16, attributes: &[u8]) -> i32 {
            let owned = find(Attributes(attributes), TABLE_FLAGS).is_some();
            let fib = || expressions(attributes).iter().any(|(name, _)| name == "fib");
            match kind {
                NEW_TABLE if owned && !self.owners => libc::EINVAL,
                NEW_RULE if !self.fib && fib() => libc::EOPNOTSUPP,
                _ => 0,
            }
        }
    }

    impl Kernel for Old {
        fn ask(&mut self, _: isize, requests: &[u8]) -> Vec<Vec<u8>> {
            let mut answers = Vec::new();
            for message in Messages(requests) {
                let flags = i32::from(message.flags);
                let listed = flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
                let refused = self.refuses(message.kind, message.body.get(4..).unwrap_or_default());
                if refused == 0 && !listed && flags & libc::NLM_F_ACK == 0 {
                    continue;
                }
                let kind = if listed { libc::NLMSG_DONE } else { libc::NLMSG_ERROR };
                answers.push(simulated::message(kind, 0, message.sequence, &(-refused).to_ne_bytes()));
            }
            answers
        }
    }

    /// What such a kernel takes, all of which is removed again.
    fn taken(owners: bool, fib: bool, compares: bool) -> Kinds {
        let kernel: Shared = Arc::new(Mutex::new(Old { owners, fib }));
        let rule = Intercept::passing(AlertRule::Any, Vec::new());
        let mut request =
            EntryRequest::local(Entry::Udp(270), Subsystem::protocol("gist")).with_intercept(rule);
        request.unproved = compares.then(Unproved::default);
        let config = IoConfig { entries: vec![request], ..IoConfig::default() };
        simulated::run(&kernel, || lay(&config).unwrap_or_else(|error| panic!("{error}")).kinds)
    }

    /// Linux 5.10 has neither, 5.12 to 5.18 have tables with an owner. Each thing that is missing is said, once.
    #[test]
    fn an_older_kernel_gets_rules_that_it_takes_and_what_is_missing_is_said() {
        for (owners, fib) in [(false, false), (true, false), (false, true), (true, true)] {
            let kinds = taken(owners, fib, true);
            assert_eq!(kinds, Kinds { owned: owners, compares: fib });
            let lines: Vec<_> = Kinds { owned: true, compares: true }.lacking(kinds).collect();
            assert_eq!(lines.len(), usize::from(!owners) + usize::from(!fib), "{lines:?}");
            assert_eq!(lines.iter().any(|line| line.contains("Linux 5.12")), !owners, "{lines:?}");
            assert_eq!(lines.iter().any(|line| line.contains("rp_filter")), !fib, "{lines:?}");
        }
    }

    /// Without sources to compare, nothing is said about that.
    #[test]
    fn what_is_not_needed_is_not_missed() {
        assert_eq!(taken(false, false, false), Kinds { owned: false, compares: true });
    }
}
