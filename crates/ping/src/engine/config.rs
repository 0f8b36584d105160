//! Configuration of the engine.

use core::time::Duration;

use signalbox_core::NslpId;

/// Configuration of a [`Ping`](super::Ping).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// The NSLPID of the application. All nodes must have the same.
    pub nslp: NslpId,
    /// The NSLPID of messages in the format of the NSIS Ping tool (draft-juchem-nsis-ping-tool-02), other than `nslp`: the
    /// draft gives none, so all nodes must have the same. `None`: the node does not take part in them.
    pub nsis: Option<NslpId>,
    /// Most pings that this node runs as initiator at one time.
    pub max_pings: u32,
    /// Most messages at one time whose status this node waits for: those that GIST keeps until it has found the next
    /// node. Further messages are sent as well, but if there is no next node, they are lost without a report.
    pub max_watched: u32,
    /// How long GIST may look for the next node before this node returns a request to its initiator. It must be shorter
    /// than the initiator's timeout: then the initiator receives how far the path goes.
    pub relay_timeout: Duration,
    /// How long a session's routing state is kept after its last message.
    pub linger: Duration,
    /// The time in microseconds since 1970 at [`Time::ZERO`](signalbox_core::Time::ZERO). The node sets it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wall_clock_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nslp: NslpId::PING,
            nsis: Some(NslpId::NSIS_PING),
            max_pings: 1024,
            max_watched: 1024,
            relay_timeout: Duration::from_secs(3),
            linger: Duration::from_secs(5),
            wall_clock_us: 0,
        }
    }
}
