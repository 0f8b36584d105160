//! Error messages that this node sends (RFC 5971 §5.6).

use core::net::SocketAddr;

use signalbox_core::NslpId;

use super::compose::{limit, nli, normal, room_for_answer};
use crate::engine::Gist;
use crate::engine::association::Owner;
use crate::engine::interfaces::is_anycast;
use crate::engine::nat::nat_traversal_of;
use crate::engine::outbox::Envelope;
use crate::engine::receive::Arrival;
use crate::engine::routing::NONE;
use crate::wire::{ErrorObject, Header, Infos, Message, MessageType, Nli, ObjectType, find_object};

impl Gist {
    /// Answers a message with an Error: to the address in its NLI or, if the NLI cannot be parsed and S=1, to its IP source
    /// (RFC 5971 §5.6). GIST-5.6-05, GIST-5.6-06. It neither uses nor makes state (GIST-5.6-02), does not retransmit
    /// (GIST-5.6-03), and limits the rate (GIST-5.6-04).
    pub(in crate::engine) fn send_error(&mut self, a: &Arrival<'_>, error: ErrorObject<'_>) {
        if a.association != NONE {
            return self.send_error_over(a, error);
        }
        let sender = find_object(a.octets, ObjectType::NLI).and_then(|object| Nli::interface_of(&object));
        let to = match sender {
            Some(sender) => Some(SocketAddr::new(sender, a.src.port())),
            None => Header::parse(a.octets).is_ok_and(|header| header.s).then_some(a.src),
        };
        self.send_error_to(a, error, to, false);
    }

    /// An Error about a message of an association is sent over that association. GIST-5.6-08.
    fn send_error_over(&mut self, a: &Arrival<'_>, error: ErrorObject<'_>) {
        if !self.may_send_error(a) {
            self.counters.errors_suppressed += 1;
            return;
        }
        let owner = Owner::Gist;
        let mut message = Message::new(MessageType::ERROR, NslpId::NONE, self.config.hops);
        message.error = Some(error);
        let tools = (&mut self.out, &mut self.rng, &mut self.counters);
        match self.associations.send(tools, self.now, a.association, &message, &owner) {
            Ok(()) => self.counters.errors_sent += 1,
            Err(_) => self.counters.errors_unsendable += 1,
        }
    }

    /// Whether the rate of Errors allows one more.
    fn may_send_error(&mut self, a: &Arrival<'_>) -> bool {
        let Self { config, rates, peers, .. } = self;
        let known = || a.association != NONE || peers.is_known(a.src.ip());
        config.error_rate > 0 && rates.allow_error(self.now, (a.src.ip(), a.ifindex), known)
    }

    /// Sends an Error to a given address. With `through_nat` its source is the address that the message was sent to, so
    /// that a NAT on the path treats it as a reply (RFC 5971 §7.2.1). GIST-7.2.1-03.
    pub(in crate::engine) fn send_error_to(
        &mut self,
        a: &Arrival<'_>,
        error: ErrorObject<'_>,
        to: Option<SocketAddr>,
        through_nat: bool,
    ) {
        let to = to.filter(|to| {
            let ip = to.ip();
            !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || self.interfaces.is_local(ip))
        });
        let source = to.and_then(|to| {
            let addressed = Some(a.dst.ip())
                .filter(|source| a.local && source.is_ipv6() == to.is_ipv6() && !is_anycast(*source));
            addressed.or_else(|| self.interfaces.address(a.ifindex, to.is_ipv6()))
        });
        let (Some(to), Some(source)) = (to, source) else {
            self.counters.errors_unsendable += 1;
            dropped!(a, "no address for the Error");
            return;
        };
        let cause = self.cause_of_answer((a.src.ip(), a.ifindex), a.src.ip());
        if !self.may_send_error(a) || !self.may_send(cause) {
            self.counters.errors_suppressed += 1;
            tracing::debug!(peer = %to, reason = "rate limit", "Error not sent");
            return;
        }
        let from = if through_nat && a.dst.is_ipv6() == to.is_ipv6() { a.dst.ip() } else { source };
        let mut message = Message::new(MessageType::ERROR, NslpId::NONE, self.config.hops);
        message.error = Some(error);
        message.nat_traversal = nat_traversal_of(a.octets);
        // §5.3.1: S=0 only if the source is not an address of this node.
        message.header.s = from == source;
        message.nli = Some(nli(&self.config, self.config.validity, source, 0));
        let limit = limit(&self.config, self.interfaces.mtu(a.ifindex));
        let envelope = Envelope { unproved: true, ..normal(&self.config, from, to, self.config.ip_ttl) };
        // An Error to a forged source is not much larger than the message. What a short message leaves no room for is
        // left out.
        let room = limit.min(room_for_answer(a));
        let short = ErrorObject { session: None, mri_octets: None, infos: Infos::NONE, ..error };
        for error in [error, short] {
            message.error = Some(error);
            if self.out.compose(envelope, &[], &message, room).is_ok() {
                self.counters.errors_sent += 1;
                return;
            }
        }
        // GIST-5.6-09: it is counted.
        self.counters.errors_unsendable += 1;
    }
}
