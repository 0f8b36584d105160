//! Reception of datagrams (RFC 5971 §4.3.1, §4.3.4), and selection of the state machine.

use core::net::SocketAddr;

use signalbox_core::packet::{Received, router_alert};
use signalbox_core::{IfIndex, Mri, NslpId, SessionId};

use super::Gist;
use super::nat::Foreign;
use super::routing::NONE;
use crate::wire::{
    Encapsulation, GistError, HEADER_LENGTH, Header, Infos, Message, MessageType, Nli, ObjectType,
    error_object_for, object_value_info, strip_magic,
};
use crate::wire::{ErrorObject, Info};

/// A received GIST message with the addresses and options of its packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    pub(super) ifindex: IfIndex,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) options: &'a [u8],
    /// The message, from the common header on.
    pub(super) octets: &'a [u8],
    /// Addressed to this node.
    pub(super) local: bool,
    pub(super) encapsulation: Encapsulation,
    /// The association over which it was received, or [`NONE`].
    pub(super) association: u32,
}

/// Flow, session, application and sender of a message. Only Errors have another form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) mri: Mri,
    pub(super) session: SessionId,
    pub(super) nslp: NslpId,
    pub(super) nli: Nli<'a>,
    /// The MRI on the other side of a NAT, if there is one.
    pub(super) foreign: Option<Foreign>,
}

impl Gist {
    /// Takes one datagram (RFC 5971 §4.3.1).
    ///
    /// GIST-3.6-01, GIST-5.3.1-04, GIST-5.3.2.3-06, GIST-5.3.2.3-07: without the magic number it is not a GIST message. It
    /// is dropped if it is addressed to this node, and forwarded unchanged if it was intercepted.
    pub(super) fn receive(&mut self, received: &Received<'_>) {
        let local = self.interfaces.is_local(received.dst.ip());
        let Some(octets) = strip_magic(received.payload) else {
            if local {
                self.counters.no_magic += 1;
                dropped!(received, "no magic number");
            } else {
                self.forward_unchanged(received);
            }
            return;
        };
        let Some([_, _, _, _, n1, n0, kind, _]) = octets.first_chunk::<HEADER_LENGTH>().copied() else {
            self.counters.malformed += 1;
            dropped!(received, "shorter than the common header");
            if !local {
                self.forward_unchanged(received);
            }
            return;
        };
        let c_flag = kind & 0x80 != 0;
        let alert = router_alert(received.options, received.dst.is_ipv6()).is_some();
        // GIST-4.3.1-03, GIST-4.3.4-01: an intercepted packet that is not Q-mode is forwarded unchanged.
        if !(local || alert || self.config.intercept_without_alert && c_flag) {
            self.forward_unchanged(received);
            return;
        }
        let q_mode = !local || alert || c_flag;
        // GIST-5.3.2.3-08, GIST-5.3.2.3-09: candidates beyond the limit are discarded.
        let origin = (received.src.ip(), received.ifindex);
        if q_mode && !self.rates.allow_q_mode(self.now, origin) {
            self.counters.intercept_limited += 1;
            dropped!(received, "interception rate limit");
            return;
        }
        let arrival = Arrival {
            src: received.src,
            dst: received.dst,
            ifindex: received.ifindex,
            ttl: received.ttl,
            tos: received.tos,
            options: received.options,
            octets,
            local,
            encapsulation: if q_mode { Encapsulation::QMode } else { Encapsulation::Normal },
            association: NONE,
        };
        // GIST-4.3.1-04, GIST-4.3.1-07: the NSLPID is checked first, and it alone selects the application.
        let nslp = NslpId(u16::from_be_bytes([n1, n0]));
        self.demultiplex(&arrival, nslp, MessageType(kind & 0x7f), received);
    }

