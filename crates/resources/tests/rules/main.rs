//! What admission control, the policy and the IntServ arithmetic promise.

mod admission;
mod campaign;
#[cfg(feature = "serde")]
mod config;
mod delay;
mod guaranteed;
mod order;
mod path;
mod policy;
mod preemption;
mod support;
mod token;
