//! Who asks: one record for all protocols.
//!
//! * The **neighbor** is the adjacent node of the signaling protocol that sent the request: the peer of GIST and CASP, the
//!   next hop that sent a Resv, the initiating node of a Boomerang.
//! * Its [`Proof`] is what the protocol knows of the neighbor's address or name.
//! * The **claimed requester** is the address for which the message says that it asks, if it is not that of the neighbor: the
//!   signaling initiator by the flow with QoS, NATFW and CASP, the receiver with RSVP. Nothing proves it.
//! * The **requester** is the neighbor itself or, if the policy trusts this neighbor, the claimed requester. Rules compare
//!   `from` with it, and `via` with the neighbor.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;
use std::sync::Arc;

use signalbox_core::IfIndex;
use signalbox_core::security::Identity;

use crate::token::Token;
use crate::units::{BadText, bad};

/// What proves the address or the name of a neighbor. A later one is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Proof {
    /// Nothing.
    #[default]
    None,
    /// The message came by the link of this address. Every node on the link can forge it.
    Link,
    /// The neighbor answered at this address: a handshake with cookies, a stream, a proof of return.
    Handshake,
    /// The neighbor proved that it has a key: by a certificate, or by one that it shares with this node.
    Identity,
}

impl Proof {
    const ALL: [(&'static str, Self); 4] = [
        ("none", Self::None),
        ("link", Self::Link),
        ("handshake", Self::Handshake),
        ("identity", Self::Identity),
    ];
}

impl FromStr for Proof {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, proof)| *proof).ok_or_else(|| bad(text, "proof, like \"handshake\""))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, proof)| proof == self).map_or("none", |(name, _)| name))
    }
}

/// An adjacent node of a signaling protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// The interface by which its message came in; [`IfIndex::NONE`]: not known.
    pub ifindex: IfIndex,
    /// What proves the address.
    pub proof: Proof,
}

/// Where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RequestedBy {
    /// The protocol knows no neighbor.
    #[default]
    Unknown,
    /// A user of this host asked for it, or it is for a flow that a user of this host announced. With the identifier of the
    /// user's command, if there was one.
    LocalUser(Option<u64>),
    /// A neighbor.
    Neighbor(Neighbor),
    /// Several of them: their requests are merged into one.
    Neighbors(Vec<Neighbor>),
}

impl RequestedBy {
    /// The neighbors.
    #[must_use]
    pub fn neighbors(&self) -> &[Neighbor] {
        match self {
            Self::Unknown | Self::LocalUser(_) => &[],
            Self::Neighbor(one) => core::slice::from_ref(one),
            Self::Neighbors(all) => all,
        }
    }

    /// Whether a user of this host asked.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::LocalUser(_))
    }
}

/// Who asks, as policy rules see it. The module's text has the terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// Where the request comes from.
    pub requested_by: RequestedBy,
    /// The identity that the neighbor proved, if any.
    pub peer: Option<Arc<Identity>>,
    /// The claimed requester, if it is not the neighbor. For a user of this host it is the address of this host's end of
    /// the flow.
    pub claimed: Option<IpAddr>,
    /// The verified token, if any.
    pub token: Option<Arc<Token>>,
    /// Names of users and applications, and distinguished names, that the request contains (RFC 3182). They are not
    /// authenticated.
    pub names: Option<Arc<Vec<String>>>,
}

impl Requester {
    /// A requester of whom only an address is known that nothing proves.
    #[must_use]
    pub const fn at(address: IpAddr) -> Self {
        Self {
            requested_by: RequestedBy::Unknown,
            peer: None,
            claimed: Some(address),
            token: None,
            names: None,
        }
    }

    /// A user of this host, whose end of the flow has this address; with the identifier of the user's command, if there was one.
    #[must_use]
    pub fn local(address: IpAddr, command: Option<u64>) -> Self {
        Self { requested_by: RequestedBy::LocalUser(command), ..Self::at(address) }
    }

    /// A neighbor that asks for itself.
    #[must_use]
    pub const fn neighbor(neighbor: Neighbor) -> Self {
        Self {
            requested_by: RequestedBy::Neighbor(neighbor),
            peer: None,
            claimed: None,
            token: None,
            names: None,
        }
    }

