//! What runs with a client of one node have in common: messages and indications of the messaging layer with the choices of a step.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::{IfIndex, SessionId, Time};

use crate::engine::{Arrival, Indication};
use crate::wire::{ErrorCode, FlowId};

/// Steps of one run.
pub(super) const STEPS: usize = 200;
/// Deadlines in one pause; more are an endless loop.
const DEADLINES: u32 = 10_000;
/// The address of the node.
pub(super) const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The flow with a number: to the node, or past it.
pub(super) fn flow(number: u8) -> FlowId {
    let dst = if number & 4 == 0 { Ipv4Addr::new(10, 8, 0, 7) } else { OWN };
    let (src, dst_port) = (Ipv4Addr::new(10, 9, 0, 1), u16::from(number & 3));
    FlowId::V4Ports { src, dst, src_port: 1, dst_port, protocol: 17 }
}

/// A message of a neighbor.
pub(super) fn arrival(id: u64, [what, which, more]: [u8; 3], data: &[u8]) -> Indication<'_> {
    Indication::Received(Arrival {
        id,
        session: SessionId([which & 7; 16]),
        flow: flow(which >> 3),
        reverse: what & 1 != 0,
        tear_down: false,
        unsecure: what & 2 != 0,
        ttd: 60,
        hops: more >> 4,
        peer: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2 + (more & 3))),
        ifindex: IfIndex(u32::from(more & 1)),
        answered: more & 2 == 0,
        identity: None,
        branch: u16::from(more & 3),
        last: what & 4 != 0,
        timeout: u32::from(more) + 1,
        stateless: false,
        // The messaging layer asks about messages along the flow only.
        refresh: data.is_empty() && what & 1 == 0,
        route: &[],
        data,
    })
}

/// What happens to a session of this node, or of another one.
pub(super) fn indication([what, which, more]: [u8; 3]) -> Indication<'static> {
    let number = if what & 1 == 0 { which & 7 } else { 101 + (which & 7) };
    let (session, flow, previous) = (SessionId([number; 16]), flow(which >> 3), what & 2 != 0);
    match more & 3 {
        0 => Indication::Ended { session, flow, torn_down: what & 2 != 0 },
        1 => Indication::Undelivered { session, flow },
        2 => Indication::Error { session, flow, code: ErrorCode::COOKIE_ERROR },
        _ => Indication::Branch { session, flow, previous, id: u16::from(more >> 3), ended: more & 4 == 0 },
    }
}

/// Lets time pass for a node: `next` is its next deadline, and `step` does what is due at a time.
///
/// # Panics
/// If the deadlines have no end.
pub(super) fn wait<T>(
    node: &mut T,
    time: Duration,
    now: impl Fn(&mut T) -> &mut Time,
    next: impl Fn(&T) -> Option<Time>,
    step: impl Fn(&mut T),
) {
    let end = *now(node) + time;
    for _ in 0..DEADLINES {
        let Some(at) = next(node).filter(|at| *at <= end) else {
            *now(node) = end;
            return;
        };
        let now = now(node);
        *now = (*now).max(at);
        step(node);
    }
    panic!("the timers make no progress");
}
