//! A node on the path (§2.3, framework §4.2): what a passing message does to the reservations of this node, and what this node writes
//! into it.
//!
//! The numbers are the steps of the procedure in `docs/wire/boomerang.md`.

use core::net::IpAddr;

use signalbox_core::Key;
use signalbox_core::packet::Received;
use signalbox_resources::Resources;

use super::Boomerang;
use super::domain::{Proven, Stamp};
use super::flow::{Flow, FlowKey, IS_LOST, demanded_dscp};
use super::interfaces::Iface;
use super::io::Reason;
use super::proof::{Head, MOST, Number, Party};
use super::propose::Offer;
use super::reserve::{Effect, FlowRequest, Lookup};
use super::service::Demand;
use crate::wire::{Ends, Flags, FlowSpec, KEY_FIRST, Known, Message, OF_REPLY, Pass, ReturnProof, edit};

/// Where a message comes from and where it goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// Addresses of the packet.
    pub(super) ends: Ends,
    /// The interface that it came in by; `None`: this node is the initiating node.
    pub(super) iif: Option<Iface>,
    /// The interface that it leaves by.
    pub(super) oif: Iface,
    /// Octets of its IP header.
    pub(super) header: usize,
    /// Octets of the packet in which it came; `None`: this node composed it.
    pub(super) came: Option<usize>,
    /// The TTL with which it came; `None`: this node composed it.
    pub(super) ttl: Option<u8>,
}

impl Origin {
    /// Of a message in a packet that was received.
    pub(super) fn of(packet: &Received<'_>, ends: Ends, iif: Option<Iface>, oif: Iface) -> Self {
        let header = if ends.is_ipv6() { 40 } else { 20 } + packet.options.len();
        Self { ends, iif, oif, header, came: Some(header + packet.payload.len()), ttl: Some(packet.ttl) }
    }

    /// Of a request of this node. Its IP header has at most 60 octets.
    pub(super) const fn own(ends: Ends, oif: Iface) -> Self {
        Self { ends, iif: None, oif, header: 60, came: None, ttl: None }
    }

    /// Whether the message may have this number of octets. It stays within the MTU, and grows to one and a half of the packet
    /// that came at most, unless its initiating node proved that it receives replies.
    pub(super) fn has_room(&self, octets: usize, mtu: usize, proved: bool) -> bool {
        let whole = self.header + octets;
        whole <= mtu && (proved || self.came.is_none_or(|came| whole * 2 <= came * 3))
    }

    /// Address of the initiating node.
    pub(super) const fn initiator(&self, pass: Pass) -> IpAddr {
        match pass {
            Pass::Request => self.ends.src,
            Pass::Reply => self.ends.dst,
        }
    }
}

/// What the initiating node of a message proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Nothing is demanded.
    Nothing,
    /// It receives replies: it returned the number that begins with this.
    Returned(Head),
    /// It is a member of the domain.
    Member(Stamp),
}

/// A message that is not granted because of what it does not prove.
enum Unproved {
    /// It has to prove that it receives replies, by this number.
    Return(Number),
    /// It showed a wrong number, and many wrong ones came.
    Guessed,
    /// The reservation is that of another initiating node.
    Taken,
    /// It is not authenticated.
    Member,
    /// A newer message of the reservation was received.
    Stale,
    /// The request of the same loop has the number of this node, and the next request will prove it.
    Pending,
}

/// What a message asks for, and what its options prove.
#[derive(Debug, Clone, Copy)]
struct Claim {
    /// Rate in its direction, bit/s.
    rate: u32,
    proven: Proven,
    /// A known node proposes an aggregate for the flow.
    member: bool,
}

impl Boomerang {
    /// Carries a message through this node: reserves what it asks for in the direction of its pass, and changes `octets`,
    /// which are those of the message. The checksum of changed octets is left to the caller. Whether they changed.
    pub(super) fn procedure(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: Origin,
        resources: &mut Resources,
    ) -> bool {
        let mut offer = None;
        let changed = self.interpret(octets, message, origin, &mut offer, resources);
        if !self.aggregates_flows() {
            return changed;
        }
        // 9. The options of aggregates.
        let removed = self.take_options_out(octets, message, &origin);
        let added = offer.is_some_and(|offer| self.propose(octets, message, &origin, &offer));
        changed | removed | added
    }