    fn demultiplex(&mut self, a: &Arrival<'_>, nslp: NslpId, kind: MessageType, received: &Received<'_>) {
        let hosted = self.applications.registration(nslp).is_some();
        let q_mode = a.encapsulation == Encapsulation::QMode;
        let header = match Header::parse(a.octets) {
            Ok(header) => header,
            // Another version: it is refused only if it is for this node or an application of it.
            Err(_) if !hosted && !a.local => return self.forward_unchanged(received),
            Err(error) => {
                self.counters.malformed += 1;
                tracing::debug!(peer = %a.src, reason = %error, "message dropped");
                if let Some(object) = error_object_for(&error, a.octets, a.encapsulation) {
                    self.send_error(a, object);
                }
                return;
            }
        };
        // GIST-4.3.1-08, GIST-A.4.4.2-01: hop count 0 is refused before anything else is done.
        if header.hops == 0 {
            self.counters.hops_exceeded += 1;
            dropped!(a, "GIST hop count is 0");
            return self.refuse(a, GistError::HOP_LIMIT_EXCEEDED, Infos::NONE);
        }
        let of_application = !matches!(kind, MessageType::ERROR | MessageType::MA_HELLO);
        if of_application && !hosted {
            match (q_mode, a.local) {
                // GIST-4.3.4-04, GIST-A.4.4.7-01: the end of the flow lacks the application.
                (true, true) => self.refuse(a, GistError::ENDPOINT_FOUND, Infos::NONE),
                // GIST-4.3.4-02: it is forwarded.
                (true, false) => self.forward(a, &header, None),
                // GIST-4.3.4-03, GIST-A.4.4.6-01. There is no Error for an unexpected Response (§4.4.6).
                (false, _) => {
                    self.counters.unknown_nslp += 1;
                    dropped!(a, "unknown NSLPID");
                    if kind != MessageType::RESPONSE {
                        self.refuse(a, GistError::UNKNOWN_NSLPID, Infos::NONE);
                    }
                }
            }
            return;
        }
        let mut message = Message::behind(header, a.octets);
        match message.read(a.encapsulation) {
            Ok(()) => self.dispatch(a, &message),
            // GIST-5.1-03: the Error depends on the decode error; GIST-5.6-01: an Error message is never answered by one.
            Err(error) => {
                self.counters.malformed += 1;
                tracing::debug!(peer = %a.src, reason = %error, "message dropped");
                if let Some(object) = error_object_for(&error, a.octets, a.encapsulation) {
                    self.send_error(a, object);
                }
            }
        }
    }

    fn dispatch(&mut self, a: &Arrival<'_>, message: &Message<'_>) {
        if message.header.kind == MessageType::ERROR {
            if let Some(error) = &message.error {
                self.rx_error(a, error, message.nat_traversal.as_ref());
            }
            return;
        }
        // The grammar requires all three in each of the four types; MA-Hello is refused by the encapsulation check.
        let (Some(mri), Some(session), Some(nli)) = (message.mri, message.session, message.nli) else {
            self.counters.malformed += 1;
            dropped!(a, "object missing");
            return;
        };
        let mut subject = Subject { mri: mri.mri, session, nslp: message.header.nslp, nli, foreign: None };
        if self.may_be_foreign(message) {
            let mut a = *a;
            self.translate(&mut a, message, &mut subject);
            self.dispatch_translated(&a, message, &subject);
        } else {
            self.dispatch_translated(a, message, &subject);
        }
    }

    fn dispatch_translated(&mut self, a: &Arrival<'_>, message: &Message<'_>, subject: &Subject<'_>) {
        if !self.is_plausible(a, message, subject) {
            return;
        }
        tracing::trace!(
            session = %subject.session, peer = %a.src, kind = %message.header.kind, "message received"
        );
        match message.header.kind {
            MessageType::QUERY => self.rx_query(a, message, subject),
            MessageType::RESPONSE => self.rx_response(a, message, subject),
            MessageType::CONFIRM => self.rx_confirm(a, message, subject),
            _ => self.rx_data(a, message, subject),
        }
    }

