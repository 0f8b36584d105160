//! One mapping of a client.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Random, Time};
use signalbox_wire::Writer;

use super::schedule;
use super::{Name, Wanted};
use crate::wire::{Body, Known, Map, NatPmpRequest, Options, Request, Transport};

/// The protocol of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    Pcp,
    /// The server answered that it knows no other one.
    NatPmp,
}

/// What is done when the timer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The request is sent again.
    Again,
    /// A renewal begins.
    Renew,
}

/// What the server granted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) place: SocketAddr,
    pub(super) ends: Time,
    pub(super) since: Time,
    pub(super) lifetime: Duration,
    /// Renewals since then.
    pub(super) renewals: u32,
}

#[derive(Debug)]
pub(super) struct Mapping {
    wanted: Wanted,
    released: bool,
    pub(super) speech: Speech,
    pub(super) standing: Option<Standing>,
    /// The wait of the last transmission, and the number of transmissions; nothing before the first one.
    sent: Option<(Duration, u8)>,
    pub(super) next: Next,
    link: Link,
}

impl Timed for Mapping {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Mapping {
    pub(super) fn new(wanted: Wanted) -> Self {
        let (speech, next, link) = (Speech::Pcp, Next::Again, Link::default());
        Self { wanted, released: false, speech, standing: None, sent: None, next, link }
    }

    pub(super) const fn name(&self) -> Name {
        (self.wanted.protocol, self.wanted.port)
    }

    pub(super) const fn nonce(&self) -> &[u8; 12] {
        &self.wanted.nonce
    }

    pub(super) const fn is_released(&self) -> bool {
        self.released
    }

    /// Whether the server granted it, and the caller wants it still.
    pub(super) const fn stands(&self) -> bool {
        self.standing.is_some() && !self.released
    }

    pub(super) fn ends(&self) -> Option<Time> {
        self.standing.map(|standing| standing.ends)
    }

    /// Takes what the caller wants now.
    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
        // What a release left of it is to end.
        if core::mem::take(&mut self.released) {
            self.standing = None;
        }
        self.begin();
    }

    /// The caller wants it no more. What the server never granted may stand there anyway, so that it is told for a while.
    pub(super) fn release(&mut self, now: Time) {
        self.released = true;
        let until = now + Duration::from_secs(30);
        let standing = Standing {
            place: self.wanted.wish,
            ends: until,
            since: now,
            lifetime: Duration::ZERO,
            renewals: 0,
        };
        let before = *self.standing.get_or_insert(standing);
        self.standing = Some(Standing { ends: before.ends.min(until), ..before });
        self.begin();
    }

    /// A request begins: by PCP first.
    pub(super) const fn begin(&mut self) {
        self.speech = Speech::Pcp;
        self.sent = None;
    }

    /// The server speaks NAT-PMP only.
    pub(super) const fn fall_back(&mut self) {
        self.speech = Speech::NatPmp;
        self.sent = None;
    }

    /// Whether a request waits for its response.
    pub(super) const fn waits(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether it is asked for until the server answers, other than by a renewal.
    pub(super) const fn is_asked_for(&self) -> bool {
        matches!(self.next, Next::Again)
    }

    /// Whether NAT-PMP can ask for it.
    pub(super) fn transport(&self) -> Option<Transport> {
        let filtered = !self.wanted.filters.is_empty() || self.wanted.exactly;
        match self.wanted.protocol {
            _ if filtered && !self.released => None,
            6 => Some(Transport::Tcp),
            17 => Some(Transport::Udp),
            _ => None,
        }
    }

    /// Counts a transmission: how long to wait for its response. Nothing: there have been enough.
    pub(super) fn sent(&mut self, rng: &mut Random) -> Option<Duration> {
        let number = self.sent.map_or(0, |(_, number)| number).saturating_add(1);
        let wait = match self.speech {
            Speech::Pcp => schedule::wait(self.sent.map(|(wait, _)| wait), rng),
            Speech::NatPmp => schedule::nat_pmp_wait(number)?,
        };
        self.sent = Some((wait, number));
        Some(wait)
    }

    /// The place that is wished: once the server has given one, this one.
    fn wish(&self) -> SocketAddr {
        match self.standing {
            Some(standing) if !self.wanted.exactly => standing.place,
            Some(_) | None => self.wanted.wish,
        }
    }

    fn lifetime(&self) -> u32 {
        if self.released { 0 } else { u32::try_from(self.wanted.lifetime.as_secs()).unwrap_or(u32::MAX) }
    }

    /// Composes its request.
    pub(super) fn request(&self, local: IpAddr, w: &mut Writer<'_>) {
        let lifetime = self.lifetime();
        if let (Speech::NatPmp, Some(transport)) = (self.speech, self.transport()) {
            let external_port = if self.released { 0 } else { self.wish().port() };
            let internal_port = self.wanted.port;
            return NatPmpRequest::Map { transport, internal_port, external_port, lifetime }.encode(w);
        }
        let (nonce, protocol, internal_port) = (self.wanted.nonce, self.wanted.protocol, self.wanted.port);
        let body = Body::Map(Map { nonce, protocol, internal_port, external: self.wish() });
        let mut options = Vec::new();
        if !self.released {
            let mut w = Writer::new(&mut options);
            if self.wanted.exactly {
                Known::PreferFailure.encode(&mut w);
            }
            self.wanted.filters.iter().for_each(|filter| Known::Filter(*filter).encode(&mut w));
        }
        let options = Options::from_octets(&options).unwrap_or_default();
        Request { lifetime, client: local, body, options }.encode(w);
    }

    /// Whether a place may be taken: with an exact wish only this one (RFC 6887 §13.2).
    pub(super) fn fits(&self, place: SocketAddr) -> bool {
        let wish = self.wanted.wish;
        !self.wanted.exactly
            || wish.port() == place.port()
                && (wish.ip().is_unspecified() || place.ip().is_unspecified() || wish.ip() == place.ip())
    }

    /// Takes what the server granted. Returns how long to wait until the first renewal, or until the end.
    pub(super) fn grant(
        &mut self,
        now: Time,
        place: SocketAddr,
        lifetime: Duration,
        rng: &mut Random,
    ) -> Duration {
        self.standing = Some(Standing { place, ends: now + lifetime, since: now, lifetime, renewals: 0 });
        self.sent = None;
        self.renewal(now, rng)
    }

    /// A renewal leaves: how long to wait for the next one. Renewals are single packets, not sent again before (RFC 6887 §11.2.1).
    pub(super) fn renews(&mut self, now: Time, rng: &mut Random) -> Duration {
        let wait = self.renewal(now, rng);
        self.sent = Some((wait, 1));
        wait
    }

    /// How long ago a mapping was granted, or asked for anew, decides how soon it may be asked for again.
    pub(super) fn rested(&self, now: Time) -> Duration {
        self.standing.map_or(Duration::ZERO, |standing| (standing.since + schedule::CLOSEST).since(now))
    }

    /// Transmissions of the request that waits for its response.
    pub(super) fn transmissions(&self) -> u8 {
        self.sent.map_or(0, |(_, number)| number)
    }

    /// How long to wait for the next renewal; until the end, if none is left.
    pub(super) fn renewal(&mut self, now: Time, rng: &mut Random) -> Duration {
        self.next = Next::Renew;
        let Some(standing) = &mut self.standing else { return Duration::ZERO };
        let after = schedule::renewal(standing.lifetime, standing.renewals, rng).unwrap_or(standing.lifetime);
        standing.renewals += 1;
        (standing.since + after).since(now)
    }
}
