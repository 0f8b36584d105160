//! The client for firewalls at the nodes of a path, over a messaging layer and a kernel that the test plays.

mod again;
mod back;
mod filters;
mod hostile;
mod judged;
mod listed;
mod moved;
mod nat;
mod receiver;
mod release;
mod respond;
mod rig;
mod sender;
mod timers;
mod tokens;
mod withdraw;
