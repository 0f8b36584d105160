//! The QoS client at the nodes of a path, over a messaging layer that the test plays.

mod advance;
mod again;
mod both;
mod errors;
mod flows;
mod hostile;
mod listed;
mod local;
mod opposite;
mod path;
mod range;
mod refused;
mod reroute;
mod rig;
mod timers;
