//! What leaves this node: composed messages, Errors and forwarded packets (RFC 5971 §4.3.4, §5.3, §5.6), within the rates of §5.3.3
//! and §8.4. The octets wait in [`Outbox`](super::outbox::Outbox) until the driver takes them.
//!
//! [`Rates`] owns the rate limits. Whoever sends in datagram mode asks `may_send` or `may_send_for` first.
//!
//! * `rates`: who may cause how many messages.
//! * `compose`: common parts of all messages that this node composes.
//! * `errors`: Errors about received messages (§5.6).
//! * `forward`: packets and messages that are not for this node (§4.3.4).

mod compose;
mod errors;
mod forward;
mod rates;

pub(in crate::engine) use compose::{
    distance, flow_label, limit, milliseconds, nli, nli_ttl, normal, overhead, room_for_answer, router_alert,
};
pub(in crate::engine) use rates::{Cause, Rates, of_user};
