//! SCTP with usrsctp at the other end, an independent implementation. Packets go through UDP on
//! loopback, so no privilege is needed. The peer is C: without a compiler or libusrsctp the test reports that it is skipped.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use signalbox_core::{IfIndex, Time};
use signalbox_transport::sctp::{Arrival, AssociationId, Config, Delivery, EventKind, Sctp};

const OURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const THEIRS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
const PORT: u16 = 270;
/// A time limit that no test on one machine reaches.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program of the peer; `None`, with a message, if it cannot be built.
fn program(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/peer.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).arg(&path).args([source, "-lusrsctp", "-lpthread"]);
    match compiler.output() {
        Ok(output) if output.status.success() => Some(path),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(errors.contains("usrsctp"), "the peer's program is broken: {errors}");
            eprintln!("skipped: usrsctp is missing (Debian: libusrsctp-dev)");
            None
        }
        Err(error) => {
            eprintln!("skipped: no C compiler ({error})");
            None
        }
    }
}

struct Rig {
    sctp: Sctp,
    socket: UdpSocket,
    peer: Child,
    output: BufReader<ChildStdout>,
    start: Instant,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.peer.kill();
        let _ = self.peer.wait();
    }
}

impl Rig {
    #[expect(clippy::disallowed_methods, reason = "the peer runs in real time")]
    fn new(program: &PathBuf, role: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The peer uses a port that was free a moment ago.
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        socket.connect(free).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let ports = [free.port(), socket.local_addr().unwrap().port()].map(|port| port.to_string());
        let mut peer = Command::new(program).arg(role).args(ports).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(peer.stdout.take().unwrap());
        let sctp = Sctp::new(Config { port: Some(PORT), ..Config::default() }, [3; 32]);
        Self { sctp, socket, peer, output, start: Instant::now() }
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn now(&self) -> Time {
        Time::from_micros(u64::try_from(self.start.elapsed().as_micros()).unwrap())
    }

    fn next(&mut self) -> (AssociationId, EventKind) {
        let mut packet = vec![0; 1 << 16];
        loop {
            while let Some(transmit) = self.sctp.poll_transmit() {
                // The peer does not listen yet, or not any more: the packet is lost.
                let _ = self.socket.send(&transmit.octets);
            }
            if let Some(event) = self.sctp.poll_event() {
                return (event.association, event.kind);
            }
            let now = self.now();
            assert!(now < Time::ZERO + PATIENCE, "nothing happens: {:?}", self.sctp.counters());
            if let Ok(length) = self.socket.recv(&mut packet) {
                let arrival = Arrival { src: THEIRS, dst: OURS, ifindex: IfIndex(1) };
                self.sctp.receive(now, arrival, &packet[..length], &|_| false);
            }
            if self.sctp.next_deadline().is_some_and(|at| at <= now) {
                self.sctp.handle_timer(now);
            }
        }
    }

    fn message(&mut self) -> (u16, Vec<u8>) {
        match self.next() {
            (_, EventKind::Message { stream, octets }) => (stream, octets),
            other => panic!("{other:?}"),
        }
    }
}

fn octets(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// This end opens the association and the peer echoes: small messages, large ones ([SCTP-1-01]), many at once over
/// several streams, whose answers keep the order of their stream ([SCTP-3.2-01], [SCTP-3.1.2-07]). Then the association
/// is shut down.
#[test]
fn usrsctp_accepts_echoes_and_gets_the_end() {
    let Some(program) = program("usrsctp-serve") else { return };
    let mut rig = Rig::new(&program, "serve");
    assert_eq!(rig.next_line(), "ready 0 0");
    let now = rig.now();
    rig.sctp.connect(now, SocketAddr::new(OURS, 0), SocketAddr::new(THEIRS, PORT)).unwrap();
    let (association, EventKind::Connected { streams, partial_reliability, incoming: false, .. }) =
        rig.next()
    else {
        panic!()
    };
    assert_eq!((streams, partial_reliability), (64, true));
    for size in [1, 1173, 60_000, 262_140] {
        let now = rig.now();
        rig.sctp.send(now, association, 9, octets(size), Delivery::default()).unwrap();
        assert_eq!(rig.message(), (9, octets(size)));
    }
    let now = rig.now();
    for number in 0..600 {
        let stream = u16::try_from(number % 60).unwrap();
        rig.sctp.send(now, association, stream, octets(100 + number), Delivery::default()).unwrap();
    }
    let mut last = [0; 60];
    for _ in 0..600 {
        let (stream, message) = rig.message();
        let last = &mut last[usize::from(stream)];
        assert!(message.len() > *last && (message.len() - 100) % 60 == usize::from(stream));
        assert_eq!(message, octets(message.len()));
        *last = message.len();
    }
    let now = rig.now();
    rig.sctp.close(now, association);
    assert_eq!(rig.next(), (association, EventKind::Closed));
    let mut line = rig.next_line();
    while line.starts_with("up") || line.starts_with("message") {
        line = rig.next_line();
    }
    assert_eq!(line, "end 0 0");
}

/// The peer opens the association, this end answers on the same stream, and the peer ends the association.
#[test]
fn usrsctp_opens_is_answered_and_ends() {
    let Some(program) = program("usrsctp-open") else { return };
    let mut rig = Rig::new(&program, "open");
    let (association, EventKind::Connected { local, incoming: true, .. }) = rig.next() else { panic!() };
    assert_eq!(local, SocketAddr::new(OURS, PORT));
    assert_eq!(rig.message(), (5, octets(100_000)));
    let now = rig.now();
    rig.sctp.send(now, association, 5, octets(2000), Delivery::default()).unwrap();
    assert_eq!(rig.next(), (association, EventKind::Closed));
    assert_eq!(rig.next_line(), "up 0 0");
    assert_eq!(rig.next_line(), "message 5 2000");
}
