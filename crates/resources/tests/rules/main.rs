//! The guarantees of admission control, of the policy and of the IntServ arithmetic.

mod admission;
mod campaign;
#[cfg(feature = "serde")]
mod changes;
mod config;
mod decisions;
mod delay;
mod guaranteed;
mod held;
mod installation;
mod order;
mod passage;
mod path;
mod places;
mod policy;
mod preemption;
mod reload;
mod requester;
mod support;
mod timed;
mod token;
mod zones;
