//! The administrator's rules at each hook, against the messages of each protocol: to the node, through it and from it.
//!
//! Each message has a tag of its own, which is also in what the router sends because of it. It has to be seen on its far side
//! without a rule, and with a rule at a hook exactly if this hook does not judge it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::{FlowSpec, Protocol, ReserveOpen, ReserveRequest, TokenBucket, reserve_request};
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::multicast::MulticastRouter;
use signalbox_linux::topology;
use tokio_stream::StreamExt as _;

use crate::firewall::{Net, chain, checksum, families, message};
use crate::net::LONG;

/// How long nothing has to arrive.
const QUIET: Duration = Duration::from_millis(400);
const SETTINGS: &str = "node.protocols = [\"gist\", \"ping\", \"rsvp\", \"boomerang\", \"casp\"]\n\
     [policy]\ndefault = \"deny\"\n[casp]\npeers = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
     [gist.associations]\ntcp_port = 270\n";
/// Drops every packet that the protocols use, and leaves neighbor discovery alone.
const DROP: &str =
    "meta l4proto { icmp, tcp, udp, 46 } drop\n meta l4proto ipv6-icmp @th,64,32 0x47114711 drop";
const HOOKS: [(&str, &str); 7] = [
    ("prerouting", "raw"),
    ("prerouting", "mangle"),
    ("input", "filter"),
    ("forward", "mangle"),
    ("forward", "filter"),
    ("output", "filter"),
    ("postrouting", "filter"),
];
/// The hooks of what this node takes, and answers or sends on.
const TAKEN: &[&str] = &["prerouting", "input", "output", "postrouting"];
/// The hooks of what crosses the node.
const CROSSING: &[&str] = &["prerouting", "forward", "postrouting"];
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const RSVP: u8 = 46;
const ICMPV6: u8 = 58;
const GIST_PORT: u16 = 270;
const SCOUT_PORT: u16 = 50004;
const CASP_PORT: u16 = 50003;
/// An NSLPID of this node's application, and one of none.
const PING: u16 = 32704;
const STRANGE: u16 = 32760;

/// The end at which it is seen that a message passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The host that sent it gets the answer.
    Answer,
    /// The far host gets the message.
    Message,
}

/// A kind of message.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Query {
        nslp: u16,
    },
    NoGist,
    Path {
        unknown: bool,
    },
    PathError,
    Scout {
        kind: u8,
    },
    Echo,
    /// The first segment of a TCP connection to a port.
    Connect {
        port: u16,
    },
}

/// Where a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Node,
    FarHost,
    Group,
}

struct Row {
    kind: Kind,
    to: To,
    alert: bool,
    fragments: bool,
    seen: Seen,
    judged: &'static [&'static str],
}

const fn row(kind: Kind, to: To, alert: bool, seen: Seen, judged: &'static [&'static str]) -> Row {
    Row { kind, to, alert, fragments: false, seen, judged }
}

const ROWS: [Row; 24] = [
    // GIST
    row(Kind::Query { nslp: PING }, To::Node, true, Seen::Answer, TAKEN),
    row(Kind::Query { nslp: PING }, To::FarHost, true, Seen::Answer, TAKEN),
    row(Kind::Query { nslp: STRANGE }, To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::NoGist, To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Query { nslp: PING }, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Connect { port: GIST_PORT }, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Connect { port: GIST_PORT }, To::FarHost, false, Seen::Message, CROSSING),
    // RSVP
    row(Kind::Path { unknown: true }, To::Node, true, Seen::Answer, TAKEN),
    row(Kind::Path { unknown: false }, To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::PathError, To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::PathError, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Path { unknown: true }, To::Group, true, Seen::Answer, TAKEN),
    row(Kind::Path { unknown: false }, To::Group, true, Seen::Message, TAKEN),
    // CASP
    row(Kind::Connect { port: CASP_PORT }, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Scout { kind: 2 }, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Scout { kind: 2 }, To::FarHost, true, Seen::Answer, TAKEN),
    row(Kind::Scout { kind: 1 }, To::FarHost, true, Seen::Message, CROSSING),
    // Boomerang
    row(Kind::Echo, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING),
    // In fragments; the kernel puts together what is for this node.
    Row { fragments: true, ..row(Kind::Query { nslp: PING }, To::FarHost, true, Seen::Answer, TAKEN) },
    Row { fragments: true, ..row(Kind::Query { nslp: PING }, To::FarHost, false, Seen::Message, CROSSING) },
    Row { fragments: true, ..row(Kind::Scout { kind: 2 }, To::FarHost, true, Seen::Answer, TAKEN) },
    Row { fragments: true, ..row(Kind::Path { unknown: false }, To::FarHost, true, Seen::Message, TAKEN) },
    Row { fragments: true, ..row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING) },
];

