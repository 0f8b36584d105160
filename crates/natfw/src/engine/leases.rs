//! The external ports of a NAT, and those that a crash left to their former holders ([`core::ports::left`](signalbox_core::ports::left)).

use core::time::Duration;

use signalbox_core::ports::{Binding, Inside};
use signalbox_core::slab::Key;

use super::Natfw;
use crate::wire::Info;

/// The external port that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortWish {
    /// No other port will do.
    pub(super) needs: Option<u16>,
    /// This port if it is free, and another one otherwise.
    pub(super) wish: Option<u16>,
    /// It may be one of those that publications may wish for.
    pub(super) published: bool,
}

impl PortWish {
    /// A port that the NAT gives out.
    pub(super) const fn drawn(needs: Option<u16>) -> Self {
        Self { needs, wish: None, published: false }
    }
}

impl Natfw {
    /// A lease of an external port for an end inside.
    pub(super) fn lease(
        &mut self,
        inside: Inside,
        PortWish { needs, wish, published }: PortWish,
    ) -> Result<(Key, u16), Info> {
        if needs.is_some_and(|port| !published && !self.ports.is_drawn(port)) {
            return Err(Info::NO_RESOURCES);
        }
        let left = if inside.second { self.left_pair(inside) } else { None };
        let leased = self.ports.acquire(inside, inside.address, needs.or(left).or(wish));
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
        if self.left.port(&binding.end()).is_some() {
            return;
        }
        let inside = Inside { address, protocol, port, second: false };
        let Ok((lease, _)) =
            self.lease(inside, PortWish { needs: Some(external), wish: None, published: true })
        else {
            tracing::debug!(%address, port, external, reason = "not free here", "port of a former binding not kept");
            return;
        };
        self.left.keep(self.now, time, binding, lease);
    }

    /// The pair of ports that an end inside and the next one had. It is not kept any more, since the session that asks takes it.
    fn left_pair(&mut self, inside: Inside) -> Option<u16> {
        let [first, second] = [Some(inside.port), inside.port.checked_add(1)];
        let ends = [first?, second?].map(|port| (inside.address, inside.protocol, port));
        let [port, next] = [self.left.port(&ends[0])?, self.left.port(&ends[1])?];
        if port % 2 != 0 || next != port + 1 {
            return None;
        }
        ends.iter().filter_map(|end| self.left.take(end)).for_each(|lease| self.ports.release(lease));
        Some(port)
    }

    /// Ends what is kept for too long.
    pub(super) fn step_left(&mut self) {
        while let Some(lease) = self.left.expired(self.now) {
            self.ports.release(lease);
        }
    }
}
