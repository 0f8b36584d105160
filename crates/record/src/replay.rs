//! Replay: runs a node with the inputs of a recording.

use std::io::BufRead;

use serde::de::DeserializeOwned;
use signalbox_core::Time;
use signalbox_core::node::{NodeEngine, Output};

use crate::read::{ReadError, Reader};

/// Result of a replay.
#[derive(Debug, Default)]
#[must_use]
pub struct Replayed {
    /// Number of inputs given to the node.
    pub inputs: u64,
    /// Number of outputs taken from the node.
    pub outputs: u64,
    /// Time of the last input.
    pub end: Time,
    /// Error in the recording after these inputs; `None`: the whole recording was replayed.
    pub fault: Option<ReadError>,
}

/// Gives a node each input of a recording at its recorded time, and passes the node's outputs to `on_output`.
///
/// The caller need not answer outputs: the recorded answers are inputs of the recording. A node made from the
/// recording's configuration and seed behaves like the recorded node.
///
/// # Errors
/// It returns the first error of `on_output`, which ends the replay. An error in the recording does not count
/// as such: the node has then handled all inputs before it, and [`Replayed::fault`] holds it.
pub fn replay<N, R, E>(
    recording: &mut Reader<R, N::Command>,
    node: &mut N,
    mut on_output: impl FnMut(Time, Output<'_, N::Event>) -> Result<(), E>,
) -> Result<Replayed, E>
where
    N: NodeEngine,
    N::Command: DeserializeOwned,
    R: BufRead,
{
    let mut done = Replayed::default();
    for recorded in recording {
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(fault) => return Ok(Replayed { fault: Some(fault), ..done }),
        };
        done.inputs += 1;
        done.end = recorded.at;
        recorded.input.give(|input| node.handle(recorded.at, input));
        while let Some(output) = node.poll() {
            done.outputs += 1;
            on_output(recorded.at, output)?;
        }
    }
    Ok(done)
}
