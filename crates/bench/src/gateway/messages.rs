//! The messages that a gateway translates: a Query of a flow, and the Response to one that has passed.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result, bail};
use signalbox_core::mri::PathCoupled;
use signalbox_core::{Mri, NslpId, SessionId};
use signalbox_gist::wire::{Encapsulation, MAGIC, Message, MessageType, Nli, strip_magic};
use signalbox_wire::Writer;

const UDP: u8 = 17;

fn nli(interface: Ipv4Addr) -> Nli<'static> {
    Nli { peer_identity: b"bench-id", ip_ttl: 64, validity_ms: 30_000, interface: interface.into() }
}

fn encode(message: &Message<'_>) -> Result<Vec<u8>> {
    let mut octets = MAGIC.to_vec();
    message.encode(&mut Writer::new(&mut octets)).context("composing a message")?;
    Ok(octets)
}

/// Returns the Query of the source of a UDP flow.
pub(in super::super) fn query(src: SocketAddrV4, dst: SocketAddrV4, session: SessionId) -> Result<Vec<u8>> {
    let flow = PathCoupled {
        protocol: Some(UDP),
        src_port: Some(src.port()),
        dst_port: Some(dst.port()),
        ..PathCoupled::between((*src.ip()).into(), (*dst.ip()).into())
    };
    let mut message = Message::new(MessageType::QUERY, NslpId::QOS, 16);
    message.header.s = true;
    (message.mri, message.session) = (Some(Mri::PathCoupled(flow).into()), Some(session));
    (message.nli, message.query_cookie) = (Some(nli(*src.ip())), Some(&[9; 8][..]));
    encode(&message)
}

/// Returns the Response of a node to a Query that has passed the gateway.
pub(in super::super) fn response(query: &[u8], responding: IpAddr) -> Result<Vec<u8>> {
    let octets = strip_magic(query).context("no magic number")?;
    let query = Message::parse(octets, Encapsulation::QMode).context("reading a translated Query")?;
    let IpAddr::V4(responding) = responding else { bail!("an IPv6 address") };
    let mut message = Message::new(MessageType::RESPONSE, NslpId::QOS, 16);
    message.header.s = true;
    (message.nat_traversal, message.session) = (query.nat_traversal, query.session);
    message.mri = query.mri.map(|mri| mri.inverted());
    (message.nli, message.query_cookie) = (Some(nli(responding)), query.query_cookie);
    encode(&message)
}
