//! The messages that a gateway translates: a Query of a flow, and the Response to one that has passed.

use std::net::{IpAddr, SocketAddrV4};

use anyhow::{Context, Result};
use signalbox_core::mri::PathCoupled;
use signalbox_core::{Mri, NslpId, SessionId};
use signalbox_gist::kit::{Peer, datagram, read};

const UDP: u8 = 17;

const fn peer(address: IpAddr) -> Peer<'static> {
    Peer { nslp: NslpId::QOS, hops: 16, ..Peer::new(b"bench-id", address) }
}

/// Returns the Query of the source of a UDP flow.
pub(in super::super) fn query(src: SocketAddrV4, dst: SocketAddrV4, session: SessionId) -> Result<Vec<u8>> {
    let source = IpAddr::V4(*src.ip());
    let flow = PathCoupled {
        protocol: Some(UDP),
        src_port: Some(src.port()),
        dst_port: Some(dst.port()),
        ..PathCoupled::between(source, (*dst.ip()).into())
    };
    let mut message = peer(source).query(Mri::PathCoupled(flow), session, &[9; 8]);
    message.header.s = true;
    datagram(&message).context("composing a Query")
}

/// Returns the Response of a node to a Query that has passed the gateway.
pub(in super::super) fn response(query: &[u8], responding: IpAddr) -> Result<Vec<u8>> {
    let query = read(query).context("reading a translated Query")?;
    datagram(&peer(responding).response(&query)).context("composing a Response")
}
