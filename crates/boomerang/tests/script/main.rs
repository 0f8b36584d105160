//! Boomerang nodes with messages and times in, and messages and times out.

mod adopt;
mod domain;
mod errors;
mod first_hop;
mod grant;
mod groups;
mod guess;
mod initiator;
mod intserv;
mod lost;
mod nodes;
mod path;
mod proof;
mod propose;
mod rig;
mod shares;
