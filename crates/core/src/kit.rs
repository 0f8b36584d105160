//! What the kits of the engines have in common: interfaces, routes, and what GIST gives to an application. The feature `kit` has it; no
//! program of users needs it.

use core::net::IpAddr;

use crate::node::{Interface, Route};
use crate::service::{AddressValidation, RecvMessage, StateHandle, TransferAttributes};
use crate::{IfIndex, Mri, NslpId, SessionId};

const MTU: u32 = 1500;

/// An interface that is up. Its name is `eth` and its number.
pub fn interface(number: u32, addresses: Vec<IpAddr>) -> Interface {
    let name = format!("eth{number}");
    Interface { ifindex: IfIndex(number), name, up: true, mtu: MTU, tunnel: false, addresses }
}

/// The route to a neighbor on the link of this interface.
pub const fn route(ifindex: IfIndex, src: IpAddr) -> Route {
    Route { ifindex, src, gateway: None, mtu: MTU, local: false }
}

/// A message that GIST gives to an application: it came in by interface 1, in a datagram of an unknown peer.
#[inline]
pub fn received(nslp: NslpId, session: SessionId, mri: Mri, data: &[u8]) -> RecvMessage<'_> {
    RecvMessage {
        data,
        nslp,
        session,
        mri,
        check: None,
        state: Some(StateHandle(1)),
        sii: None,
        peer: None,
        peer_address: None,
        attributes: TransferAttributes::default(),
        validation: AddressValidation::default(),
        ip_ttl: 64,
        ip_distance: 0,
        hops: 60,
        ifindex: IfIndex(1),
        at_flow_end: false,
    }
}
