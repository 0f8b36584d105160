//! SCTP packets through raw sockets.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket};
use signalbox_core::metrics::Subsystem;
use signalbox_core::node::TransmitError;
use signalbox_core::packet::Transmit;
use signalbox_core::{Entry, EntryRequest};
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::netns::Namespace;
use signalbox_linux::stream::kernel_speaks_sctp;
use signalbox_linux::{Batch, Failure, Io, IoConfig, topology};

use crate::network::{Network, PATIENCE, datagram, families, ip, open};

type Packet = (IpAddr, IpAddr, Vec<u8>);

const SCTP: Entry = Entry::Ip(132);

fn end(namespace: &Namespace) -> Io {
    open(
        namespace,
        &IoConfig {
            entries: vec![EntryRequest::local(SCTP, Subsystem::protocol("sctp"))],
            ..IoConfig::default()
        },
    )
}

fn send(io: &mut Io, src: IpAddr, dst: IpAddr, payload: &[u8]) {
    let to = datagram(src, dst, payload);
    io.send(&Transmit { entry: SCTP, src: (src, 0).into(), dst: (dst, 0).into(), tos: 0x28, ..to });
}

fn receive(io: &mut Io, count: usize) -> Vec<Packet> {
    let (mut batch, mut got) = (Batch::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while got.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "received only {got:?}");
        if io.wait(Some(left)).unwrap().packets {
            io.receive(&mut batch).unwrap();
            got.extend(batch.iter().map(|p| (p.src.ip(), p.dst.ip(), p.payload.to_vec())));
        }
        io.changes();
    }
    got
}

#[test]
fn packets_pass_both_ways_with_the_addresses_given() {
    if kernel_speaks_sctp() {
        eprintln!("skipped: this kernel's own SCTP is used");
        return;
    }
    let net = Network::new("sctp");
    for (address, len) in [("10.1.0.9", 24), ("fd01::9", 64)] {
        topology::add_address(&net.a, "a0", ip(address), len).unwrap();
    }
    let (mut a, mut b) = (end(&net.a), end(&net.b));
    let mut capture = Capture::open(&net.r, "ra", CaptureConfig::default()).unwrap();
    for (family, second) in families().into_iter().zip(["10.1.0.9", "fd01::9"]) {
        // More than a batch, odd sizes, the last one beyond the MTU; the source is the requested one.
        let sizes = (0..100_usize).map(|n| 12 + n * 3).chain([1999]);
        let packets: Vec<_> = sizes
            .zip([family.a, ip(second)].into_iter().cycle())
            .map(|(size, src)| (src, family.b, vec![size as u8; size]))
            .collect();
        for (src, dst, packet) in &packets {
            send(&mut a, *src, *dst, packet);
        }
        assert_eq!(a.flush(), []);
        assert!(receive(&mut b, packets.len()) == packets);
        send(&mut b, family.b, ip(second), b"answers without a check");
        b.flush();
        assert_eq!(receive(&mut a, 1), [(family.b, ip(second), b"answers without a check".to_vec())]);
    }
    send(&mut a, families()[0].a, families()[1].b, b"two families");
    send(&mut a, families()[0].a, families()[0].b, b"goes all the same");
    a.flush();
    assert_eq!(receive(&mut b, 1)[0].2, b"goes all the same");
    let counters = ["sent", "unsent", "received"].map(|name| a.counter("sctp", name).unwrap());
    assert_eq!(counters, [203, 1, 2]);

    let mut marked = 0;
    let mut reading = true;
    while reading {
        reading = false;
        let each = |frame: signalbox_linux::capture::Frame<'_>| {
            reading = true;
            let Ok(parsed) = SlicedPacket::from_ethernet(frame.octets) else { return };
            match &parsed.net {
                Some(NetSlice::Ipv4(v4)) if v4.header().protocol().0 == 132 => {
                    assert_eq!(v4.header().dcp().value() << 2, 0x28);
                    marked += 1;
                }
                Some(NetSlice::Ipv6(v6)) if v6.header().next_header().0 == 132 => {
                    assert_eq!(v6.header().traffic_class(), 0x28);
                    marked += 1;
                }
                // No ICMP error reports an unknown protocol.
                Some(NetSlice::Ipv4(v4)) => assert_ne!(v4.header().protocol().0, 1),
                _ => {}
            }
        };
        capture.read(Duration::from_millis(50), each).unwrap();
    }
    assert!(marked >= 200, "{marked}");
}

/// An entry that no protocol requests is not open.
#[test]
fn without_sctp_asked_for_nothing_is_received_or_sent() {
    let net = Network::new("nosctp");
    let mut a = Network::host(&net.a);
    let to = families()[0].b;
    send(&mut a, families()[0].a, to, b"x");
    assert_eq!(a.flush(), [Failure { entry: SCTP, dst: to, error: TransmitError::Other }]);
    assert_eq!(a.counter("sctp", "sent"), None);
}
