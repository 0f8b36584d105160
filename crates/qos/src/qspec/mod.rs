//! Processing of a QSPEC at a node (RFC 5975 §3 and §4), between its octets and admission control.
//!
//! A node uses these functions in order. Each takes octets and makes octets:
//!
//! | who | calls | and gets |
//! |---|---|---|
//! | initiator | [`Wish::compose`] | the QSPEC of its first message |
//! | every node, for a RESERVE | [`reserve`] | a grant and the QSPEC for the next node, or what of it to send back |
//! | every node, for a QUERY | [`query`] | the QSPEC for the next node |
//! | one without state, for what is malformed | [`flagged`] | the QSPEC with E flags, for the next node |
//! | responder | [`respond`] | the QSPEC of its RESPONSE |
//! | receiver that initiates | [`reserve_for`] | the QSPEC of its RESERVE, from the QUERY that came |
//! | the same, after a refusal that names an MTU | [`with_packets`] | the QSPEC of its next RESERVE |
//! | every node, for another such QUERY of a session | [`answers`] | whether it asks for what is reserved |
//! | ingress of a local domain | [`enter`] | the Local QSPEC |
//! | egress of a local domain | [`leave`] | the Initiator QSPEC again, with what happened inside |
//!
//! [`reserve`] and [`query`] combine [`pass`], which has the rules of the QSPEC, with admission control. A node with
//! other resources calls [`pass`], [`refuse`] and [`malformed`] itself.
//!
//! In RESPONSE and NOTIFY everything is read-only: nodes forward the octets unchanged.
//!
//! **Services.** RFC 5975 has no parameter for an IntServ service. Here QoS Desired with a [slack
//! term](crate::wire::qspec::Value::SlackTerm) requests guaranteed service (RFC 2212) at the rate *r* of TMOD-1, a PHB
//! Class requests that behaviour, and everything else requests controlled load (RFC 2211).

mod admit;
mod answer;
mod combine;
mod demand;
mod local;
mod messages;
mod offer;
mod pass;
mod refuse;
mod seed;

pub use admit::{Denied, query, reserve};
pub use answer::{answers, reserve_for, respond, with_packets};
pub use combine::{
    add_jitter, add_latency, add_ratio, class_for, common_tmod, is_stronger_class, meets, weaker_class,
};
pub use demand::{Demand, limit_of, tmod_of, traffic_of};
pub use local::{Translation, enter, is_consistent, leave};
pub use messages::{Message, available_is_collected, check, faults, wants_response};
pub use offer::{Estimate, Offer, Quality, Resolution, Supported};
pub use pass::{Passed, pass};
pub use refuse::{blamed, flagged, malformed, refuse};
pub use seed::{Collect, Wish};
