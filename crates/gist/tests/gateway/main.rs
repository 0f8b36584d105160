//! Packet scripts of the GIST-aware NAT gateway: one gateway, or several in a row, explicit times.

mod adopted;
mod corpus;
mod hostile;
mod inward;
mod nested;
mod outward;
mod refused;
mod restart;
mod rig;
mod steady;
