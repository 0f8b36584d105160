//! NATs: bindings, and what the other side of a NAT sees.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use signalbox_casp::clients::natfw::{Config, NatfwEvent, Role};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::natfw::{NatfwFilter, NatfwStatus, NatfwType, NatfwValue};
use signalbox_core::SessionId;
use signalbox_core::handover::Entries;
use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Endpoint;
use signalbox_core::traffic::FlowFilter;

use crate::rig::{FIRST, LIFETIME, Packet, RIGHT, Rig, at, back, filter, flow, open_policy, wants_response};

fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => panic!("{address}"),
    }
}

/// These nodes are NATs with few ports; the others of the path are firewalls. The host decides about its own packets.
fn nats(nodes: usize, nats: &[usize]) -> Rig {
    Rig::with(nodes, &|_| signalbox_resources::Config::default(), &|n, config| as_nat(nats, n, config))
}

/// The same; anyone opens everything.
fn open(nodes: usize, nats: &[usize]) -> Rig {
    Rig::with(nodes, &|_| open_policy(), &|n, config| as_nat(nats, n, config))
}

fn as_nat(nats: &[usize], n: usize, config: Config) -> Config {
    if !nats.contains(&n) {
        return config;
    }
    let (external, role) = (Some(v4(at(n))), Role::Nat);
    Config { role, external, first_port: 40000, last_port: 40015, ..config }
}

/// The flow of the rig as the node behind `n` sees it.
fn seen_behind(rig: &Rig, n: usize) -> FlowId {
    rig.seen
        .iter()
        .find(|one| one.to == n + 1 && !one.reverse)
        .unwrap_or_else(|| panic!("{:#?}", rig.seen))
        .flow
}

/// The packets of a flow as a filter.
fn filter_of(flow: &FlowId) -> NatfwFilter {
    let FlowId::V4Ports { src, dst, src_port, dst_port, .. } = *flow else { panic!("{flow}") };
    NatfwFilter {
        src: Prefix::host(src.into()),
        dst: Prefix::host(dst.into()),
        src_ports: vec![(src_port, src_port)],
        dst_ports: vec![(dst_port, dst_port)],
        ..filter(3)
    }
}

fn source_of(flow: &FlowId) -> Endpoint {
    Endpoint { address: flow.src(), port: flow.filter().src_port }
}

/// PATH or CREATE of the first node with a filter, and with what else it has.
fn request<'a>(
    nodes: usize,
    msg_id: u64,
    more: impl IntoIterator<Item = NatfwValue<'a>>,
) -> Vec<NatfwValue<'a>> {
    let mut values = vec![NatfwValue::MsgId(msg_id), NatfwValue::Age(1), NatfwValue::Filter(filter(nodes))];
    values.extend(more);
    values
}

fn wish(address: IpAddr, port: u16) -> NatfwValue<'static> {
    let wished = NatfwFilter { src: Prefix::host(address), src_ports: vec![(port, port)], ..filter(3) };
    NatfwValue::Nat(Some(wished))
}

