//! The server by its packets: requests in, answers and questions for the path out.

mod announce;
mod handover;
mod hostile;
mod limits;
mod map;
mod nat_pmp;
mod path;
mod random;
mod rig;