    /// Steps 3 to 8. `offer` is set to the aggregate that this node proposes for the flow, or proposed for what is released.
    fn interpret(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: Origin,
        offer: &mut Option<Offer>,
        resources: &mut Resources,
    ) -> bool {
        let Some(body) = &message.body else {
            return self.refuse(octets, message, &origin, Reason::Unsupported);
        };
        // BOOM-G29-04
        if body.flow.classifier.dst.is_ipv6() != origin.ends.is_ipv6() {
            return self.refuse(octets, message, &origin, Reason::Unsupported);
        }
        // 3. The interval is lowered on every message. An interval of 0 is not valid.
        let (refresh, shortened) = self.shorten(octets, message);
        // BOOM-G14-02
        if message.refresh == 0 {
            return self.refuse(octets, message, &origin, Reason::BadRequest);
        }
        let demand = match Demand::read(&body.qos, message.pass, &self.hasher) {
            Ok(demand) => demand,
            Err(reason) => return self.refuse(octets, message, &origin, reason),
        };
        // BOOM-1-01, BOOM-P-08
        let rate = demand.rate;
        // BOOM-G7-01
        let tos = body.flow.classifier.tos & 0xfc;
        let service = demand.service(tos >> 2);
        // 5. After a refusal the message is a query. BOOM-F4.2-06, BOOM-G17-01, BOOM-G18-01.
        if message.is_refused() {
            self.counters.without_effect += 1;
            self.note_refused_beyond(message, body, &origin, resources);
            let available = self.available(&origin, service, None, resources);
            // BOOM-F5.7.2-02
            return self.lower(octets, message, available) || shortened;
        }
        // BOOM-G8-01
        let Ok(key) = FlowKey::of(&body.flow, message.pass) else {
            return self.refuse(octets, message, &origin, Reason::Unsupported);
        };
        if !is_of(&key, &body.flow, message.pass, &origin.ends) {
            return self.refuse(octets, message, &origin, Reason::Unsupported);
        }
        if let Some(reason) = self.lost_in_this_loop(body, message.pass, origin.oif) {
            return self.refuse(octets, message, &origin, reason);
        }
        // BOOM-3.2.1-17, BOOM-G38-01
        let initiator = origin.initiator(message.pass);
        if self.config.same_source && origin.iif.is_some() && !is_own(&body.flow, initiator) {
            return self.refuse(octets, message, &origin, Reason::Policy);
        }
        // BOOM-F4.2-02
        let hash = key.hash(origin.oif, &self.hasher);
        // BOOM-P-01, BOOM-P-02
        let found = self.find(hash, &key, origin.oif);
        let proven = match origin.iif {
            None => Proven::Nothing,
            Some(_) => {
                let (integrity, ipv6) = (&self.config.integrity, origin.ends.is_ipv6());
                let option = body.options.authentication();
                self.domain.proven(integrity, self.now, octets, ipv6, option)
            }
        };
        let lookup = Lookup { hash, found };
        let may_be_member = demand.intserv.is_none() && !key.is_of_group();
        let proposal = may_be_member.then(|| self.proposal(message, &origin, &key, rate)).flatten();
        let claim = Claim { rate, proven, member: proposal.is_some() };
        let proof = match self.proof(lookup, &key, message, &origin, claim, resources) {
            // BOOM-G10-04
            Ok(proof) => proof,
            Err(unproved) => {
                let nothing = rate == 0 && found.is_none();
                return self.unproved(octets, message, &origin, unproved, (hash, nothing)) || shortened;
            }
        };
        // BOOM-G33-01
        let marked = demanded_dscp(&body.flow.classifier, &body.flow.mask).is_some();
        // BOOM-3.2.3-04
        let request = FlowRequest { key, demand, tos, marked, refresh, body, proof, proposal };
        let standing = found.filter(|_| rate == 0).and_then(|found| self.flows.get(found));
        let former = standing.and_then(|flow| self.offer(flow));
        match self.reserve(lookup, &request, message, &origin, resources) {
            Ok((given, effect)) => {
                self.count(&effect);
                if !matches!(effect, Effect::Nothing | Effect::Refreshed) {
                    tracing::debug!(peer = %origin.ends.src, filter = %key.filter(None), rate = given, ?effect, "reservation changed");
                }
                if self.config.aggregates.propose {
                    let present = self.find(hash, &key, origin.oif).and_then(|found| self.flows.get(found));
                    *offer = present.filter(|_| given > 0).and_then(|flow| self.offer(flow)).or(former);
                }
                let named = given > 0
                    && message.pass == Pass::Request
                    && self.name_granting(octets, body, &origin, false);
                shortened | named | self.write_grant(octets, message, given)
            }
            Err(refused) => {
                tracing::debug!(
                    filter = %key.filter(None), rate, reason = %refused.reason, "reservation refused"
                );
                // BOOM-2.3-06
                self.refuse(octets, message, &origin, refused.reason);
                if let Some(note) = &refused.note {
                    self.explain(octets, message, &origin, note);
                }
                // BOOM-3.2.3-05, BOOM-F3.3.2-01, BOOM-F4.2-04, BOOM-G20-02
                self.lower(octets, message, refused.available);
                true
            }
        }
    }

