//! Messages with C=1: Queries, and Data in Q-mode (RFC 5971 §7.2.3, the list for a message with C=1).

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{Endpoint, OpenerId, Pinhole};
use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Mri};

use super::bindings::{BindingRequest, Bindings, Purpose, Requester};
use super::entry::{Bound, Entry};
use super::flow::{Kernel, requester};
use super::interfaces::Side;
use super::leases::Choice;
use super::message::{MAX_NATS, NewMri, Parts, translated};
use super::outbox::Envelope;
use super::{Gateway, SHORTEST, UDP, envelope_of};
use crate::error::DecodeError;
use crate::wire::{
    GistError, Header, Info, Infos, MessageType, MrmId, Nli, ObjectType, PORT, mri_parse, object_value_info,
};

/// Octets of the IPv4 header without options, and of the UDP header.
const HEADERS: usize = 28;

/// Where a message goes, and what changes in it.
#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) mri: NewMri,
    pub(super) binding: Option<Key>,
    /// The Interface-Address that it leaves with; `None`: as it came.
    pub(super) interface: Option<IpAddr>,
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    pub(super) towards: Side,
}

/// Why a message is not translated.
pub(super) enum NotTranslated {
    /// Its sender gets an Error about the MRI: it cannot be translated faithfully.
    Untranslatable,
    /// Its sender gets an Error: the MRI is malformed.
    Malformed(DecodeError),
    /// No host inside is known for the flow.
    NoHost,
    /// It cannot be served now. The reason is counted.
    Busy,
    /// It asks for a way to a host inside that did not send it.
    OtherHost,
    /// The kernel is asked first whether it translates these packets of the flow already.
    LookUpFirst(FlowFilter),
    /// Its sender has got an Error already.
    Refused,
}

pub(super) const fn endpoint(address: Ipv4Addr, port: u16) -> Endpoint {
    Endpoint { address: IpAddr::V4(address), port: Some(port) }
}

impl Gateway {
    /// Translates a message with C=1, or refuses it.
    pub(super) fn on_q_mode(&mut self, packet: &Received<'_>, octets: &[u8], kernel: Kernel) {
        let from = self.interfaces.side(packet.ifindex);
        let (Some(from), Some(external)) = (from, self.interfaces.external()) else {
            self.counters.no_address += 1;
            return;
        };
        let parts = match Parts::of(octets) {
            Ok(parts) => parts,
            Err(broken) => return self.refuse_broken(packet, octets, &broken),
        };
        if packet.ttl <= 1 {
            return self.on_ttl_expired(packet);
        }
        // GISTNAT-R4.3.4-02
        if parts.header.hops <= 1 {
            self.counters.hops_exceeded += 1;
            return self.refuse(packet, octets, (GistError::HOP_LIMIT_EXCEEDED, Infos::NONE), false);
        }
        if parts.nat.is_some_and(|nat| nat.replaced.len() >= MAX_NATS) {
            self.counters.too_deep += 1;
            let info = object_value_info(octets, ObjectType::NAT_TRAVERSAL, 6);
            return self.refuse(
                packet,
                octets,
                (GistError::VALUE_NOT_SUPPORTED, Infos::some(info, None)),
                false,
            );
        }
        let Ok(nli) = Nli::parse(&parts.nli) else { return };
        match self.rewrite(packet, &parts, &nli, (from, external), kernel) {
            Ok(rewrite) => self.send_on(packet, &parts, &nli, &rewrite),
            Err(NotTranslated::LookUpFirst(packets)) => match self.lookups.put(packet) {
                Some(key) => self.out.find(OpenerId::GIST_NAT.pinhole(key), packets),
                None => self.counters.waiting_full += 1,
            },
            Err(reason) => self.refuse_untranslated(packet, octets, &reason),
        }
    }

    /// Whether the rate of the sender of a packet allows one more message.
    pub(super) fn is_allowed(&mut self, packet: &Received<'_>) -> bool {
        let allowed = self.queries.allow(self.now, &(source(packet.src.ip()), packet.ifindex));
        if !allowed {
            self.counters.queries_limited += 1;
            tracing::debug!(peer = %packet.src, reason = "rate limit of the source", "message dropped");
        }
        allowed
    }

