//! Clients of the messaging layer. A client takes [`Indication`](crate::engine::Indication)s and makes
//! [`Request`](crate::engine::Request)s; the messaging layer depends on none of them.
//!
//! * [`ping`] shows the nodes that a session passes.
//! * [`qos`] reserves resources for the flow of a session (draft-schulzrinne-nsis-casp-qos-01).
//! * [`natfw`] opens firewalls and NATs for it (draft-tschofenig-nsis-casp-midcom-01).
//! * `shared` is what more than one of them needs.
//!
//! Each client is a folder whose `mod.rs` says which file has which rule. Its state is private to the folder: no other client and nothing of the
//! messaging layer reaches it, and it reaches the messaging layer by the public items of [`engine`](crate::engine) only. They are not a crate of
//! their own: their messages are in [`wire`](crate::wire), whose objects and flow identifiers they share with the messaging layer.

pub mod natfw;
pub mod ping;
pub mod qos;
mod shared;
