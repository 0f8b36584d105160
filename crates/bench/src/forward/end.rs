//! A neighbor of the daemon under test: a node in this process, on real sockets.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, Output, StreamId};
use signalbox_core::packet::{Received, Transmit};
use signalbox_linux::clock::{self, Clock};
use signalbox_linux::netns::Namespace;
use signalbox_linux::stream::{StreamBuffer, StreamEvent};
use signalbox_linux::{Batch, Io, kernel_speaks_sctp};
use signalbox_node::{Command, Event, Node};

use signalbox_lab::scratch::Scratch;

/// What a benchmark can notice at an end.
pub(super) enum Seen<'a> {
    /// A packet arrived. The node has not handled it yet.
    Received(&'a Received<'a>),
    /// The node sends a packet.
    Sent(&'a Transmit<'a>),
    /// Octets of a stream arrived. The node has not handled them yet.
    Octets(StreamId, &'a [u8]),
    /// The node writes to a stream.
    Written(StreamId, &'a [u8]),
    /// The node reports something to its user.
    Event(Event),
}

/// A node with its sockets.
pub(super) struct End {
    /// Where its streams are opened: a socket belongs to the namespace of the thread that makes it.
    namespace: Namespace,
    node: Node,
    pub(super) io: Io,
    /// Buffers, which are away while a packet or an event in them is handled. Making others would take longer than to
    /// handle it.
    batch: Option<Batch>,
    octets: Option<StreamBuffer>,
    clock: Clock,
    /// Streams whose octets the node does not get.
    deaf: Option<StreamId>,
}

impl End {
    /// Opens a node with the settings of the daemon under test: the text of its configuration, without names and paths.
    pub(super) fn open(namespace: &Namespace, settings: &str) -> Result<Self> {
        let text = format!("version = 1\n{settings}");
        // The keys and certificates that the settings name are read from a file's configuration only.
        let scratch = Scratch::new("bench-end")?;
        let file = scratch.join("end.toml");
        fs::write(&file, &text).with_context(|| file.display().to_string())?;
        let (config, _) = signalbox_config::load(&file)?.usable().map_err(|findings| {
            let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
            anyhow!("wrong settings of an end: {}", lines.join("; "))
        })?;
        let node = config.settings(clock::unix_us(), kernel_speaks_sctp());
        let io = config.io(node.entries());
        let io = namespace.run(|| Io::open(&io))??;
        let mut end = Self {
            namespace: Namespace::open(namespace.name())?,
            node: Node::new(node, clock::seed()?)?,
            io,
            batch: Some(Batch::new()),
            octets: Some(StreamBuffer::new()),
            clock: Clock::start(),
            deaf: None,
        };
        end.node.handle(Time::ZERO, Input::Interfaces(end.io.interfaces()));
        end.drain(&mut |_| {})?;
        end.io.flush();
        Ok(end)
    }

    /// Gives the node a command of a user. What it sends waits for [`Self::flush`] or the next turn.
    pub(super) fn command(&mut self, command: Command, see: &mut dyn FnMut(Seen<'_>)) -> Result<()> {
        self.node.handle(self.clock.now(), Input::Command(command));
        self.drain(see)
    }

    /// Sends what is queued.
    pub(super) fn flush(&mut self) {
        // A packet that is not sent is lost: the protocols send it again.
        self.io.flush();
    }

    /// From now on octets of this stream are seen, but not given to the node.
    pub(super) const fn hide(&mut self, stream: StreamId) {
        self.deaf = Some(stream);
    }

    /// Waits for input for `patience` at most, and handles it.
    pub(super) fn turn(&mut self, patience: Duration, see: &mut dyn FnMut(Seen<'_>)) -> Result<()> {
        let deadline = self.node.next_deadline().map(|deadline| deadline.since(self.clock.now()));
        let patience = deadline.map_or(patience, |deadline| deadline.min(patience));
        let ready = self.io.wait(Some(patience)).context("an end cannot wait")?;
        if ready.packets {
            self.packets(see)?;
        }
        if ready.streams {
            self.streams(see)?;
        }
        if ready.changes {
            self.io.changes();
        }
        if self.node.next_deadline().is_some_and(|deadline| deadline <= self.clock.now()) {
            self.node.handle(self.clock.now(), Input::Timer);
            self.drain(see)?;
        }
        self.flush();
        Ok(())
    }

    fn packets(&mut self, see: &mut dyn FnMut(Seen<'_>)) -> Result<()> {
        let mut batch = self.batch.take().unwrap_or_default();
        self.io.receive(&mut batch).context("an end cannot receive")?;
        for received in batch.iter() {
            see(Seen::Received(&received));
            self.node.handle(self.clock.now(), Input::Packet(received));
            self.drain(see)?;
        }
        self.batch = Some(batch);
        Ok(())
    }

    fn streams(&mut self, see: &mut dyn FnMut(Seen<'_>)) -> Result<()> {
        let mut octets = self.octets.take().unwrap_or_default();
        while let Some(event) = self.io.streams().next_event(&mut octets).context("the streams of an end")? {
            if let StreamEvent::Octets { stream, octets } = event {
                see(Seen::Octets(stream, octets));
            }
            if self.deaf == Some(event.stream()) {
                continue;
            }
            let input = match event {
                StreamEvent::Accepted { stream, kind, local, peer } => {
                    Input::StreamAccepted { stream, kind, local, peer }
                }
                StreamEvent::Connected { stream, local } => Input::StreamConnected { stream, local },
                StreamEvent::Octets { stream, octets } => Input::StreamOctets { stream, octets },
                StreamEvent::Drained { stream, unsent } => Input::StreamDrained { stream, unsent },
                StreamEvent::Closed { stream, error, unacknowledged } => {
                    Input::StreamClosed { stream, error, unacknowledged }
                }
            };
            self.node.handle(self.clock.now(), input);
            self.drain(see)?;
        }
        self.octets = Some(octets);
        Ok(())
    }

    fn drain(&mut self, see: &mut dyn FnMut(Seen<'_>)) -> Result<()> {
        while let Some(output) = self.node.poll() {
            match output {
                Output::Transmit(packet) => {
                    see(Seen::Sent(&packet));
                    self.io.send(&packet);
                }
                Output::RouteLookup { id, query } => {
                    let result = self.io.route(&query);
                    self.node.handle(self.clock.now(), Input::Route { id, result });
                }
                Output::StreamListen { kind, port } => {
                    let streams = self.io.streams();
                    let opened = self.namespace.run(|| streams.listen(kind, port))?;
                    opened.map_err(|error| anyhow!("an end cannot listen at port {port}: {error:?}"))?;
                }
                Output::StreamOpen { stream, kind, local, peer } => {
                    let streams = self.io.streams();
                    self.namespace.run(|| streams.open(stream, kind, local, peer))?;
                }
                Output::StreamWrite { stream, octets } => {
                    see(Seen::Written(stream, octets));
                    self.io.streams().write(stream, octets);
                }
                Output::StreamMessage { stream, sctp_stream, lifetime, octets } => {
                    self.io.streams().message(stream, (sctp_stream, lifetime), octets);
                }
                Output::StreamRead { stream, on } => self.io.streams().read(stream, on),
                Output::StreamClose { stream, abort } => self.io.streams().close(stream, abort),
                // The ends enforce nothing.
                Output::Reserve { id, .. } => {
                    self.node.handle(self.clock.now(), Input::Reserved { id, result: Ok(()) });
                }
                Output::Event(event) => see(Seen::Event(event)),
                Output::MulticastLookup { .. }
                | Output::MulticastRelease { .. }
                | Output::Release { .. }
                | Output::OpenPinhole { .. }
                | Output::ClosePinhole { .. }
                | Output::FindFlow { .. } => {}
            }
        }
        Ok(())
    }
}
