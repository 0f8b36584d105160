//! `[ping]`

use signalbox_core::NslpId;
use signalbox_node::ping;

use super::Protocol;
use crate::keys::Keys;
use crate::kind::number;

pub(super) const MEANING: &str =
    "The Ping application of GIST. A node without it forwards the Queries of other nodes.";

/// NSLPIDs that are not free for Ping.
const TAKEN: [NslpId; 3] = [NslpId::NONE, NslpId::QOS, NslpId::NATFW];

/// `[ping]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ping {
    pub(super) nslp: u16,
    /// 0: the node does not run the format of the NSIS Ping tool.
    nsis: u16,
}

impl Default for Ping {
    fn default() -> Self {
        let ping::Config { nslp, nsis, .. } = ping::Config::default();
        Self { nslp: nslp.0, nsis: nsis.unwrap_or(NslpId::NONE).0 }
    }
}

impl Protocol for Ping {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        let meaning = "NSLPID of its messages, the same on all nodes. 32704 to 32767 are for private use.";
        keys.key("nslp_id", &mut self.nslp, number(0..=u16::MAX), meaning);
        let message = "belongs to another application: write one for private use, 32704 to 32767";
        keys.check(!TAKEN.contains(&NslpId(self.nslp)), &["nslp_id"], message);
        let meaning = "NSLPID of messages in the format of the NSIS Ping tool (docs/wire/nsis-ping.md), the same on all nodes. \
                       `0`: the node takes no part in them.";
        keys.key("nsis_nslp_id", &mut self.nsis, number(0..=u16::MAX), meaning);
        let private = self.nsis == 0 || (32704..=32767).contains(&self.nsis);
        keys.check(private, &["nsis_nslp_id"], "write one for private use, 32704 to 32767, or 0");
        let message = "each format has an NSLPID of its own";
        keys.check(self.nsis != self.nslp, &["nsis_nslp_id", "nslp_id"], message);
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let nsis = self.nsis_nslp();
        node.ping = Some(ping::Config { nslp: NslpId(self.nslp), nsis, ..ping::Config::default() });
    }

    fn needs_gist(&self) -> bool {
        true
    }

    fn nslps(&self) -> Vec<NslpId> {
        [Some(NslpId(self.nslp)), self.nsis_nslp()].into_iter().flatten().collect()
    }
}

impl Ping {
    fn nsis_nslp(&self) -> Option<NslpId> {
        Some(NslpId(self.nsis)).filter(|nslp| *nslp != NslpId::NONE)
    }
}
