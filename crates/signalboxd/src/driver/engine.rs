//! The node beside its sockets and routes.

use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, Output, RouteQuery};
use signalbox_linux::Io;
use signalbox_node::{Command, Event, Node};

use crate::record::Recorder;

/// A node whose datagrams go out and whose route lookups are answered at once.
pub(super) struct Engine {
    pub(super) node: Node,
    pub(super) io: Io,
    recorder: Option<Recorder>,
    /// Route lookups that the node asked for and that are not answered yet; empty between inputs.
    lookups: Vec<(u64, RouteQuery)>,
}

impl Engine {
    pub(super) fn new(node: Node, io: Io, recorder: Option<Recorder>) -> Self {
        Self { node, io, recorder, lookups: Vec::new() }
    }

    /// Gives the node one input and drains it: datagrams are queued, routes looked up and answered, events
    /// given to `deliver`.
    pub(super) fn feed(&mut self, now: Time, input: Input<'_, Command>, deliver: &mut dyn FnMut(Event)) {
        self.handle(now, input);
        loop {
            while let Some(output) = self.node.poll() {
                match output {
                    Output::Transmit(transmit) => self.io.send(&transmit),
                    Output::RouteLookup { id, query } => self.lookups.push((id, query)),
                    Output::Event(event) => deliver(event),
                    other => tracing::warn!(output = ?other, "the driver has no streams yet"),
                }
            }
            let Some((id, query)) = self.lookups.pop() else { return };
            let result = self.io.route(&query);
            self.handle(now, Input::Route { id, result });
        }
    }

    /// Writes out what the recorder holds back.
    pub(super) fn flush_recording(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now, &input);
        }
        self.node.handle(now, input);
    }
}
