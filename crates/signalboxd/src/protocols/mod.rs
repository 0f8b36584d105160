//! The protocols of a node: what belongs to one of them alone stands in its folder.

pub(crate) mod applications;
pub(crate) mod gist;
pub(crate) mod ping;
pub(crate) mod qos;
pub(crate) mod rsvp;