/// CASPMID-10.3-01, CASPMID-10.3-02, CASPMID-6-04, CASPMID-6-05: PATH leaves the NAT with an outer source in filter and FLOW_ID,
/// and with an empty NAT_OBJECT. CASPMID-10.3-04: CREATE comes back with the inner source; NAT_OBJECT stays.
/// CASPMID-10.3-08: the NAT is a firewall too. CASPMID-6-06: the firewall behind it opens for the outer source.
#[test]
fn a_path_and_its_create_pass_a_nat() {
    let mut rig = nats(4, &[1]);
    rig.accept();
    let with_filters =
        signalbox_casp::clients::natfw::NatfwRequest { filters: vec![filter(4)], ..rig.request(true) };
    rig.nodes[0].client.open(rig.now, 1, &with_filters);
    rig.run();
    let outer = seen_behind(&rig, 1);
    assert_eq!((outer.src(), outer.dst()), (at(1), at(3)));
    assert!(outer.filter().src_port.is_some_and(|port| (40000..=40015).contains(&port)), "{outer}");
    let path = rig.last(2, NatfwType::PATH);
    assert_eq!((path.filters(), path.nat()), (vec![filter_of(&outer)], Some(None)));
    assert_eq!(rig.last(1, NatfwType::PATH).nat(), None);
    let behind = rig.last(1, NatfwType::CREATE);
    assert_eq!((behind.flow, behind.filters()), (outer, vec![filter_of(&outer)]));
    let before = rig.last(0, NatfwType::CREATE);
    assert_eq!((before.flow, before.filters()), (flow(4), vec![filter(4)]));
    assert_eq!([behind.nat(), before.nat()], [Some(Some(filter_of(&outer))), Some(Some(filter_of(&outer)))]);
    assert_eq!((rig.passes(1), rig.sources(1)), (vec![flow(4).filter()], vec![Some(source_of(&outer))]));
    assert_eq!((rig.passes(2), rig.sources(2)), (vec![outer.filter()], vec![None]));
    let opened = NatfwEvent::Opened { lifetime: LIFETIME, nat: Some(filter_of(&outer)) };
    assert_eq!(rig.events(0).last(), Some(&opened));
}

/// CASPMID-6-04, CASPMID-6-05: the same without a filter: FLOW_ID says which packets. CASPMID-10.3-02.
#[test]
fn a_request_without_filter_passes_a_nat() {
    let mut rig = nats(4, &[1]);
    rig.accept();
    rig.ask(true);
    let outer = seen_behind(&rig, 1);
    let path = rig.last(3, NatfwType::PATH);
    assert_eq!((path.flow, path.filters(), path.nat()), (outer, Vec::new(), Some(None)));
    assert_eq!(rig.last(0, NatfwType::CREATE).nat(), Some(Some(filter_of(&outer))));
    assert_eq!((rig.passes(1), rig.passes(2)), (vec![flow(4).filter()], vec![outer.filter()]));
}

/// CASPMID-10.3-07: the binding of a PATH lets nothing pass.
#[test]
fn a_path_alone_binds_and_opens_nothing() {
    let mut rig = nats(4, &[1]);
    rig.deaf = Some(3);
    rig.ask(true);
    assert_eq!((rig.nodes[1].client.ports(), rig.passes(1)), (1, Vec::new()));
    rig.wait(Duration::from_secs(200));
    assert_eq!((rig.nodes[1].client.ports(), rig.nodes[1].client.sessions()), (0, 0));
}

/// CASPMID-6-04, CASPMID-10.3-04: a CREATE of the sender, and the RESPONSE to it: the filter in STATUS is rewritten on the way
/// back, NAT_OBJECT is not. A RELEASE frees the port.
#[test]
fn a_create_and_its_response_pass_a_nat() {
    let mut rig = open(4, &[1]);
    rig.inject(0, 1, NatfwType::CREATE, &request(4, 5, [wants_response()]));
    let outer = seen_behind(&rig, 1);
    let create = rig.last(3, NatfwType::CREATE);
    assert_eq!((create.flow, create.filters(), create.nat()), (outer, vec![filter_of(&outer)], Some(None)));
    let nested = |n: usize| -> (Vec<NatfwFilter>, Vec<Option<NatfwFilter>>) {
        let response = rig.last(n, NatfwType::RESPONSE);
        let values: Vec<_> =
            response.results()[0].nested.iter().filter_map(|tlv| NatfwValue::of(&tlv)).collect();
        let filters = values
            .iter()
            .filter_map(|one| if let NatfwValue::Filter(f) = one { Some(f.clone()) } else { None });
        let nat =
            values.iter().filter_map(|one| if let NatfwValue::Nat(f) = one { Some(f.clone()) } else { None });
        (filters.collect(), nat.collect())
    };
    assert_eq!(nested(1), (vec![filter_of(&outer)], vec![Some(filter_of(&outer))]));
    assert_eq!(nested(0), (vec![filter(4)], vec![Some(filter_of(&outer))]));
    assert_eq!(rig.sources(1), [Some(source_of(&outer))]);
    rig.inject(0, 1, NatfwType::RELEASE, &[NatfwValue::MsgId(6)]);
    assert_eq!((rig.nodes[1].client.ports(), rig.passes(1), rig.passes(2)), (0, Vec::new(), Vec::new()));
}