/// What was sent: the row, and what shows it on its far side.
struct Sent {
    name: String,
    row: &'static Row,
    tag: Vec<u8>,
}

struct Matrix {
    net: Net,
    sent: u16,
    /// Its routes lead to `b` from `a`.
    _groups: MulticastRouter,
}

const fn group(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 1, 0x203)),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// GIST's Query (RFC 5971 A.2), with a new session.
fn query([src, dst]: [IpAddr; 2], nslp: u16, number: u16) -> (Vec<u8>, Vec<u8>) {
    let (version, bits) = if src.is_ipv4() { (0x40, 32) } else { (0x60, 128) };
    let ends = [octets(src), octets(dst)].concat();
    let mri = [&[0, 0, version, 0][..], &ends, &[bits, bits, 0, 0]].concat();
    let session = [&[0x5e; 14][..], &number.to_be_bytes()].concat();
    let nli = [&[4, 64, version, 0][..], &30_000_u32.to_be_bytes(), &[7; 4], &octets(src)].concat();
    let cookie = [&[9; 6][..], &number.to_be_bytes()].concat();
    let mut body = Vec::new();
    for (kind, value) in [(0_u16, mri), (1, session.clone()), (2, nli), (5, cookie)] {
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(&u16::try_from(value.len() / 4).unwrap().to_be_bytes());
        body.extend_from_slice(&value);
    }
    let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
    let id = nslp.to_be_bytes();
    let head = [0x4e, 0x04, 0xbd, 0xa5, 1, 64, words[0], words[1], id[0], id[1], 0x80, 0x40];
    (datagram([src, dst], GIST_PORT, &[&head[..], &body].concat()), session)
}

