//! Arbitrary inputs in any order.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::OnceLock;

use proptest::prelude::*;
use signalbox_core::Entry;
use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{
    Input, Interface, NoRoute, NodeEngine, Output, Prefix, Route, StreamError, StreamId, StreamKind,
    TransmitError,
};
use signalbox_core::octets::Octets;
use signalbox_core::packet::{Received, router_alert_v4, router_alert_v6};
use signalbox_core::service::{
    CheckId, InvalidStatus, MessageHandle, PeeringOf, RequestOf, Security, SendMessageOf, SiiHandle,
    TransferAttributes,
};
use signalbox_core::{Direction, IfIndex, LooseEnd, Mri, NslpId, SessionId, Time};
use signalbox_gist::wire::MAGIC;
use signalbox_node::gist::{AssociationConfig, PeeringPolicy, Registration};
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::{
    ApplicationCommand, ChannelConfig, Command, Config, Credentials, GistConfig, Node, Tls,
};

/// An input and the data that it borrows.
#[derive(Debug, Clone)]
enum Step {
    Timer,
    Datagram { src: IpAddr, dst: IpAddr, ttl: u8, alert: bool, magic: bool, payload: Vec<u8> },
    Interfaces(Vec<IpAddr>),
    Route { id: u64, src: IpAddr, mtu: u32, found: bool },
    RouteChanged(IpAddr, u8),
    NeighborMoved(IpAddr),
    TransmitFailed(IpAddr),
    Accepted { stream: u64, port: u16, peer: IpAddr },
    Connected(u64),
    Octets(u64, Vec<u8>),
    Drained(u64, usize),
    Closed(u64, Option<StreamError>, bool),
    ListenFailed(u16),
    Sctp { src: IpAddr, dst: IpAddr, packet: Vec<u8> },
    Start { id: u64, dst: IpAddr, src: Option<IpAddr>, count: Option<u32> },
    Stop(u64),
    Application(u64, ApplicationCommand),
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0u8..4).prop_map(|n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))),
        (0u16..4).prop_map(|n| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n))),
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
    ]
}

/// A message with a valid header, so that the decoder reads more than its first octets.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(any::<u8>(), 0..200);
    (0u8..6, any::<bool>(), any::<u8>(), body).prop_map(|(kind, c, flags, mut body)| {
        body.truncate(body.len() & !3);
        let [l1, l0] = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
        let mut octets = vec![1, 5, l1, l0, 0x7f, 0xc0, kind | u8::from(c) << 7, flags];
        octets.append(&mut body);
        octets
    })
}

fn stream_step() -> impl Strategy<Value = Step> {
    let error = prop::option::of(prop_oneof![
        Just(StreamError::Refused),
        Just(StreamError::Reset),
        Just(StreamError::TimedOut),
        Just(StreamError::Unreachable),
    ]);
    let octets = || prop_oneof![payload(), prop::collection::vec(any::<u8>(), 1..100)];
    prop_oneof![
        (0u64..6, 270u16..273, address()).prop_map(|(stream, port, peer)| Step::Accepted {
            stream,
            port,
            peer
        }),
        (0u64..6).prop_map(Step::Connected),
        (0u64..6, octets()).prop_map(|(stream, octets)| Step::Octets(stream, octets)),
        (0u64..6, 0usize..1_000_000).prop_map(|(stream, unsent)| Step::Drained(stream, unsent)),
        (0u64..6, error, any::<bool>()).prop_map(|(stream, error, lost)| Step::Closed(stream, error, lost)),
        (269u16..273).prop_map(Step::ListenFailed),
        (address(), address(), octets()).prop_map(|(src, dst, packet)| Step::Sctp { src, dst, packet }),
    ]
}

/// A node that uses associations of every kind.
fn node() -> Node {
    static TLS: OnceLock<Tls> = OnceLock::new();
    let tls = TLS.get_or_init(|| {
        let key = rcgen::KeyPair::generate().unwrap();
        let credentials = Credentials::RawKeys { key: key.serialize_pem(), peers: key.public_key_pem() };
        Tls::new(credentials)
    });
    let channels = ChannelConfig { tls: Some(tls.clone()), ..ChannelConfig::default() };
    let associations = AssociationConfig {
        tcp_port: Some(270),
        tls_port: Some(271),
        sctp_port: Some(270),
        always: true,
        ..AssociationConfig::default()
    };
    let engine = signalbox_node::gist::Config { associations, ..Default::default() };
    let gist = Some(GistConfig { engine, channels });
    Node::new(Config { gist, ..Config::default() }, [9; 32]).unwrap()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => stream_step(),
        6 => other_step(),
    ]
}