/// CASPMID-10.3-06: with two NATs, the initiator gets the binding of the outer one.
#[test]
fn the_outermost_binding_counts() {
    for by_receiver in [true, false] {
        let mut rig = open(5, &[1, 2]);
        rig.accept();
        rig.ask(by_receiver);
        let (between, outside) = (seen_behind(&rig, 1), seen_behind(&rig, 2));
        assert_eq!([between.src(), outside.src()], [at(1), at(2)]);
        let opened = NatfwEvent::Opened { lifetime: LIFETIME, nat: Some(filter_of(&outside)) };
        assert_eq!(rig.events(0).last(), Some(&opened));
        assert_eq!(
            (rig.passes(1), rig.sources(1)),
            (vec![flow(5).filter()], vec![Some(source_of(&between))])
        );
        assert_eq!(
            (rig.passes(2), rig.sources(2)),
            (vec![between.filter()], vec![Some(source_of(&outside))])
        );
        assert_eq!(rig.passes(3), [outside.filter()]);
    }
}

/// CASPMID-8-05, CASPMID-8-06: a wish is granted if the port is free; otherwise there is another binding. STATUS 13 only if
/// policy forbids substitutes.
#[test]
fn a_wish_is_granted_or_replaced() {
    let source = |rig: &Rig| source_of(&seen_behind(rig, 1));
    let mut rig = open(3, &[1]);
    rig.inject(0, 1, NatfwType::CREATE, &request(3, 5, [wish(at(1), 40007)]));
    assert_eq!(source(&rig), Endpoint { address: at(1), port: Some(40007) });
    assert!(rig.last(2, NatfwType::CREATE).nat().unwrap().is_some(), "the wish goes on");
    // Another flow of the same host wishes the same.
    let ask = |rig: &mut Rig, session: u8, wished| {
        let src_port = 6000 + u16::from(session);
        let FlowId::V4Ports { src, dst, dst_port, protocol, .. } = flow(3) else { unreachable!() };
        let flow = FlowId::V4Ports { src, dst, src_port, dst_port, protocol };
        let mut data = Vec::new();
        let values = [NatfwValue::MsgId(7), NatfwValue::Age(1), wished];
        signalbox_casp::wire::natfw::NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
        rig.clear();
        rig.carry(Packet {
            session: SessionId([session; 16]),
            flow,
            reverse: false,
            to: 1,
            from: 0,
            hops: 1,
            data,
        });
    };
    for (session, wished) in [(50, wish(at(1), 40007)), (51, wish(at(9), 40009)), (52, wish(at(1), 80))] {
        ask(&mut rig, session, wished);
        assert!(source(&rig).port.is_some_and(|port| port != 40007 && (40000..=40015).contains(&port)));
        assert_eq!(source(&rig).address, at(1));
    }
    let mut rig = Rig::with(3, &|_| open_policy(), &|n, config| Config {
        substitutes: false,
        ..as_nat(&[1], n, config)
    });
    ask(&mut rig, 50, wish(at(1), 40007));
    assert_eq!(source(&rig).port, Some(40007));
    for (session, wished) in [(51, wish(at(1), 40007)), (52, wish(at(9), 40008))] {
        ask(&mut rig, session, wished);
        assert_eq!(rig.status(0), NatfwStatus::BINDING);
        assert_eq!(rig.nodes[1].client.ports(), 1);
    }
    assert_eq!(rig.passes(1).len(), 1);
}

