//! What firewalls make of filters.

use signalbox_casp::wire::natfw::{NatfwFilter, NatfwStatus, NatfwType, NatfwValue};
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;

use crate::rig::{Rig, at, back, filter, flow, wants_response};

/// What a firewall answers to a CREATE with these filters, and what it lets pass.
fn created(filters: Vec<NatfwFilter>) -> (Option<NatfwStatus>, Vec<FlowFilter>) {
    let mut rig = Rig::open(3);
    let mut values = vec![NatfwValue::MsgId(5), NatfwValue::Age(1), wants_response()];
    values.extend(filters.into_iter().map(NatfwValue::Filter));
    rig.inject(0, 1, NatfwType::CREATE, &values);
    let status = rig.kinds(0).contains(&NatfwType::RESPONSE).then(|| rig.status(0));
    (status.filter(|status| *status != NatfwStatus::DONE), rig.passes(1))
}

/// CASPMID-4.1-06: the filter counts, or the flow if there is none. CASPMID-6-03: two protocols make two rules.
/// CASPMID-8-10, CASPMID-8-11: ranges and lists are opened as they are given, and several filters too.
#[test]
fn each_port_and_protocol_has_its_rule() {
    let all = flow(3).filter();
    let to = |dst_port, protocol| FlowFilter { dst_port: Some(dst_port), protocol: Some(protocol), ..all };
    assert_eq!(created(Vec::new()), (None, vec![all]));
    let both = NatfwFilter { protocols: vec![6, 17], ..filter(3) };
    assert_eq!(created(vec![both]), (None, vec![to(600, 6), to(600, 17)]));
    let ranges = NatfwFilter { dst_ports: vec![(598, 599), (600, 600), (700, 701)], ..filter(3) };
    let expected: Vec<_> = [598, 599, 600, 700, 701].map(|port| to(port, 17)).into();
    assert_eq!(created(vec![ranges]), (None, expected));
    let second = NatfwFilter { dst_ports: vec![(600, 601)], ..filter(3) };
    assert_eq!(created(vec![filter(3), second]), (None, vec![to(600, 17), to(601, 17)]));
    let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
    let wide = NatfwFilter { src: any, src_ports: Vec::new(), ..filter(3) };
    assert_eq!(created(vec![wide]), (None, vec![FlowFilter { src: any, src_port: None, ..all }]));
}

/// CASPMID-2-04, CASPMID-8-13, CASPMID-4.1-08: the filter has the destination of the flow, its source or any, and the ports
/// of the flow among its own.
#[test]
fn a_filter_lies_within_the_flow() {
    let prefix = |len| Prefix { addr: at(0), len };
    for wrong in [
        NatfwFilter { dst: Prefix::host(at(7)), ..filter(3) },
        NatfwFilter { dst: Prefix { addr: at(2), len: 24 }, ..filter(3) },
        NatfwFilter { src: prefix(24), ..filter(3) },
        NatfwFilter { src: Prefix::host(at(7)), ..filter(3) },
        NatfwFilter { protocols: vec![6], ..filter(3) },
        NatfwFilter { dst_ports: vec![(601, 609)], ..filter(3) },
        NatfwFilter { src_ports: vec![(1, 2)], ..filter(3) },
    ] {
        assert_eq!(created(vec![wrong.clone()]), (Some(NatfwStatus::FILTER), Vec::new()), "{wrong:?}");
    }
}

/// CASPMID-4.1-09: a range with more ports than a session may have rules cannot be opened. CASPMID-8-11: 17 filters are too
/// many.
#[test]
fn a_filter_has_a_size() {
    let many = NatfwFilter { dst_ports: vec![(0, u16::MAX); 17], ..filter(3) };
    assert_eq!(created(vec![many]), (Some(NatfwStatus::GRANULARITY), Vec::new()));
    let wide = NatfwFilter { dst_ports: vec![(600, 616)], ..filter(3) };
    assert_eq!(created(vec![wide]), (Some(NatfwStatus::GRANULARITY), Vec::new()));
    assert_eq!(created(vec![filter(3); 17]), (Some(NatfwStatus::RESOURCES), Vec::new()));
}

/// CASPMID-8-09: a host does not have packets logged. CASPMID-9.2-02: a firewall wants the name of the application.
/// CASPMID-4.1-01, CASPMID-10.4-01: or a proof of identity, and says who it is.
#[test]
fn a_firewall_wants_more() {
    let values = |more: Option<NatfwValue<'static>>| {
        let mut values = vec![NatfwValue::MsgId(5), NatfwValue::Age(1)];
        values.extend(more);
        values
    };
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType::CREATE, &values(Some(NatfwValue::Logging(Vec::new()))));
    assert_eq!(rig.status(0), NatfwStatus::LOGGING);
    let policy = |_| crate::rig::open_policy();
    let wants = |_, config| signalbox_casp::clients::natfw::Config { require_application_id: true, ..config };
    let mut rig = Rig::with(3, &policy, &wants);
    rig.inject(0, 1, NatfwType::CREATE, &values(None));
    assert_eq!(rig.status(0), NatfwStatus::APPLICATION_ID_REQUIRED);
    rig.inject(
        0,
        1,
        NatfwType::PATH,
        &[NatfwValue::MsgId(6), NatfwValue::Age(1), NatfwValue::ApplicationId(b"a")],
    );
    assert_eq!(rig.kinds(2), [NatfwType::PATH]);
    let wants = |_, config| signalbox_casp::clients::natfw::Config { require_authentication: true, ..config };
    let mut rig = Rig::with(3, &policy, &wants);
    rig.inject(0, 1, NatfwType::CREATE, &values(None));
    let response = rig.last(0, NatfwType::RESPONSE);
    let result = response.results()[0];
    assert_eq!(result.status, NatfwStatus::AUTHENTICATION_REQUIRED);
    let node = result.nested.iter().find_map(|tlv| match NatfwValue::of(&tlv) {
        Some(NatfwValue::Node(identity)) => Some(identity.value.to_vec()),
        _ => None,
    });
    assert_eq!(node, Some(vec![10, 0, 1, 1]));
    assert!(rig.passes(1).is_empty());
}

/// CASPMID-10.6-04: the last node says that it does not know a scope. TRIGGER likewise. CASPMID-7-22: nodes on
/// the way keep nothing of it.
#[test]
fn scope_and_trigger_end_at_the_last_node() {
    let mut rig = Rig::open(3);
    let values =
        [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Scope(2, b"b.example"), wants_response()];
    rig.inject(0, 1, NatfwType::CREATE, &values);
    assert_eq!(rig.status(1), NatfwStatus::SCOPE);
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType::TRIGGER, &[NatfwValue::MsgId(6), NatfwValue::Filter(back(3))]);
    assert_eq!(rig.status(1), NatfwStatus::POLICY);
    assert_eq!(rig.nodes[1].client.sessions(), 0);
}
