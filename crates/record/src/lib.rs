//! Recordings of everything that goes into a node, and their replay.
//!
//! A node's behaviour follows from its configuration, its seed and its inputs. A recording holds these three
//! as JSON Lines: a header, then one object an input, in order:
//!
//! ```text
//! {"signalbox-recording":2,"config":{…},"seed":"0011…"}
//! {"t":0,"input":{"interfaces":[…]}}
//! {"t":1200,"input":{"packet":{"entry":{"udp":270},"src":"10.0.0.1:270","dst":"10.0.0.6:270",…}}}
//! {"t":1200,"input":{"route":{"id":1,"result":{"Ok":{…}}}}}
//! {"t":501200,"input":"timer"}
//! {"t":501300,"input":{"stream-octets":{"stream":2,"octets":"0100…"}}}
//! ```
//!
//! `t` is in microseconds on the node's clock; octets are hexadecimal. An input is written as serde derives it from
//! [`signalbox_core::node::InputOf`]. What the node asked of its driver is
//! not recorded, for the answers are inputs. A recording that reached its size limit ends in `{"end":"limit"}`.
//!
//! **The seed is a secret**: with it, session ids and cookies of the recorded node can be computed. A recording
//! of a live node must be readable by its owner only, and not be published before the node has been restarted.

pub mod fuzz;
mod read;
mod replay;
mod write;

pub use read::{ReadError, Reader, Recorded};
pub use replay::{Replayed, replay};
pub use write::Writer;

/// Version of the format, in the header's `signalbox-recording`.
pub const VERSION: u32 = 2;
