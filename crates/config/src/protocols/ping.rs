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
}

impl Default for Ping {
    fn default() -> Self {
        Self { nslp: ping::Config::default().nslp.0 }
    }
}

impl Protocol for Ping {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        let meaning = "NSLPID of its messages, the same on all nodes. 32704 to 32767 are for private use.";
        keys.key("nslp_id", &mut self.nslp, number(0..=u16::MAX), meaning);
        let message = "belongs to another application: write one for private use, 32704 to 32767";
        keys.check(!TAKEN.contains(&NslpId(self.nslp)), &["nslp_id"], message);
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.ping = Some(ping::Config { nslp: NslpId(self.nslp), ..ping::Config::default() });
    }

    fn needs_gist(&self) -> bool {
        true
    }

    fn nslps(&self) -> Vec<NslpId> {
        vec![NslpId(self.nslp)]
    }
}
