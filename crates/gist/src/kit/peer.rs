//! A peer, whose messages answer each other.

use core::net::IpAddr;

use signalbox_core::{Mri, NslpId, SessionId};
use signalbox_wire::Writer;

use super::NSLP;
use crate::wire::{
    Encapsulation, EncodeError, ErrorObject, GistError, Header, Infos, Message, MessageType, MriObject, Nli,
    strip_magic,
};

/// A node that composes messages (RFC 5971 §5.1). Fields that it does not set, its user sets in the message.
#[derive(Debug, Clone, Copy)]
pub struct Peer<'a> {
    /// Its Network-Layer-Information, which its datagrams have.
    pub nli: Nli<'a>,
    /// The application of its Queries, Confirms and Data.
    pub nslp: NslpId,
    /// Hop count of its messages.
    pub hops: u8,
}

impl<'a> Peer<'a> {
    /// A peer with this identity and address.
    pub const fn new(identity: &'a [u8], address: IpAddr) -> Self {
        let nli = Nli { peer_identity: identity, ip_ttl: 64, validity_ms: 30_000, interface: address };
        Self { nli, nslp: NSLP, hops: 64 }
    }

    fn message(
        &self,
        kind: MessageType,
        mri: Option<MriObject<'a>>,
        session: Option<SessionId>,
    ) -> Message<'a> {
        let new = Message::new(kind, self.nslp, self.hops);
        Message { mri, session, nli: Some(self.nli), ..new }
    }

    /// A Query with this cookie.
    pub fn query(&self, mri: Mri, session: SessionId, cookie: &'a [u8]) -> Message<'a> {
        let new = self.message(MessageType::QUERY, Some(mri.into()), Some(session));
        Message { query_cookie: Some(cookie), ..new }
    }

    /// The Response to a Query as it was received, without a Responder-Cookie: it requests no Confirm.
    pub fn response(&self, query: &Message<'a>) -> Message<'a> {
        let peer = Self { nslp: query.header.nslp, ..*self };
        let mri = query.mri.map(|mri| mri.inverted());
        let new = peer.message(MessageType::RESPONSE, mri, query.session);
        Message { nat_traversal: query.nat_traversal, query_cookie: query.query_cookie, ..new }
    }

    /// The same with a Responder-Cookie, by which it requests a Confirm.
    pub fn response_with(&self, query: &Message<'a>, cookie: &'a [u8]) -> Message<'a> {
        let mut message = self.response(query);
        (message.header.r, message.responder_cookie) = (true, Some(cookie));
        message
    }

    /// The Confirm to a Response as it was received.
    pub fn confirm(&self, response: &Message<'a>) -> Message<'a> {
        let mri = response.mri.map(|mri| mri.inverted());
        let new = self.message(MessageType::CONFIRM, mri, response.session);
        Message { responder_cookie: response.responder_cookie, ..new }
    }

    /// Data in a datagram.
    pub fn data(&self, mri: Mri, session: SessionId, data: &'a [u8]) -> Message<'a> {
        let new = self.message(MessageType::DATA, Some(mri.into()), Some(session));
        Message { nslp_data: Some(data), ..new }
    }

    /// An Error about a message, whose octets from the common header on are these.
    pub fn error(&self, error: GistError, about: &'a [u8], encapsulation: Encapsulation) -> Message<'a> {
        let peer = Self { nslp: NslpId::NONE, ..*self };
        let object = ErrorObject::about(error, about, encapsulation, Infos::NONE);
        Message { error: object, ..peer.message(MessageType::ERROR, None, None) }
    }
}

/// The payload of a datagram with this message.
///
/// # Errors
/// As [`Message::encode`].
pub fn datagram(message: &Message<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut octets = Vec::new();
    message.encode_datagram(&mut Writer::new(&mut octets))?;
    Ok(octets)
}

/// The message without the magic number, as it is in a channel.
///
/// # Errors
/// As [`Message::encode`].
pub fn bare(message: &Message<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets))?;
    Ok(octets)
}

/// Reads the message in the payload of a datagram.
pub fn read(payload: &[u8]) -> Option<Message<'_>> {
    let octets = strip_magic(payload)?;
    let header = Header::parse(octets).ok()?;
    Message::parse(octets, Encapsulation::of(&header, true)).ok()
}
