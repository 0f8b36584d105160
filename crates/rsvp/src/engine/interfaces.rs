//! The node's interfaces: their addresses, their refresh periods, and the small numbers by which records refer to them.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::Interface;
use signalbox_core::{IfIndex, Time};

use super::config::{Config, InterfaceConfig};

/// Number of an interface in records. An interface keeps its number for the engine's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Iface(pub(crate) u16);

impl Iface {
    /// No interface: there is no route, or it is not known yet.
    pub(crate) const NONE: Self = Self(u16::MAX);
    /// The applications of this node.
    pub(crate) const LOCAL: Self = Self(u16::MAX - 1);

    /// Whether it is the number of an interface.
    pub(crate) const fn is_real(self) -> bool {
        self.0 < Self::LOCAL.0
    }
}

/// State of one interface.
#[derive(Debug)]
pub(crate) struct InterfaceState {
    pub(crate) ifindex: IfIndex,
    /// Its logical interface handle in RSVP_HOPs of this node (RFC 2205 §3.3).
    pub(crate) handle: u32,
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) mtu: u32,
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
    all: Vec<IpAddr>,
    pub(crate) config: InterfaceConfig,
    period: Period,
    /// First of the senders that leave by the interface.
    pub(crate) first_leaving: u32,
}

/// The refresh period R: it shrinks at once and grows step by step (RFC 2205 §3.7).
#[derive(Debug, Clone, Copy)]
struct Period {
    now_ms: u32,
    target_ms: u32,
    since: Time,
}

impl Period {
    fn at(&mut self, now: Time, slew_max: f64) -> u32 {
        // After one and a half periods all state was refreshed with the present value.
        let step = Duration::from_millis(u64::from(self.now_ms)) * 3 / 2;
        if self.target_ms < self.now_ms {
            self.now_ms = self.target_ms;
            self.since = now;
        } else if self.now_ms < self.target_ms && now.since(self.since) >= step {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, over 0")]
            let grown = (f64::from(self.now_ms) * (1.0 + slew_max)) as u32;
            self.now_ms = grown.max(self.now_ms.saturating_add(1)).min(self.target_ms);
            self.since = now;
        }
        self.now_ms
    }
}

pub(super) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).max(1)
}

impl InterfaceState {
    /// This node's address at the interface, of this IP version: a routable one if there is one, else a link-local one.
    pub(crate) fn address(&self, v6: bool) -> Option<IpAddr> {
        if v6 { self.v6 } else { self.v4 }
    }

    /// The refresh period of the configuration, and the one in messages.
    pub(crate) fn periods(&self) -> (Duration, Duration) {
        let Period { now_ms, target_ms, .. } = self.period;
        (Duration::from_millis(target_ms.into()), Duration::from_millis(now_ms.into()))
    }

    pub(crate) const fn is_usable(&self) -> bool {
        self.up && self.config.enabled
    }
}

/// Differences between two lists of interfaces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Interfaces that went up or down or whose addresses changed.
    pub(crate) altered: Vec<Iface>,
    /// Addresses that this node gained or lost.
    pub(crate) addresses: Vec<IpAddr>,
}

/// All interfaces.
#[derive(Debug)]
pub(crate) struct Interfaces {
    known: Vec<InterfaceState>,
    by_index: BTreeMap<IfIndex, Iface>,
    by_handle: BTreeMap<u32, Iface>,
    /// Handles are hashes of the kernel's numbers under a secret: only nodes that received a Path know them.
    handles: KeyedHasher,
    /// All addresses of this node, sorted.
    local: Vec<IpAddr>,
    /// The IPv4 addresses among them, for the check of each message.
    local_v4: Vec<u32>,
}

