//! Reception of packets.

use std::net::{IpAddr, SocketAddr};

use signalbox_core::{IfIndex, Time};

use super::endpoint::{Sctp, State, Step};
use super::handshake::Init;
use super::packet::{Chunk, Composer, Header, Packet, T_BIT, kind};
use super::{Arrival, AssociationId, LossReason};

impl Sctp {
    /// Takes a packet of IP protocol 132 without its IP header (RFC 9260 §8.4, §8.5).
    ///
    /// `is_known`: whether the user has state of the node with an address. Such a node gets an answer to its INIT while others flood.
    pub fn receive(&mut self, now: Time, arrival: Arrival, octets: &[u8], is_known: &dyn Fn(IpAddr) -> bool) {
        let Arrival { src, dst, ifindex } = arrival;
        self.counters.received += 1;
        let Some(packet) = Packet::parse(octets) else {
            self.counters.malformed += 1;
            tracing::debug!(peer = %src, reason = "malformed, or wrong checksum", "SCTP packet dropped");
            return;
        };
        let ends =
            [SocketAddr::new(dst, packet.header.destination), SocketAddr::new(src, packet.header.source)];
        let Some(first) = packet.chunks().next() else { return };
        match first.kind {
            kind::INIT => self.init(now, &packet, &first, (ends, ifindex), is_known),
            kind::COOKIE_ECHO => self.cookie_echo(now, &packet, &first, ends),
            _ => match self.find(&ends) {
                Some(key) => self.associated(now, key, &packet),
                None => self.out_of_the_blue(now, &packet, &first, (ends, ifindex), is_known),
            },
        }
    }

    /// Answers an INIT without keeping state (RFC 9260 §5.1, §5.2.1, §5.2.2).
    fn init(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        chunk: &Chunk<'_>,
        (ends, ifindex): ([SocketAddr; 2], IfIndex),
        is_known: &dyn Fn(IpAddr) -> bool,
    ) {
        // An INIT must be the only chunk, and its verification tag is 0 (§8.5.1).
        let alone = packet.chunks().count() == 1 && packet.header.tag == 0;
        let Some((peer, _)) = Init::parse(chunk.value).filter(|_| alone) else {
            self.counters.malformed += 1;
            tracing::debug!(peer = %ends[1], reason = "malformed", "INIT dropped");
            return;
        };
        if !self.inits.allow(now, (ends[1].ip(), ifindex), is_known) {
            self.counters.inits_limited += 1;
            tracing::debug!(peer = %ends[1], reason = "rate limit", "INIT dropped");
            return;
        }
        let opening = self.find(&ends).and_then(|key| self.table.get(key));
        let opening = opening.filter(|record| matches!(record.state, State::Opening { .. }));
        let mine = match opening {
            // Both ends open at the same time. With the same tags, one association results (§5.2.1).
            Some(record) => record.mine,
            None if self.config.port == Some(ends[0].port()) => self.own_init(),
            None => {
                self.reply(&ends, peer.tag, kind::ABORT, 0, &[]);
                return;
            }
        };
        if mine.tag == peer.tag {
            return; // probability 2^-32; the peer tries again
        }
        let cookie = self.cookies.seal(now, mine.tag, &peer, &ends);
        self.reply(&ends, peer.tag, kind::INIT_ACK, 0, &mine.answer(&peer, &cookie));
    }

    /// Takes a COOKIE ECHO (RFC 9260 §5.1, §5.2.4): a valid cookie makes state.
    fn cookie_echo(&mut self, now: Time, packet: &Packet<'_>, chunk: &Chunk<'_>, ends: [SocketAddr; 2]) {
        let mine = self.init_of(packet.header.tag);
        let Some(peer) = self.cookies.open(now, chunk.value, mine.tag, &ends) else {
            self.counters.bad_cookies += 1;
            tracing::debug!(peer = %ends[1], reason = "invalid cookie", "COOKIE ECHO dropped");
            return;
        };
        let existing = self.find(&ends);
        let key = match existing
            .and_then(|key| self.table.get(key).map(|record| (key, &record.state, record.mine)))
        {
            // The COOKIE ACK of this node was lost.
            Some((key, State::Up { peer: old, .. }, own)) if own.tag == mine.tag && old.tag == peer.tag => {
                Some(key)
            }
            Some((key, State::Up { .. }, _)) => {
                self.finish(key, Some(LossReason::Restarted));
                self.accept_or_refuse(now, ends, mine, peer)
            }
            Some((key, State::Opening { .. }, _)) => self.up(key, mine, peer).then_some(key),
            None => self.accept_or_refuse(now, ends, mine, peer),
        };
        let Some(key) = key else { return };
        self.reply(&ends, peer.tag, kind::COOKIE_ACK, 0, &[]);
        self.associated(now, key, packet); // data may be in the same packet
    }