    fn refuse_untranslated(&mut self, packet: &Received<'_>, octets: &[u8], reason: &NotTranslated) {
        let about_mri = Infos::one(Info::ObjectType(ObjectType::MRI));
        match reason {
            NotTranslated::Untranslatable => {
                self.counters.untranslatable += 1;
                self.refuse(packet, octets, (GistError::UNTRANSLATED_OBJECT, about_mri), false);
            }
            NotTranslated::Malformed(error) => {
                self.counters.malformed += 1;
                self.refuse_decoded(packet, octets, error);
            }
            // GISTNAT-X-16
            NotTranslated::NoHost => {
                self.counters.no_forward += 1;
                if self.config.silent {
                    tracing::debug!(peer = %packet.src, reason = "no host inside", "message dropped");
                } else {
                    self.refuse(packet, octets, (GistError::ENDPOINT_FOUND, Infos::NONE), false);
                }
            }
            NotTranslated::Busy => {
                tracing::debug!(peer = %packet.src, reason = "no binding", "message dropped")
            }
            NotTranslated::OtherHost => {
                self.counters.other_host += 1;
                tracing::debug!(peer = %packet.src, reason = "a way to another host", "message dropped");
            }
            NotTranslated::Refused | NotTranslated::LookUpFirst(_) => {}
        }
    }

    /// Whether a message from inside has the source that it names. Otherwise a NAT that is not GIST-aware lies between, or
    /// the source is forged. The sender gets an Error at its IP source (RFC 5971 §7.2.1).
    fn is_from_its_source(
        &mut self,
        packet: &Received<'_>,
        parts: &Parts<'_>,
        nli: &Nli<'_>,
        mri: &Mri,
    ) -> bool {
        let named = if parts.header.s { nli.interface } else { mri.inverted().target() };
        if packet.src.ip() == named {
            return true;
        }
        self.counters.untranslated += 1;
        let infos = Infos::one(Info::ObjectType(ObjectType::MRI));
        self.refuse(packet, parts.octets, (GistError::UNTRANSLATED_OBJECT, infos), true);
        false
    }

    fn rewrite(
        &mut self,
        packet: &Received<'_>,
        parts: &Parts<'_>,
        nli: &Nli<'_>,
        (from, external): (Side, Ipv4Addr),
        kernel: Kernel,
    ) -> Result<Rewrite, NotTranslated> {
        let mri = match mri_parse(parts.mri.value) {
            Ok(mri) => mri,
            Err(_) if is_private(parts.mri.value) => {
                return self.unknown_method(packet, nli, (from, external));
            }
            Err(error) if error.field == "MRM-ID" => return Err(NotTranslated::Untranslatable),
            Err(error) => {
                let start = parts.mri.start;
                let error = DecodeError { offset: error.offset + start, object_start: start, ..error };
                return Err(NotTranslated::Malformed(error));
            }
        };
        if from == Side::Inside && !self.is_from_its_source(packet, parts, nli, &mri) {
            return Err(NotTranslated::Refused);
        }
        match (&mri, from) {
            (Mri::PathCoupled(p), Side::Inside) => self.outward(packet, nli, p, external, kernel),
            (Mri::PathCoupled(p), Side::Outside) => self.inward(packet, nli, p, external, kernel),
            // GISTNAT-X-26: the source is the address that data of the host get; there are no ports.
            (Mri::LooseEnd(_), Side::Inside) => {
                let source = Some((IpAddr::V4(external), None));
                let mri = NewMri { source, destination: None };
                self.outward_way(packet, nli, external, (mri, None), packet.dst)
            }
            (Mri::LooseEnd(_), Side::Outside) => Err(NotTranslated::NoHost),
        }
    }

    /// A routing method that this node does not know, with N=1: the MRI stays. GISTNAT-X-25.
    fn unknown_method(
        &mut self,
        packet: &Received<'_>,
        nli: &Nli<'_>,
        (from, external): (Side, Ipv4Addr),
    ) -> Result<Rewrite, NotTranslated> {
        match from {
            Side::Inside => self.outward_way(packet, nli, external, (NewMri::default(), None), packet.dst),
            Side::Outside => Err(NotTranslated::NoHost),
        }
    }

    /// The way of a message from inside: its source is the external address, with the port of the sender's datagrams.
    /// GISTNAT-X-08.
    pub(super) fn outward_way(
        &mut self,
        packet: &Received<'_>,
        nli: &Nli<'_>,
        external: Ipv4Addr,
        (mri, binding): (NewMri, Option<Key>),
        dst: SocketAddr,
    ) -> Result<Rewrite, NotTranslated> {
        let IpAddr::V4(interface) = nli.interface else { return Err(NotTranslated::Untranslatable) };
        let sender = SocketAddrV4::new(interface, packet.src.port());
        let requester = requester(packet, nli.interface);
        if requester == Requester::Other {
            self.counters.other_host += 1;
            tracing::debug!(peer = %packet.src, %interface, "no way for datagrams to another host");
            // The Response goes to its GIST port, and to no port that the sender chooses.
            if packet.src.port() != PORT {
                return Err(NotTranslated::Busy);
            }
        }
        let owner = source(packet.src.ip());
        let datagrams =
            self.datagrams_of(sender, external, (owner, packet.ifindex, requester), self.config.reserve);
        let (key, port) = datagrams.ok_or(NotTranslated::Busy)?;
        self.activate(key);
        if let Some(binding) = binding.and_then(|binding| self.bindings.get_mut(binding))
            && let Some(first) = binding.related.first_mut()
        {
            *first = Some(key);
        }
        let hairpin = dst != packet.dst;
        Ok(Rewrite {
            mri,
            binding,
            interface: Some(IpAddr::V4(external)),
            src: (external, port).into(),
            dst,
            towards: if hairpin { Side::Inside } else { Side::Outside },
        })
    }

