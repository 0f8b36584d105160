//! The node of the scripts and the messages of its neighbors are those of the kit.

pub(crate) use signalbox_rsvp::kit::World as Rig;
pub(crate) use signalbox_rsvp::kit::*;