fn other_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Timer),
        (address(), address(), any::<u8>(), any::<bool>(), any::<bool>(), payload()).prop_map(
            |(src, dst, ttl, alert, magic, payload)| Step::Datagram { src, dst, ttl, alert, magic, payload }
        ),
        prop::collection::vec(address(), 0..4).prop_map(Step::Interfaces),
        (
            prop_oneof![0u64..5, any::<u64>(), (1u64 << 32)..(1 << 32) + 3],
            address(),
            any::<u32>(),
            any::<bool>()
        )
            .prop_map(|(id, src, mtu, found)| Step::Route { id, src, mtu, found }),
        (address(), any::<u8>()).prop_map(|(addr, len)| Step::RouteChanged(addr, len)),
        address().prop_map(Step::NeighborMoved),
        address().prop_map(Step::TransmitFailed),
        (0u64..4, address(), prop::option::of(address()), prop::option::of(0u32..3))
            .prop_map(|(id, dst, src, count)| Step::Start { id, dst, src, count }),
        (0u64..4).prop_map(Step::Stop),
        (0u64..3, application_command()).prop_map(|(id, command)| Step::Application(id, command)),
    ]
}

/// Commands of two external applications, sometimes with the identifier of the other.
fn application_command() -> impl Strategy<Value = ApplicationCommand> {
    let nslp = || (32_710u16..32_712).prop_map(NslpId);
    let session = || (0u8..2).prop_map(|n| SessionId([n; 16]));
    let data = || prop::collection::vec(any::<u8>(), 0..30).prop_map(Octets);
    let mri = || {
        (address(), address(), any::<bool>(), any::<bool>()).prop_map(|(src, dst, upstream, loose)| {
            let direction = if upstream { Direction::Upstream } else { Direction::Downstream };
            if loose {
                Mri::LooseEnd(LooseEnd { src, dst, direction })
            } else {
                Mri::PathCoupled(PathCoupled { direction, ..PathCoupled::between(src, dst) })
            }
        })
    };
    let policy =
        prop_oneof![Just(PeeringPolicy::Always), Just(PeeringPolicy::Ask), Just(PeeringPolicy::Never)];
    let message = (data(), nslp(), session(), mri(), any::<[bool; 3]>(), prop::option::of(0u64..3)).prop_map(
        |(data, nslp, session, mri, [reliable, stateless, secure], number)| {
            let security = if secure { Security::Channel } else { Security::None };
            RequestOf::SendMessage(SendMessageOf {
                data,
                handle: number.map(MessageHandle),
                nslp,
                session,
                mri,
                state: None,
                sii: number.map(SiiHandle),
                attributes: TransferAttributes { reliable, stateless, security },
                timeout: number.map(Duration::from_secs),
                ip_ttl: None,
                hops: None,
            })
        },
    );
    let peering = (0u64..4, data(), any::<bool>()).prop_map(|(check, data, accept)| {
        let (check, data) = (CheckId(check), Some(data));
        let decision = if accept { PeeringOf::Accept(data) } else { PeeringOf::Decline(data) };
        RequestOf::Peering { check, decision }
    });
    let lifetime =
        (nslp(), mri(), prop::option::of(session()), 0u64..60).prop_map(|(nslp, mri, session, seconds)| {
            RequestOf::SetStateLifetime { nslp, mri, session, lifetime: Duration::from_secs(seconds) }
        });
    let invalidate =
        (prop::option::of(nslp()), mri(), data(), any::<bool>()).prop_map(|(nslp, mri, data, bad)| {
            RequestOf::InvalidateRoutingState {
                nslp,
                mri,
                status: if bad { InvalidStatus::Bad } else { InvalidStatus::Tentative },
                data,
                urgent: bad,
            }
        });
    let request = prop_oneof![message, peering, lifetime, invalidate];
    prop_oneof![
        2 => (nslp(), policy).prop_map(|(nslp, policy)| ApplicationCommand::Register {
            nslp,
            registration: Registration { policy, ..Registration::default() },
        }),
        4 => request.prop_map(ApplicationCommand::Request),
        1 => any::<bool>().prop_map(ApplicationCommand::Blocked),
        1 => Just(ApplicationCommand::Leave),
    ]
}

/// The port of entry of GIST's datagrams.
const GIST: Entry = Entry::Udp(270);

