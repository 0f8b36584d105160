//! Boomerang nodes with messages and times in, and messages and times out.

mod domain;
mod errors;
mod grant;
mod initiator;
mod intserv;
mod path;
mod proof;
mod rig;
mod shares;