    /// Lowers the interval of a message to what is valid here. The result is the interval, and whether it was lowered.
    /// BOOM-F4.2-05, BOOM-3.2.1-05, BOOM-3.2.1-06, BOOM-G14-01.
    fn shorten(&self, octets: &mut [u8], message: &Message<'_>) -> (u8, bool) {
        let refresh = match message.refresh {
            0 => self.config.max_refresh,
            seconds => seconds.min(self.config.max_refresh),
        };
        let shortened = refresh != message.refresh;
        if shortened {
            edit::set_refresh(octets, refresh);
        }
        (refresh, shortened)
    }

    /// Handles a message without the proof that it needs, of the flow with a hash. `nothing`: it asks for nothing, and nothing is
    /// held. Whether the octets changed.
    fn unproved(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: &Origin,
        unproved: Unproved,
        (hash, nothing): (u64, bool),
    ) -> bool {
        match unproved {
            Unproved::Member => {
                self.counters.unauthenticated += 1;
                tracing::debug!(peer = %origin.ends.src, reason = "not authenticated", "message without effect");
                !nothing && self.refuse(octets, message, origin, Reason::Unauthenticated)
            }
            Unproved::Stale => {
                self.counters.stale += 1;
                tracing::debug!(peer = %origin.ends.src, reason = "a newer one was received", "message without effect");
                false
            }
            Unproved::Pending => {
                self.counters.unproved += 1;
                tracing::debug!(peer = %origin.ends.src, reason = "the next request of its loop will prove it", "message without effect");
                false
            }
            Unproved::Taken => {
                self.counters.unproved += 1;
                tracing::debug!(peer = %origin.ends.src, reason = "the reservation is that of another node", "message without effect");
                self.refuse(octets, message, origin, Reason::Conflict)
            }
            Unproved::Guessed => {
                self.counters.guesses_limited += 1;
                tracing::debug!(peer = %origin.ends.src, reason = "too many wrong proofs of return", "message without effect");
                self.refuse(octets, message, origin, Reason::WrongProof)
            }
            Unproved::Return(number) => {
                self.counters.unproved += 1;
                tracing::debug!(peer = %origin.ends.src, reason = "it has to prove that it receives replies", "message without effect");
                !nothing && self.demand_proof(octets, message, origin, hash, number)
            }
        }
    }

