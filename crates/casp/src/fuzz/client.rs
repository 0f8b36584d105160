//! What runs with a client of one node have in common: messages and indications of the messaging layer with the choices of a step.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::{IfIndex, SessionId, Time};

use crate::engine::{Arrival, Indication, Request, Verdict};
use crate::kit;
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
    kit::flow(Ipv4Addr::new(10, 9, 0, 1), dst, 1, u16::from(number & 3))
}

/// A message of a neighbor.
pub(super) fn arrival(id: u64, [what, which, more]: [u8; 3], data: &[u8]) -> Indication<'_> {
    Indication::Received(Arrival {
        reverse: what & 1 != 0,
        unsecure: what & 2 != 0,
        hops: more >> 4,
        peer: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2 + (more & 3))),
        ifindex: IfIndex(u32::from(more & 1)),
        answered: more & 2 == 0,
        branch: u16::from(more & 3),
        last: what & 4 != 0,
        timeout: u32::from(more) + 1,
        // The messaging layer asks about messages along the flow only.
        refresh: data.is_empty() && what & 1 == 0,
        ..kit::arrival(id, SessionId([which & 7; 16]), flow(which >> 3), data)
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

/// The messaging layer below a client.
pub(super) struct Layer {
    /// Messages without a verdict.
    waiting: BTreeSet<u64>,
    next_id: u64,
    next_session: u8,
    /// Sessions that the client has opened.
    opened: BTreeSet<SessionId>,
    /// Whether octets are a message of the client.
    readable: fn(&[u8]) -> bool,
}

impl Layer {
    pub(super) const fn new(readable: fn(&[u8]) -> bool) -> Self {
        Self { waiting: BTreeSet::new(), next_id: 1, next_session: 100, opened: BTreeSet::new(), readable }
    }

    /// The id of the next message that arrives.
    pub(super) fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.insert(id);
        id
    }

    /// Whether all messages have a verdict.
    pub(super) fn has_all_verdicts(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a request of the client; the result is what the client is informed of.
    ///
    /// # Panics
    /// If it is a second verdict, or what is sent cannot be read.
    pub(super) fn request(&mut self, request: &Request<'_>) -> Option<Indication<'static>> {
        match request {
            Request::Verdict { id, verdict } => {
                assert!(self.waiting.remove(id), "a second verdict");
                if let Verdict::Replace(data) = verdict {
                    assert!((self.readable)(data), "what goes on can be read");
                }
                None
            }
            Request::Send(send) => {
                assert!(send.data.is_none_or(self.readable), "what is sent can be read");
                // A name of the node itself is new to the messaging layer, too.
                let new = |session: &SessionId| !self.opened.contains(session);
                let opens = send.hold && !send.reverse && send.session.as_ref().is_some_and(new);
                if !opens && send.session.is_some() {
                    return None;
                }
                self.next_session = self.next_session.wrapping_add(1);
                let session = send.session.unwrap_or(SessionId([self.next_session; 16]));
                self.opened.insert(session);
                Some(Indication::Opened { tag: send.tag, session, flow: send.flow, hold: true })
            }
            _ => None,
        }
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