fn preferred(addresses: &[IpAddr], v6: bool) -> Option<IpAddr> {
    let of_version = || addresses.iter().copied().filter(|a| a.is_ipv6() == v6 && !a.is_unspecified());
    let near = |a: &IpAddr| match a {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    of_version().find(|a| !near(a)).or_else(|| of_version().next())
}

impl Interfaces {
    /// No interfaces; their handles come from `handles`.
    pub(crate) const fn new(handles: KeyedHasher) -> Self {
        Self {
            known: Vec::new(),
            by_index: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            handles,
            local: Vec::new(),
            local_v4: Vec::new(),
        }
    }

    /// A handle that no other interface has; 0 means that a node does not use handles.
    fn new_handle(&self, ifindex: IfIndex) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a part of a hash")]
        let candidates = (0..u32::MAX).map(|n| self.handles.hash_one(&(ifindex.0, n)) as u32);
        let free = |handle: &u32| *handle != 0 && !self.by_handle.contains_key(handle);
        candidates.into_iter().find(free).unwrap_or(u32::MAX)
    }

    /// Takes over a whole list of interfaces.
    pub(crate) fn update(&mut self, list: &[Interface], config: &Config) -> Changes {
        let mut changes = Changes::default();
        let mut local: Vec<IpAddr> =
            list.iter().filter(|i| i.up).flat_map(|i| i.addresses.iter().copied()).collect();
        local.sort_unstable();
        local.dedup();
        let differing = |a: &[IpAddr], b: &[IpAddr]| -> Vec<IpAddr> {
            a.iter().filter(|address| b.binary_search(address).is_err()).copied().collect()
        };
        changes.addresses.extend(differing(&local, &self.local));
        changes.addresses.extend(differing(&self.local, &local));
        self.local_v4 = local
            .iter()
            .filter_map(|address| match address {
                IpAddr::V4(v4) => Some(v4.to_bits()),
                IpAddr::V6(_) => None,
            })
            .collect();
        self.local = local;
        for (iface, known) in (0..).map(Iface).zip(&mut self.known) {
            if known.up && !list.iter().any(|one| one.ifindex == known.ifindex) {
                known.up = false;
                known.all.clear();
                changes.altered.push(iface);
            }
        }
        for one in list {
            let config = *config.of_interface(&one.name);
            let (v4, v6) = (preferred(&one.addresses, false), preferred(&one.addresses, true));
            if let Some(&iface) = self.by_index.get(&one.ifindex)
                && let Some(known) = self.known.get_mut(usize::from(iface.0))
            {
                if known.up != one.up || known.all != one.addresses {
                    changes.altered.push(iface);
                }
                if known.name != one.name {
                    known.name.clone_from(&one.name);
                    known.config = config;
                    known.period.target_ms = milliseconds(config.refresh);
                }
                (known.up, known.mtu, known.v4, known.v6) = (one.up, one.mtu, v4, v6);
                known.all.clone_from(&one.addresses);
                continue;
            }
            let Ok(number) = u16::try_from(self.known.len()) else { continue };
            let iface = Iface(number);
            if !iface.is_real() {
                continue; // there are numbers for 65534 interfaces
            }
            let ms = milliseconds(config.refresh);
            let handle = self.new_handle(one.ifindex);
            self.by_handle.insert(handle, iface);
            self.by_index.insert(one.ifindex, iface);
            self.known.push(InterfaceState {
                ifindex: one.ifindex,
                handle,
                name: one.name.clone(),
                up: one.up,
                mtu: one.mtu,
                v4,
                v6,
                all: one.addresses.clone(),
                config,
                period: Period { now_ms: ms, target_ms: ms, since: Time::ZERO },
                first_leaving: u32::MAX,
            });
        }
        changes
    }

    pub(crate) fn get(&self, iface: Iface) -> Option<&InterfaceState> {
        self.known.get(usize::from(iface.0))
    }

    pub(crate) fn get_mut(&mut self, iface: Iface) -> Option<&mut InterfaceState> {
        self.known.get_mut(usize::from(iface.0))
    }

    /// All interfaces so far, in the order of their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &InterfaceState> {
        self.known.iter()
    }

    /// The number of an interface; [`Iface::NONE`] if it is unknown.
    pub(crate) fn iface(&self, ifindex: IfIndex) -> Iface {
        self.by_index.get(&ifindex).copied().unwrap_or(Iface::NONE)
    }

    /// The interface of a logical interface handle of this node (RFC 2205 §3.3).
    pub(crate) fn of_handle(&self, handle: u32) -> Option<Iface> {
        self.by_handle.get(&handle).copied()
    }

    /// The interface with this address.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<Iface> {
        if address.is_loopback() {
            return None;
        }
        let has = |known: &InterfaceState| {
            known.up && known.all.contains(&address) && !known.all.iter().any(IpAddr::is_loopback)
        };
        (0..).map(Iface).zip(&self.known).find(|(_, known)| has(known)).map(|(iface, _)| iface)
    }

    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        match address {
            // Addresses are ordered like their bits.
            IpAddr::V4(v4) => self.local_v4.binary_search(&v4.to_bits()).is_ok(),
            IpAddr::V6(_) => self.local.binary_search(&address).is_ok(),
        }
    }

    /// This node's address at an interface, or else any that is not a loopback address.
    pub(crate) fn address(&self, iface: Iface, v6: bool) -> Option<IpAddr> {
        let any = || self.local.iter().copied().find(|a| a.is_ipv6() == v6 && !a.is_loopback());
        self.get(iface).and_then(|known| known.address(v6)).or_else(any)
    }

    /// The refresh period R at an interface, milliseconds.
    pub(crate) fn period(&mut self, iface: Iface, now: Time) -> u32 {
        self.get_mut(iface).map_or(30_000, |known| known.period.at(now, known.config.slew_max))
    }

    /// The refresh period R at an interface as it was last used, milliseconds.
    pub(crate) fn period_now(&self, iface: Iface) -> u32 {
        self.get(iface).map_or(30_000, |known| known.period.now_ms)
    }

    /// Sets the refresh period of an interface; whether the interface is known.
    pub(crate) fn set_period(&mut self, ifindex: IfIndex, refresh: Duration) -> bool {
        let iface = self.iface(ifindex);
        let Some(known) = self.get_mut(iface) else { return false };
        known.period.target_ms = milliseconds(refresh);
        true
    }

    /// Takes the longest lifetimes of other settings. They count from the next message on.
    pub(crate) fn set_lifetimes(&mut self, config: &Config) {
        for known in &mut self.known {
            known.config.max_lifetime = config.of_interface(&known.name).max_lifetime;
        }
    }

    /// The cleanup factor K of an interface.
    pub(crate) fn cleanup(&self, iface: Iface) -> u32 {
        self.get(iface).map_or(3, |known| known.config.cleanup)
    }

    /// Lifetime of state that a neighbor at an interface refreshes every `period_ms`. A neighbor cannot hold state
    /// for longer than the limit of the interface, or than the interface's own refresh period, or slow one, needs.
    pub(crate) fn lifetime(&self, iface: Iface, period_ms: u32) -> Duration {
        let Some(known) = self.get(iface) else { return lifetime(3, period_ms) };
        let cleanup = known.config.cleanup;
        let slow = known.config.staged.filter(|one| one.slow_refresh).map_or(0, |one| milliseconds(one.slow));
        let most = known.config.max_lifetime.max(lifetime(cleanup, known.period.target_ms.max(slow)));
        lifetime(cleanup, period_ms).min(most)
    }

    /// The refresh period of state that ends after this time, milliseconds: the inverse of [`Self::lifetime`].
    pub(crate) fn period_of(&self, iface: Iface, left: Duration) -> u32 {
        let cleanup = self.get(iface).map_or(3, |known| known.config.cleanup);
        let period = left.as_micros() / ((u128::from(cleanup) * 2 + 1) * 750);
        u32::try_from(period).unwrap_or(u32::MAX).max(1)
    }
}

