//! The node of the scripts and the messages of its peers are those of the kit.

pub(crate) use signalbox_qos::kit::World as Rig;
pub(crate) use signalbox_qos::kit::*;
