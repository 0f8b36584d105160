//! Tests of recordings of a toy node: inputs are read as they were written, faults are refused, and a replay
//! repeats the run.

mod corpus;

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use signalbox_core::node::{
    Input, Interface, NoRoute, NodeEngine, Output, OwnedInput, Prefix, Route, RouteQuery, StreamError,
    StreamId, StreamKind, TransmitError,
};
use signalbox_core::packet::{Received, ReceivedOf, Transmit};
use signalbox_core::pinhole::{OpenerId, PinholeError, Translation};
use signalbox_core::traffic::{ReservationId, ReserveError};
use signalbox_core::{Entry, IfIndex, Random, Time};
use signalbox_record::{ReadError, Reader, Recorded, Writer, replay};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Command {
    Find { dst: IpAddr },
}

const SEED: [u8; 32] = [7; 32];

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn inputs() -> Vec<OwnedInput<Command>> {
    let datagram = ReceivedOf {
        entry: Entry::Udp(270),
        src: "[fe80::1%3]:270".parse().unwrap(),
        dst: "[fd00::2]:270".parse().unwrap(),
        ifindex: IfIndex(3),
        ttl: 255,
        tos: 0xb8,
        options: vec![17, 0, 5, 2, 0, 0, 1, 0],
        payload: vec![0x4e, 0x04, 0xbd, 0xa5, 0],
    };
    let interface = Interface {
        ifindex: IfIndex(2),
        name: "eth\"0".to_owned(),
        up: true,
        mtu: 1500,
        tunnel: true,
        addresses: vec![addr("10.0.0.1"), addr("fe80::1")],
    };
    let route = Route {
        ifindex: IfIndex(2),
        src: addr("10.0.0.1"),
        gateway: Some(addr("10.0.0.2")),
        mtu: 1500,
        local: false,
    };
    let stream = StreamId(u64::MAX);
    let peer = "[fe80::1%3]:49152".parse().unwrap();
    let (src, dst) = (addr("10.0.0.1"), addr("10.0.0.2"));
    let close = |error, unacknowledged| OwnedInput::StreamClosed { stream, error, unacknowledged };
    vec![
        OwnedInput::Interfaces(vec![interface]),
        OwnedInput::Command(Command::Find { dst: addr("10.9.9.9") }),
        OwnedInput::Route { id: u64::MAX, result: Ok(route) },
        OwnedInput::Route { id: 2, result: Err(NoRoute::Prohibited) },
        OwnedInput::Packet(datagram),
        OwnedInput::Timer,
        OwnedInput::RouteChanged(Prefix { addr: addr("10.0.0.0"), len: 8 }),
        OwnedInput::NeighborMoved { ifindex: IfIndex(2), address: addr("fe80::1") },
        OwnedInput::TransmitFailed {
            entry: Entry::Udp(270),
            dst: addr("::1"),
            error: TransmitError::TooBig(Some(1280)),
        },
        OwnedInput::TransmitFailed { entry: Entry::Udp(270), dst: addr("::1"), error: TransmitError::Other },
        OwnedInput::Undeliverable { entry: Entry::Udp(50004), dst, quoted: vec![0, 0, 0, 2] },
        OwnedInput::StreamAccepted {
            stream,
            kind: StreamKind::Sctp,
            local: "[fe80::2%3]:270".parse().unwrap(),
            peer,
        },
        OwnedInput::StreamConnected { stream, local: peer },
        OwnedInput::StreamOctets { stream, octets: vec![1, 0, 0xff] },
        OwnedInput::StreamDrained { stream, unsent: 70_000 },
        close(None, false),
        close(Some(StreamError::Reset), true),
        OwnedInput::ListenFailed { kind: StreamKind::Sctp, port: 270, error: StreamError::AddressInUse },
        OwnedInput::Packet(ReceivedOf {
            entry: Entry::Ip(46),
            src: SocketAddr::new(src, 0),
            dst: SocketAddr::new(dst, 0),
            ifindex: IfIndex(3),
            ttl: 63,
            tos: 0xc0,
            options: vec![148, 4, 0, 0],
            payload: vec![0x10, 1, 0, 0, 63, 0, 0, 8],
        }),
        OwnedInput::Multicast {
            group: addr("232.1.1.1"),
            source: src,
            iif: IfIndex(2),
            oifs: vec![IfIndex(3), IfIndex(4)],
        },
        OwnedInput::Reserved { id: ReservationId(u64::MAX), result: Ok(()) },
        OwnedInput::Reserved { id: ReservationId(1), result: Err(ReserveError::Full) },
        OwnedInput::Handover(vec![0, 1, 0xff]),
        OwnedInput::PinholeOpened { id: OpenerId::NATFW.pinhole(u64::MAX), result: Ok(()) },
        OwnedInput::PinholeOpened { id: OpenerId::NATFW.pinhole(1), result: Err(PinholeError::Conflict) },
        OwnedInput::FlowFound { id: OpenerId::GIST_NAT.pinhole(2), translation: None },
        OwnedInput::FlowFound {
            id: OpenerId::GIST_NAT.pinhole(3),
            translation: Some(Translation {
                source: "203.0.113.1:20000".parse().unwrap(),
                destination: "[2001:db8::1]:5000".parse().unwrap(),
                by_pinhole: true,
            }),
        },
    ]
}

