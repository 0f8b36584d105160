//! A ping that this node started.

use std::collections::VecDeque;

use signalbox_core::mri::PathCoupled;
use signalbox_core::service::StateHandle;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Mri, NslpId, SessionId, Time};

use super::event::{Format, MIN_INTERVAL, PingRequest, Refusal};
use crate::wire::MAX_PADDING;

/// Most requests of one ping without reply at one time. The next request waits until one of them is answered or lost.
pub(super) const MAX_OUTSTANDING: usize = 64;

/// A request that waits for its reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) seq: u32,
    pub(super) sent: Time,
    pub(super) sent_us: u64,
}

/// A ping that this node started.
#[derive(Debug)]
pub(super) struct Session {
    /// The user's identifier of the ping.
    pub(super) id: u64,
    pub(super) session: SessionId,
    /// The NSLPID of its messages, which follows from the format.
    pub(super) nslp: NslpId,
    pub(super) mri: Mri,
    pub(super) identifier: u64,
    pub(super) request: PingRequest,
    /// Routing state of the last reply.
    pub(super) state: Option<StateHandle>,
    pub(super) sent: u32,
    pub(super) received: u32,
    next_send: Time,
    outstanding: VecDeque<Probe>,
    link: Link,
}

impl Timed for Session {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Session {
    pub(super) fn new(
        id: u64,
        session: SessionId,
        nslp: NslpId,
        mri: Mri,
        identifier: u64,
        request: PingRequest,
        now: Time,
    ) -> Self {
        Self {
            id,
            session,
            nslp,
            mri,
            identifier,
            request,
            state: None,
            sent: 0,
            received: 0,
            next_send: now,
            outstanding: VecDeque::new(),
            link: Link::default(),
        }
    }

    fn all_sent(&self) -> bool {
        self.request.count.is_some_and(|count| self.sent >= count)
    }

    /// The next request, if it is due at `now`.
    pub(super) fn next_probe(&mut self, now: Time, wall_us: u64) -> Option<Probe> {
        if self.all_sent() || self.outstanding.len() >= MAX_OUTSTANDING || now < self.next_send {
            return None;
        }
        let probe = Probe { seq: self.sent, sent: now, sent_us: wall_us };
        self.sent = self.sent.wrapping_add(1);
        self.outstanding.push_back(probe);
        // The interval counts from the first request. Requests that are late are not sent as a burst.
        self.next_send = self.next_send + self.request.interval;
        if self.next_send <= now {
            self.next_send = now + self.request.interval;
        }
        Some(probe)
    }

    /// Takes out the oldest request if its timeout is over at `now`.
    pub(super) fn expired(&mut self, now: Time) -> Option<Probe> {
        let deadline = self.outstanding.front()?.sent + self.request.timeout;
        if deadline <= now { self.outstanding.pop_front() } else { None }
    }

    /// Takes out the request with this sequence number, if it waits for its reply.
    pub(super) fn settle(&mut self, seq: u32) -> Option<Probe> {
        let at = self.outstanding.iter().position(|probe| probe.seq == seq)?;
        self.outstanding.remove(at)
    }

    /// Whether all requests are sent and each is answered or lost.
    pub(super) fn is_done(&self) -> bool {
        self.all_sent() && self.outstanding.is_empty()
    }

    /// The next time at which [`Session::expired`] or [`Session::next_probe`] returns a request.
    pub(super) fn deadline(&self) -> Option<Time> {
        let timeout = self.outstanding.front().map(|probe| probe.sent + self.request.timeout);
        let may_send = !self.all_sent() && self.outstanding.len() < MAX_OUTSTANDING;
        let send = may_send.then_some(self.next_send);
        [timeout, send].into_iter().flatten().min()
    }
}

/// The flow of a ping, downstream.
pub(super) fn flow(request: &PingRequest) -> Result<Mri, Refusal> {
    let src = request.src.ok_or(Refusal::NoRoute)?;
    let unicast = |addr: core::net::IpAddr| {
        let broadcast = matches!(addr, core::net::IpAddr::V4(v4) if v4.is_broadcast());
        !addr.is_unspecified() && !addr.is_multicast() && !broadcast
    };
    if src.is_ipv4() != request.dst.is_ipv4() || !unicast(src) || !unicast(request.dst) {
        return Err(Refusal::Address);
    }
    if request.protocol.is_none() && (request.src_port.is_some() || request.dst_port.is_some()) {
        return Err(Refusal::Ports);
    }
    let most = match request.format {
        Format::Signalbox => MAX_PADDING,
        Format::Nsis => 0,
    };
    if usize::from(request.padding) > most || !request.padding.is_multiple_of(4) {
        return Err(Refusal::Padding);
    }
    if request.count == Some(0) || request.interval < MIN_INTERVAL || request.timeout < MIN_INTERVAL {
        return Err(Refusal::Timing);
    }
    Ok(Mri::PathCoupled(PathCoupled {
        protocol: request.protocol,
        src_port: request.src_port,
        dst_port: request.dst_port,
        ..PathCoupled::between(src, request.dst)
    }))
}