fn give(node: &mut Node, now: Time, step: &Step) {
    let ifindex = IfIndex(2);
    match step {
        Step::Timer => node.handle(now, Input::Timer),
        Step::Datagram { src, dst, ttl, alert, magic, payload } => {
            let octets = if *magic { [&MAGIC[..], payload].concat() } else { payload.clone() };
            let options: &[u8] = match (alert, dst) {
                (false, _) => &[],
                (true, IpAddr::V4(_)) => &router_alert_v4(0),
                (true, IpAddr::V6(_)) => &router_alert_v6(0),
            };
            let (src, dst) = (SocketAddr::new(*src, 270), SocketAddr::new(*dst, 270));
            let received =
                Received { entry: GIST, src, dst, ifindex, ttl: *ttl, tos: 0, options, payload: &octets };
            node.handle(now, Input::Packet(received));
        }
        Step::Interfaces(addresses) => {
            let (name, addresses) = ("eth0".to_owned(), addresses.clone());
            node.handle(
                now,
                Input::Interfaces(&[Interface {
                    ifindex,
                    name,
                    up: true,
                    mtu: 1500,
                    tunnel: false,
                    addresses,
                }]),
            );
        }
        Step::Route { id, src, mtu, found } => {
            let route = Route { ifindex, src: *src, gateway: None, mtu: *mtu, local: false };
            let result = if *found { Ok(route) } else { Err(NoRoute::Failed) };
            node.handle(now, Input::Route { id: *id, result });
        }
        Step::RouteChanged(addr, len) => {
            node.handle(now, Input::RouteChanged(Prefix { addr: *addr, len: *len }));
        }
        Step::NeighborMoved(address) => {
            node.handle(now, Input::NeighborMoved { ifindex: IfIndex(1), address: *address });
        }
        Step::TransmitFailed(dst) => {
            node.handle(now, Input::TransmitFailed { entry: GIST, dst: *dst, error: TransmitError::Other });
        }
        Step::Accepted { stream, port, peer } => {
            let local: IpAddr = match peer {
                IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
                IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            };
            let (local, peer) = (SocketAddr::new(local, *port), SocketAddr::new(*peer, 40_000));
            node.handle(
                now,
                Input::StreamAccepted { stream: StreamId(*stream), kind: StreamKind::Tcp, local, peer },
            );
        }
        Step::Connected(stream) => {
            let local = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 40_000);
            node.handle(now, Input::StreamConnected { stream: StreamId(*stream), local });
        }
        Step::Octets(stream, octets) => {
            node.handle(now, Input::StreamOctets { stream: StreamId(*stream), octets });
        }
        Step::Drained(stream, unsent) => {
            node.handle(now, Input::StreamDrained { stream: StreamId(*stream), unsent: *unsent });
        }
        Step::Closed(stream, error, lost) => {
            let stream = StreamId(*stream);
            node.handle(now, Input::StreamClosed { stream, error: *error, unacknowledged: *lost });
        }
        Step::ListenFailed(port) => {
            node.handle(
                now,
                Input::ListenFailed { kind: StreamKind::Tcp, port: *port, error: StreamError::AddressInUse },
            );
        }
        Step::Sctp { src, dst, packet } => node.handle(
            now,
            Input::Packet(Received {
                entry: Entry::Ip(132),
                src: SocketAddr::new(*src, 0),
                dst: SocketAddr::new(*dst, 0),
                ifindex,
                ttl: 64,
                tos: 0,
                options: &[],
                payload: packet,
            }),
        ),
        Step::Start { id, dst, src, count } => {
            let request = PingRequest { src: *src, count: *count, ..PingRequest::to(*dst) };
            node.handle(
                now,
                Input::Command(Command::Ping { id: *id, command: ping::Command::Start(request) }),
            );
        }
        Step::Stop(id) => {
            node.handle(now, Input::Command(Command::Ping { id: *id, command: ping::Command::Stop }))
        }
        Step::Application(id, command) => {
            node.handle(now, Input::Command(Command::Gist { id: *id, command: command.clone() }));
        }
    }
}

proptest! {
    /// Arbitrary inputs cause no panic and few outputs each, and in the end no state is left.
    #[test]
    fn any_inputs_in_any_order(steps in prop::collection::vec((step(), 0u64..3000), 1..60)) {
        let mut node = node();
        let mut now = Time::ZERO;
        let mut lookups = Vec::new();
        for (step, ms) in &steps {
            now = now + Duration::from_millis(*ms);
            give(&mut node, now, step);
            let mut outputs = 0;
            while let Some(output) = node.poll() {
                outputs += 1;
                prop_assert!(outputs < 1000);
                if let Output::RouteLookup { id, .. } = output {
                    lookups.push(id);
                }
            }
            // Some of the lookups are answered.
            if let Some(id) = lookups.pop().filter(|_| ms % 2 == 0) {
                give(&mut node, now, &Step::Route { id, src: Ipv4Addr::new(192, 0, 2, 1).into(), mtu: 1500, found: true });
                while node.poll().is_some() {}
            }
        }
        for id in 0..4 {
            give(&mut node, now, &Step::Stop(id));
            while node.poll().is_some() {}
        }
        for id in 0..3 {
            give(&mut node, now, &Step::Application(id, ApplicationCommand::Leave));
            while node.poll().is_some() {}
        }
        prop_assert_eq!(node.applications().count(), 0);
        let mut wakes = 0;
        while let Some(next) = node.next_deadline() {
            now = now.max(next);
            node.handle(now, Input::Timer);
            while node.poll().is_some() {}
            wakes += 1;
            prop_assert!(wakes < 20_000, "timers never end");
        }
        prop_assert_eq!((node.session_count(), node.pings(), node.channel_count()), (0, 0, 0));
    }
}
