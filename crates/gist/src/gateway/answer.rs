//! Messages with C=0 and a NAT-Traversal object: Responses and Errors (RFC 5971 §7.2.3, the list for a message with a
//! NAT-Traversal object).

use core::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{Endpoint, Pinhole};
use signalbox_core::slab::Key;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Time};

use super::bindings::{BindingRequest, Course, InKernel, Proof, Purpose, RELATED, Requester};
use super::entry::{Bound, Entry};
use super::interfaces::Side;
use super::leases::Choice;
use super::message::{Echo, MAX_OFFERS, Offer, offers, patch, patch_end, unwound};
use super::outbox::{Envelope, Waiting};
use super::query::endpoint;
use super::{Gateway, UDP, envelope_of};
use crate::wire::{
    ErrorObject, Header, MessageType, Nli, ObjectType, PORT, RawObject, find_object, find_session,
};

/// The entry of this gateway in an answer.
#[derive(Debug)]
pub(super) struct OwnEntry<'a> {
    header: Header,
    echo: Echo<'a>,
    /// Place of the entry in the object.
    place: (usize, usize),
    entry: Entry,
    /// The answer is a Response to the Query that the entry was made for.
    of_query: bool,
}

/// The nodes of a handshake as the gateway sees them when the Response passes.
#[derive(Debug, Clone, Copy)]
struct Handshake {
    /// The Querying node: address and UDP port.
    querying: SocketAddrV4,
    /// Address of the Responding node.
    responding: Ipv4Addr,
    external: Ipv4Addr,
    course: Course,
    /// Who asks for a way to the Querying node inside.
    requester: Requester,
    /// Whose share the bindings count for: the sender of the Query.
    owner: IpAddr,
    /// The interface by which the Query came in.
    ifindex: IfIndex,
    lifetime: Duration,
}

