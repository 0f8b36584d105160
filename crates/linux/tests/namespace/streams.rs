//! TCP streams that work: connecting, transfer, marking, closing.

use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket};
use signalbox_core::node::{REPORT_EVERY, StreamError, StreamId};
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::stream::StreamConfig;
use signalbox_linux::topology;

use crate::network::{Network, families, ip};
use crate::stream_end::{End, connect, drive, pattern};

const PORT: u16 = 7000;

fn ends(net: &Network) -> (End<'_>, End<'_>) {
    let (a, mut b) = (End::new(&net.a, StreamConfig::default()), End::new(&net.b, StreamConfig::default()));
    b.listen(PORT).unwrap();
    (a, b)
}

#[test]
fn a_stream_comes_up_from_the_address_given() {
    let net = Network::new("up");
    for (address, len) in [("10.1.0.9", 24), ("fd01::9", 64)] {
        topology::add_address(&net.a, "a0", ip(address), len).unwrap();
    }
    let (mut a, mut b) = ends(&net);
    b.listen(PORT).unwrap(); // the second call has no effect
    for (family, second) in families().into_iter().zip(["10.1.0.9", "fd01::9"]) {
        for local in [family.a, ip(second)] {
            let (here, there) = connect(&mut a, &mut b, local, (family.b, PORT));
            let seen = b.seen(there);
            assert_eq!(seen.peer, a.seen(here).local);
            assert_eq!(seen.peer.unwrap().ip(), local);
            assert_eq!(seen.local, Some((family.b, PORT).into()));
            a.streams().write(here, b"hello");
            b.streams().write(there, b"welcome");
            drive("greetings", &mut a, &mut b, |a, b| {
                a.seen(here).octets == b"welcome" && b.seen(there).octets == b"hello"
            });
        }
        let any = if family.a.is_ipv4() { ip("0.0.0.0") } else { ip("::") };
        let (_, there) = connect(&mut a, &mut b, any, (family.b, PORT));
        assert!(b.seen(there).peer.is_some());
    }
    assert_eq!((a.streams().counters().connected, b.streams().counters().accepted), (6, 6));
    assert_eq!(b.accepted(), [2, 4, 6, 8, 10, 12].map(StreamId));
}

#[test]
fn small_writes_leave_together() {
    let net = Network::new("small");
    let (mut a, mut b) = ends(&net);
    let (here, there) = connect(&mut a, &mut b, families()[0].a, (families()[0].b, PORT));
    for n in 0..1000_u16 {
        a.streams().write(here, &n.to_be_bytes());
    }
    drive("all of them", &mut a, &mut b, |_, b| b.seen(there).octets.len() == 2000);
    let counters = a.streams().counters();
    assert_eq!((counters.flushes, counters.octets_sent), (1, 2000));
    assert!(a.seen(here).unsent.is_empty(), "nothing waited");
}

/// An owner that counts what it writes waits for a report when it has written twice `REPORT_EVERY`. The report comes,
/// although the kernel takes everything at once.
#[test]
fn a_stream_that_takes_everything_reports_in_time() {
    let net = Network::new("report");
    let (mut a, mut b) = ends(&net);
    let (here, there) = connect(&mut a, &mut b, families()[0].a, (families()[0].b, PORT));
    let (mut written, mut total) = (0, 0);
    drive("ten megabytes", &mut a, &mut b, |a, b| {
        if !std::mem::take(&mut a.seen.get_mut(&here.0).unwrap().unsent).is_empty() {
            written = 0;
        }
        while written < 2 * REPORT_EVERY && total < 10 << 20 {
            a.streams().write(here, &pattern(1 << 10));
            (written, total) = (written + (1 << 10), total + (1 << 10));
        }
        b.seen(there).octets.len() == 10 << 20
    });
}

