//! What can be set.

use core::time::Duration;

use signalbox_core::NslpId;

/// Settings of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// The application's number; all nodes must agree.
    pub nslp: NslpId,
    /// Most pings that this node starts at one time.
    pub max_pings: u32,
    /// Most messages whose fate is watched at one time: those that GIST holds until it has found the next
    /// node. More are passed on without being watched: they are lost in silence if there is no next node.
    pub max_watched: u32,
    /// How long GIST may look for the next node before a request is turned round; shorter than what the
    /// initiator waits, so that it learns how far the path goes.
    pub relay_timeout: Duration,
    /// How long a session's routing state is kept after its last message.
    pub linger: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nslp: NslpId::PING,
            max_pings: 1024,
            max_watched: 1024,
            relay_timeout: Duration::from_secs(3),
            linger: Duration::from_secs(5),
        }
    }
}
