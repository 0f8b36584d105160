//! What more than one client needs.
//!
//! * `addresses` has the addresses of the node.
//! * `clock` is its wall clock, with the AGE of requests; `ntp` has the timestamps of both.
//! * `errors` limits the errors that a client sends.
//! * `hop` is the hop that sent a request, with what is proved of it.
//! * `lists` has the lists of nodes that answers brought to users of the node.
//! * `lookups` has messages and sessions that wait for the answer to a route lookup.
//! * `queue` has the next outputs of a client.

mod addresses;
mod clock;
mod errors;
mod hop;
mod lists;
mod lookups;
pub(in crate::clients) mod ntp;
mod queue;

pub(in crate::clients) use addresses::Addresses;
pub(in crate::clients) use clock::{Clock, seconds};
pub(in crate::clients) use errors::Errors;
pub(in crate::clients) use hop::Hop;
pub(in crate::clients) use lists::{Lists, with_node};
pub(in crate::clients) use lookups::{Lookups, Waits};
pub(in crate::clients) use queue::{Message, Polled, Queue};
