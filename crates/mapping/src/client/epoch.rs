//! The epoch of a server: whether it lost its mappings since its last response.

use signalbox_core::Time;

/// Which rule judges an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// RFC 6887 §8.5.
    Pcp,
    /// RFC 6886 §3.6.
    NatPmp,
}

/// The epoch of the last response, and when it came.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    last: Option<(u32, Time)>,
}

impl Epoch {
    /// Whether the server still has what it had at its last response. This one is remembered, valid or not.
    pub(super) fn is_valid(&mut self, now: Time, server: u32, rule: Rule) -> bool {
        let Some((before, at)) = self.last.replace((server, now)) else { return true };
        let (server, before) = (u64::from(server), u64::from(before));
        let client = now.since(at).as_secs();
        match rule {
            Rule::NatPmp => server.saturating_add(2) >= before + client * 7 / 8,
            // Two responses may overtake each other.
            Rule::Pcp if server + 1 < before => false,
            Rule::Pcp => {
                let server = server.saturating_sub(before);
                client + 2 >= server - server / 16 && server + 2 >= client - client / 16
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid(rule: Rule, first: u32, seconds: u64, second: u32) -> bool {
        let mut epoch = Epoch::default();
        assert!(epoch.is_valid(Time::from_secs(50), first, rule), "the first one");
        epoch.is_valid(Time::from_secs(50 + seconds), second, rule)
    }

    /// PCP-8.5-05, PCP-8.5-06
    #[test]
    fn epochs_of_pcp() {
        for (first, seconds, second, expected) in [
            (100, 0, 99, true),
            (100, 0, 98, false),
            (100, 0, 102, true),
            (100, 0, 103, false),
            (100, 1_600, 1_600, true),
            (100, 1_600, 1_598, true),
            // 1,600 s here are at least 1,500 - 2 there.
            (100, 1_600, 1_597, false),
            (0, 1_498, 1_600, true),
            (0, 1_497, 1_600, false),
            (5_000, 60, 0, false),
            (u32::MAX, 1, u32::MAX, true),
        ] {
            assert_eq!(
                valid(Rule::Pcp, first, seconds, second),
                expected,
                "{first}, {second} after {seconds} s"
            );
        }
    }

    /// PCP-8.5-07: both times are stored after each response.
    #[test]
    fn an_invalid_epoch_is_the_next_one_to_compare_with() {
        let mut epoch = Epoch::default();
        let answers = [(0, 1_000, true), (10, 3, false), (20, 13, true)];
        for (at, server, expected) in answers {
            assert_eq!(epoch.is_valid(Time::from_secs(at), server, Rule::Pcp), expected, "{at} s");
        }
    }

    /// NATPMP-3.6-02
    #[test]
    fn epochs_of_nat_pmp() {
        for (first, seconds, second, expected) in [
            (100, 80, 180, true),
            (100, 80, 168, true),
            (100, 80, 167, false),
            (100, 0, 98, true),
            (100, 0, 97, false),
        ] {
            assert_eq!(
                valid(Rule::NatPmp, first, seconds, second),
                expected,
                "{first}, {second} after {seconds} s"
            );
        }
    }
}
