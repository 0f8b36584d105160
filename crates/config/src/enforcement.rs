//! `[enforcement]`: how the kernel keeps reservations.

use signalbox_linux::Scope;
use signalbox_linux::traffic::{Enforcement as KernelMode, LinkConfig, Signaling, TrafficConfig};
use signalbox_node::resources::config::ANY_LINK;
use signalbox_node::resources::units::Share;
use signalbox_node::resources::{self, Config};

use crate::keys::Keys;
use crate::kind::{choice, flag, share};

pub(crate) const MEANING: &str = "How the kernel enforces reservations ([enforcement.md](enforcement.md)), at each named interface with a `capacity`. It \
     is in force if a protocol that reserves runs: `qos`, `rsvp`, `boomerang`, or `casp` with the client `qos`.";

/// Reservations at a link whose number is not configured, where the kernel enforces them: each takes about 400 octets
/// there.
const ENFORCED_RESERVATIONS: u32 = 16_384;

/// What to do where the kernel cannot enforce everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Required,
    BestEffort,
    Off,
}

/// `[enforcement]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Enforcement {
    pub(crate) mode: Mode,
    ebpf: bool,
    signaling: Share,
}

impl Default for Enforcement {
    fn default() -> Self {
        Self { mode: Mode::default(), ebpf: true, signaling: Share::percent(2) }
    }
}

impl Enforcement {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "mode",
            &mut self.mode,
            choice(&[("required", Mode::Required), ("best-effort", Mode::BestEffort), ("off", Mode::Off)]),
            "`\"required\"`: the daemon does not start if a kernel feature is missing, and refuses requests that cannot \
             be enforced completely. `\"best-effort\"`: it enforces what is possible and grants the rest without. \
             `\"off\"`: it changes nothing in the kernel and grants.",
        );
        keys.key(
            "ebpf",
            &mut self.ebpf,
            flag(),
            "Use eBPF if the kernel permits it. Without it policing is coarser.",
        );
        keys.key(
            "signaling",
            &mut self.signaling,
            share(),
            "Guaranteed part of each link for signaling: half for messages of this node, a quarter for forwarded ones, a \
             quarter for next-hop resolution. At least 64 kbit/s, at most a quarter of the link; `\"0%\"`: signaling is \
             best effort. It is taken from the part that is not reservable.",
        );
    }

    /// What to enforce: the links that can be reserved at, as far as they are named and have a capacity. The node's own
    /// packets carry `mark`.
    pub(crate) fn enforcer(&self, resources: &Config, mark: u32, scope: Scope) -> TrafficConfig {
        let links = resources.links.iter().filter(|link| link.interface != ANY_LINK).filter_map(|link| {
            let rate = link.capacity?.0;
            Some(LinkConfig {
                reservable: link.reservable.of(rate),
                signaling: LinkConfig::signaling(self.signaling.of(rate), rate),
                classes: u16::try_from(link.own_queues).unwrap_or(u16::MAX),
                max_reservations: most(resources, link),
                ..LinkConfig::new(&link.interface, rate)
            })
        });
        TrafficConfig {
            enforcement: match self.mode {
                Mode::Required => KernelMode::Required,
                Mode::BestEffort => KernelMode::BestEffort,
                Mode::Off => KernelMode::Off,
            },
            scope,
            links: links.collect(),
            ebpf: self.ebpf,
            signaling: Signaling { mark, ..Signaling::default() },
        }
    }

    /// Limits admission control to the reservations that the kernel can keep.
    pub(crate) fn limit(&self, mut resources: Config) -> Config {
        if self.mode != Mode::Off {
            let limits: Vec<_> = resources.links.iter().map(|link| most(&resources, link)).collect();
            for (link, limit) in resources.links.iter_mut().zip(limits) {
                link.max_reservations = Some(limit);
            }
        }
        resources
    }
}

fn most(resources: &Config, link: &resources::config::LinkConfig) -> u32 {
    link.max_reservations.unwrap_or(ENFORCED_RESERVATIONS).min(resources.max_reservations)
}