fn record(inputs: &[OwnedInput<Command>], limit: u64) -> Vec<u8> {
    let config = serde_json::json!({"name": "n1", "timers": [1, 2]});
    let mut writer = Writer::new(Vec::new(), &config, &SEED, limit).unwrap();
    for (t, input) in (0..).zip(inputs) {
        let _ = input.clone().give(|input| writer.record(Time::from_millis(t), &input)).unwrap();
    }
    writer.finish().unwrap()
}

fn read(recording: &[u8]) -> Result<Vec<Recorded<Command>>, ReadError> {
    Reader::new(recording)?.collect()
}

#[test]
fn every_kind_of_input_comes_in_as_it_went_out() {
    let recording = record(&inputs(), 1 << 20);
    let reader = Reader::<_, Command>::new(&recording[..]).unwrap();
    assert_eq!((reader.seed(), &reader.config()["timers"][1]), (SEED, &2.into()));
    let read = read(&recording).unwrap();
    assert_eq!(read[8].at, Time::from_millis(8));
    assert!(read.into_iter().map(|r| r.input).eq(inputs()));
}

#[test]
fn a_line_is_as_the_documentation_says() {
    let recording = String::from_utf8(record(&inputs(), 1 << 20)).unwrap();
    let lines: Vec<_> = recording.lines().collect();
    assert!(lines[0].starts_with("{\"signalbox-recording\":2,\"config\":{"), "{}", lines[0]);
    assert!(lines[0].ends_with(&format!("\"seed\":\"{}\"}}", "07".repeat(32))), "{}", lines[0]);
    assert_eq!(
        lines[5],
        "{\"t\":4000,\"input\":{\"packet\":{\"entry\":{\"udp\":270},\"src\":\"[fe80::1%3]:270\",\"dst\":\"[fd00::2]:270\",\"ifindex\":3,\
         \"ttl\":255,\"tos\":184,\"options\":\"1100050200000100\",\"payload\":\"4e04bda500\"}}}"
    );
    assert_eq!(lines[6], "{\"t\":5000,\"input\":\"timer\"}");
    assert_eq!(
        lines[14],
        "{\"t\":13000,\"input\":{\"stream-octets\":{\"stream\":18446744073709551615,\"octets\":\"0100ff\"}}}"
    );
    assert_eq!(
        lines[17],
        "{\"t\":16000,\"input\":{\"stream-closed\":{\"stream\":18446744073709551615,\"error\":\"Reset\",\
         \"unacknowledged\":true}}}"
    );
}

