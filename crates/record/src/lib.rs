//! Recordings of all inputs of a node, and their replay.
//!
//! The behaviour of a node follows from its configuration, its seed and its inputs. A recording holds these
//! three as JSON Lines: a header, then one object for each input, in order:
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
//! `t` is in microseconds on the node's clock; octets are hexadecimal. An input is written as serde derives
//! it from [`signalbox_core::node::InputOf`]. Requests of the node to its driver are not recorded, because
//! the answers to them are inputs. A recording that reached its size limit ends with `{"end":"limit"}`.
//!
//! **The seed is a secret**: it is enough to compute the session ids and cookies of the recorded node. Only
//! its owner may have access to a recording of a live node. It must not be published before the node has been
//! restarted.
//!
//! ```
//! use signalbox_core::Time;
//! use signalbox_core::node::{Input, OwnedInput};
//! use signalbox_record::{Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), &"configuration", &[7; 32], 1 << 20)?;
//! assert!(writer.record::<String>(Time::from_secs(1), &Input::Timer)?);
//! let file = writer.finish()?;
//!
//! let reader = Reader::<_, String>::new(file.as_slice())?;
//! assert_eq!(reader.seed(), [7; 32]);
//! let inputs = reader.collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(inputs.len(), 1);
//! assert_eq!(inputs[0].at, Time::from_secs(1));
//! assert_eq!(inputs[0].input, OwnedInput::Timer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod fuzz;
mod read;
mod replay;
mod write;

pub use read::{ReadError, Reader, Recorded};
pub use replay::{Replayed, replay};
pub use write::Writer;

/// Version of the format, written in the header field `signalbox-recording`.
pub const VERSION: u32 = 2;
