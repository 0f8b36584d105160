//! Driving a node from a recording.

use std::io::BufRead;

use serde::de::DeserializeOwned;
use signalbox_core::Time;
use signalbox_core::node::{NodeEngine, Output};

use crate::read::{ReadError, Reader};

/// How far a replay came.
#[derive(Debug, Default)]
#[must_use]
pub struct Replayed {
    /// Inputs given.
    pub inputs: u64,
    /// Outputs taken.
    pub outputs: u64,
    /// Time of the last input.
    pub end: Time,
    /// What is wrong with the recording after these inputs; `None`: it was replayed whole.
    pub fault: Option<ReadError>,
}

/// Gives a node every input of a recording, at the time it had then, and each of its outputs to `on_output`.
///
/// Nothing is answered: what answers there were are inputs in the recording. A node made from the recording's
/// configuration and seed does what the recorded one did.
///
/// # Errors
/// The first of `on_output`, which ends the replay. A recording that breaks off is none: the node has handled
/// all inputs before the fault, and [`Replayed`] tells it.
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
