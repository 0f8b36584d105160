//! Messages and times in, messages and times out.

mod branches;
mod clients;
mod connections;
mod discovery;
mod forward;
mod lifetime;
mod net;
mod ping;
mod rig;
mod scout;
mod shares;
mod stateless;
mod teardown;
mod translate;