#[test]
fn a_recording_stays_below_its_limit_and_says_so() {
    let whole = record(&inputs(), 1 << 20);
    for limit in 200..whole.len() as u64 + 20 {
        let recording = record(&inputs(), limit);
        assert!(recording.len() as u64 <= limit);
        let mut reader = Reader::<_, Command>::new(&recording[..]).unwrap();
        let read = reader.by_ref().map(Result::unwrap).count();
        assert_eq!(reader.reached_limit(), read < inputs().len(), "limit {limit}");
    }
    let error = Writer::new(Vec::new(), &"", &SEED, 50).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn a_write_that_fails_ends_the_recording() {
    struct Disk(Vec<u8>);
    impl Write for Disk {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            if self.0.len() > 300 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(octets);
            Ok(octets.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Disk(Vec::new()), &(), &SEED, 1 << 20).unwrap();
    let mut put = || writer.record(Time::ZERO, &Input::<Command>::Timer).map_err(|e| e.kind());
    let results: Vec<_> = (0..20).map(|_| put()).collect();
    let failed = results.iter().position(Result::is_err).unwrap();
    assert_eq!(results[failed], Err(io::ErrorKind::StorageFull));
    assert!(results[..failed].iter().all(|r| *r == Ok(true)));
    assert!(results[failed + 1..].iter().all(|r| *r == Ok(false)));
    assert!(!writer.is_open());
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let header = format!("{{\"signalbox-recording\":2,\"config\":null,\"seed\":\"{}\"}}\n", "00".repeat(32));
    let error = |text: String| read(text.as_bytes()).unwrap_err();
    assert!(matches!(error(String::new()), ReadError::Empty));
    assert!(matches!(error(header.replace(":2,", ":9,")), ReadError::Version(9)));
    assert!(matches!(error(header.replacen("00", "", 1)), ReadError::Seed(31)));
    assert!(matches!(error("{\"t\":0}\n".to_owned()), ReadError::Line { line: 1, .. }));
    let timer = "{\"t\":5,\"input\":\"timer\"}\n";
    for bad in [
        "",
        "nonsense",
        "{\"t\":5}",
        "{\"t\":5,\"input\":\"timers\"}",
        "{\"t\":5,\"input\":\"timer\",\"x\":1}",
    ] {
        let error = error(format!("{header}{timer}{bad}\n"));
        assert!(matches!(error, ReadError::Line { line: 3, .. }), "{bad}: {error}");
    }
    assert!(matches!(error(format!("{header}{timer}{{\"t\":6,")), ReadError::Torn { line: 3 }));
    let backwards = error(format!("{header}{timer}{}", timer.replace('5', "4")));
    assert!(matches!(backwards, ReadError::Backwards { line: 3, t: 4, before: 5 }));
    let odd = "{\"t\":5,\"input\":{\"packet\":{\"entry\":{\"udp\":270},\"src\":\"1.2.3.4:1\",\"dst\":\"1.2.3.4:1\",\"ifindex\":1,\"ttl\":1,\
               \"tos\":0,\"options\":\"\",\"payload\":\"abc\"}}}\n";
    let odd = error(format!("{header}{odd}"));
    let reason = std::error::Error::source(&odd).unwrap().to_string();
    assert!(reason.contains("odd number of hexadecimal digits"), "{reason}");
}

#[test]
fn after_an_error_the_reader_has_ended() {
    let mut recording = record(&inputs()[..2], 1 << 20);
    recording.extend_from_slice(b"x\n{\"t\":9,\"input\":\"timer\"}\n");
    let results: Vec<_> = Reader::<_, Command>::new(&recording[..]).unwrap().map(|r| r.is_ok()).collect();
    assert_eq!(results, [true, true, false]);
}

/// An engine that answers datagrams with random octets and asks for routes.
struct Toy {
    random: Random,
    pending: Option<(SocketAddr, [u8; 8])>,
    lookup: Option<IpAddr>,
    event: Option<u64>,
}

impl NodeEngine for Toy {
    type Command = Command;
    type Event = u64;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        match input {
            Input::Packet(Received { src, .. }) => self.pending = Some((src, self.random.array())),
            Input::Command(Command::Find { dst }) => self.lookup = Some(dst),
            Input::Route { id, .. } => self.event = Some(id ^ self.random.u64()),
            _ => self.event = Some(now.as_micros()),
        }
    }

    fn poll(&mut self) -> Option<Output<'_, u64>> {
        if let Some(dst) = self.lookup.take() {
            return Some(Output::RouteLookup { id: 1, query: RouteQuery::to(dst) });
        }
        if let Some(event) = self.event.take() {
            return Some(Output::Event(event));
        }
        let (dst, _) = self.pending.take_if(|(dst, _)| dst.port() != 0)?;
        Some(Output::Transmit(Transmit {
            entry: Entry::Udp(270),
            src: dst,
            dst,
            ifindex: None,
            gateway: None,
            ttl: 1,
            tos: 0,
            dont_fragment: false,
            flow_label: 0,
            unproved: false,
            options: &[],
            payload: &[],
        }))
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

#[test]
fn a_replay_repeats_the_run() {
    let toy = |seed| Toy { random: Random::new(seed), pending: None, lookup: None, event: None };
    let mut live = toy(SEED);
    let mut said = Vec::new();
    for (t, input) in (0..).map(Time::from_millis).zip(inputs()) {
        input.give(|input| live.handle(t, input));
        while let Some(output) = live.poll() {
            said.push(format!("{t} {output:?}"));
        }
    }
    let recording = record(&inputs(), 1 << 20);
    let run = |seed| {
        let mut again = Vec::new();
        let mut reader = Reader::new(&recording[..]).unwrap();
        let replayed = replay(&mut reader, &mut toy(seed), |t, output| {
            again.push(format!("{t} {output:?}"));
            Ok::<_, Infallible>(())
        })
        .unwrap();
        assert!(replayed.fault.is_none());
        (again, replayed)
    };
    let (again, replayed) = run(SEED);
    assert_eq!(again, said);
    assert_eq!(
        (replayed.inputs, replayed.outputs, replayed.end),
        (27, said.len() as u64, Time::from_millis(26))
    );
    assert_ne!(run([0; 32]).0, said);
}

#[test]
fn a_replay_comes_as_far_as_the_recording_is_sound() {
    let mut recording = record(&inputs(), 1 << 20);
    recording.truncate(recording.len() - 3);
    let mut toy = Toy { random: Random::new(SEED), pending: None, lookup: None, event: None };
    let mut reader = Reader::new(&recording[..]).unwrap();
    let replayed = replay(&mut reader, &mut toy, |_, _| Ok::<_, Infallible>(())).unwrap();
    assert_eq!((replayed.inputs, replayed.end), (26, Time::from_millis(25)));
    assert!(matches!(replayed.fault, Some(ReadError::Torn { line: 28 })));
    let mut reader = Reader::new(&recording[..]).unwrap();
    assert_eq!(replay(&mut reader, &mut toy, |t, _| Err(t)).unwrap_err(), Time::ZERO);
}

proptest! {
    /// With any file content the reader ends without panic, and reports a correct line number.
    #[test]
    fn no_file_makes_the_reader_panic(at in 0usize..4000, octet: u8, cut in 0usize..4000) {
        let mut recording = record(&inputs(), 1 << 20);
        let length = recording.len();
        recording[at % length] = octet;
        recording.truncate(cut % (length + 1));
        let lines = recording.split(|o| *o == b'\n').count() as u64;
        match read(&recording) {
            Err(ReadError::Line { line, .. } | ReadError::Torn { line } | ReadError::Backwards { line, .. }) => {
                prop_assert!(line <= lines);
            }
            Ok(read) => prop_assert!(read.len() <= inputs().len()),
            Err(_) => {}
        }
    }
}