    /// Writes the number of a proof of return into a message of the flow with a hash. Whether the octets changed.
    /// BOOM-3.2.1-11, BOOM-3.2.1-16, BOOM-G10-02.
    fn demand_proof(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: &Origin,
        hash: u64,
        number: Number,
    ) -> bool {
        let refused = match message.body.filter(|_| message.flags.contains(Flags::RETURNS)) {
            Some(body) => {
                if let Some((placed, _)) = self.proofs.placed(message, message.pass) {
                    edit::set_octets(octets, placed.offset + ReturnProof::NUMBER, number.0.to_be_bytes());
                    None
                } else {
                    let mtu = usize::try_from(self.interfaces.mtu(origin.oif)).unwrap_or(0);
                    let fits = body.options.tail() == 0
                        && body.options.proofs().count() < MOST
                        && origin.has_room(octets.len() + ReturnProof::OCTETS, mtu, false);
                    if fits {
                        let flags = if message.pass == Pass::Reply { OF_REPLY } else { 0 };
                        edit::append_with(octets, flags, &Known::ReturnProof(self.proofs.option(number)));
                    }
                    (!fits).then_some(Reason::KeyFull)
                }
            }
            // A part of a KEY could be guessed.
            None if self.config.provers > 1 => Some(Reason::NoProof),
            None if message.key > KEY_FIRST => Some(Reason::KeyFull),
            None => {
                edit::set_key(octets, number.0);
                None
            }
        };
        if let Some(reason) = refused {
            return self.refuse(octets, message, origin, reason);
        }
        if message.pass == Pass::Request {
            self.proofs.note(hash);
        }
        true
    }

    const fn count(&mut self, effect: &Effect) {
        match effect {
            Effect::Nothing => self.counters.without_effect += 1,
            Effect::Created => self.counters.created += 1,
            Effect::Joined => self.counters.joined += 1,
            Effect::Changed => self.counters.changed += 1,
            Effect::Refreshed => self.counters.refreshed += 1,
            Effect::Released => self.counters.released += 1,
        }
    }

    /// The reservation of a flow; of a group the one at this interface. BOOM-P-05.
    pub(super) fn find(&self, hash: u64, key: &FlowKey, oif: Iface) -> Option<Key> {
        let of_group = key.is_of_group();
        let fits = |flow: &Flow| flow.key == *key && (!of_group || flow.oif == oif);
        let is_it = |index| self.flows.get_index(index).is_some_and(fits);
        self.by_flow.find(hash, is_it).and_then(|index| self.flows.key_of(index))
    }

    /// What a message proved, if that is enough here. BOOM-3.2.1-10, BOOM-F5.4-01.
    fn proof(
        &mut self,
        lookup: Lookup,
        flow: &FlowKey,
        message: &Message<'_>,
        origin: &Origin,
        claim: Claim,
        resources: &Resources,
    ) -> Result<Proof, Unproved> {
        let standing = lookup.found.and_then(|found| self.flows.get(found));
        match claim.proven {
            Proven::Wrong => return Err(Unproved::Member),
            Proven::Member { most, .. } if claim.rate > most.of(message.pass) => {
                return Err(Unproved::Member);
            }
            Proven::Member { stamp, .. } => {
                let newer = match standing.map(Flow::stamp) {
                    Some(last) => last.is_none_or(|last| stamp.is_after(last)),
                    None => self.domain.is_new(lookup.hash, stamp),
                };
                return if newer { Ok(Proof::Member(stamp)) } else { Err(Unproved::Stale) };
            }
            Proven::Nothing => {}
        }
        let Some(iif) = origin.iif else { return Ok(Proof::Nothing) };
        if self.config.integrity.require || standing.is_some_and(|flow| flow.signed) {
            return Err(Unproved::Member);
        }
        // The flows of local users are not those of messages that come in.
        if standing.is_some_and(|flow| flow.iif == Iface::LOCAL) {
            return Err(Unproved::Taken);
        }
        let head = standing.map_or(0, |flow| flow.proof);
        if head == 0 {
            // The node that proposes the aggregate of the flow is known, and demands proofs where they are due.
            if !self.config.prove || claim.member {
                return Ok(Proof::Nothing);
            }
            // Nothing comes back from a group, so nothing proves it.
            if flow.is_of_group() {
                return Err(Unproved::Member);
            }
        }
        let lost = standing.is_some_and(|flow| flow.has(IS_LOST));
        let standing = standing.filter(|_| head != 0).map(|flow| (Head(head), flow.grant));
        let side = if message.pass == Pass::Request { iif } else { origin.oif };
        let party = Party { flow: *flow, initiator: origin.initiator(message.pass), side };
        let result =
            self.proof_of_return(&party, message, (lookup.hash, iif), standing.map(|(head, _)| head));
        // A number that another one was sent does not take the reservation of the first one over.
        if let (Ok(Proof::Returned(new)), Some((old, grant))) = (&result, standing)
            && *new != old
            && !lost
            && resources.reservation(grant).is_none_or(|held| held.requester.holder() != party.initiator)
        {
            return Err(Unproved::Taken);
        }
        result
    }

