//! Passages through firewalls and NATs over the real GIST: complete nodes, and kernels that drop what they have no pinhole
//! for. Data packets are sent before, while and after a passage is open.

mod campaign;
mod ends;
mod inward;
mod mapping;
pub(crate) mod net;
mod path;
