//! A flow of datagrams at a constant rate and the sink that counts them: what a user of the network would notice.
//!
//! All namespaces share one clock, so that the delay of one way is known of each packet.

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

use crate::evidence::{Packet, TrafficRun};
use crate::kernel;
use crate::plan::Plan;

/// A sender that was held up makes up for so much time and no more: what it sends has to conform to its rate.
const CATCH_UP: Duration = Duration::from_millis(10);
/// What is still under way when the sender ends has this long to arrive.
const LAST: Duration = Duration::from_millis(800);
/// The sink looks this often whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// Octets of packets that the sink's socket may hold while its thread does not run.
const BUFFER: usize = 16 << 20;
/// IP and UDP headers.
const HEADERS: [u16; 2] = [28, 48];
/// Number, and room for nothing else.
const NUMBER: usize = 8;

/// The smallest packet that can carry its number, headers included.
pub(crate) const LEAST_SIZE: u16 = HEADERS[1] + 8;

/// What is to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
    /// Where the packets come from, if that matters.
    pub(crate) source_port: Option<u16>,
    /// Bits a second, IP headers included.
    pub(crate) rate: u64,
    /// Octets of a packet, IP header included.
    pub(crate) size: u16,
}

/// A flow under way.
#[derive(Debug)]
pub(crate) struct Traffic {
    order: Order,
    stop: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    sender: JoinHandle<Result<Vec<Duration>>>,
    sink: JoinHandle<Result<Vec<(u64, Duration)>>>,
}

impl Traffic {
    /// Begins to send.
    pub(crate) fn start(plan: &Plan, order: Order) -> Result<Self> {
        let destination = SocketAddr::new(order.destination, order.port);
        let any: IpAddr = if destination.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let place = |node: usize| kernel::namespace(&plan.nodes[node].namespace);
        let into = bind(&place(order.to)?, destination)?;
        let out = bind(&place(order.from)?, SocketAddr::new(any, order.source_port.unwrap_or(0)))?;
        // Flows of several senders may go to one port: each has a sink that hears its own.
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
        let sink = thread::spawn(move || receive(&into, &ends));
        let sender = thread::spawn(move || send(&out, destination, rate, size, &stops));
        Ok(Self { order, stop, end, sender, sink })
    }

    /// Ends it and counts.
    pub(crate) fn finish(self) -> Result<TrafficRun> {
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

/// A socket at an address of its own, or at all with a port that another one has at one of them: flows go both ways
/// between two ports.
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

/// Sends until it is told to stop; gives when each packet left, by its number.
fn send(out: &UdpSocket, to: SocketAddr, rate: u64, size: u16, stop: &AtomicBool) -> Result<Vec<Duration>> {
    let headers = HEADERS[usize::from(to.is_ipv6())];
    let mut payload = vec![0; usize::from(size.saturating_sub(headers)).max(NUMBER)];
    let interval = Duration::from_nanos(u64::from(size) * 8 * 1_000_000_000 / rate.max(1));
    let mut sent = Vec::new();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < due {
            thread::sleep(due - now);
        }
        payload[..NUMBER].copy_from_slice(&(sent.len() as u64).to_be_bytes());
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?;
        // A full queue of our own, or a refusal that the kernel tells late: nothing was sent.
        if out.send_to(&payload, to).is_ok() {
            sent.push(at);
        }
        due = (due + interval).max(Instant::now().checked_sub(CATCH_UP).unwrap_or(due));
    }
    Ok(sent)
}

/// Receives until it is told to end; gives the packets' numbers and when the kernel got them.
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