    /// The requester of a message that claims to be of `claimed`. The claim is stored if it differs from the neighbor.
    #[must_use]
    pub fn new(requested_by: RequestedBy, peer: Option<Arc<Identity>>, claimed: Option<IpAddr>) -> Self {
        let same = match requested_by.neighbors() {
            [one] => claimed == Some(one.address),
            _ => false,
        };
        Self { requested_by, peer, claimed: claimed.filter(|_| !same), token: None, names: None }
    }

    /// The first neighbor, if any.
    #[must_use]
    pub fn first_neighbor(&self) -> Option<&Neighbor> {
        self.requested_by.neighbors().first()
    }

    /// What is proved of the neighbor; of several, the least. A user of this host is known by the control socket.
    #[must_use]
    pub fn proof(&self) -> Proof {
        if self.peer.is_some() || self.requested_by.is_local() {
            return Proof::Identity;
        }
        let of_all = self.requested_by.neighbors().iter().map(|neighbor| neighbor.proof);
        of_all.min().unwrap_or_default()
    }

    /// The address by which places are shared out: that of the neighbor, as far as it is known, else the claimed one.
    #[must_use]
    pub fn holder(&self) -> IpAddr {
        let neighbor = self.first_neighbor().map(|neighbor| neighbor.address);
        neighbor.or(self.claimed).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

/// The form in the log: `192.0.2.1 (handshake) for 198.51.100.7`.
impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.requested_by {
            RequestedBy::Unknown => f.write_str("unknown")?,
            RequestedBy::LocalUser(_) => f.write_str("local")?,
            RequestedBy::Neighbor(_) | RequestedBy::Neighbors(_) => {
                for (place, neighbor) in self.requested_by.neighbors().iter().enumerate() {
                    let separator = if place == 0 { "" } else { ", " };
                    write!(f, "{separator}{}", neighbor.address)?;
                }
                write!(f, " ({})", self.proof())?;
            }
        }
        self.claimed.map_or(Ok(()), |claimed| write!(f, " for {claimed}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbor(address: &str, proof: Proof) -> Neighbor {
        Neighbor { address: address.parse().unwrap(), ifindex: IfIndex(1), proof }
    }

    #[test]
    fn proofs_are_ordered_and_have_names() {
        for (pair, next) in Proof::ALL.iter().zip(&Proof::ALL[1..]) {
            assert!(pair.1 < next.1);
        }
        for (name, proof) in Proof::ALL {
            assert_eq!((name.parse(), proof.to_string().as_str()), (Ok(proof), name));
        }
        assert!("certain".parse::<Proof>().is_err());
    }

    /// A message of the requester itself claims nothing.
    #[test]
    fn a_claim_is_stored_if_it_differs() {
        let neighbor = neighbor("192.0.2.1", Proof::Handshake);
        let other = "198.51.100.7".parse().unwrap();
        let claiming = |claimed| Requester::new(RequestedBy::Neighbor(neighbor), None, Some(claimed));
        assert_eq!(claiming(neighbor.address), Requester::neighbor(neighbor));
        assert_eq!(claiming(other).claimed, Some(other));
        assert_eq!(claiming(other).to_string(), "192.0.2.1 (handshake) for 198.51.100.7");
        assert_eq!(Requester::local(other, None).to_string(), "local for 198.51.100.7");
        assert_eq!(Requester::at(other).to_string(), "unknown for 198.51.100.7");
        assert_eq!((claiming(other).holder(), Requester::at(other).holder()), (neighbor.address, other));
    }

    #[test]
    fn the_weakest_proof_of_merged_requests_counts() {
        let all = vec![neighbor("192.0.2.1", Proof::Identity), neighbor("192.0.2.2", Proof::Link)];
        let merged = Requester::new(RequestedBy::Neighbors(all), None, None);
        assert_eq!(
            (merged.proof(), merged.to_string().as_str()),
            (Proof::Link, "192.0.2.1, 192.0.2.2 (link)")
        );
        let named = Requester {
            peer: Some(Arc::new(Identity::of_key(signalbox_core::security::Fingerprint([1; 32])))),
            ..merged
        };
        assert_eq!(named.proof(), Proof::Identity);
    }
}