#[test]
fn what_is_written_before_the_stream_is_up_arrives() {
    let net = Network::new("early");
    let (mut a, mut b) = ends(&net);
    let stream = a.open(families()[1].a, (families()[1].b, PORT));
    a.streams().write(stream, b"as soon as you can");
    drive("the octets", &mut a, &mut b, |_, b| {
        b.seen.get(&2).is_some_and(|seen| seen.octets == b"as soon as you can")
    });
    // Closed before the connection is up, with and without octets to send.
    for (text, number) in [(&b"and good bye"[..], 4), (b"", 6)] {
        let stream = a.open(families()[0].a, (families()[0].b, PORT));
        a.streams().write(stream, text);
        a.streams().close(stream, false);
        drive("the end", &mut a, &mut b, |a, b| {
            a.streams().len() == 1 && b.closed(StreamId(number)).is_some_and(|closed| closed == (None, false))
                || (text.is_empty() && a.streams().len() == 1)
        });
        if !text.is_empty() {
            assert_eq!(b.seen(StreamId(number)).octets, text);
        }
        assert!(!a.is_connected(stream));
    }
}

#[test]
fn large_payloads_arrive_whole_and_a_paused_reader_delays_no_other_stream() {
    let net = Network::new("large");
    let (mut a, mut b) = ends(&net);
    for (family, size) in families().into_iter().zip([60_000, 10 << 20]) {
        let (bulk, sink) = connect(&mut a, &mut b, family.a, (family.b, PORT));
        let (chat, answer) = connect(&mut a, &mut b, family.a, (family.b, PORT));
        b.streams().read(sink, false);
        let payload = pattern(size);
        let (mut rest, mut step, mut rounds) = (payload.as_slice(), 1_usize, 0);
        // Up to a megabyte waits; the other stream transfers octets meanwhile.
        drive("the transfer", &mut a, &mut b, |a, b| {
            while !rest.is_empty() && a.seen(bulk).unsent.last().is_none_or(|unsent| *unsent < 1 << 20) {
                let (piece, left) = rest.split_at(step.min(rest.len()));
                a.streams().write(bulk, piece);
                (rest, step) = (left, step * 7 % 9973);
                if a.streams().unsent() > 1 << 20 {
                    break;
                }
            }
            if b.seen(answer).octets.len() == rounds * 5 && rounds < 50 {
                a.streams().write(chat, b"again");
                rounds += 1;
            }
            let paused = rounds < 50;
            if !paused {
                b.streams().read(sink, true);
            }
            assert!(b.seen(sink).octets.is_empty() || !paused);
            b.seen(sink).octets.len() == size
        });
        assert!(b.seen(sink).octets == payload);
        let unsent = &a.seen(bulk).unsent;
        if size > 1 << 20 {
            assert!(unsent.iter().max() >= Some(&(1 << 19)) && unsent.last() == Some(&0), "{unsent:?}");
        }
    }
    assert_eq!(a.streams().unsent(), 0);
}

#[test]
fn an_orderly_close_delivers_everything_and_an_abort_resets() {
    let net = Network::new("close");
    let (mut a, mut b) = ends(&net);
    let payload = pattern(3_000_001);
    for family in families() {
        let (here, there) = connect(&mut a, &mut b, family.a, (family.b, PORT));
        // The other side sends, too: unread octets must not turn the end into a reset.
        b.streams().write(there, b"still talking");
        b.streams().read(there, false);
        a.streams().read(here, false);
        a.streams().write(here, &payload);
        a.streams().close(here, false);
        a.streams().close(here, false);
        a.streams().write(here, b"too late");
        for _ in 0..50 {
            a.turn(Duration::from_millis(1));
            b.turn(Duration::from_millis(1));
        }
        assert_eq!(b.seen(there).octets, b"");
        b.streams().read(there, true);
        drive("the end", &mut a, &mut b, |a, b| a.streams().is_empty() && b.closed(there).is_some());
        assert!(b.seen(there).octets == payload);
        assert_eq!(b.closed(there), Some((None, false)));
        assert_eq!(a.closed(here), None, "who closes gets no further event");

        let (here, there) = connect(&mut a, &mut b, family.a, (family.b, PORT));
        a.streams().write(here, b"never sent");
        a.streams().close(here, true);
        assert!(a.streams().is_empty());
        drive("the reset", &mut a, &mut b, |_, b| b.closed(there).is_some());
        assert_eq!(b.closed(there), Some((Some(StreamError::Reset), false)));
    }
    let counters = a.streams().counters();
    assert_eq!((counters.closed_unacknowledged, counters.broken), (2, 0), "the aborted ones");
    assert_eq!(b.streams().counters().ended, 2);
}