/// CASPMID-10.4-07: a NAT that wants more than a request has refuses it; what it has verified goes on with the outer addresses.
#[test]
fn what_a_nat_verified_goes_on_with_outer_addresses() {
    let mut rig = Rig::with(3, &|_| open_policy(), &|n, config| Config {
        require_authentication: true,
        ..as_nat(&[1], n, config)
    });
    rig.inject(0, 1, NatfwType::CREATE, &request(3, 5, []));
    assert_eq!((rig.status(0), rig.nodes[1].client.ports()), (NatfwStatus::AUTHENTICATION_REQUIRED, 0));
    assert_eq!(rig.kinds(2), []);
    rig.authenticated = true;
    rig.inject(0, 1, NatfwType::CREATE, &request(3, 6, []));
    let create = rig.last(2, NatfwType::CREATE);
    assert_eq!((create.flow.src(), create.filters()), (at(1), vec![filter_of(&create.flow)]));
}

/// CASPMID-4.1-07: a NAT changes addresses on the way, and a host that moves changes them during the session: the session has a
/// binding for each flow, and loses that of the former one.
#[test]
fn a_moved_host_gets_another_binding() {
    let mut rig = open(3, &[1]);
    rig.inject(0, 1, NatfwType::CREATE, &request(3, 5, []));
    let first = seen_behind(&rig, 1);
    let FlowId::V4Ports { dst, dst_port, protocol, .. } = flow(3) else { unreachable!() };
    let moved = FlowId::V4Ports { src: [10, 0, 0, 7].into(), dst, src_port: 5000, dst_port, protocol };
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(6), NatfwValue::Age(2)];
    signalbox_casp::wire::natfw::NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
    rig.clear();
    rig.carry(Packet { session: FIRST, flow: moved, reverse: false, to: 1, from: 0, hops: 1, data });
    let second = rig.last(2, NatfwType::CREATE);
    assert_eq!((second.session, second.flow.src()), (FIRST, at(1)));
    assert_ne!(second.flow, first);
    assert_eq!(rig.nodes[1].client.ports(), 2);
    rig.indicate(1, &Indication::Ended { session: FIRST, flow: flow(3), torn_down: true });
    assert_eq!((rig.nodes[1].client.ports(), rig.passes(1)), (1, vec![moved.filter()]));
}

/// Flows of one host port, whatever their destination, have one outer end.
#[test]
fn one_end_inside_has_one_end_outside() {
    let mut rig = open(3, &[1]);
    rig.inject(0, 1, NatfwType::CREATE, &request(3, 5, []));
    let first = seen_behind(&rig, 1);
    rig.clear();
    let FlowId::V4Ports { src, dst, src_port, protocol, .. } = flow(3) else { unreachable!() };
    let other = FlowId::V4Ports { src, dst, src_port, dst_port: 601, protocol };
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(6), NatfwValue::Age(2)];
    signalbox_casp::wire::natfw::NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
    rig.carry(Packet {
        session: SessionId([9; 16]),
        flow: other,
        reverse: false,
        to: 1,
        from: 0,
        hops: 1,
        data,
    });
    assert_eq!(source_of(&seen_behind(&rig, 1)), source_of(&first));
    assert_eq!(rig.nodes[1].client.ports(), 1);
}

/// CASPMID-10.3-08, CASPMID-10.3-01: refreshes keep binding and rule; at their end both are gone.
#[test]
fn a_binding_lives_as_long_as_its_rule() {
    for by_receiver in [true, false] {
        let mut rig = open(4, &[1]);
        rig.accept();
        rig.ask(by_receiver);
        let outer = seen_behind(&rig, 1);
        rig.clear();
        rig.wait(Duration::from_secs(400));
        assert_eq!(rig.sources(1), [Some(source_of(&outer))]);
        assert_eq!((seen_behind(&rig, 1), rig.nodes[1].client.ports()), (outer, 1));
        assert_eq!(rig.nodes[1].client.counters().granted, 1);
        rig.close();
        assert_eq!(rig.passes(1), []);
        // As long as the RESPONSE to RELEASE may be missing, the port stays.
        rig.wait(Duration::from_secs(11));
        assert_eq!(rig.nodes[1].client.ports(), 0);
    }
}