    fn accept_or_refuse(
        &mut self,
        now: Time,
        ends: [SocketAddr; 2],
        mine: Init,
        peer: Init,
    ) -> Option<AssociationId> {
        let key = self.accept(now, ends, mine, peer);
        if key.is_none() {
            self.counters.refused += 1;
            tracing::debug!(peer = %ends[1], reason = "table of associations full", "SCTP association refused");
            self.reply(&ends, peer.tag, kind::ABORT, 0, &[]);
        }
        key
    }

    /// Takes a packet of an association (RFC 9260 §8.5).
    fn associated(&mut self, now: Time, key: AssociationId, packet: &Packet<'_>) {
        let Some(record) = self.table.get_mut(key) else { return };
        let tag = packet.header.tag;
        let peer_tag = match &record.state {
            State::Up { peer, .. } | State::Opening { step: Step::Echo { peer, .. }, .. } => Some(peer.tag),
            State::Opening { step: Step::Init, .. } => None,
        };
        // The sender of these two may have lost the association (§8.5.1).
        let reflected = |chunk: &Chunk<'_>| {
            [kind::ABORT, kind::SHUTDOWN_COMPLETE].contains(&chunk.kind) && chunk.flags & T_BIT != 0
        };
        let first_reflected = packet.chunks().next().is_some_and(|chunk| reflected(&chunk));
        let expected = if first_reflected { peer_tag } else { Some(record.mine.tag) };
        if expected != Some(tag) {
            self.counters.bad_tags += 1;
            tracing::debug!(association = key.to_u64(), peer = %record.ends[1], reason = "verification tag", "SCTP packet dropped");
            return;
        }
        if packet.chunks().any(|chunk| chunk.kind == kind::ABORT) {
            self.finish(key, Some(LossReason::Aborted));
            return;
        }
        record.last_received = now;
        if let State::Opening { .. } = record.state {
            self.answered(now, key, packet);
        } else {
            self.established(now, key, packet);
        }
    }

    /// Takes an answer to the INIT or COOKIE ECHO of this node (RFC 9260 §5.1).
    fn answered(&mut self, now: Time, key: AssociationId, packet: &Packet<'_>) {
        let (Some(record), Some(first)) = (self.table.get_mut(key), packet.chunks().next()) else { return };
        let mine = record.mine;
        let State::Opening { step, attempts, again } = &mut record.state else { return };
        match (&*step, first.kind) {
            (Step::Init, kind::INIT_ACK) => {
                let Some((peer, Some(cookie))) = Init::parse(first.value) else {
                    self.counters.malformed += 1;
                    return;
                };
                *step = Step::Echo { cookie: cookie.to_vec(), peer };
                (*attempts, *again) = (0, now);
                self.work(now, key);
            }
            (Step::Echo { peer, .. }, kind::COOKIE_ACK) => {
                let peer = *peer;
                if self.up(key, mine, peer) {
                    self.established(now, key, packet);
                } else {
                    self.break_off(key, LossReason::Violation);
                }
            }
            (Step::Echo { .. }, kind::ERROR) => {
                // A stale cookie: the handshake starts again (§5.2.6).
                *step = Step::Init;
                *again = now;
                self.work(now, key);
            }
            _ => {} // the peer retransmits data that arrives before the COOKIE ACK
        }
    }

    /// Gives chunks of an established association to sctp-proto. Unknown chunks are removed, because sctp-proto ends an
    /// association for them. Chunks of streams that do not exist end the association, because sctp-proto would open a
    /// stream of any number.
    fn established(&mut self, now: Time, key: AssociationId, packet: &Packet<'_>) {
        let at = self.instant(now);
        let Some(record) = self.table.get_mut(key) else { return };
        let State::Up { link, peer } = &mut record.state else { return };
        let mut clean = Composer::new(Header { tag: record.mine.tag, ..packet.header });
        let streams = record.mine.inbound.min(peer.outbound);
        for chunk in packet.chunks() {
            match chunk.kind {
                kind::DATA => {
                    let stream =
                        chunk.value.get(4..6).map(|id| id.iter().fold(0, |n, b| n << 8 | u16::from(*b)));
                    // A DATA chunk without data is forbidden as well (§3.3.1).
                    if chunk.value.len() <= 12 || stream.is_none_or(|stream| stream >= streams) {
                        self.break_off(key, LossReason::Violation);
                        return;
                    }
                }
                // SHUTDOWN acknowledges data as well (§3.3.8), which sctp-proto does not implement.
                kind::SHUTDOWN => {
                    let cumulative = chunk.value.get(..4).unwrap_or_default();
                    let sack = [cumulative, &peer.window.to_be_bytes(), &[0; 4]].concat();
                    link.packet(at, clean.chunk(kind::SACK, 0, &sack).finish());
                    // sctp-proto sends nothing more that waits for the congestion window, and removes it.
                    link.overtaken = link.buffered();
                    clean = Composer::new(Header { tag: record.mine.tag, ..packet.header });
                }
                // sctp-proto ignores entries of streams that it has not opened; such a stream would then never deliver again.
                kind::FORWARD_TSN => {
                    for entry in chunk.value.get(4..).unwrap_or_default().chunks_exact(4) {
                        let stream = entry.iter().take(2).fold(0, |n, b| n << 8 | u16::from(*b));
                        if stream >= streams {
                            self.break_off(key, LossReason::Violation);
                            return;
                        }
                        link.open(stream);
                    }
                }
                kind::SACK | kind::HEARTBEAT | kind::SHUTDOWN_ACK | kind::SHUTDOWN_COMPLETE => {}
                _ => continue,
            }
            clean = clean.copied(&chunk);
        }
        // After its SHUTDOWN COMPLETE sctp-proto has no more state. If that is lost, the next SHUTDOWN ACK is answered as a
        // packet out of the blue.
        let complete = link.is_closing() && packet.chunks().any(|chunk| chunk.kind == kind::SHUTDOWN_ACK);
        if !clean.is_empty() {
            link.packet(at, clean.finish());
        }
        link.ended |= complete;
        if link.ended {
            self.work(now, key);
        } else {
            self.read(key);
            self.work_later(now, key);
        }
    }

    /// Answers a packet of no association (RFC 9260 §8.4).
    fn out_of_the_blue(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        first: &Chunk<'_>,
        (ends, ifindex): ([SocketAddr; 2], IfIndex),
        is_known: &dyn Fn(IpAddr) -> bool,
    ) {
        self.counters.out_of_the_blue += 1;
        tracing::debug!(peer = %ends[1], reason = "no such association", "SCTP packet dropped");
        let quiet = [kind::ABORT, kind::SHUTDOWN_COMPLETE, kind::COOKIE_ACK, kind::ERROR, kind::INIT_ACK];
        let origin = (ends[1].ip(), ifindex);
        if packet.chunks().any(|chunk| quiet.contains(&chunk.kind))
            || !self.strays.allow(now, origin, is_known)
        {
            return;
        }
        let answer = if first.kind == kind::SHUTDOWN_ACK { kind::SHUTDOWN_COMPLETE } else { kind::ABORT };
        self.reply(&ends, packet.header.tag, answer, T_BIT, &[]);
    }

    fn reply(&mut self, ends: &[SocketAddr; 2], tag: u32, kind: u8, flags: u8, value: &[u8]) {
        let [local, remote] = *ends;
        let header = Header { source: local.port(), destination: remote.port(), tag };
        let octets = Composer::new(header).chunk(kind, flags, value).finish();
        self.packet(local.ip(), remote.ip(), octets);
    }
}
