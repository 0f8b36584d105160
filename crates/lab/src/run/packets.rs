//! Packets that are sent to see whether they pass: what firewalls and NATs on the path do to them.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use signalbox_linux::netns::Namespace;
use socket2::{Domain, Socket, Type};

use crate::language::expectation::{Attempt, Transport};
use crate::plan::Plan;
use crate::run::evidence::Verdict;
use crate::run::kernel;

/// A packet that has not arrived by then, or whose answer has not, does not pass.
const ARRIVAL: Duration = Duration::from_millis(400);

/// The time that one that should pass may take. Lost ones are repeated.
const PATIENCE: Duration = Duration::from_secs(3);

/// The time that an address may still be in use.
const IN_USE: Duration = Duration::from_secs(2);

const QUESTION: &[u8] = b"signalbox-question";

const ANSWER: &[u8] = b"signalbox-answer";

impl Attempt {
    /// Tries it, and returns whether the packet arrives and its answer returns.
    fn try_it(&self, plan: &Plan) -> Result<bool> {
        let node = |name: &str| {
            let index = plan.node(name).ok_or_else(|| anyhow!("no node {name}"))?;
            anyhow::Ok((index, kernel::namespace(&plan.nodes[index].namespace)?))
        };
        let (_, from) = node(self.from.as_ref())?;
        let (to_index, to) = node(self.to.as_ref())?;
        let own = plan.address(to_index).ok_or_else(|| anyhow!("{} has no address", self.to.as_ref()))?;
        let destination = SocketAddr::new(self.at.unwrap_or(own), self.port);
        let listen = SocketAddr::new(own, self.arrives_at.unwrap_or(self.port));
        let source = SocketAddr::new(any(own), self.source_port.unwrap_or(0));
        let patience = if self.passes { PATIENCE } else { ARRIVAL };
        let begin = Instant::now();
        loop {
            let passed = match self.protocol {
                Transport::Udp => udp((&from, source), (&to, listen), destination),
                Transport::Tcp => tcp((&from, source), (&to, listen), destination),
            }
            .with_context(|| format!("cannot try {self}"))?;
            if passed || begin.elapsed() >= patience {
                return Ok(passed);
            }
        }
    }
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = match self.protocol {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
        };
        write!(f, "{protocol} {}", self.from.as_ref())?;
        if let Some(port) = self.source_port {
            write!(f, " port {port}")?;
        }
        write!(f, " to {}", self.to.as_ref())?;
        if let Some(at) = self.at {
            write!(f, " at {at}")?;
        }
        write!(f, " port {}", self.port)
    }
}

/// Tries all of them, and compares what passes with what should.
pub(crate) fn look(plan: &Plan, attempts: &[Attempt]) -> Result<Verdict> {
    let (mut good, mut seen) = (true, Vec::new());
    for attempt in attempts {
        let passed = attempt.try_it(plan)?;
        let right = passed == attempt.passes;
        good &= right;
        let result = if passed { "passes" } else { "is blocked" };
        seen.push(format!("{attempt} {result}{}", if right { "" } else { " (WRONG)" }));
    }
    let seen = seen.join("; ");
    Ok(if good { Ok(seen) } else { Err(seen) })
}

type End<'a> = (&'a Namespace, SocketAddr);

fn udp(from: End<'_>, to: End<'_>, destination: SocketAddr) -> Result<bool> {
    let receiver: UdpSocket = bound(to, Type::DGRAM)?.into();
    let sender: UdpSocket = bound(from, Type::DGRAM)?.into();
    let mut buffer = [0; 64];
    let mut expect = |socket: &UdpSocket, text: &[u8]| -> Result<Option<SocketAddr>> {
        let end = Instant::now() + ARRIVAL;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            socket.set_read_timeout(Some(left))?;
            // An error is one of ICMP: the packet was rejected.
            if let Ok((length, from)) = socket.recv_from(&mut buffer)
                && buffer.get(..length) == Some(text)
            {
                return Ok(Some(from));
            }
        }
    };
    if sender.send_to(QUESTION, destination).is_err() {
        return Ok(false); // without a route, or rejected before
    }
    let Some(source) = expect(&receiver, QUESTION)? else { return Ok(false) };
    receiver.send_to(ANSWER, source)?;
    Ok(expect(&sender, ANSWER)?.is_some())
}

fn tcp(from: End<'_>, to: End<'_>, destination: SocketAddr) -> Result<bool> {
    let listener = bound(to, Type::STREAM)?;
    listener.listen(1)?;
    let listener: TcpListener = listener.into();
    let client = bound(from, Type::STREAM)?;
    // The end is a reset, so that the same ports can be used again.
    client.set_linger(Some(Duration::ZERO))?;
    if client.connect_timeout(&destination.into(), ARRIVAL).is_err() {
        return Ok(false);
    }
    let (mut client, (mut server, _)) = (TcpStream::from(client), listener.accept()?);
    let mut text = [0; QUESTION.len()];
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(ARRIVAL))?;
    }
    client.write_all(QUESTION)?;
    let arrived = server.read_exact(&mut text).is_ok() && text == QUESTION;
    let mut text = [0; ANSWER.len()];
    server.write_all(ANSWER)?;
    Ok(arrived && client.read_exact(&mut text).is_ok() && text == ANSWER)
}

/// A socket of a namespace at an address, which another attempt may have used a moment ago.
fn bound((namespace, at): End<'_>, kind: Type) -> Result<Socket> {
    let socket = namespace.run(|| Socket::new(Domain::for_address(at), kind, None))??;
    socket.set_reuse_address(kind == Type::STREAM)?;
    let begin = Instant::now();
    loop {
        match socket.bind(&at.into()) {
            Ok(()) => return Ok(socket),
            Err(error) if error.kind() == ErrorKind::AddrInUse && begin.elapsed() < IN_USE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot use {at}")),
        }
    }
}

/// The unspecified address of the same family.
fn any(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { [0; 4].into() } else { [0; 16].into() }
}