    /// The binding of datagrams to a host inside, and its external port. If another host names it, only the port is
    /// reserved. GISTNAT-D6.1-10.
    pub(super) fn datagrams_of(
        &mut self,
        sender: SocketAddrV4,
        external: Ipv4Addr,
        (owner, ifindex, requester): (IpAddr, IfIndex, Requester),
        lifetime: Duration,
    ) -> Option<(Key, u16)> {
        let choice = (Choice::Range, requester == Requester::Host);
        let hold = self.lease(ifindex, (UDP, sender), choice)?;
        let port = hold.external.1;
        let any = Prefix::all_like(IpAddr::V4(external));
        let to = Prefix::host(IpAddr::V4(external));
        let packets =
            FlowFilter { protocol: Some(UDP), dst_port: Some(port), ..FlowFilter::between(any, to) };
        let destination = Some(endpoint(*sender.ip(), sender.port()));
        let request = BindingRequest {
            purpose: Purpose::Datagrams,
            pinhole: Pinhole { destination, ..Pinhole::allow(packets) },
            hold: Some(hold),
            owner,
            ifindex,
            requester,
            adopted: false,
        };
        Some((self.bind(request, lifetime)?, port))
    }

    /// Lifetime of bindings after a handshake. GISTNAT-X-10.
    pub(super) fn lifetime(&self, validity: Duration) -> Duration {
        validity.max(SHORTEST).min(self.config.max_lifetime)
    }

    fn send_on(&mut self, packet: &Received<'_>, parts: &Parts<'_>, nli: &Nli<'_>, rewrite: &Rewrite) {
        let interface = rewrite.interface.unwrap_or(nli.interface);
        let is_own = rewrite.interface.is_some();
        let header = Header {
            hops: parts.header.hops - 1,
            // GISTNAT-X-11
            s: if is_own { rewrite.src.ip() == interface } else { parts.header.s },
            ..parts.header
        };
        let entry = Entry {
            link: u16::try_from(packet.ifindex.0).unwrap_or(0),
            port: packet.src.port(),
            binding: rewrite.binding.map_or(0, Bindings::handle),
            interface: nli.interface,
            own: packet.src.ip() == nli.interface,
        };
        let bound = Bound {
            session: parts.session,
            nslp: parts.header.nslp,
            mri: parts.original_mri(),
            cookie: parts.cookie,
        };
        let sealed = entry.seal(&self.secret, self.now, &bound);
        let mtu = usize::try_from(self.interfaces.mtu(rewrite.towards)).unwrap_or(usize::MAX);
        let room = mtu.saturating_sub(HEADERS + packet.options.len());
        let envelope =
            Envelope { src: rewrite.src, dst: rewrite.dst, dont_fragment: true, ..envelope_of(packet) };
        let sent = self.out.packet(envelope, packet.options, |out, start| {
            let fits = bound.mri.len() <= 255 * 4
                && translated(parts, header, &rewrite.mri, rewrite.interface, sealed.octets(), out)
                && out.len() - start <= room;
            fits.then_some(())
        });
        match sent {
            Some(()) if header.kind == MessageType::QUERY => self.counters.queries += 1,
            Some(()) => self.counters.data += 1,
            // GISTNAT-R4.3.4-03: what the sender may use is less by what this gateway adds.
            None => {
                self.counters.too_large += 1;
                let object = if parts.nat.is_some() { 0 } else { 12 + bound.mri.len() };
                let growth = object + (2 + sealed.octets().len()).next_multiple_of(4);
                let mtu = u16::try_from(mtu.saturating_sub(growth)).unwrap_or(u16::MAX);
                let infos = Infos::one(Info::Mtu(mtu));
                self.refuse(packet, parts.octets, (GistError::MESSAGE_TOO_LARGE, infos), false);
            }
        }
    }
}

/// Whether an MRI is of a routing method that is not known here, with N=1.
fn is_private(mri: &[u8]) -> bool {
    let [method, flags, ..] = mri else { return false };
    !matches!(MrmId(*method), MrmId::PATH_COUPLED | MrmId::LOOSE_END) && flags & 0x80 != 0
}