    /// What the numbers in a message prove. On a symmetric path one number proves both directions. BOOM-G11-02.
    fn proof_of_return(
        &mut self,
        party: &Party,
        message: &Message<'_>,
        (hash, iif): (u64, Iface),
        standing: Option<Head>,
    ) -> Result<Proof, Unproved> {
        let there = party.of_pass(Pass::Request);
        let by_option = message.flags.contains(Flags::RETURNS);
        let shown = self.proofs.shown(message);
        let mut wrong = shown.any();
        if by_option || self.config.provers == 1 {
            let returned = shown.of(message.pass);
            if let Some(head) = standing
                && (self.proofs.continues(party, returned, head)
                    || self.proofs.continues(&there, shown.of(Pass::Request), head))
            {
                return Ok(Proof::Returned(head));
            }
            if message.pass == Pass::Reply {
                let of_request = there.flow.hash(party.side, &self.hasher);
                let request = self.find(of_request, &there.flow, party.side);
                let head = request.and_then(|request| self.flows.get(request)).map_or(0, |flow| flow.proof);
                if head != 0 && self.proofs.continues(&there, shown.of(Pass::Request), Head(head)) {
                    return Ok(Proof::Returned(Head(head)));
                }
                // This node put its number into the request of this loop: the next one proves that its reply was received.
                if self.proofs.is_fresh(self.now, &there, shown.of(Pass::Request)) {
                    if self.proofs.take(of_request) {
                        return Err(Unproved::Pending);
                    }
                    wrong = by_option && returned.is_some();
                }
            }
            if let Some(number) = returned.filter(|_| self.proofs.is_fresh(self.now, party, returned)) {
                return Ok(Proof::Returned(number.head()));
            }
        }
        if wrong {
            self.counters.wrong_proofs += 1;
            tracing::debug!(peer = %party.initiator, reason = "wrong proof of return", "proof not accepted");
            let ifindex = self.interfaces.ifindex(iif);
            if !self.guesses.wrong(self.now, hash, party.initiator, ifindex) {
                return Err(Unproved::Guessed);
            }
        }
        Err(Unproved::Return(self.proofs.current(self.now, party)))
    }
}

/// Whether a message with these addresses can be about the flow: a request to a group is about data to this group, and no
/// other message is about data to a group.
fn is_of(key: &FlowKey, flow: &FlowSpec, pass: Pass, ends: &Ends) -> bool {
    let exact = match flow.mask.dst {
        IpAddr::V4(mask) => mask.is_unspecified(),
        IpAddr::V6(mask) => mask.is_unspecified(),
    };
    let to_group = ends.dst.is_multicast();
    key.is_of_group() == to_group
        && (!to_group || pass == Pass::Request && exact && flow.classifier.dst == ends.dst)
}

/// Whether the flow's source is the initiating node itself.
fn is_own(flow: &FlowSpec, initiator: IpAddr) -> bool {
    let exact = match flow.mask.src {
        IpAddr::V4(mask) => mask.is_unspecified(),
        IpAddr::V6(mask) => mask.is_unspecified(),
    };
    exact && flow.classifier.src == initiator
}
