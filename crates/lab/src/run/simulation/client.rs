//! Users of simulated nodes: what the commands of the lab's steps ask for, and what they would print.

use std::fmt::Debug;
use std::time::Duration;

use signalbox_node::{Command, Event};

use crate::run::evidence::Evidence;

/// What a user of a node asked for, and what came of it.
pub(crate) trait Client: Debug {
    /// Takes an event of the request, at this time since 1970.
    fn event(&mut self, at: Duration, event: Event);

    /// The node has ended, and the request with it.
    fn node_ended(&mut self, at: Duration);

    /// Whether the request is answered.
    fn answered(&self) -> bool;

    /// Whether there is nothing more to come.
    fn ended(&self) -> bool;

    /// Returns the command by which the user ends what was asked for; nothing if it ends by itself.
    fn stop(&mut self, id: u64) -> Option<Command>;

    /// Returns the command that follows when the user goes away.
    fn close(&self, id: u64) -> Option<Command>;

    /// Returns the lines that the command of this user prints with `--json`.
    fn lines(&self) -> &[String] {
        &[]
    }

    /// Records what came of it.
    fn record(self: Box<Self>, evidence: &mut Evidence);
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Running {
    /// The `id` of its step.
    pub(crate) step: String,
    /// The index of its node.
    pub(crate) node: usize,
    /// The identifier of the request at the node.
    pub(crate) id: u64,
    /// Since 1970: it should have ended by then.
    pub(crate) deadline: Duration,
    /// The number of its lines among which no other one is looked for.
    pub(crate) read: usize,
    pub(crate) client: Box<dyn Client>,
}
