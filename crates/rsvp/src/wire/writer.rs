//! Composing messages into a buffer that is used again.

use core::net::IpAddr;

use signalbox_resources::intserv::TSpec;

use super::adspec::Adspec;
use super::checksum::checksum;
use super::code_points::{Class, HeaderFlags, MessageType};
use super::diagnostic::{DiagResponse, Diagnostic};
use super::intserv::{FlowSpec, PARAMETER_RSPEC, PARAMETER_TSPEC, Service};
use super::object::{HEADER_OCTETS, OBJECT_HEADER_OCTETS, ObjectType, Objects};
use super::reduction::{IdList, ListedId, MessageId};
use super::security::{Challenge, Hello, Integrity};
use super::values::{ErrorSpec, Filter, RsvpHop, Selector, Session, Style};
use crate::error::EncodeError;

/// Composes one message (RFC 2205 §3.1): objects in the order of the calls, which should be that of the grammar, then
/// [`Writer::finish`]. A writer that is dropped before leaves an unfinished message in the buffer.
#[derive(Debug)]
#[must_use = "a message is whole after finish only"]
pub struct Writer<'b> {
    buf: &'b mut Vec<u8>,
    start: usize,
    error: Option<EncodeError>,
}

impl<'b> Writer<'b> {
    /// Begins a message behind the octets in `buf`.
    pub fn new(buf: &'b mut Vec<u8>, kind: MessageType, flags: HeaderFlags, send_ttl: u8) -> Self {
        let start = buf.len();
        buf.extend_from_slice(&[1 << 4 | (flags.0 & 0x0f), kind.0, 0, 0, send_ttl, 0, 0, 0]);
        Self { buf, start, error: None }
    }

