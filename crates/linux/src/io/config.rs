//! The daemon's requests to the kernel.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use signalbox_core::EntryRequest;

use crate::error::OpenError;
use crate::netlink::nftables::MANGLE;
use crate::netlink::rules::Rule;
use crate::scope::{Scope, Vrf};
use crate::stream::StreamConfig;

/// The configuration of [`Io::open`](super::Io::open).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoConfig {
    /// The ports of entry that the protocols of the node request.
    pub entries: Vec<EntryRequest>,
    /// Whether to use IPv4.
    pub ipv4: bool,
    /// Whether to use IPv6.
    pub ipv6: bool,
    /// Whether to install the interception rules of the entries. Without them only packets to this node are received.
    pub intercept: bool,
    /// The VRF of sockets, lookups and rules.
    pub scope: Scope,
    /// Packet mark that leads intercepted packets to this node. It is not 0, and no other program uses it.
    pub mark: u32,
    /// Packet mark of everything that this node sends, by which queues at its links distinguish it from forwarded
    /// packets. It is not 0, and no other program uses it.
    pub own_mark: u32,
    /// Routing table that holds the route for packets with `mark`. No other program uses it. A VRF has one of its own, of which
    /// this is the upper half of the number.
    pub table: u32,
    /// Preference of the policy rule for packets with `mark` when it is added.
    pub rule_preference: u32,
    /// Whether that rule is put above rules of other programs that can route such packets.
    pub keep_rule_first: bool,
    /// Priority of the chains of nftables that mark and redirect packets, at the hook prerouting. Chains of other programs at the priority
    /// mangle restore marks of connections, and so take away those of packets that have one already.
    pub priority: i32,
    /// Whether the nftables tables of the interception belong to this process, where the kernel supports that. Otherwise
    /// they stay after a crash, and other programs can remove them.
    pub own_tables: bool,
    /// Socket receive buffer in octets, as far as the kernel allows.
    pub receive_buffer: usize,
    /// Socket send buffer in octets, as far as the kernel allows.
    pub send_buffer: usize,
    /// How long to look for more packets after traffic, before the process waits for them; zero: it waits at once.
    pub busy_poll: Duration,
    /// Byte streams; their mark is `own_mark`.
    pub streams: StreamConfig,
    /// The Unix socket of the [helper](crate::helper), which opens the entries and intercepts for a process without
    /// privileges. Such a process does not mark what its streams send.
    pub helper: Option<PathBuf>,
}

impl Default for IoConfig {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            ipv4: true,
            ipv6: true,
            intercept: true,
            scope: Scope::default(),
            mark: 0x5b00_010e,
            own_mark: 0x5b00_010f,
            table: 270,
            rule_preference: 270,
            keep_rule_first: true,
            priority: MANGLE + 1,
            own_tables: true,
            receive_buffer: 8 << 20,
            send_buffer: 4 << 20,
            busy_poll: Duration::ZERO,
            streams: StreamConfig::default(),
            helper: None,
        }
    }
}

/// What the kernel answers for a family that it has switched off.
const SWITCHED_OFF: [&str; 2] =
    ["/proc/sys/net/ipv6/conf/all/disable_ipv6", "/proc/sys/net/ipv6/conf/lo/disable_ipv6"];

impl IoConfig {
    /// The same for this machine as it is now, and the VRF: without a family that the kernel has switched off, and with the routing
    /// table of the VRF.
    pub(crate) fn for_this_machine(&self) -> Result<(Self, Option<Vrf>), OpenError> {
        let vrf = self.scope.find()?;
        let mut config = self.without_families_switched_off();
        if let Some(vrf) = vrf {
            config.table = vrf.own_table(config.table);
        }
        config.streams.scope = config.scope.clone();
        Ok((config, vrf))
    }

    /// The same without IPv6, if the kernel has switched it off in the network namespace of this thread and IPv4 is there.
    fn without_families_switched_off(&self) -> Self {
        // A kernel that was built or started without IPv6 has no such files.
        let off = SWITCHED_OFF.iter().all(|path| fs::read(path).map_or(true, |text| text.starts_with(b"1")));
        if !(self.ipv4 && self.ipv6 && off) {
            return self.clone();
        }
        tracing::info!(
            "IPv6 is left out, because the kernel has switched it off (net.ipv6.conf.all.disable_ipv6): start again after it is switched on"
        );
        Self { ipv6: false, ..self.clone() }
    }

    /// The policy rule of the interception.
    pub(crate) const fn rule(&self) -> Rule {
        Rule { mark: self.mark, table: self.table, preference: self.rule_preference }
    }
}
