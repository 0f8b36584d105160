//! `[firewall]`: how pinholes fit beside the ruleset of the operator.

use signalbox_linux::pinhole::{Chain, PinholeConfig};

use crate::Config;
use crate::keys::Keys;
use crate::kind::{chain, list, mark};
use crate::protocols::{Openings, Protocol, Sides};

pub(crate) const MEANING: &str = "How pinholes fit beside the ruleset of the operator ([natfw.md](natfw.md#the-rule-of-the-game-the-operators-ruleset-decides)). It is in force \
     where `natfw` runs with the role `firewall` or `nat`, where `casp` runs with the role `firewall` or `nat`, and where `gist_nat` \
     runs.";

/// `[firewall]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Firewall {
    mark: u32,
    accept_in: Vec<Chain>,
}

impl Default for Firewall {
    fn default() -> Self {
        let PinholeConfig { mark, accept_in, .. } = PinholeConfig::default();
        Self { mark, accept_in }
    }
}

impl Firewall {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "mark",
            &mut self.mark,
            mark(),
            "The bit of connection tracking's mark that flows of pinholes have. The operator's ruleset accepts it: `ct mark and \
             0x10000000 == 0x10000000 accept`. Nothing else may use this bit.",
        );
        let message = "more than one bit: write a number with one bit, such as 0x10000000";
        keys.check(self.mark.is_power_of_two(), &["mark"], message);
        keys.key(
            "accept_in",
            &mut self.accept_in,
            list(chain()),
            "Chains of nftables, as family, table and name, at whose head the daemon puts a rule that accepts flows of \
             pinholes. It removes the rule when it stops.",
        );
    }
}

impl Config {
    /// What the kernel shall let pass; `None` on a node that opens nothing.
    #[must_use]
    pub fn pinholes(&self) -> Option<PinholeConfig> {
        let opens = self.running().map(Protocol::opens).max().filter(|opens| *opens != Openings::Nothing)?;
        Some(self.pinholes_with(opens))
    }

    pub(crate) fn pinholes_with(&self, opens: Openings) -> PinholeConfig {
        let default = PinholeConfig::default();
        let mut outside: Vec<String> =
            self.running().filter_map(Protocol::sides).flat_map(Sides::outside).collect();
        outside.sort_unstable();
        outside.dedup();
        PinholeConfig {
            max: self.resources.0.max_pinholes.min(default.max),
            mark: self.firewall.mark,
            translate: opens == Openings::Bindings,
            outside,
            accept_in: self.firewall.accept_in.clone(),
            ..default
        }
    }
}