#[test]
fn connections_beyond_the_limits_are_reset() {
    let net = Network::new("limit");
    topology::add_address(&net.a, "a0", ip("10.1.0.9"), 24).unwrap();
    let mut a = End::new(&net.a, StreamConfig::default());
    let limits = StreamConfig { accept_limit: 3, accept_limit_per_source: 2, ..StreamConfig::default() };
    let mut b = End::new(&net.b, limits);
    b.listen(PORT).unwrap();
    let to = (families()[0].b, PORT);
    let refused = |a: &mut End<'_>, b: &mut End<'_>, from: &str| {
        let stream = a.open(ip(from), to);
        drive("the reset", a, b, |a, _| a.closed(stream).is_some());
        assert_eq!(a.closed(stream), Some((Some(StreamError::Reset), false)));
    };
    let (first, _) = connect(&mut a, &mut b, ip("10.1.0.1"), to);
    connect(&mut a, &mut b, ip("10.1.0.1"), to);
    refused(&mut a, &mut b, "10.1.0.1");
    connect(&mut a, &mut b, ip("10.1.0.9"), to);
    refused(&mut a, &mut b, "10.1.0.9");
    assert_eq!(b.streams().counters().accept_limited, 2);
    a.streams().close(first, false);
    drive("room", &mut a, &mut b, |_, b| b.streams().len() == 2);
    connect(&mut a, &mut b, ip("10.1.0.9"), to);
    assert_eq!(b.streams().counters().accepted, 4);
}

/// All packets of both ends carry the configured DSCP, those of the handshake included.
#[test]
fn packets_are_marked_as_configured() {
    let net = Network::new("mark");
    let marked = || StreamConfig { tos: 0x28, ..StreamConfig::default() };
    let (mut a, mut b) = (End::new(&net.a, marked()), End::new(&net.b, marked()));
    b.listen(PORT).unwrap();
    let mut capture = Capture::open(&net.r, "ra", CaptureConfig::default()).unwrap();
    for family in families() {
        let (here, there) = connect(&mut a, &mut b, family.a, (family.b, PORT));
        a.streams().write(here, b"to b");
        b.streams().write(there, b"to a");
        drive("both", &mut a, &mut b, |a, b| {
            a.seen(here).octets == b"to a" && b.seen(there).octets == b"to b"
        });
    }
    let (mut tos, mut seen) = (Vec::new(), 1);
    while seen > 0 {
        seen = 0;
        let each = |frame: signalbox_linux::capture::Frame<'_>| {
            seen += 1;
            let Ok(parsed) = SlicedPacket::from_ethernet(frame.octets) else { return };
            match &parsed.net {
                Some(NetSlice::Ipv4(v4)) if v4.header().protocol().0 == 6 => {
                    tos.push((4, v4.header().dcp().value() << 2));
                }
                Some(NetSlice::Ipv6(v6)) if v6.header().next_header().0 == 6 => {
                    tos.push((6, v6.header().traffic_class()));
                }
                _ => {}
            }
        };
        capture.read(Duration::from_millis(50), each).unwrap();
    }
    assert!(tos.len() >= 10, "{tos:?}");
    assert!(tos.iter().all(|(_, tos)| *tos == 0x28), "{tos:?}");
}

/// Many at a time: every stream gets its answer while one of them floods.
#[test]
fn two_hundred_streams_are_served_beside_a_flood() {
    let net = Network::new("many");
    let many = StreamConfig { accept_limit_per_source: 300, ..StreamConfig::default() };
    let (mut a, mut b) = (End::new(&net.a, StreamConfig::default()), End::new(&net.b, many));
    b.listen(PORT).unwrap();
    b.echo = true;
    let to = (families()[0].b, PORT);
    let streams: Vec<_> = (0..200).map(|_| a.open(families()[0].a, to)).collect();
    drive("all up", &mut a, &mut b, |a, _| streams.iter().all(|stream| a.is_connected(*stream)));
    let flood = streams[0];
    let piece = pattern(100_000);
    for stream in &streams[1..] {
        a.streams().write(*stream, b"ping");
    }
    drive("all answers", &mut a, &mut b, |a, _| {
        if a.streams().unsent() < 1 << 20 {
            a.streams().write(flood, &piece);
        }
        streams[1..].iter().all(|stream| a.seen(*stream).octets == b"ping")
    });
    assert!(!a.seen(flood).octets.is_empty());
}
