//! The external ports of a NAT, and those that a crash left to their former holders.
//!
//! A daemon that crashes leaves its bindings in the kernel. The next one knows from them which end inside had which port, but neither
//! the session nor who asked for it. So it keeps the port for that end, for as long as the kernel keeps the binding: a request for the
//! same end gets the port again, if the rules allow the request, and nobody else gets it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::Time;
use signalbox_core::index::KeyedHasher;
use signalbox_core::ports::{Binding, Inside};
use signalbox_core::slab::Key;

use super::Natfw;
use crate::wire::Info;

/// How much longer a port is kept than its binding, so that the kernel has removed it.
const REST: Duration = Duration::from_secs(1);

/// An address, a protocol and a port inside.
type End = (IpAddr, u8, u16);

/// The ports that are kept for ends inside without a session.
#[derive(Debug)]
pub(super) struct Left {
    by_end: HashMap<End, (u16, Key), KeyedHasher>,
    /// When each of them goes, the first one first.
    order: VecDeque<(Time, End)>,
}

impl Left {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { by_end: HashMap::with_hasher(hasher), order: VecDeque::new() }
    }

    /// When the next one goes.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.order.front().map(|(at, _)| *at)
    }
}

impl Natfw {
    /// A lease of an external port for an end inside. `needs`: no other port will do.
    pub(super) fn lease(&mut self, inside: Inside, needs: Option<u16>) -> Result<(Key, u16), Info> {
        let left = if inside.second { self.left_pair(inside) } else { None };
        let leased = self.ports.acquire(inside, inside.address, needs.or(left));
        let (lease, port) = leased.map_err(|_| {
            self.counters.ports_full += 1;
            Info::NO_RESOURCES
        })?;
        if needs.is_some_and(|needed| needed != port) {
            self.ports.release(lease);
            return Err(Info::NO_RESOURCES);
        }
        Ok((lease, port))
    }

    /// Keeps a port that the kernel translates for an end inside.
    pub(super) fn keep_port(&mut self, binding: &Binding, time: Duration) {
        let Binding { address, protocol, port, external } = *binding;
        let (end, until) = ((address, protocol, port), self.now + time + REST);
        if self.left.by_end.contains_key(&end) {
            return;
        }
        let inside = Inside { address, protocol, port, second: false };
        let Ok(lease) = self.lease(inside, Some(external)) else {
            tracing::debug!(%address, port, external, reason = "not free here", "port of a former binding not kept");
            return;
        };
        self.left.by_end.insert(end, (external, lease.0));
        let at = self.left.order.partition_point(|(known, _)| *known <= until);
        self.left.order.insert(at, (until, end));
    }

    /// The pair of ports that an end inside and the next one had. It is not kept any more, since the session that asks takes it.
    fn left_pair(&mut self, inside: Inside) -> Option<u16> {
        let [first, second] = [Some(inside.port), inside.port.checked_add(1)];
        let ends = [first?, second?].map(|port| (inside.address, inside.protocol, port));
        let [port, next] = [self.left.by_end.get(&ends[0])?.0, self.left.by_end.get(&ends[1])?.0];
        if port % 2 != 0 || next != port + 1 {
            return None;
        }
        ends.iter().for_each(|end| self.leave_port(end));
        Some(port)
    }

    /// Ends what is kept for too long.
    pub(super) fn step_left(&mut self) {
        while let Some((_, end)) = self.left.order.front().copied().filter(|(at, _)| *at <= self.now) {
            self.left.order.pop_front();
            self.leave_port(&end);
        }
    }

    fn leave_port(&mut self, end: &End) {
        if let Some((_, lease)) = self.left.by_end.remove(end) {
            self.ports.release(lease);
        }
    }
}
