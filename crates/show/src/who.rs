//! Who asks, as messages of the API have it.

use signalbox_node::resources::request::{RequestedBy, Requester};

use crate::types;

/// Who asks. A claim is never shown as the neighbor.
pub struct Who {
    /// The neighbors from which the request came.
    pub neighbor: Option<String>,
    /// What proves who asks.
    pub proof: Option<String>,
    /// The authenticated identity of the neighbor.
    pub identity: Option<String>,
    /// The party for which the neighbor says that it asks.
    pub requester: Option<String>,
}

/// Who asks, by the record that rules are compared with.
#[must_use]
pub fn who(requester: &Requester) -> Who {
    let neighbours = requester.requested_by.neighbours();
    let all: Vec<String> = neighbours.iter().map(|one| one.address.to_string()).collect();
    let proof = match requester.requested_by {
        RequestedBy::LocalUser => "local".to_owned(),
        RequestedBy::Unknown | RequestedBy::Neighbour(_) | RequestedBy::Neighbours(_) => {
            requester.proof().to_string()
        }
    };
    Who {
        neighbor: (!all.is_empty()).then(|| all.join(" ")),
        proof: Some(proof),
        identity: requester.peer.as_deref().map(types::identity),
        requester: requester.claimed.map(|address| address.to_string()),
    }
}