/// Another external address: the next refresh moves binding and rule to it.
#[test]
fn a_new_external_address_is_taken_over() {
    for by_receiver in [true, false] {
        let mut rig = Rig::with(3, &|_| open_policy(), &|n, config| Config {
            external: None,
            outside: vec!["right".to_owned()],
            ..as_nat(&[1], n, config)
        });
        let interfaces = |rig: &mut Rig, address: IpAddr| {
            let left = crate::rig::interface(crate::rig::LEFT, "left", vec![at(1)]);
            rig.nodes[1].client.interfaces(&[left, crate::rig::interface(RIGHT, "right", vec![address])]);
        };
        rig.accept();
        // Without an external address there is no binding.
        let kind = if by_receiver { NatfwType::PATH } else { NatfwType::CREATE };
        rig.inject(0, 1, kind, &request(3, 5, []));
        assert_eq!((rig.status(0), rig.nodes[1].client.ports()), (NatfwStatus::RESOURCES, 0));
        rig.wait(Duration::from_secs(100));
        rig.clear();
        interfaces(&mut rig, at(21));
        rig.ask(by_receiver);
        assert_eq!(seen_behind(&rig, 1).src(), at(21));
        rig.clear();
        interfaces(&mut rig, at(22));
        rig.wait(Duration::from_secs(60));
        assert_eq!(seen_behind(&rig, 1).src(), at(22));
        assert_eq!(rig.sources(1).iter().map(|one| one.unwrap().address).collect::<Vec<_>>(), [at(22)]);
        assert_eq!(rig.nodes[1].client.ports(), 1);
    }
}

/// What a binding cannot express: other ends than that of the flow, flows without ports. Nothing is reserved.
#[test]
fn what_a_nat_cannot_translate_is_refused() {
    let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
    for (number, wrong) in [
        NatfwFilter { src: any, ..filter(3) },
        NatfwFilter { src_ports: Vec::new(), ..filter(3) },
        NatfwFilter { src_ports: vec![(5000, 5001)], ..filter(3) },
    ]
    .into_iter()
    .enumerate()
    {
        for kind in [NatfwType::PATH, NatfwType::CREATE] {
            let mut rig = open(3, &[1]);
            let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Filter(wrong.clone())];
            rig.inject(0, 1, kind, &values);
            assert_eq!(rig.status(0), NatfwStatus::GRANULARITY, "{number}");
            assert_eq!((rig.nodes[1].client.ports(), rig.passes(1)), (0, Vec::new()));
            assert_eq!(rig.nodes[1].resources.passage_count(), 0);
        }
    }
    let mut rig = open(3, &[1]);
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(1)];
    signalbox_casp::wire::natfw::NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
    let (src, dst) = (v4(at(0)), v4(at(2)));
    for (number, flow) in [
        FlowId::V4Spi { src, dst, spi: 7, protocol: 50 },
        FlowId::V4Ports { src, dst, src_port: 0, dst_port: 0, protocol: 1 },
        FlowId::V4Ports { src, dst, src_port: 0, dst_port: 600, protocol: 17 },
    ]
    .into_iter()
    .enumerate()
    {
        let session = SessionId([90 + u8::try_from(number).unwrap(); 16]);
        rig.carry(Packet { session, flow, reverse: false, to: 1, from: 0, hops: 1, data: data.clone() });
        assert_eq!(rig.status(0), NatfwStatus::GRANULARITY, "{flow}");
    }
    // Nothing inside is reached at an outer address of its own.
    let trigger = [NatfwValue::MsgId(8), NatfwValue::Filter(back(3)), NatfwValue::Scope(1, b"")];
    let mut rig =
        Rig::with(3, &|_| open_policy(), &|n, config| Config { border: true, ..as_nat(&[1], n, config) });
    rig.inject(0, 1, NatfwType::TRIGGER, &trigger);
    assert_eq!((rig.status(0), rig.passes(1)), (NatfwStatus::GRANULARITY, Vec::<FlowFilter>::new()));
}