impl Gateway {
    /// The entry of this gateway in an answer; `None`: it is no answer, or has no such entry.
    pub(super) fn own_entry<'a>(&self, now: Time, octets: &'a [u8]) -> Option<OwnEntry<'a>> {
        let header = Header::parse(octets).ok()?;
        let (session, nslp) = match header.kind {
            MessageType::RESPONSE => (find_session(octets)?, header.nslp),
            MessageType::ERROR => {
                let error = ErrorObject::parse(&find_object(octets, ObjectType::ERROR)?).ok()?;
                (error.session?, error.original()?.nslp)
            }
            _ => return None,
        };
        let echo = Echo::of(octets)?;
        let cookie = find_object(octets, ObjectType::QUERY_COOKIE).map(|object| object.value);
        let cookie = cookie.filter(|_| header.kind == MessageType::RESPONSE);
        let bound = Bound { session, nslp, mri: echo.mri, cookie };
        echo.last_entries().find_map(|(at, octets)| {
            let (entry, of_query) = Entry::open(&self.secret, now, octets, &bound)?;
            Some(OwnEntry { header, echo, place: (at, octets.len()), entry, of_query })
        })
    }

    /// Sends an answer back to where its Query came from. What comes from another side, or has the entry of another Query, is
    /// dropped. GISTNAT-D6.1-05, GISTNAT-X-06.
    pub(super) fn on_answer(&mut self, packet: &Received<'_>, octets: &[u8], own: &OwnEntry<'_>) {
        let key = self.bindings.of_handle(own.entry.binding);
        let flow = key.and_then(|key| self.bindings.get(key));
        let course = flow.map_or(Course::Outward, |flow| flow.course);
        let (from_inside, to_inside) = (course.is_from_inside(), course.is_to_inside());
        let side = if to_inside { Side::Inside } else { Side::Outside };
        if own.entry.binding != 0 && flow.is_none() {
            // The Querying node would take the handshake for complete, and packets of the flow would not pass.
            self.counters.binding_gone += 1;
            return tracing::debug!(peer = %packet.src, reason = "binding ended or refused", "message dropped");
        }
        if self.interfaces.side(packet.ifindex) != Some(side) {
            self.counters.foreign_link += 1;
            return tracing::debug!(peer = %packet.src, reason = "not from where its Query went", "message dropped");
        }
        if own.header.kind == MessageType::RESPONSE && !own.of_query {
            self.counters.foreign_cookie += 1;
            return tracing::debug!(peer = %packet.src, reason = "another Query-Cookie", "message dropped");
        }
        if packet.ttl <= 1 {
            return self.on_ttl_expired(packet);
        }
        let Some(external) = self.interfaces.external() else { return };
        let nli_object = find_object(octets, ObjectType::NLI);
        let nli = nli_object.as_ref().and_then(|object| Nli::parse(object).ok());
        let mut ports = [None; MAX_OFFERS];
        if let (MessageType::RESPONSE, Some(key), Some(nli)) = (own.header.kind, key, &nli) {
            ports = self.on_response(packet, own, octets, key, nli);
            if !self.is_ready(key, packet) {
                return;
            }
        }
        match own.header.kind {
            MessageType::RESPONSE => self.counters.responses += 1,
            _ => self.counters.errors += 1,
        }
        let mut envelope = envelope_of(packet);
        let mut header = own.header;
        // GISTNAT-X-12
        header.hops = header.hops.saturating_sub(1).max(1);
        let mut interface = None;
        if to_inside {
            envelope.src = (external, PORT).into();
            interface = nli_object.zip(nli).filter(|(_, nli)| nli.interface.is_ipv4());
            header.s = true;
        }
        if from_inside {
            envelope.dst = (own.entry.interface, own.entry.port).into();
        }
        envelope.ifindex = (own.entry.link != 0).then_some(IfIndex(u32::from(own.entry.link)));
        self.unwind(
            packet,
            octets,
            own,
            (envelope, header),
            (interface.map(|(object, _)| object), external),
            ports,
        );
    }

    /// Whether the kernel has all bindings of a flow. If not, the Response waits: the next message of the Querying node
    /// would not pass.
    fn is_ready(&mut self, flow: Key, packet: &Received<'_>) -> bool {
        let Some(related) = self.bindings.get(flow).map(|binding| binding.related) else { return true };
        let asked = |gateway: &Self, key| {
            gateway.bindings.get(key).is_some_and(|binding| matches!(binding.kernel, InKernel::Asked { .. }))
        };
        let Some(awaited) = related.into_iter().flatten().chain([flow]).find(|key| asked(self, *key)) else {
            return true;
        };
        if let Some(InKernel::Asked { awaited_by, .. }) =
            self.bindings.get_mut(awaited).map(|binding| &mut binding.kernel)
        {
            *awaited_by = Some(flow);
        }
        if let Some(binding) = self.bindings.get_mut(flow)
            && !binding.wait(Waiting::of(packet))
        {
            self.counters.waiting_full += 1;
        }
        false
    }

    /// Queues an answer without the entry of this gateway. The MRI and the Error object stay. GISTNAT-R7.2.3-06,
    /// GISTNAT-R7.2.3-09.
    fn unwind(
        &mut self,
        packet: &Received<'_>,
        octets: &[u8],
        own: &OwnEntry<'_>,
        (envelope, header): (Envelope, Header),
        (nli, external): (Option<RawObject<'_>>, Ipv4Addr),
        ports: [Option<(usize, u16)>; MAX_OFFERS],
    ) {
        self.out.packet(envelope, packet.options, |out, _| {
            let moved = unwound(octets, header, &own.echo, own.place, out);
            if let Some(nli) = nli {
                patch_end(out, moved.wrapping_add(nli.start + nli.octets.len()), IpAddr::V4(external));
            }
            for (at, port) in ports.into_iter().flatten() {
                patch(out, moved.wrapping_add(at), &port.to_be_bytes());
            }
            Some(())
        });
    }

    /// A Response confirms a flow: its bindings become active. It returns the ports that change in the
    /// Stack-Configuration-Data, with their places. GISTNAT-D6.1-02, GISTNAT-X-07.
    fn on_response(
        &mut self,
        packet: &Received<'_>,
        own: &OwnEntry<'_>,
        octets: &[u8],
        key: Key,
        nli: &Nli<'_>,
    ) -> [Option<(usize, u16)>; MAX_OFFERS] {
        let mut ports = [None; MAX_OFFERS];
        let (IpAddr::V4(querying), IpAddr::V4(responding)) = (own.entry.interface, nli.interface) else {
            return ports;
        };
        let Some(external) = self.interfaces.external() else { return ports };
        let Some(binding) = self.bindings.get_mut(key) else { return ports };
        let validity = binding.validity.max(Duration::from_millis(nli.validity_ms.into()));
        let is_first = !binding.is_confirmed();
        binding.proof = Proof::Confirmed;
        let course = binding.course;
        let (owner, ifindex) = (binding.owner, binding.ifindex);
        let lifetime = self.lifetime(validity);
        self.counters.activated += u64::from(is_first);
        self.keep(key, owner, lifetime);
        if course.is_to_inside() && packet.src.ip() != nli.interface {
            self.counters.other_host += u64::from(is_first);
            tracing::debug!(peer = %packet.src, interface = %nli.interface, "no way to another host for messages");
            return ports;
        }
        let querying = SocketAddrV4::new(querying, own.entry.port);
        let requester = if own.entry.own { Requester::Host } else { Requester::Other };
        let handshake =
            Handshake { querying, responding, external, course, requester, owner, ifindex, lifetime };
        let mut related = self.datagram_bindings(&handshake);
        let stack = find_object(octets, ObjectType::STACK_CONFIGURATION);
        let offers = stack.as_ref().map_or([None; MAX_OFFERS], offers);
        for (nth, offer) in offers.into_iter().enumerate() {
            let Some((key, port)) = offer.and_then(|offer| self.association_binding(&handshake, offer))
            else {
                continue;
            };
            if let (Some(place), Some(related)) = (ports.get_mut(nth), related.get_mut(2 + nth)) {
                *place = offer.filter(|offer| offer.port != port).map(|offer| (offer.at, port));
                *related = Some(key);
            }
        }
        for key in related.into_iter().flatten() {
            self.keep(key, owner, lifetime);
        }
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.related = related;
        }
        ports
    }

    /// The bindings of GIST messages in datagrams: from the Querying node, and to it. A binding of the same packets to
    /// another Responding node inside stays (GISTNAT-X-09).
    fn datagram_bindings(&mut self, handshake: &Handshake) -> [Option<Key>; RELATED] {
        let Handshake { querying, responding, external, course, requester, owner, ifindex, lifetime } =
            *handshake;
        let (from_inside, to_inside) = (course.is_from_inside(), course.is_to_inside());
        let mut related = [None; RELATED];
        let [to, from, ..] = &mut related;
        let mut port = None;
        if from_inside {
            let datagrams = self.datagrams_of(querying, external, (owner, ifindex, requester), lifetime);
            let Some((key, own)) = datagrams else { return related };
            (*to, port) = (Some(key), Some(own));
        }
        let filter = |src: SocketAddrV4, dst: SocketAddrV4| FlowFilter {
            protocol: Some(UDP),
            src_port: Some(src.port()),
            dst_port: Some(dst.port()),
            ..FlowFilter::between(host(*src.ip()), host(*dst.ip()))
        };
        let responder = SocketAddrV4::new(responding, PORT);
        let addressed = if to_inside { SocketAddrV4::new(external, PORT) } else { responder };
        let forth = Pinhole {
            source: port.map(|port| endpoint(external, port)),
            destination: to_inside.then_some(endpoint(responding, PORT)),
            ..Pinhole::allow(filter(querying, addressed))
        };
        let request = |pinhole| BindingRequest {
            purpose: Purpose::Datagrams,
            pinhole,
            hold: None,
            owner,
            ifindex,
            requester: Requester::Outside,
            adopted: false,
        };
        *from = self.bind(request(forth), lifetime);
        if !from_inside && from.is_some() {
            let back = Pinhole {
                source: Some(endpoint(external, PORT)),
                ..Pinhole::allow(filter(responder, querying))
            };
            *to = self.bind(request(back), lifetime);
        }
        related
    }

    /// The binding of an association from the Querying node to a port that the Responding node offers, and the port that
    /// the Querying node uses. GISTNAT-D6.2-04, GISTNAT-D6.2-05.
    fn association_binding(&mut self, handshake: &Handshake, offer: Offer) -> Option<(Key, u16)> {
        let Handshake { querying, responding, external, course, owner, ifindex, lifetime, .. } = *handshake;
        let (from_inside, to_inside) = (course.is_from_inside(), course.is_to_inside());
        let inside = SocketAddrV4::new(responding, offer.port);
        let (mut port, mut hold) = (offer.port, None);
        if to_inside {
            // The Response came from the host itself.
            let lease = self.lease(ifindex, (offer.protocol, inside), (Choice::Same, true))?;
            (port, hold) = (lease.external.1, Some(lease));
        }
        let to = if to_inside { external } else { responding };
        let packets = FlowFilter {
            protocol: Some(offer.protocol),
            dst_port: Some(port),
            ..FlowFilter::between(host(*querying.ip()), host(to))
        };
        let source_address = Endpoint { address: IpAddr::V4(external), port: None };
        let request = BindingRequest {
            purpose: Purpose::Association,
            pinhole: Pinhole {
                source: from_inside.then_some(source_address),
                destination: to_inside.then_some(endpoint(responding, offer.port)),
                ..Pinhole::allow(packets)
            },
            hold,
            owner,
            ifindex,
            requester: Requester::Outside,
            adopted: false,
        };
        let key = self.bind(request, lifetime)?;
        let pair = (*querying.ip(), responding);
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.pair = Some(pair);
        }
        self.pairs.insert(pair, key);
        Some((key, port))
    }
}

const fn host(address: Ipv4Addr) -> Prefix {
    Prefix::host(IpAddr::V4(address))
}
