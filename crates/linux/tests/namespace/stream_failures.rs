//! TCP streams that fail, each for another reason.

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use signalbox_core::node::StreamError;
use signalbox_linux::stream::StreamConfig;
use signalbox_linux::topology;

use crate::helper::helper;
use crate::network::{Network, PATIENCE, families, ip, until};
use crate::stream_end::{End, connect, drive, pattern};

const PORT: u16 = 7000;

fn quick() -> StreamConfig {
    let (connect_timeout, user_timeout) = (Duration::from_millis(400), Duration::from_millis(400));
    StreamConfig { connect_timeout, user_timeout, close_timeout: user_timeout, ..StreamConfig::default() }
}

#[test]
fn each_failure_to_connect_is_reported() {
    let net = Network::new("nocon");
    let (mut a, mut b) = (End::new(&net.a, quick()), End::new(&net.b, quick()));
    let mut failure = |local: &str, peer: &str, port| {
        let stream = a.open(ip(local), (ip(peer), port));
        a.streams().write(stream, b"lost");
        drive("the failure", &mut a, &mut b, |a, _| a.closed(stream).is_some());
        assert!(a.streams().is_empty() && !a.is_connected(stream) && a.streams().unsent() == 0);
        a.closed(stream).unwrap()
    };
    topology::nft(
        &net.b,
        "table inet sbxt { chain in { type filter hook input priority 0; tcp dport 7002 drop\n}\n}\n",
    )
    .unwrap();
    for (local, peer) in [("10.1.0.1", "10.2.0.1"), ("fd01::1", "fd02::1")] {
        assert_eq!(failure(local, peer, 7001), (Some(StreamError::Refused), true));
        let start = Instant::now();
        assert_eq!(failure(local, peer, 7002), (Some(StreamError::TimedOut), true));
        assert!(start.elapsed() < Duration::from_secs(4));
    }
    for (local, peer) in [("10.1.0.1", "192.0.2.1"), ("fd01::1", "2001:db8::1")] {
        assert_eq!(failure(local, peer, PORT), (Some(StreamError::Unreachable), true), "no route at r");
    }
    // The local address is not one of ours, so no connection was started.
    assert_eq!(failure("10.1.0.77", "10.2.0.1", PORT), (Some(StreamError::Unreachable), false));
    assert_eq!(a.streams().counters().connect_failed, 7);
}

