//! SCTP associations of the kernel as streams. With a kernel without SCTP the tests only print that they are skipped.

use signalbox_core::node::{StreamError, StreamId, StreamKind};
use signalbox_linux::stream::{StreamConfig, kernel_speaks_sctp};
use signalbox_linux::topology;

use crate::network::{Network, families, ip};
use crate::stream_end::{End, connect, drive, pattern};

const PORT: u16 = 7000;

fn ends(net: &Network) -> (End<'_>, End<'_>) {
    let end = |namespace| {
        let mut end = End::new(namespace, StreamConfig::default());
        end.kind = StreamKind::Sctp;
        end
    };
    let (a, mut b) = (end(&net.a), end(&net.b));
    b.listen(PORT).unwrap();
    (a, b)
}

fn skipped() -> bool {
    let skipped = !kernel_speaks_sctp();
    if skipped {
        eprintln!("skipped: this kernel has no SCTP");
    }
    skipped
}

#[test]
fn an_association_comes_up_and_carries_messages_both_ways() {
    if skipped() {
        return;
    }
    let net = Network::new("ksctp");
    for (address, len) in [("10.1.0.9", 24), ("fd01::9", 64)] {
        topology::add_address(&net.a, "a0", ip(address), len).unwrap();
    }
    let (mut a, mut b) = ends(&net);
    for (family, second) in families().into_iter().zip(["10.1.0.9", "fd01::9"]) {
        for local in [family.a, ip(second)] {
            let (here, there) = connect(&mut a, &mut b, local, (family.b, PORT));
            let seen = b.seen(there);
            assert_eq!(seen.peer, a.seen(here).local);
            assert_eq!(seen.peer.unwrap().ip(), local);
            assert_eq!(seen.local, Some((family.b, PORT).into()));
            a.streams().message(here, (0, None), b"hello");
            b.streams().message(there, (1000, None), b"welcome");
            drive("greetings", &mut a, &mut b, |a, b| {
                a.seen(here).octets == b"welcome" && b.seen(there).octets == b"hello"
            });
        }
    }
    assert_eq!((a.streams().counters().connected, b.streams().counters().accepted), (4, 4));
}

#[test]
fn a_reader_that_pauses_stops_its_writer_and_nothing_is_lost() {
    if skipped() {
        return;
    }
    let net = Network::new("ksctppause");
    let (mut a, mut b) = ends(&net);
    let (here, there) = connect(&mut a, &mut b, families()[0].a, (families()[0].b, PORT));
    b.streams().read(there, false);
    // One SCTP stream, so that the order covers all messages: the largest message of GIST, and then many small ones.
    let all = pattern(262_140 + 3_000 * 1_000);
    a.streams().message(here, (3, None), &all[..262_140]);
    for message in all[262_140..].chunks(1_000) {
        a.streams().message(here, (3, None), message);
    }
    drive("a full window", &mut a, &mut b, |a, _| a.seen(here).unsent.last().is_some_and(|left| *left > 0));
    assert!(b.seen(there).octets.is_empty());
    b.streams().read(there, true);
    drive("all of it", &mut a, &mut b, |_, b| b.seen(there).octets.len() == all.len());
    assert!(b.seen(there).octets == all);
    assert_eq!(a.seen(here).unsent.last(), Some(&0));
    a.streams().close(here, false);
    drive("an orderly end", &mut a, &mut b, |_, b| b.closed(there).is_some());
    assert_eq!(b.closed(there), Some((None, false)));
}

#[test]
fn associations_fail_as_connections_do() {
    if skipped() {
        return;
    }
    let net = Network::new("ksctpfail");
    let (mut a, mut b) = ends(&net);
    let family = families()[0];
    let refused = a.open(family.a, (family.b, PORT + 1));
    drive("a refusal", &mut a, &mut b, |a, _| a.closed(refused).is_some());
    assert_eq!(a.closed(refused), Some((Some(StreamError::Refused), false)));

    let (here, there) = connect(&mut a, &mut b, family.a, (family.b, PORT));
    b.streams().close(there, true);
    drive("an abort", &mut a, &mut b, |a, _| a.closed(here).is_some());
    assert_eq!(a.closed(here), Some((Some(StreamError::Reset), false)));

    // Octets that the peer has not read count as not delivered.
    let (here, there) = connect(&mut a, &mut b, family.a, (family.b, PORT));
    b.streams().read(there, false);
    for _ in 0..3_000 {
        a.streams().message(here, (0, None), &[7; 1_000]);
    }
    drive("a full window", &mut a, &mut b, |a, _| a.seen(here).unsent.last().is_some_and(|left| *left > 0));
    b.streams().close(there, true);
    drive("the end", &mut a, &mut b, |a, _| a.closed(here).is_some());
    assert_eq!(a.closed(here), Some((Some(StreamError::Reset), true)));
    assert!(!a.is_connected(StreamId(99)) && a.streams().is_empty());
}