/// A message of RSVP about a new session (RFC 2205 §3.1): a Path, also with an object of unknown class, or a PathErr.
fn rsvp([src, dst]: [IpAddr; 2], kind: Kind, number: u16) -> (Vec<u8>, Vec<u8>) {
    let family = if src.is_ipv4() { 1 } else { 2 };
    let port = (20_000 + number).to_be_bytes();
    let session = [&octets(dst)[..], &[UDP, 0], &port].concat();
    let template = [&octets(src)[..], &[0, 0, 0x13, 0x88]].concat();
    let floats = [1000.0_f32, 3000.0, f32::INFINITY].map(f32::to_be_bytes).concat();
    let bounds = [64_u32, 1500].map(u32::to_be_bytes).concat();
    let tspec = [&[0, 0, 0, 7, 1, 0, 0, 6, 127, 0, 0, 5][..], &floats, &bounds].concat();
    let hop = [&octets(src)[..], &[0, 0, 0, 7]].concat();
    let error = [&octets(src)[..], &[0, 24, 0, 0]].concat();
    let period = 30_000_u32.to_be_bytes().to_vec();
    let sender = [(11, family, template), (12, 2, tspec)];
    let first = (1, family, session.clone());
    let (message_type, objects) = match kind {
        Kind::PathError => (3, [vec![first, (6, family, error)], sender.to_vec()].concat()),
        Kind::Path { .. }
        | Kind::Query { .. }
        | Kind::NoGist
        | Kind::Scout { .. }
        | Kind::Echo
        | Kind::Connect { .. } => {
            (1, [vec![first, (3, family, hop), (5, 1, period)], sender.to_vec()].concat())
        }
    };
    let mut body = Vec::new();
    let unknown = matches!(kind, Kind::Path { unknown: true }).then(|| (0x7f, 1, vec![0; 4]));
    for (class, c_type, value) in objects.into_iter().chain(unknown) {
        body.extend_from_slice(&u16::try_from(4 + value.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&[class, c_type]);
        body.extend_from_slice(&value);
    }
    let length = u16::try_from(8 + body.len()).unwrap().to_be_bytes();
    let mut octets = [&[0x10, message_type, 0, 0, 64, 0][..], &length, &body].concat();
    let sum = checksum(&octets);
    octets[2..4].copy_from_slice(&sum);
    (octets, session)
}

/// A message of scout (docs/wire/casp.md).
fn scout(ends: [IpAddr; 2], kind: u8, number: u16) -> (Vec<u8>, Vec<u8>) {
    let cookie = [&[0xc0; 6][..], &number.to_be_bytes()].concat();
    let head = [&[0, 0, 0, kind][..], &[0; 16], &[0, 12, 5, 1]].concat();
    (datagram(ends, SCOUT_PORT, &[head, cookie.clone()].concat()), cookie)
}

/// The first segment of a TCP connection, and the number that acknowledges it, or at the far end its own.
fn connect([src, dst]: [IpAddr; 2], port: u16, number: u16, seen: Seen) -> (Vec<u8>, Vec<u8>) {
    let sequence = 0x5ac0_0000 + u32::from(number);
    let tag = sequence + u32::from(seen == Seen::Answer);
    let [from, port] = [(40_000 + number).to_be_bytes(), port.to_be_bytes()];
    let mut octets =
        [&from[..], &port, &sequence.to_be_bytes(), &[0; 4], &[0x50, 2, 0xff, 0xff, 0, 0, 0, 0]].concat();
    let pseudo = [self::octets(src), self::octets(dst), vec![0, TCP, 0, 20]].concat();
    let sum = checksum(&[pseudo, octets.clone()].concat());
    octets[16..18].copy_from_slice(&sum);
    (octets, tag.to_be_bytes().to_vec())
}

/// A UDP datagram with this source and destination port.
fn datagram([src, dst]: [IpAddr; 2], port: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    let port = port.to_be_bytes();
    let mut octets = [&port[..], &port, &length, &[0, 0], payload].concat();
    let pseudo = [self::octets(src), self::octets(dst), vec![0, UDP], length.to_vec()].concat();
    let sum = checksum(&[pseudo, octets.clone()].concat());
    octets[6..8].copy_from_slice(&sum);
    octets
}

/// The IP packets of a message. A Router Alert has the value of the protocol.
fn packets([src, dst]: [IpAddr; 2], protocol: u8, row: &Row, message: &[u8], number: u16) -> Vec<Vec<u8>> {
    // The first fragment ends on a multiple of eight octets.
    let cut = if row.fragments { message.len() / 16 * 8 } else { message.len() };
    let (first, rest) = message.split_at(cut);
    let parts = [(0, first), (cut, rest)].into_iter().filter(|(_, part)| !part.is_empty());
    let packet = |(offset, part): (usize, &[u8])| {
        let more = offset + part.len() < message.len();
        let length = |extra: usize| u16::try_from(part.len() + extra).unwrap().to_be_bytes();
        if src.is_ipv4() {
            let options: &[u8] = if row.alert { &[0x94, 4, 0, 0] } else { &[] };
            let words = u8::try_from(5 + options.len() / 4).unwrap();
            let [l0, l1] = length(20 + options.len());
            let place = u16::try_from(offset / 8).unwrap() | u16::from(more) << 13;
            let ([i0, i1], [p0, p1]) = ((0x1000 + number).to_be_bytes(), place.to_be_bytes());
            let mut head = vec![0x40 | words, 0, l0, l1, i0, i1, p0, p1, 64, protocol, 0, 0];
            head.extend_from_slice(&[octets(src), octets(dst), options.to_vec()].concat());
            let sum = checksum(&head);
            head[10..12].copy_from_slice(&sum);
            return [&head, part].concat();
        }
        let (mut next, mut extra) = (protocol, Vec::new());
        if row.fragments {
            let place = (u16::try_from(offset).unwrap() | u16::from(more)).to_be_bytes();
            let id = number.to_be_bytes();
            extra = [next, 0, place[0], place[1], 0, 0, id[0], id[1]].to_vec();
            next = 44;
        }
        if row.alert {
            let [v0, v1] = match row.kind {
                Kind::Scout { .. } => [0xff, 0xdf],
                Kind::Path { .. } | Kind::PathError => [0, 1],
                Kind::Query { .. } | Kind::NoGist | Kind::Echo | Kind::Connect { .. } => [0, 0],
            };
            extra = [&[next, 0, 5, 2, v0, v1, 1, 0][..], &extra].concat();
            next = 0;
        }
        let [l0, l1] = length(extra.len());
        let head = [0x60, 0, 0, 0, l0, l1, next, 64];
        [&head[..], &octets(src), &octets(dst), &extra, part].concat()
    };
    parts.map(packet).collect()
}

impl Matrix {
    async fn new(test: &str, settings: &str) -> Self {
        let net = Net::new(test, settings).await;
        let mut groups = MulticastRouter::default();
        for [source, ..] in families() {
            groups.set_route(net.router(), group(source), source, "left", &["right".to_owned()]).unwrap();
        }
        Self { net, sent: 0, _groups: groups }
    }

    /// Sends a message of this kind to the router or through it.
    fn send(&mut self, row: &'static Row, [a, r, b]: [IpAddr; 3]) -> Sent {
        self.sent += 1;
        let number = self.sent;
        let ends = [
            a,
            match row.to {
                To::Node => r,
                To::FarHost => b,
                To::Group => group(a),
            },
        ];
        let (protocol, message, tag) = match row.kind {
            Kind::Query { nslp } => {
                let (message, tag) = query(ends, nslp, number);
                (UDP, message, tag)
            }
            Kind::NoGist => {
                let tag = format!("no message of GIST {number:05}").into_bytes();
                (UDP, datagram(ends, GIST_PORT, &tag), tag)
            }
            Kind::Path { .. } | Kind::PathError => {
                let (message, tag) = rsvp(ends, row.kind, number);
                (RSVP, message, tag)
            }
            Kind::Scout { kind } => {
                let (message, tag) = scout(ends, kind, number);
                (UDP, message, tag)
            }
            Kind::Connect { port } => {
                let (message, tag) = connect(ends, port, number, row.seen);
                (TCP, message, tag)
            }
            Kind::Echo => {
                let tag = format!("echo {number:05}").into_bytes();
                (if a.is_ipv4() { ICMP } else { ICMPV6 }, message(ends, number.into(), &tag), tag)
            }
        };
        for packet in packets(ends, protocol, row, &message, number) {
            self.net.put(&packet);
        }
        let pieces = if row.fragments { " in fragments" } else { "" };
        let alert = if row.alert { " with Router Alert" } else { "" };
        Sent { name: format!("{:?}{alert}{pieces} to {:?}, {a}", row.kind, row.to), row, tag }
    }

    /// Sends all of the table, and returns which were seen on their far side: until all were that are `expected`, or for some
    /// time.
    fn all(&mut self, expected: impl Fn(&Row) -> bool) -> Vec<(Sent, bool)> {
        let open = |space| Capture::open(space, "veth", CaptureConfig::default()).unwrap();
        let mut captures = [(Seen::Answer, open(self.net.a())), (Seen::Message, open(self.net.b()))];
        let mut sent = Vec::new();
        for family in families() {
            for row in &ROWS {
                sent.push((self.send(row, family), false));
            }
        }
        let begin = Instant::now();
        loop {
            for (end, capture) in &mut captures {
                let read = capture.read(Duration::from_millis(20), |frame| {
                    for (sent, seen) in sent.iter_mut().filter(|(sent, _)| sent.row.seen == *end) {
                        let tag = &sent.tag;
                        *seen |= !frame.outgoing && frame.octets.windows(tag.len()).any(|part| part == tag);
                    }
                });
                read.unwrap();
            }
            let missing = sent.iter().any(|(sent, seen)| expected(sent.row) && !seen);
            let time = begin.elapsed();
            if time > LONG || !missing && time > QUIET {
                return sent;
            }
        }
    }
}

/// What the administrator's netfilter drops at a hook is neither answered nor sent on, whichever protocol it is of, if the hook
/// judges it (the table of docs/security.md).
#[tokio::test]
async fn rules_of_the_administrator_judge_every_protocol() {
    let mut matrix = Matrix::new("matrix", SETTINGS).await;
    let mut wrong = Vec::new();
    for (sent, seen) in matrix.all(|_| true) {
        if !seen {
            wrong.push(format!("without a rule: {} is not seen", sent.name));
        }
    }
    for (hook, priority) in HOOKS {
        let name = format!("{hook} {priority}");
        topology::nft(
            matrix.net.router(),
            &format!("table inet operator {{\n{}}}\n", chain(hook, priority, DROP)),
        )
        .unwrap();
        for (sent, seen) in matrix.all(|row| !row.judged.contains(&hook)) {
            let judged = sent.row.judged.contains(&hook);
            if seen == judged {
                let what = if seen { "is seen" } else { "is not seen" };
                wrong.push(format!("drop at {name}: {} {what}", sent.name));
            }
        }
        topology::nft(matrix.net.router(), "delete table inet operator").unwrap();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The protocols by which a node asks for a reservation; the QoS NSLP sends Queries of GIST.
const ASKING: [Protocol; 4] = [Protocol::Qos, Protocol::Rsvp, Protocol::Boomerang, Protocol::Casp];
const ASKING_SETTINGS: &str = "node.protocols = [\"gist\", \"qos\", \"rsvp\", \"boomerang\", \"casp\"]\n\
     [policy]\ndefault = \"deny\"\n[casp]\nclients = [\"qos\"]\nprivate_flows = true\npeers = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
     [interfaces.right]\ncapacity = \"100mbit\"\n";

/// Whether an IP packet is of a protocol and between these ends.
fn is_of(protocol: Protocol, packet: &[u8], [src, dst]: &[IpAddr; 2]) -> bool {
    let has = |part: &[u8]| packet.windows(part.len()).any(|window| window == part);
    let port = |port: u16| has(&[port.to_be_bytes(), port.to_be_bytes()].concat());
    let message = match protocol {
        Protocol::Qos => port(GIST_PORT) && has(&[0x4e, 0x04, 0xbd, 0xa5]),
        Protocol::Boomerang => has(&[0x47, 0x11, 0x47, 0x11]),
        Protocol::Casp => port(SCOUT_PORT),
        // Class and type of the object SESSION, and a flow of UDP.
        Protocol::Rsvp => has(&[&[1, if dst.is_ipv4() { 1 } else { 2 }][..], &octets(*dst), &[UDP]].concat()),
        other => panic!("{other:?} is asked for nothing"),
    };
    message && has(&[octets(*src), octets(*dst)].concat())
}

/// What the node itself sends is judged by output and postrouting, whichever protocol it is of.
#[tokio::test]
async fn rules_of_the_administrator_judge_what_a_node_sends() {
    let net = Net::new("sending", ASKING_SETTINGS).await;
    let mut client = ReservationsClient::new(net.host().connect().await.expect("it runs"));
    let mut wrong = Vec::new();
    let rules = std::iter::once(None).chain(HOOKS.map(Some));
    for (number, rule) in (0_u16..).zip(rules) {
        let name = rule.map_or("no rule".to_owned(), |(hook, priority)| format!("{hook} {priority}"));
        let judged = rule.is_some_and(|(hook, _)| ["output", "postrouting"].contains(&hook));
        if let Some((hook, priority)) = rule {
            let chain = chain(hook, priority, DROP);
            topology::nft(net.router(), &format!("table inet operator {{\n{chain}}}\n")).unwrap();
        }
        let mut link = Capture::open(net.b(), "veth", CaptureConfig::default()).unwrap();
        let (mut sent, mut calls) = (Vec::new(), Vec::new());
        // Each destination is new: a search for a node is not repeated for a time.
        let ends = |src: &str, net: &str| {
            [src.parse::<IpAddr>().unwrap(), format!("{net}{}", 100 + number).parse().unwrap()]
        };
        for (ends, length) in [(ends("10.78.0.1", "10.78.0."), 24), (ends("fd78::1", "fd78::"), 64)] {
            topology::add_address(net.b(), "veth", ends[1], length).unwrap();
            for protocol in ASKING {
                let flow = FlowSpec {
                    source: Some(ends[0].to_string()),
                    destination: Some(ends[1].to_string()),
                    ip_protocol: Some(UDP.into()),
                    source_port: Some(4000),
                    destination_port: Some(5000 + u32::from(number) * 10 + protocol as u32),
                    ..FlowSpec::default()
                };
                let traffic = TokenBucket { rate_octets_per_s: 8000, ..TokenBucket::default() };
                let open = ReserveOpen {
                    protocol: protocol.into(),
                    flow: Some(flow),
                    traffic: Some(traffic),
                    ..ReserveOpen::default()
                };
                let request = ReserveRequest { request: Some(reserve_request::Request::Open(open)) };
                let requests = tokio_stream::once(request).chain(tokio_stream::pending());
                calls.push(client.reserve(requests).await.unwrap().into_inner());
                sent.push((protocol, ends, false));
            }
        }
        let begin = Instant::now();
        loop {
            let read = link.read(Duration::from_millis(20), |frame| {
                for (protocol, ends, seen) in &mut sent {
                    *seen |= !frame.outgoing && is_of(*protocol, frame.octets, ends);
                }
            });
            read.unwrap();
            let missing = !judged && sent.iter().any(|(_, _, seen)| !seen);
            let time = begin.elapsed();
            if time > LONG || !missing && time > QUIET {
                break;
            }
        }
        for (protocol, [_, dst], seen) in sent {
            if seen == judged {
                let what = if seen { "is seen" } else { "is not seen" };
                wrong.push(format!("{name}: {} to {dst} {what}", protocol.as_str_name()));
            }
        }
        if rule.is_some() {
            topology::nft(net.router(), "delete table inet operator").unwrap();
        }
        drop(calls);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The rows of messages that make state and whose source nothing proves.
const UNPROVED: [Row; 2] = [
    row(Kind::Path { unknown: false }, To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING),
];

/// (T31) A message with the source of a host behind another interface is not taken: a Path is dropped, and an Echo is forwarded as on a
/// router without the daemon, which gets nothing of it. `kernel.reverse_path = "off"` and `kernel.asymmetric` let them in; messages
/// from where their source is come in always.
#[tokio::test]
async fn messages_from_elsewhere_than_their_source_are_not_taken() {
    for (setting, strict) in [
        ("", true),
        ("[kernel]\nreverse_path = \"off\"\n", false),
        ("[kernel]\nasymmetric = [\"left\"]\n", false),
        ("[kernel]\nasymmetric = [\"right\"]\n", true),
    ] {
        let mut matrix = Matrix::new("reverse", &format!("{SETTINGS}{setting}")).await;
        // An administrator can list the rules.
        topology::nft(matrix.net.router(), "list ruleset").unwrap();
        for [a, r, b] in families() {
            // A host on the link of `b` that does not answer.
            let forged = match b {
                IpAddr::V4(_) => "10.78.0.9",
                IpAddr::V6(_) => "fd78::9",
            };
            for (source, honest) in [(a, true), (forged.parse().unwrap(), false)] {
                let [path, echo] = &UNPROVED;
                let judged = matrix.net.counted().await;
                let mut at_b = Capture::open(matrix.net.b(), "veth", CaptureConfig::default()).unwrap();
                let path = matrix.send(path, [source, r, b]);
                let echo = matrix.send(echo, [source, r, b]);
                let name = format!("{setting:?}, from {source}");
                let begin = Instant::now();
                let (mut path_seen, mut echo_seen) = (false, false);
                let taken = honest || !strict;
                while begin.elapsed() < LONG && (path_seen != taken || !echo_seen || begin.elapsed() < QUIET)
                {
                    let seen = at_b.read(Duration::from_millis(20), |frame| {
                        let has = |tag: &[u8]| frame.octets.windows(tag.len()).any(|part| part == tag);
                        path_seen |= !frame.outgoing && has(&path.tag);
                        echo_seen |= !frame.outgoing && has(&echo.tag);
                    });
                    seen.unwrap();
                }
                assert_eq!((path_seen, echo_seen), (taken, true), "{name}");
                let judged = matrix.net.counted().await - judged;
                assert_eq!(judged > 0, taken, "{name}: {judged} messages of Boomerang");
            }
        }
    }
}