#[test]
fn a_port_that_is_taken_is_reported_and_the_other_family_listens() {
    let net = Network::new("taken");
    let (mut a, mut b) = (End::new(&net.a, quick()), End::new(&net.b, quick()));
    let taken = net.b.run(|| TcpListener::bind("10.2.0.1:7000").unwrap()).unwrap();
    assert_eq!(b.listen(PORT), Err(StreamError::AddressInUse));
    let stream = a.open(families()[1].a, (families()[1].b, PORT));
    drive("the refusal", &mut a, &mut b, |a, _| a.closed(stream).is_some());
    assert_eq!(a.closed(stream), Some((Some(StreamError::Refused), false)));
    drop(taken);
    // A process that another test starts may hold the socket for a moment.
    until("the port is free", || b.listen(PORT).is_ok());
    connect(&mut a, &mut b, families()[1].a, (families()[1].b, PORT));
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_peer_that_is_killed_resets_its_streams() {
    let net = Network::new("kill");
    let mut a = End::new(&net.a, StreamConfig::default());
    let mut idle = End::new(&net.r, StreamConfig::default());
    let peer = Killed(net.b.spawn(&mut helper("tcp-listener")).unwrap());
    let deadline = Instant::now() + PATIENCE;
    let mut streams = Vec::new();
    while streams.len() < 2 {
        assert!(Instant::now() < deadline);
        let stream = a.open(families()[streams.len()].a, (families()[streams.len()].b, PORT));
        drive("an outcome", &mut a, &mut idle, |a, _| a.is_connected(stream) || a.closed(stream).is_some());
        if a.is_connected(stream) {
            streams.push(stream);
        }
    }
    // More octets than the peer, which does not read, and the kernel accept. Reading is off on one of the streams.
    for stream in &streams {
        a.streams().write(*stream, &pattern(8_000_000));
    }
    a.streams().read(streams[1], false);
    drive("a full pipe", &mut a, &mut idle, |a, _| {
        streams.iter().all(|stream| a.seen(*stream).unsent.last().is_some_and(|unsent| *unsent > 0))
    });
    drop(peer);
    drive("the resets", &mut a, &mut idle, |a, _| streams.iter().all(|stream| a.closed(*stream).is_some()));
    for stream in streams {
        assert_eq!(a.closed(stream), Some((Some(StreamError::Reset), true)));
    }
    assert_eq!((a.streams().counters().broken, a.streams().unsent()), (2, 0));
}

#[test]
fn a_lost_link_ends_a_stream_within_the_user_timeout_and_only_with_octets_under_way() {
    for (family, local_end) in families().into_iter().zip([true, false]) {
        let net = Network::new(if local_end { "link" } else { "far" });
        let (mut a, mut b) = (End::new(&net.a, quick()), End::new(&net.b, quick()));
        b.listen(PORT).unwrap();
        let (here, there) = connect(&mut a, &mut b, family.a, (family.b, PORT));
        let (silent, _) = connect(&mut a, &mut b, family.a, (family.b, PORT));
        let (namespace, interface) = if local_end { (&net.a, "a0") } else { (&net.b, "b0") };
        topology::set_up(namespace, interface, false).unwrap();
        let start = Instant::now();
        a.streams().write(here, b"into the void");
        drive("the end", &mut a, &mut b, |a, _| a.closed(here).is_some());
        let took = start.elapsed();
        let (error, unacknowledged) = a.closed(here).unwrap();
        // A router whose neighbor does not answer may report it before the timeout.
        assert!(matches!(error, Some(StreamError::TimedOut | StreamError::Unreachable)), "{error:?}");
        assert!(unacknowledged);
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert_eq!((a.closed(silent), b.closed(there)), (None, None));
    }
}

#[test]
fn who_closes_into_a_void_does_not_wait_for_ever() {
    let net = Network::new("void");
    let (mut a, mut b) = (End::new(&net.a, quick()), End::new(&net.b, quick()));
    b.listen(PORT).unwrap();
    // One peer that does not read and does not close, and one that is not reachable any more.
    let (paused, at_b) = connect(&mut a, &mut b, families()[0].a, (families()[0].b, PORT));
    b.streams().read(at_b, false);
    a.streams().write(paused, &pattern(8_000_000));
    a.streams().close(paused, false);
    drive("the end", &mut a, &mut b, |a, _| a.streams().is_empty());
    // The peer must not take these octets for the complete stream.
    b.streams().read(at_b, true);
    drive("the reset", &mut a, &mut b, |_, b| b.closed(at_b).is_some());
    assert_eq!(b.closed(at_b).unwrap().0, Some(StreamError::Reset));
    assert!(b.seen(at_b).octets.len() < 8_000_000);
    let (gone, _) = connect(&mut a, &mut b, families()[0].a, (families()[0].b, PORT));
    topology::set_up(&net.b, "b0", false).unwrap();
    a.streams().write(gone, b"x");
    a.streams().close(gone, false);
    drive("the end", &mut a, &mut b, |a, _| a.streams().is_empty());
    assert_eq!(a.streams().counters().closed_unacknowledged, 2);
}

#[test]
fn a_stream_that_holds_too_much_is_reset() {
    let net = Network::new("cap");
    let capped = StreamConfig { unsent_limit: 1 << 20, ..StreamConfig::default() };
    let total = StreamConfig { unsent_limit_total: 3 << 19, ..StreamConfig::default() };
    let mut b = End::new(&net.b, StreamConfig::default());
    b.listen(PORT).unwrap();
    for config in [capped, total] {
        let mut a = End::new(&net.a, config);
        let (one, _) = connect(&mut a, &mut b, families()[0].a, (families()[0].b, PORT));
        let (other, at_b) = connect(&mut a, &mut b, families()[0].a, (families()[0].b, PORT));
        b.streams().read(at_b, false);
        let mut pieces = 0;
        while a.closed(other).is_none() {
            a.streams().write(other, &pattern(100_000));
            a.turn(Duration::ZERO);
            pieces += 1;
            assert!(pieces < 500, "no limit");
        }
        assert_eq!(a.closed(other), Some((Some(StreamError::Other), true)));
        assert_eq!((a.streams().counters().unsent_limited, a.streams().unsent()), (1, 0));
        b.streams().read(at_b, true);
        drive("the reset", &mut a, &mut b, |_, b| b.closed(at_b).is_some());
        assert_eq!(b.closed(at_b).unwrap().0, Some(StreamError::Reset));
        assert_eq!(a.closed(one), None);
    }
}

#[test]
fn without_descriptors_the_listener_rests_and_then_accepts_again() {
    let net = Network::new("files");
    let program = helper("few-descriptors");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(program.get_program());
    limited.args(program.get_args()).envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = net.b.run(|| limited.output()).unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("accepted again"), "{said}");
}