    /// Octets written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len() - self.start
    }

    /// Whether only the common header was written so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() <= HEADER_OCTETS
    }

    fn head(&mut self, class: Class, c_type: u8, content: usize) {
        let octets = content.saturating_add(OBJECT_HEADER_OCTETS);
        let length = u16::try_from(octets).unwrap_or_else(|_| {
            self.error.get_or_insert(EncodeError::ObjectLength { class, octets });
            0
        });
        self.buf.extend_from_slice(&length.to_be_bytes());
        self.buf.extend_from_slice(&[class.0, c_type]);
    }

    /// Writes an object of a fixed length: `N` words, the first of them for its header.
    fn fixed<const N: usize>(&mut self, class: Class, c_type: u8, words: [u32; N]) {
        let length = u32::try_from(N * 4).unwrap_or(0);
        let mut object = words.map(u32::to_be_bytes);
        if let Some(header) = object.first_mut() {
            *header = (length << 16 | u32::from(class.0) << 8 | u32::from(c_type)).to_be_bytes();
        }
        self.buf.extend_from_slice(object.as_flattened());
    }

    fn addr(&mut self, addr: IpAddr) {
        match addr {
            IpAddr::V4(v4) => self.buf.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => self.buf.extend_from_slice(&v6.octets()),
        }
    }

    /// Writes an object with an address and four octets.
    fn addr_and_word(&mut self, class: Class, c_type: u8, addr: IpAddr, word: [u8; 4]) {
        let word = u32::from_be_bytes(word);
        match addr {
            IpAddr::V4(v4) => self.fixed(class, c_type, [0, v4.to_bits(), word]),
            IpAddr::V6(v6) => {
                self.head(class, c_type, 20);
                self.buf.extend_from_slice(&v6.octets());
                self.buf.extend_from_slice(&word.to_be_bytes());
            }
        }
    }

    /// Copies an object with its header.
    pub fn raw(&mut self, object: &[u8]) -> &mut Self {
        let mut objects = Objects::at(object, 0);
        if matches!((objects.next(), objects.next()), (Some(Ok(_)), None)) {
            self.buf.extend_from_slice(object);
        } else {
            self.error.get_or_insert(EncodeError::RawObject);
        }
        self
    }

    /// Writes SESSION with its E_Police flag (RFC 2205 Appendix A.1).
    pub fn session(&mut self, session: &Session, e_police: bool) -> &mut Self {
        let [p1, p0] = session.port.to_be_bytes();
        let flags = if e_police { Session::E_POLICE } else { 0 };
        self.addr_and_word(Class::SESSION, session.c_type(), session.dest, [session.protocol, flags, p1, p0]);
        self
    }

    /// Writes RSVP_HOP (RFC 2205 Appendix A.2).
    pub fn hop(&mut self, hop: &RsvpHop) -> &mut Self {
        self.addr_and_word(Class::RSVP_HOP, by_family(hop.addr), hop.addr, hop.lih.to_be_bytes());
        self
    }

    /// Writes TIME_VALUES with the refresh period R, milliseconds (RFC 2205 Appendix A.4).
    pub fn time_values(&mut self, refresh_period: u32) -> &mut Self {
        self.fixed(Class::TIME_VALUES, 1, [0, refresh_period]);
        self
    }

    /// Writes ERROR_SPEC (RFC 2205 Appendix A.5).
    pub fn error_spec(&mut self, error: &ErrorSpec) -> &mut Self {
        let [v1, v0] = error.value.to_be_bytes();
        let word = [error.flags.0, error.code.0, v1, v0];
        self.addr_and_word(Class::ERROR_SPEC, by_family(error.node), error.node, word);
        self
    }

    /// Writes SCOPE (RFC 2205 Appendix A.6): the addresses, of one family, in ascending order, each once. Nothing if
    /// there are none.
    pub fn scope(&mut self, senders: &mut [IpAddr]) -> &mut Self {
        let Some(first) = senders.first().copied() else { return self };
        if senders.iter().any(|addr| addr.is_ipv4() != first.is_ipv4()) {
            self.error.get_or_insert(EncodeError::Mixed { class: Class::SCOPE });
            return self;
        }
        senders.sort_unstable();
        let start = self.buf.len();
        self.head(Class::SCOPE, by_family(first), 0);
        let mut last = None;
        for addr in senders.iter().copied() {
            if last.replace(addr) != Some(addr) {
                self.addr(addr);
            }
        }
        self.close(Class::SCOPE, start);
        self
    }

    /// Writes STYLE (RFC 2205 Appendix A.7).
    pub fn style(&mut self, style: Style) -> &mut Self {
        self.fixed(Class::STYLE, 1, [0, style.option_vector()]);
        self
    }

    /// Writes RESV_CONFIRM with the receiver (RFC 2205 Appendix A.14).
    pub fn resv_confirm(&mut self, receiver: IpAddr) -> &mut Self {
        self.head(Class::RESV_CONFIRM, by_family(receiver), if receiver.is_ipv4() { 4 } else { 16 });
        self.addr(receiver);
        self
    }

    /// Writes FILTER_SPEC (RFC 2205 Appendix A.9).
    pub fn filter_spec(&mut self, filter: &Filter) -> &mut Self {
        self.addr_and_word(Class::FILTER_SPEC, filter.c_type(), filter.src, filter.word());
        self
    }

    /// Writes SENDER_TEMPLATE (RFC 2205 Appendix A.10).
    pub fn sender_template(&mut self, sender: &Filter) -> &mut Self {
        self.addr_and_word(Class::SENDER_TEMPLATE, sender.c_type(), sender.src, sender.word());
        self
    }

    /// Writes SENDER_TSPEC (RFC 2210 §3.1).
    pub fn sender_tspec(&mut self, tspec: &TSpec) -> &mut Self {
        let [parameter, r, b, p, m, most] = tspec_words(tspec);
        self.fixed(Class::SENDER_TSPEC, 2, [0, 7, 0x0100_0006, parameter, r, b, p, m, most]);
        self
    }

    /// Writes FLOWSPEC (RFC 2210 §3.2).
    pub fn flowspec(&mut self, flowspec: &FlowSpec) -> &mut Self {
        let [parameter, r, b, p, m, most] = tspec_words(&flowspec.tspec);
        match flowspec.rspec {
            None => {
                let service = u32::from(Service::ControlledLoad.number()) << 24 | 6;
                self.fixed(Class::FLOWSPEC, 2, [0, 7, service, parameter, r, b, p, m, most]);
            }
            Some(rspec) => {
                let service = u32::from(Service::Guaranteed.number()) << 24 | 9;
                let (rate, slack) = (rspec.rate().to_bits(), rspec.slack());
                let own = u32::from(PARAMETER_RSPEC) << 24 | 2;
                let words = [0, 10, service, parameter, r, b, p, m, most, own, rate, slack];
                self.fixed(Class::FLOWSPEC, 2, words);
            }
        }
        self
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.buf.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Writes ADSPEC (RFC 2210 §3.3).
    pub fn adspec(&mut self, adspec: &Adspec) -> &mut Self {
        let start = self.buf.len();
        self.head(Class::ADSPEC, 2, 0);
        adspec.write(&mut signalbox_wire::Writer::new(self.buf));
        self.close(Class::ADSPEC, start);
        self
    }

    /// Writes MESSAGE_ID (RFC 2961 §4.2).
    pub fn message_id(&mut self, id: &MessageId) -> &mut Self {
        self.head(Class::MESSAGE_ID, 1, 8);
        self.words(&[id.word(), id.id]);
        self
    }

    /// Writes MESSAGE_ID_ACK, or with `nack` MESSAGE_ID_NACK (RFC 2961 §4.3).
    pub fn ack(&mut self, id: &MessageId, nack: bool) -> &mut Self {
        self.head(Class::MESSAGE_ID_ACK, if nack { 2 } else { 1 }, 8);
        self.words(&[id.epoch & MessageId::MAX_EPOCH, id.id]);
        self
    }

    /// Writes MESSAGE_ID LIST, SRC_LIST or MCAST_LIST (RFC 2961 §5.1). The first entry decides which; the others must
    /// have the same fields, of one family. Nothing if there are none.
    pub fn id_list(&mut self, epoch: u32, ids: &[ListedId]) -> &mut Self {
        let shape = |id: &ListedId| match (id.source, id.group) {
            (None, None) => Some(1),
            (Some(source), None) => Some(if source.is_ipv4() { 2 } else { 3 }),
            (Some(source), Some(group)) if source.is_ipv4() == group.is_ipv4() => {
                Some(if source.is_ipv4() { 4 } else { 5 })
            }
            _ => None,
        };
        let Some(first) = ids.first() else { return self };
        let Some(c_type) = shape(first).filter(|c_type| ids.iter().all(|id| shape(id) == Some(*c_type)))
        else {
            self.error.get_or_insert(EncodeError::Mixed { class: Class::MESSAGE_ID_LIST });
            return self;
        };
        self.head(Class::MESSAGE_ID_LIST, c_type, 4 + ids.len().saturating_mul(IdList::entry_octets(c_type)));
        self.words(&[epoch & MessageId::MAX_EPOCH]);
        for id in ids {
            self.words(&[id.id]);
            for addr in [id.source, id.group].into_iter().flatten() {
                self.addr(addr);
            }
        }
        self
    }

    /// Writes HELLO (RFC 3209 §5.2).
    pub fn hello(&mut self, hello: &Hello) -> &mut Self {
        self.head(Class::HELLO, if hello.ack { 2 } else { 1 }, 8);
        self.words(&[hello.src_instance, hello.dst_instance]);
        self
    }

    /// Writes CHALLENGE (RFC 2747 §4.3).
    pub fn challenge(&mut self, challenge: &Challenge) -> &mut Self {
        self.head(Class::CHALLENGE, 1, 16);
        self.buf.extend_from_slice(&(challenge.key_id & 0xffff_ffff_ffff).to_be_bytes());
        self.buf.extend_from_slice(&challenge.cookie.to_be_bytes());
        self
    }

    /// Writes INTEGRITY with `digest` zero octets as its digest (RFC 2747 §2). It must be the first object. Returns the
    /// offset of the digest from the start of the buffer.
    pub fn integrity(&mut self, handshake: bool, key_id: u64, sequence: u64, digest: usize) -> usize {
        self.head(Class::INTEGRITY, 1, Integrity::PREFIX_OCTETS - OBJECT_HEADER_OCTETS + digest);
        let flags = if handshake { u64::from(Integrity::HANDSHAKE) << 56 } else { 0 };
        self.buf.extend_from_slice(&(flags | (key_id & 0xffff_ffff_ffff)).to_be_bytes());
        self.buf.extend_from_slice(&sequence.to_be_bytes());
        let at = self.buf.len();
        self.buf.resize(at + digest, 0);
        at
    }

    /// Writes DIAGNOSTIC, of the IP version of its LAST-HOP (RFC 2745 §3.3).
    pub fn diagnostic(&mut self, asked: &Diagnostic) -> &mut Self {
        let start = self.buf.len();
        self.head(Class::DIAGNOSTIC, by_family(asked.last_hop), 0);
        self.buf.extend_from_slice(&[asked.max_hops, asked.hops, 0, u8::from(asked.more)]);
        self.words(&[asked.request_id, u32::from(asked.path_mtu) << 16 | u32::from(asked.offset)]);
        self.addr(asked.last_hop);
        let port = Selector::Port(asked.requester.port());
        self.sender_template(&asked.sender)
            .filter_spec(&Filter { src: asked.requester.ip(), selector: port })
            .close(Class::DIAGNOSTIC, start);
        self
    }

    /// Writes DIAG_SELECT (RFC 2745 §3.4).
    pub fn diag_select(&mut self, kinds: impl Iterator<Item = ObjectType>) -> &mut Self {
        let start = self.buf.len();
        self.head(Class::DIAG_SELECT, 1, 0);
        kinds.for_each(|kind| self.buf.extend_from_slice(&kind.number().to_be_bytes()));
        if !(self.buf.len() - start).is_multiple_of(4) {
            self.buf.extend_from_slice(&[0, 0]);
        }
        self.close(Class::DIAG_SELECT, start);
        self
    }

    /// Writes ROUTE with nodes of this IP version (RFC 2745 §3.5).
    pub fn route(&mut self, ipv6: bool, pointer: u8, nodes: impl Iterator<Item = IpAddr>) -> &mut Self {
        let start = self.buf.len();
        self.head(Class::ROUTE, if ipv6 { 2 } else { 1 }, 0);
        self.words(&[u32::from(pointer)]);
        for node in nodes {
            if node.is_ipv6() != ipv6 {
                self.error.get_or_insert(EncodeError::Mixed { class: Class::ROUTE });
            }
            self.addr(node);
        }
        self.close(Class::ROUTE, start);
        self
    }

    /// Writes DIAG_RESPONSE, of the IP version of its addresses (RFC 2745 §3.6).
    pub fn diag_response(&mut self, found: &DiagResponse<'_>) -> &mut Self {
        let start = self.buf.len();
        let addresses = [found.incoming, found.outgoing, found.previous];
        if addresses.iter().any(|one| one.is_ipv4() != found.incoming.is_ipv4()) {
            self.error.get_or_insert(EncodeError::Mixed { class: Class::DIAG_RESPONSE });
        }
        self.head(Class::DIAG_RESPONSE, by_family(found.incoming), 0);
        self.words(&[found.arrival]);
        addresses.into_iter().for_each(|one| self.addr(one));
        let flags = u8::from(found.merged) << 7 | (found.errors.0 & 0x07) << 4 | (found.cleanup & 0x0f);
        self.buf.extend_from_slice(&[found.d_ttl, flags]);
        self.buf.extend_from_slice(&found.refresh.to_be_bytes());
        self.buf.extend_from_slice(found.objects);
        self.close(Class::DIAG_RESPONSE, start);
        self
    }

    /// Copies objects of another message, or the messages of a Bundle: everything after its common header.
    pub fn body(&mut self, octets: &[u8]) -> &mut Self {
        self.buf.extend_from_slice(octets);
        self
    }

    /// Corrects the length of an object that began at `start`.
    fn close(&mut self, class: Class, start: usize) {
        let octets = self.buf.len() - start;
        match (u16::try_from(octets), self.buf.get_mut(start..start + 2)) {
            (Ok(length), Some(field)) => field.copy_from_slice(&length.to_be_bytes()),
            _ => {
                self.error.get_or_insert(EncodeError::ObjectLength { class, octets });
            }
        }
    }

    /// Sets length and checksum (RFC 2205 §3.1.1). After an error the message is removed from the buffer.
    ///
    /// # Errors
    /// [`EncodeError`]: the first fault.
    pub fn finish(self) -> Result<(), EncodeError> {
        self.seal(true)
    }

    /// Sets the length and leaves the checksum zero, for a message that gets a digest.
    ///
    /// # Errors
    /// [`EncodeError`]: the first fault.
    pub fn finish_without_checksum(self) -> Result<(), EncodeError> {
        self.seal(false)
    }

    fn seal(self, with_checksum: bool) -> Result<(), EncodeError> {
        let octets = self.len();
        let length = u16::try_from(octets).map_err(|_| EncodeError::MessageLength { octets });
        let length = match self.error.map_or(length, Err) {
            Ok(length) => length,
            Err(error) => {
                self.buf.truncate(self.start);
                return Err(error);
            }
        };
        let message = self.buf.get_mut(self.start..).unwrap_or_default();
        if let Some(field) = message.get_mut(6..8) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        if with_checksum {
            let sum = checksum(message);
            if let Some(field) = message.get_mut(2..4) {
                field.copy_from_slice(&sum.to_be_bytes());
            }
        }
        Ok(())
    }
}

/// The words of the parameter TOKEN_BUCKET_TSPEC with its header (RFC 2210 §3.1).
const fn tspec_words(tspec: &TSpec) -> [u32; 6] {
    [
        (PARAMETER_TSPEC as u32) << 24 | 5,
        tspec.rate().to_bits(),
        tspec.bucket().to_bits(),
        tspec.peak().to_bits(),
        tspec.min_policed(),
        tspec.max_packet(),
    ]
}

const fn by_family(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 1 } else { 2 }
}
