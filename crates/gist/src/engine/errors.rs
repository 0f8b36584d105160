//! Error messages of ours (RFC 5971 §5.6).

use core::net::SocketAddr;

use signalbox_core::NslpId;

use super::Gist;
use super::compose::normal;
use super::outbox::Unsent;
use super::receive::Arrival;
use crate::wire::{Encapsulation, ErrorObject, Header, Message, MessageType, Nli, ObjectType, find_object};

impl Gist {
    /// Answers a message with an Error: to the address in its NLI, or if that cannot be understood to its IP
    /// source, provided that S=1. GIST-5.6-05, GIST-5.6-06. No state is consulted and none is made
    /// (GIST-5.6-02), nothing is sent twice (GIST-5.6-03), and the rate is limited (GIST-5.6-04).
    pub(super) fn send_error(&mut self, a: &Arrival<'_>, error: ErrorObject<'_>) {
        let nli = find_object(a.octets, ObjectType::NLI).and_then(|object| Nli::parse(&object).ok());
        let to = match nli {
            Some(nli) => Some(SocketAddr::new(nli.interface, a.src.port())),
            None => Header::parse(a.octets).is_ok_and(|header| header.s).then_some(a.src),
        };
        self.send_error_to(a, error, to);
    }

    /// The same to a given address.
    pub(super) fn send_error_to(&mut self, a: &Arrival<'_>, error: ErrorObject<'_>, to: Option<SocketAddr>) {
        let to = to.filter(|to| {
            let ip = to.ip();
            !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || self.interfaces.is_local(ip))
        });
        let from = to.and_then(|to| {
            let same_version = a.dst.is_ipv6() == to.is_ipv6();
            let addressed = (a.local && same_version).then(|| a.dst.ip());
            addressed.or_else(|| self.interfaces.address(a.ifindex, to.is_ipv6()))
        });
        let (Some(to), Some(from)) = (to, from) else {
            self.counters.errors_unsendable += 1;
            return;
        };
        if !self.errors.allow(self.now) || !self.may_send() {
            self.counters.errors_suppressed += 1;
            return;
        }
        let mut message = Message::new(MessageType::ERROR, NslpId::NONE, self.config.hops);
        message.error = Some(error);
        // §7.2.1: a 9/4 goes back by the way it came, where the NAT will take it for a reply. The address
        // asked for is then not ours to put into the NLI, but we know no other that is better.
        let envelope = if to == a.src && a.encapsulation == Encapsulation::QMode && !a.local {
            normal(self.reply_source(a, from), to, self.config.ip_ttl)
        } else {
            normal(from, to, self.config.ip_ttl)
        };
        message.header.s = envelope.src.ip() == from;
        message.nli = Some(Nli {
            peer_identity: &self.config.identity,
            ip_ttl: 0,
            validity_ms: super::compose::milliseconds(self.config.validity),
            interface: from,
        });
        let limit = usize::from(self.config.max_datagram);
        match self.out.compose(envelope, &[], &message, limit) {
            Ok(_) => self.counters.errors_sent += 1,
            // GIST-5.6-09: counted; the driver logs what is counted.
            Err(Unsent::TooLarge(_) | Unsent::Encode(_)) => self.counters.errors_unsendable += 1,
        }
    }

    /// The source address of a reply to a message that crossed a NAT (RFC 5971 §7.2.1).
    const fn reply_source(&self, a: &Arrival<'_>, own: core::net::IpAddr) -> core::net::IpAddr {
        if a.dst.is_ipv6() == own.is_ipv6() { a.dst.ip() } else { own }
    }
}
