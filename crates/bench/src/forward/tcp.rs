//! Messages over plain TCP connections: from the source to what is measured, and from there to the sink. One that is measured
//! is a relay without a protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signalbox_linux::netns::Namespace;

use super::site::{MIDDLE_UP, PORT, SINK, Site};
use super::{SETTLE, beside, on_source};

/// Time after the start that is not measured.
pub(super) const WARM_UP: Duration = Duration::from_millis(200);
/// The least octets to offer to the kernel at once.
const OFFER: usize = 64 << 10;
/// Octets of a buffer.
const ROOM: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages that are sent one after the other and again from the start.
pub(super) struct Messages {
    pub(super) octets: Vec<u8>,
    pub(super) count: usize,
}

impl Messages {
    /// Returns the octets of a message, on average.
    pub(super) fn size(&self) -> f64 {
        self.octets.len() as f64 / self.count.max(1) as f64
    }
}

/// Octets that were moved in some time.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) written: usize,
    pub(super) arrived: usize,
    pub(super) time: Duration,
}

/// The ends of both connections, which one thread serves without waiting.
pub(super) struct Ends {
    source: TcpStream,
    sink: TcpStream,
    /// What the source sends, again and again, and where it is.
    octets: Vec<u8>,
    at: usize,
    room: Vec<u8>,
}

impl Ends {
    pub(super) fn new(source: TcpStream, sink: TcpStream, messages: &Messages) -> Result<Self> {
        source.set_nonblocking(true)?;
        sink.set_nonblocking(true)?;
        ensure!(!messages.octets.is_empty(), "no message to send");
        let octets = messages.octets.repeat(OFFER.div_ceil(messages.octets.len()));
        Ok(Self { source, sink, octets, at: 0, room: vec![0; ROOM] })
    }

    /// Sends as much as the connection takes for `span`, and takes what arrives.
    pub(super) fn flood(&mut self, span: Duration) -> Result<Moved> {
        let begin = Instant::now();
        let mut moved = Moved::default();
        while begin.elapsed() < span {
            let written = passed(self.source.write(self.octets.get(self.at..).unwrap_or_default()))?;
            self.at = (self.at + written) % self.octets.len();
            moved.written += written;
            moved.arrived += self.take()?;
        }
        Ok(Moved { time: begin.elapsed(), ..moved })
    }

    /// Takes what still arrives. Returns the octets.
    pub(super) fn drain(&mut self) -> Result<usize> {
        let (begin, mut quiet, mut arrived) = (Instant::now(), Instant::now(), 0);
        while quiet.elapsed() < SETTLE {
            let more = self.take()?;
            if more > 0 {
                (quiet, arrived) = (Instant::now(), arrived + more);
            }
            ensure!(begin.elapsed() < PATIENCE, "octets arrive without end");
        }
        Ok(arrived)
    }

    fn take(&mut self) -> Result<usize> {
        passed(self.sink.read(&mut self.room))
    }
}

/// The octets that a call took, 0 if it would have had to wait.
fn passed(result: std::io::Result<usize>) -> Result<usize> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            thread::yield_now();
            Ok(0)
        }
        other => other.context("a connection of an end"),
    }
}

pub(super) fn listen(namespace: &Namespace, address: SocketAddrV4) -> Result<TcpListener> {
    namespace.run(|| TcpListener::bind(address))?.with_context(|| format!("cannot listen at {address}"))
}

pub(super) fn connect(namespace: &Namespace, address: SocketAddrV4) -> Result<TcpStream> {
    namespace.run(|| TcpStream::connect(address))?.with_context(|| format!("cannot reach {address}"))
}

/// Waits for a connection.
pub(super) fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) => return Err(error).context("cannot accept a connection"),
        }
        ensure!(begin.elapsed() < PATIENCE, "what is measured does not connect to the sink");
    }
}

/// Sends the messages through a relay, which copies octets as they come. Returns messages per second.
pub(super) fn through_relay(site: &Site, messages: &Messages, span: Duration) -> Result<f64> {
    let relay = listen(&site.middle, SocketAddrV4::new(MIDDLE_UP, PORT))?;
    let sink = listen(&site.sink, SocketAddrV4::new(SINK, PORT))?;
    let to_sink = connect(&site.middle, SocketAddrV4::new(SINK, PORT))?;
    let source = connect(&site.source, SocketAddrV4::new(MIDDLE_UP, PORT))?;
    let (from_source, _) = relay.accept()?;
    let (arriving, _) = sink.accept()?;
    beside(
        |stop| copy(from_source, to_sink, stop),
        || {
            on_source(|| {
                let mut ends = Ends::new(source, arriving, messages)?;
                ends.flood(WARM_UP)?;
                let moved = ends.flood(span)?;
                Ok(moved.arrived as f64 / messages.size() / moved.time.as_secs_f64())
            })
        },
    )
}

fn copy(mut from: TcpStream, mut to: TcpStream, stop: &AtomicBool) -> Result<()> {
    let mut room = vec![0; ROOM];
    while !stop.load(Ordering::Relaxed) {
        match from.read(&mut room) {
            Ok(0) => break,
            Ok(count) => {
                // The sink may be gone already at the end.
                if to.write_all(room.get(..count).unwrap_or_default()).is_err() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    Ok(())
}
