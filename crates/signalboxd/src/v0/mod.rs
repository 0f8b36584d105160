//! The former interface, until its last user is gone.

pub(crate) mod applications;
pub(crate) mod control;
mod convert;
mod gist;
mod ping;
mod qos;
mod resources;
pub(crate) mod rsvp;
