//! The step `traffic`: a flow of datagrams at a constant rate and the sink that counts them. They show what a user of
//! the network would notice.
//!
//! All namespaces share one clock, so that the one-way delay of each packet can be measured.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, recvmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeValLike};
use signalbox_linux::netns::Namespace;
use signalbox_linux::process;

use super::Act;
use crate::language::steps::traffic::{HEADERS, Traffic};
use crate::plan::Plan;
use crate::run::observe::trace::PROBE_PAYLOAD;
use crate::run::{Background, Run, kernel};

/// A sender that was held up makes up for this time and no more: its packets have to conform to its rate.
const CATCH_UP: Duration = Duration::from_millis(10);

/// A sender that cannot keep to its rate does not sleep by itself. After so long it rests, so that its priority leaves the processor
/// to other programs for a while.
const BUSY: Duration = Duration::from_millis(20);

const REST: Duration = Duration::from_millis(2);

/// The time that packets have to arrive when the sender has ended.
const LAST: Duration = Duration::from_millis(800);

/// The sink checks this often whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// Octets of packets that the sink's socket may hold while its thread does not run.
const BUFFER: usize = 16 << 20;

/// The octets of a packet's number.
const NUMBER: usize = 8;

/// The destination port of the datagrams that are counted; port 9 is "discard".
const PROBE_PORT: u16 = 9;

/// A datagram that has not arrived by then is lost.
const ARRIVAL: Duration = Duration::from_secs(1);

/// What came of a flow.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrafficRun {
    pub(crate) name: String,
    /// Bits a second that were to be sent.
    pub(crate) rate: u64,
    /// Octets of a packet, IP header included.
    pub(crate) size: u16,
    /// In the order in which they were sent.
    pub(crate) packets: Vec<Packet>,
}

/// A packet of a flow; times since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) sent: Duration,
    pub(crate) arrived: Option<Duration>,
}

impl Act for Traffic {
    fn run(&self, run: &mut Run<'_>, name: &str) -> Result<()> {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        let Some((rate, port)) = self.rate.zip(self.port) else {
            run.progress(&format!("datagrams from {from} to {to}"));
            let probes = probe(run, [from, to], name, self.count.unwrap_or(1))?;
            run.evidence.record(probes);
            return Ok(());
        };
        run.progress(&format!("{name}: {} kbit/s from {from} to {to}", rate.0 / 1000));
        let (from, to, destination) = run.ends(from, to)?;
        let (rate, size) = (rate.0, *self.size.as_ref());
        let source_port = self.source_port;
        let order = Order { name: name.to_owned(), from, to, destination, port, source_port, rate, size };
        let flow = Flow::start(&run.lab.plan, order)?;
        run.in_background(name, flow);
        Ok(())
    }
}

/// What came of datagrams that were counted.
#[derive(Debug, Clone)]
pub(crate) struct ProbeRun {
    pub(crate) id: Option<String>,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sent: u32,
    pub(crate) arrived: u32,
}

/// Sends datagrams one after the other, and waits for each.
fn probe(run: &Run<'_>, [from, to]: [&str; 2], id: &str, count: u32) -> Result<ProbeRun> {
    let (from, to, address) = run.ends(from, to)?;
    let bind = |plan: &Plan, node: usize, address: SocketAddr| {
        let namespace = kernel::namespace(&plan.nodes[node].namespace)?;
        let socket = namespace.run(|| UdpSocket::bind(address))??;
        socket.set_read_timeout(Some(ARRIVAL))?;
        anyhow::Ok(socket)
    };
    let destination = SocketAddr::new(address, PROBE_PORT);
    let receiver = bind(&run.lab.plan, to, destination)?;
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let sender = bind(&run.lab.plan, from, SocketAddr::new(any, 0))?;
    let mut arrived = 0;
    let mut buffer = [0; 64];
    for number in 0..count {
        let payload = [PROBE_PAYLOAD, &number.to_be_bytes()].concat();
        sender.send_to(&payload, destination).context("cannot send a datagram")?;
        let received = receiver.recv(&mut buffer);
        arrived += u32::from(received.is_ok_and(|length| buffer.get(..length) == Some(&payload[..])));
    }
    Ok(ProbeRun { id: Some(id.to_owned()), from, to, sent: count, arrived })
}

/// The order to send a flow.
#[derive(Debug, Clone)]
struct Order {
    name: String,
    from: usize,
    to: usize,
    destination: IpAddr,
    port: u16,
    /// The source port, if it matters.
    source_port: Option<u16>,
    /// Bits a second, IP headers included.
    rate: u64,
    /// Octets of a packet, IP header included.
    size: u16,
}

/// A flow that is being sent.
#[derive(Debug)]
struct Flow {
    order: Order,
    stop: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    sender: JoinHandle<Result<Vec<Duration>>>,
    sink: JoinHandle<Result<Vec<(u64, Duration)>>>,
}

impl Background for Flow {
    fn stop(self: Box<Self>, _id: &str, run: &mut Run<'_>) -> Result<()> {
        run.evidence.record(self.finish()?);
        Ok(())
    }
}

