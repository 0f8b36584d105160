//! Who asks, as messages of the API have it.

use signalbox_node::resources::request::{RequestedBy, Requester};

use crate::types;

/// Who asks. A claim is never shown as the neighbor.
pub struct RequesterFields {
    /// The neighbors from which the request came.
    pub neighbor: Option<String>,
    /// What proves who asks.
    pub proof: Option<String>,
    /// The authenticated identity of the neighbor.
    pub identity: Option<String>,
    /// The party for which the neighbor says that it asks.
    pub claimed: Option<String>,
}

/// Who asks, by the record that rules are compared with.
#[must_use]
pub fn requester_fields(requester: &Requester) -> RequesterFields {
    let neighbors = requester.requested_by.neighbors();
    let all: Vec<String> = neighbors.iter().map(|one| one.address.to_string()).collect();
    let proof = match requester.requested_by {
        RequestedBy::LocalUser(_) => "local".to_owned(),
        RequestedBy::Unknown | RequestedBy::Neighbor(_) | RequestedBy::Neighbors(_) => {
            requester.proof().to_string()
        }
    };
    RequesterFields {
        neighbor: (!all.is_empty()).then(|| all.join(" ")),
        proof: Some(proof),
        identity: requester.peer.as_deref().map(types::identity),
        claimed: requester.claimed.map(|address| address.to_string()),
    }
}

/// Who asks, as rules with `from` see it. `speaks`: the claim counts.
#[must_use]
pub fn counted(requester: &Requester, speaks: bool) -> Option<String> {
    let address = match requester.requested_by.neighbors() {
        [one] => Some(one.address),
        _ => None,
    };
    let claimed = requester.claimed.filter(|_| speaks);
    claimed.or(address).map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use signalbox_core::IfIndex;
    use signalbox_node::resources::request::{Neighbor, Proof};

    use super::*;

    /// A claim is always shown as one; only who is trusted asks for it.
    #[test]
    fn a_claim_that_does_not_count_leaves_the_neighbor() {
        let neighbor =
            Neighbor { address: "10.0.1.1".parse().unwrap(), ifindex: IfIndex(1), proof: Proof::Handshake };
        let claimed = "10.0.0.9".parse().unwrap();
        let claiming = |by| Requester::new(by, None, Some(claimed));
        let requester = claiming(RequestedBy::Neighbor(neighbor));
        assert_eq!(requester_fields(&requester).claimed.as_deref(), Some("10.0.0.9"));
        assert_eq!(counted(&requester, true).as_deref(), Some("10.0.0.9"));
        assert_eq!(counted(&requester, false).as_deref(), Some("10.0.1.1"));
        assert_eq!(counted(&claiming(RequestedBy::Neighbors(vec![neighbor; 2])), false), None);
        assert_eq!(counted(&Requester::at(claimed), false), None);
    }
}