/// Lifetime of state that a neighbor refreshes every `period_ms`: (K + 0.5) · 1.5 · R (RFC 2205 §3.7), at most 100
/// days.
fn lifetime(cleanup: u32, period_ms: u32) -> Duration {
    let us = (u64::from(cleanup) * 2 + 1).saturating_mul(u64::from(period_ms) * 750);
    Duration::from_micros(us.min(100 * 86_400 * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(number: u32, up: bool, addresses: &[&str]) -> Interface {
        Interface {
            ifindex: IfIndex(number),
            name: format!("eth{number}"),
            up,
            mtu: 1500,
            tunnel: false,
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn places_stay_and_changes_are_reported() {
        let (mut all, config) = (Interfaces::new(KeyedHasher::with_key([7; 16])), Config::default());
        all.update(
            &[interface(7, true, &["fe80::1", "10.0.7.1", "fd00::1"]), interface(3, true, &[])],
            &config,
        );
        let seven = all.iface(IfIndex(7));
        let handle = all.get(seven).unwrap().handle;
        assert_eq!(all.of_handle(handle), Some(seven));
        assert_eq!((all.of_handle(7), all.iface(IfIndex(9))), (None, Iface::NONE));
        assert_eq!(all.address(seven, true), Some("fd00::1".parse().unwrap()));
        assert!(all.is_local("10.0.7.1".parse().unwrap()));
        let changes = all.update(&[interface(7, false, &["10.0.7.1"])], &config);
        assert_eq!(changes.altered.len(), 2, "one is gone, one is down");
        assert_eq!(changes.addresses.len(), 3);
        assert_eq!(all.iface(IfIndex(7)), seven);
        assert!(!all.is_local("10.0.7.1".parse().unwrap()) && !all.get(seven).unwrap().is_usable());
    }

    /// RSVP-3.7-03, RSVP-3.7-04
    #[test]
    fn lifetimes_are_those_of_the_formula() {
        assert_eq!(lifetime(3, 30_000), Duration::from_millis(157_500));
        assert_eq!(lifetime(5, 30_000), Duration::from_millis(247_500));
        assert_eq!(lifetime(3, 5_000), Duration::from_millis(26_250));
        assert_eq!(lifetime(u32::MAX, u32::MAX), Duration::from_secs(100 * 86_400));
    }

    /// RSVP-3.7-07
    #[test]
    fn a_period_grows_by_at_most_three_tenths_and_shrinks_at_once() {
        let mut period = Period { now_ms: 10_000, target_ms: 60_000, since: Time::ZERO };
        let (mut now, mut before) = (Time::ZERO, 10_000);
        for _ in 0..2000 {
            now = now + Duration::from_millis(500);
            let next = period.at(now, 0.3);
            assert!(f64::from(next) <= f64::from(before) * 1.3 && next >= before);
            before = next;
        }
        assert_eq!(before, 60_000);
        period.target_ms = 5_000;
        assert_eq!(period.at(now, 0.3), 5_000);
    }
}