impl Flow {
    /// Begins to send.
    fn start(plan: &Plan, order: Order) -> Result<Self> {
        let destination = SocketAddr::new(order.destination, order.port);
        let any: IpAddr = if destination.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let place = |node: usize| kernel::namespace(&plan.nodes[node].namespace);
        let into = bind(&place(order.to)?, destination)?;
        let out = bind(&place(order.from)?, SocketAddr::new(any, order.source_port.unwrap_or(0)))?;
        // Flows of several senders may go to one port: each has a sink that receives its own.
        if let Some((source, port)) = plan.source(order.from, order.destination).zip(order.source_port) {
            into.connect(SocketAddr::new(source, port)).context("cannot listen to one sender")?;
        }
        into.set_read_timeout(Some(LOOK))?;
        setsockopt(&into, sockopt::ReceiveTimestampns, &true).context("no times of arrival")?;
        // More than the system's limit needs a privilege that user namespaces do not have.
        if setsockopt(&into, sockopt::RcvBufForce, &BUFFER).is_err() {
            setsockopt(&into, sockopt::RcvBuf, &BUFFER).context("no room for what arrives")?;
        }
        let (stop, end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stops, ends) = (Arc::clone(&stop), Arc::clone(&end));
        let (rate, size) = (order.rate, order.size);
        let sink = thread::spawn(move || {
            run_first();
            receive(&into, &ends)
        });
        let sender = thread::spawn(move || {
            run_first();
            send(&out, destination, rate, size, &stops)
        });
        Ok(Self { order, stop, end, sender, sink })
    }

    /// Ends the flow and counts the packets.
    fn finish(self) -> Result<TrafficRun> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| anyhow!("a sender panicked"))??;
        thread::sleep(LAST);
        self.end.store(true, Ordering::Relaxed);
        let arrived = self.sink.join().map_err(|_| anyhow!("a sink panicked"))??;
        let mut packets: Vec<Packet> = sent.into_iter().map(|sent| Packet { sent, arrived: None }).collect();
        for (number, at) in arrived {
            let packet = usize::try_from(number).ok().and_then(|number| packets.get_mut(number));
            if let Some(packet) = packet {
                packet.arrived.get_or_insert(at);
            }
        }
        let Order { name, rate, size, .. } = self.order;
        Ok(TrafficRun { name, rate, size, packets })
    }
}

/// Binds a socket. Two sockets may share a port, since flows can go both ways between two ports.
fn bind(namespace: &Namespace, address: SocketAddr) -> Result<UdpSocket> {
    let open = || -> Result<UdpSocket, Errno> {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        nix::sys::socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        Ok(socket.into())
    };
    namespace.run(open)?.with_context(|| format!("cannot use {address}"))
}

/// Other programs of the machine do not change the rate of a flow, nor what is lost of it.
fn run_first() {
    // A user namespace may not do this. There a busy machine sends less than was asked for.
    let _ = process::run_first();
}

/// Sends until `stop` is set; returns when each packet left, by its number.
fn send(out: &UdpSocket, to: SocketAddr, rate: u64, size: u16, stop: &AtomicBool) -> Result<Vec<Duration>> {
    let headers = HEADERS[usize::from(to.is_ipv6())];
    let mut payload = vec![0; usize::from(size.saturating_sub(headers)).max(NUMBER)];
    let interval = Duration::from_nanos(u64::from(size) * 8 * 1_000_000_000 / rate.max(1));
    let mut sent = Vec::new();
    let mut due = Instant::now();
    let mut rested = due;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < due {
            thread::sleep(due - now);
            rested = due;
        } else if now - rested > BUSY {
            thread::sleep(REST);
            rested = now;
        }
        payload[..NUMBER].copy_from_slice(&(sent.len() as u64).to_be_bytes());
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?;
        // The own queue is full, or the kernel reports an earlier refusal: nothing was sent.
        if out.send_to(&payload, to).is_ok() {
            sent.push(at);
        }
        due = (due + interval).max(Instant::now().checked_sub(CATCH_UP).unwrap_or(due));
    }
    Ok(sent)
}

/// Receives until `end` is set; returns the packets' numbers and when the kernel received them.
fn receive(into: &UdpSocket, end: &AtomicBool) -> Result<Vec<(u64, Duration)>> {
    let mut arrived = Vec::new();
    let mut number = [0; NUMBER];
    let mut space = nix::cmsg_space!(TimeSpec);
    while !end.load(Ordering::Relaxed) {
        let mut buffers = [IoSliceMut::new(&mut number)];
        let message = match recvmsg::<()>(into.as_raw_fd(), &mut buffers, Some(&mut space), MsgFlags::empty())
        {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            Err(error) => return Err(error).context("cannot receive"),
        };
        let whole = message.bytes == NUMBER;
        let at = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(at) => u64::try_from(at.num_nanoseconds()).ok(),
            _ => None,
        });
        if let Some(at) = at.filter(|_| whole) {
            arrived.push((u64::from_be_bytes(number), Duration::from_nanos(at)));
        }
    }
    Ok(arrived)
}