/// A flow from the outside is not translated: the NAT is a firewall for it.
#[test]
fn flows_from_outside_keep_their_source() {
    let mut rig = open(5, &[3]);
    rig.inject(2, 3, NatfwType::CREATE, &request(5, 5, []));
    assert_eq!(rig.last(4, NatfwType::CREATE).flow, flow(5));
    assert_eq!((rig.passes(3), rig.sources(3)), (vec![flow(5).filter()], vec![None]));
    assert_eq!(rig.nodes[3].client.ports(), 0);
}

/// The border of a scope answers itself, with the outer end.
#[test]
fn a_nat_at_the_border_gives_its_binding() {
    let mut rig =
        Rig::with(3, &|_| open_policy(), &|n, config| Config { border: true, ..as_nat(&[1], n, config) });
    rig.inject(0, 1, NatfwType::CREATE, &request(3, 5, [wants_response(), NatfwValue::Scope(1, b"")]));
    let outer = rig.sources(1)[0].unwrap();
    assert_eq!(outer.address, at(1));
    let response = rig.last(0, NatfwType::RESPONSE);
    let nat = response.results()[0].nested.iter().find_map(|tlv| match NatfwValue::of(&tlv) {
        Some(NatfwValue::Nat(filter)) => filter,
        _ => None,
    });
    let port = outer.port.unwrap();
    let seen = NatfwFilter { src: Prefix::host(outer.address), src_ports: vec![(port, port)], ..filter(3) };
    assert_eq!((nat, rig.kinds(2)), (Some(seen), Vec::new()));
}

/// A host gets no binding for a flow of another host, and takes a share of the ports only.
#[test]
fn bindings_are_shared_and_those_of_others_refused() {
    let ask = |rig: &mut Rig, (from, number): (usize, u16), src: IpAddr, kind| {
        let FlowId::V4Ports { dst, dst_port, protocol, .. } = flow(5) else { unreachable!() };
        let flow = FlowId::V4Ports { src: v4(src), dst, src_port: 1000 + number, dst_port, protocol };
        let session = SessionId([u8::try_from(number).unwrap(); 16]);
        let mut data = Vec::new();
        let values = [NatfwValue::MsgId(5), NatfwValue::Age(1)];
        signalbox_casp::wire::natfw::NatfwMessage::compose(kind, &values, &mut data).unwrap();
        rig.carry(Packet { session, flow, reverse: false, to: 2, from, hops: 1, data });
    };
    for kind in [NatfwType::PATH, NatfwType::CREATE] {
        let mut rig = nats(5, &[2]);
        ask(&mut rig, (1, 1), at(0), kind);
        assert_eq!((rig.status(1), rig.nodes[2].client.ports()), (NatfwStatus::POLICY, 0));
        assert!(rig.passes(2).is_empty());
        let mut rig = open(5, &[2]);
        for number in 2..=41 {
            // The sources are invented: it is the sender who takes the share.
            ask(&mut rig, (0, number), [10, 0, 0, u8::try_from(number).unwrap()].into(), kind);
        }
        assert_eq!(rig.nodes[2].client.ports(), 12, "three quarters of 16");
        assert_eq!(rig.nodes[2].client.counters().ports_full, 28);
        ask(&mut rig, (1, 50), at(1), kind);
        assert_eq!(rig.nodes[2].client.ports(), 13);
    }
}