    /// Checks without state: addresses, IP version, NAT, IP TTL, ingress filters.
    fn is_plausible(&mut self, a: &Arrival<'_>, message: &Message<'_>, subject: &Subject<'_>) -> bool {
        let sender = subject.nli.interface;
        if !self.is_possible_peer(sender) {
            self.counters.malformed += 1;
            dropped!(a, subject, "NLI address cannot be a peer's");
            return false;
        }
        let q_mode = a.encapsulation == Encapsulation::QMode;
        if q_mode && !self.is_translated(a, message) {
            return false;
        }
        // GIST-5.3.1-08, GIST-5.3.2.1-01: a NAT that is not GIST-aware. A Response goes to its state machine, which ends
        // the handshake. A Confirm from behind a GIST-aware NAT has another source address than its NLI, which its cookie
        // verifies.
        let kind = message.header.kind;
        let exempt =
            kind == MessageType::RESPONSE || kind == MessageType::CONFIRM && subject.foreign.is_some();
        if message.header.s && a.src.ip() != sender && !exempt {
            self.counters.untranslated += 1;
            dropped!(a, subject, "NLI address differs from the IP source");
            // GIST-7.2.1-01, GIST-7.2.1-02, GIST-7.2.1-03
            if q_mode {
                let infos = Infos::one(Info::ObjectType(ObjectType::MRI));
                self.refuse_to_source(a, GistError::UNTRANSLATED_OBJECT, infos);
            }
            return false;
        }
        if !q_mode {
            return true;
        }
        let problem = self.mri_problem(a, subject);
        if let Some((error, offset)) = problem {
            self.counters.mri_rejected += 1;
            dropped!(a, subject, "MRI not acceptable");
            let info = object_value_info(a.octets, ObjectType::MRI, offset);
            self.refuse(a, error, Infos::some(info, None));
            return false;
        }
        // GIST-5.8.1.3-12, GIST-A.4.4.11-01: an upstream Query is accepted from a neighbor only.
        let upstream = matches!(&subject.mri, Mri::PathCoupled(p)
            if p.direction == signalbox_core::Direction::Upstream);
        if upstream && message.header.kind == MessageType::QUERY && a.ttl < 254 {
            self.counters.ttl_rejected += 1;
            dropped!(a, subject, "IP TTL of an upstream Query");
            self.refuse(a, GistError::INVALID_IP_TTL, Infos::NONE);
            return false;
        }
        true
    }

    /// Whether a peer can have this address. An answer to another address would go to this node or be undeliverable (RFC
    /// 5971 §4.3.3). GIST-4.3.3-01.
    pub(super) fn is_possible_peer(&self, address: core::net::IpAddr) -> bool {
        !(address.is_unspecified()
            || address.is_multicast()
            || address.is_loopback()
            || self.interfaces.is_local(address))
    }

    /// The error in the MRI of a received Q-mode message (RFC 5971 §5.8.1.2), and its offset in the object.
    /// GIST-5.8.1.2-06, GIST-5.8.1.2-07, GIST-A.4.4.12-03, GIST-A.4.4.12-04.
    fn mri_problem(&self, a: &Arrival<'_>, subject: &Subject<'_>) -> Option<(GistError, u16)> {
        let Mri::PathCoupled(p) = &subject.mri else {
            return None; // GIST-5.8.2-05: the loose-end method has no such checks
        };
        if p.src.is_ipv6() != a.src.is_ipv6() {
            return Some((GistError::IP_VERSION_MISMATCH, 6));
        }
        if p.direction == signalbox_core::Direction::Downstream && !self.passes_ingress_filters(a.ifindex, p)
        {
            return Some((GistError::INGRESS_FILTER_FAILURE, 8));
        }
        None
    }

    pub(super) fn refuse(&mut self, a: &Arrival<'_>, error: GistError, infos: Infos<'_>) {
        if let Some(object) = ErrorObject::about(error, a.octets, a.encapsulation, infos) {
            self.send_error(a, object);
        }
    }

    pub(super) fn refuse_to_source(&mut self, a: &Arrival<'_>, error: GistError, infos: Infos<'_>) {
        if let Some(object) = ErrorObject::about(error, a.octets, a.encapsulation, infos) {
            self.send_error_to(a, object, Some(a.src), true);
        }
    }

    /// "No Routing State" (RFC 5971 A.4.4.5). GIST-A.4.4.5-01.
    pub(super) fn refuse_without_state(&mut self, a: &Arrival<'_>) {
        self.refuse(a, GistError::NO_ROUTING_STATE, Infos::NONE);
    }

    /// Refuses a message with one piece of additional information.
    pub(super) fn refuse_with(&mut self, a: &Arrival<'_>, error: GistError, info: Option<Info<'_>>) {
        self.refuse(a, error, Infos::some(info, None));
    }
}