/// O08: a NAT that starts again keeps the port of an end inside, as long as its session could have stood, although another one would be
/// next. The refresh of the host gets it.
#[test]
fn an_end_keeps_its_port_over_a_restart() {
    let mut rig = nats(4, &[1]);
    rig.accept();
    let FlowId::V4Ports { src, dst, dst_port, protocol, .. } = flow(4) else { unreachable!() };
    let other = FlowId::V4Ports { src, dst, src_port: 4999, dst_port, protocol };
    let first = signalbox_casp::clients::natfw::NatfwRequest { flow: other, ..rig.request(true) };
    rig.nodes[0].client.open(rig.now, 8, &first);
    rig.run();
    rig.ask(true);
    let outer = rig.last(2, NatfwType::PATH).flow;
    let mut entries = Entries::default();
    rig.nodes[1].client.hand_over(rig.now, &mut entries);
    let crate::rig::Node { client, resources, .. } = &mut rig.nodes[0];
    client.close(rig.now, 8, resources);
    rig.run();

    let nat = || as_nat(&[1], 1, Config { inside: vec!["left".to_owned()], ..Config::default() });
    rig.restart_as(1, nat());
    rig.nodes[1].client.take_over(rig.now, entries.clone());
    assert_eq!(rig.nodes[1].client.ports(), 2);
    rig.clear();
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.last(2, NatfwType::PATH).flow, outer);
    assert_eq!((rig.passes(1), rig.sources(1)), (vec![flow(4).filter()], vec![Some(source_of(&outer))]));

    // No request comes for them: they are free after the lifetime.
    rig.restart_as(1, nat());
    rig.nodes[1].client.take_over(rig.now, entries);
    rig.deaf = Some(1);
    rig.wait(Duration::from_secs(u64::from(LIFETIME) + 2));
    assert_eq!(rig.nodes[1].client.ports(), 0);
}

/// O08: a NAT that has lost a flow sends nothing of it on that it cannot translate, and counts it. A refresh is answered, and the host
/// asks again at once. Then the flow has its binding again, and the NAT translates the next refresh.
#[test]
fn a_nat_that_has_lost_a_flow_lets_its_host_ask_again() {
    let mut rig = nats(4, &[1]);
    rig.accept();
    rig.ask(true);
    let outer = rig.last(2, NatfwType::PATH).flow;
    rig.restart_as(1, as_nat(&[1], 1, Config { inside: vec!["left".to_owned()], ..Config::default() }));
    rig.clear();
    assert!(!rig.refresh(FIRST));
    rig.wait(Duration::from_millis(500));
    assert_eq!(rig.status(0), NatfwStatus::NO_STATE);
    assert!(rig.seen.iter().all(|one| one.to != 2), "{:?}", rig.seen);
    let counters = rig.nodes[1].client.counters();
    assert_eq!((counters.unbound, counters.unknown), (1, 1));
    // Two answers make one request.
    assert!(!rig.refresh(FIRST));
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.seen.iter().filter(|one| one.to == 1 && one.kind() == NatfwType::PATH).count(), 1);
    let again = rig.last(2, NatfwType::PATH).flow;
    assert_eq!((again.src(), again.dst()), (outer.src(), outer.dst()));
    assert_eq!((rig.passes(1), rig.sources(1)), (vec![flow(4).filter()], vec![Some(source_of(&again))]));
    rig.clear();
    assert!(rig.refresh(FIRST));
    assert_eq!(rig.kinds(0), []);
}

/// O08: so does every other message from the inside that asks for no binding.
#[test]
fn a_nat_without_a_binding_sends_nothing_on() {
    let answered = [
        (NatfwType::RELEASE, vec![NatfwValue::MsgId(8)], Some(NatfwStatus::NO_STATE)),
        (NatfwType::QUERY, vec![NatfwValue::MsgId(8), wants_response()], Some(NatfwStatus::NO_STATE)),
        (
            NatfwType::TRIGGER,
            vec![NatfwValue::MsgId(8), NatfwValue::Filter(back(4))],
            Some(NatfwStatus::GRANULARITY),
        ),
    ];
    for (kind, values, status) in answered {
        let mut rig = open(4, &[1]);
        rig.inject(0, 1, kind, &values);
        assert!(rig.seen.iter().all(|one| one.to != 2), "{kind}");
        let last = rig.seen.iter().rev().find(|one| one.to == 0);
        assert_eq!(last.map(|one| one.results()[0].status), status, "{kind}");
        assert_eq!((rig.nodes[1].client.counters().unbound, rig.nodes[1].client.ports()), (1, 0));
        // From the outside they go on.
        let mut rig = open(5, &[3]);
        rig.inject(2, 3, kind, &values);
        assert_eq!(rig.nodes[3].client.counters().unbound, 0, "{kind}");
        assert!(rig.seen.iter().any(|one| one.to == 4), "{kind}");
    }
}
