use signalbox_core::mri::PathCoupled;

use super::*;

const NSLP: NslpId = NslpId(32_710);

fn flow() -> common::FlowSpec {
    common::FlowSpec {
        source: Some("10.0.0.1".into()),
        destination: Some("10.0.0.9".into()),
        ..Default::default()
    }
}

fn along(flow: common::FlowSpec, direction: common::Direction) -> Option<v1::Mri> {
    let method = v1::RoutingMethod::PathCoupled.into();
    Some(v1::Mri { method, direction: direction.into(), flow: Some(flow) })
}

fn message() -> v1::SendMessage {
    v1::SendMessage {
        session_id: vec![5; 16],
        mri: along(flow(), common::Direction::Downstream),
        ..Default::default()
    }
}

fn sent(message: v1::SendMessage) -> Result<OwnedRequest, String> {
    request(NSLP, Some(AppRequest::SendMessage(message))).map_err(|wrong| wrong.to_string())
}

#[test]
fn a_message_that_says_little_leaves_the_rest_to_gist() {
    let hosts = PathCoupled::between("10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap());
    let wanted = SendMessageOf {
        data: Octets::default(),
        handle: None,
        nslp: NSLP,
        session: SessionId([5; 16]),
        mri: Mri::PathCoupled(hosts),
        state: None,
        sii: None,
        attributes: TransferAttributes::default(),
        timeout: None,
        ip_ttl: None,
        hops: None,
    };
    assert_eq!(sent(message()), Ok(RequestOf::SendMessage(wanted)));
}

/// Every argument of the primitive arrives.
#[test]
fn a_message_says_what_it_can() {
    let flow = common::FlowSpec {
        source: Some("2001:db8::".into()),
        source_prefix_length: Some(64),
        destination: Some("2001:db8:1::9".into()),
        destination_prefix_length: Some(127),
        ip_protocol: Some(17),
        dscp: Some(46),
        flow_label: Some(0xf_ffff),
        spi: Some(7),
        source_port: Some(0),
        destination_port: Some(65_535),
    };
    let full = v1::SendMessage {
        data: b"octets!!".to_vec(),
        handle: Some(u64::MAX),
        session_id: (0..16).collect(),
        mri: along(flow.clone(), common::Direction::Upstream),
        sii_handle: Some(3),
        attributes: Some(v1::TransferAttributes { reliable: true, stateless: true, secure: true }),
        timeout_us: Some(1_500_000),
        ip_ttl: Some(255),
        gist_hops: Some(1),
    };
    let Ok(RequestOf::SendMessage(message)) = sent(full) else { panic!("it is sound") };
    assert_eq!((message.data.as_slice(), message.handle), (&b"octets!!"[..], Some(MessageHandle(u64::MAX))));
    assert_eq!((message.sii, message.timeout), (Some(SiiHandle(3)), Some(Duration::from_millis(1500))));
    assert_eq!((message.ip_ttl, message.hops), (Some(255), Some(1)));
    let attributes = TransferAttributes { reliable: true, stateless: true, security: Security::Channel };
    assert_eq!(message.attributes, attributes);
    // The flow is converted back to what was requested.
    assert_eq!(routing_information(&message.mri), along(flow, common::Direction::Upstream).unwrap());
}

#[test]
fn the_loose_end_method_goes_both_ways() {
    let method = v1::RoutingMethod::LooseEnd.into();
    let asked = v1::Mri { method, ..along(flow(), common::Direction::Upstream).unwrap() };
    let Ok(RequestOf::SendMessage(message)) = sent(v1::SendMessage { mri: Some(asked.clone()), ..message() })
    else {
        panic!("it is sound")
    };
    assert!(matches!(message.mri, Mri::LooseEnd(LooseEnd { direction: Direction::Upstream, .. })));
    assert_eq!(routing_information(&message.mri), asked);
}

/// Each mistake is named with its field and what would be right.
#[test]
fn mistakes_are_named() {
    let with = |tweak: fn(&mut common::FlowSpec)| {
        let mut flow = flow();
        tweak(&mut flow);
        v1::SendMessage { mri: along(flow, common::Direction::Downstream), ..message() }
    };
    let flow_of = "send_message.mri.flow";
    for (wrong, text) in [
        (
            v1::SendMessage { session_id: vec![1; 15], ..message() },
            "send_message.session_id: 15 octets, but 16 are needed".to_owned(),
        ),
        (
            v1::SendMessage { data: vec![1; 3], ..message() },
            "send_message.data: 3 octets, but NSLP data comes in multiples of 4: pad it".to_owned(),
        ),
        (v1::SendMessage { mri: None, ..message() }, "send_message.mri: missing".to_owned()),
        (
            v1::SendMessage { mri: Some(v1::Mri::default()), ..message() },
            "send_message.mri.flow: missing".to_owned(),
        ),
        (
            v1::SendMessage { mri: Some(v1::Mri { direction: 3, ..message().mri.unwrap() }), ..message() },
            "send_message.mri.direction: downstream or upstream".to_owned(),
        ),
        (
            v1::SendMessage { ip_ttl: Some(0), ..message() },
            "send_message.ip_ttl: 0, but 1 to 255 are possible".to_owned(),
        ),
        (
            v1::SendMessage { gist_hops: Some(256), ..message() },
            "send_message.gist_hops: 256, but 1 to 255 are possible".to_owned(),
        ),
        (with(|f| f.source = Some("h1".into())), format!("{flow_of}.source: \"h1\" is no IP address")),
        (
            with(|f| f.destination = Some("::1".into())),
            format!("{flow_of}: source and destination are of different IP versions"),
        ),
        (
            with(|f| f.source_prefix_length = Some(33)),
            format!("{flow_of}.source_prefix_length: 33, but 0 to 32 are possible"),
        ),
        (
            with(|f| f.ip_protocol = Some(256)),
            format!("{flow_of}.ip_protocol: 256, but 0 to 255 are possible"),
        ),
        (with(|f| f.dscp = Some(64)), format!("{flow_of}.dscp: 64, but 0 to 63 are possible")),
        (with(|f| f.flow_label = Some(1)), format!("{flow_of}.flow_label: IPv4 has none")),
        (with(|f| f.destination_port = Some(80)), format!("{flow_of}.destination_port: needs ip_protocol")),
        (
            with(|f| (f.ip_protocol, f.source_port) = (Some(6), Some(65_536))),
            format!("{flow_of}.source_port: 65536, but 0 to 65535 are possible"),
        ),
    ] {
        assert_eq!(sent(wrong), Err(text));
    }
}

/// Sessions and applications may be left out, and then stand for all.
#[test]
fn lifetimes_and_doubts_arrive() {
    let mri = || along(flow(), common::Direction::Upstream);
    let lifetime = |session_id| {
        let lifetime = v1::SetStateLifetime { mri: mri(), session_id, lifetime_us: 2_500_000 };
        request(NSLP, Some(AppRequest::SetStateLifetime(lifetime)))
    };
    for (session_id, wanted) in [(Vec::new(), None), (vec![1; 16], Some(SessionId([1; 16])))] {
        let Ok(RequestOf::SetStateLifetime { nslp: NSLP, mri, session, lifetime }) = lifetime(session_id)
        else {
            panic!("it is sound")
        };
        assert_eq!((session, lifetime.as_millis(), mri.direction()), (wanted, 2500, Direction::Upstream));
    }
    assert!(lifetime(vec![1]).is_err());
    for (all, bad) in [(true, false), (false, true)] {
        let invalidation = v1::InvalidateRoutingState {
            mri: mri(),
            bad,
            data: b"anew".to_vec(),
            urgent: true,
            all_applications: all,
        };
        let Ok(RequestOf::InvalidateRoutingState { nslp, status, data, urgent, .. }) =
            request(NSLP, Some(AppRequest::InvalidateRoutingState(invalidation)))
        else {
            panic!("it is sound")
        };
        assert_eq!((nslp, urgent, data.as_slice()), ((!all).then_some(NSLP), true, &b"anew"[..]));
        assert_eq!(status, if bad { InvalidStatus::Bad } else { InvalidStatus::Tentative });
    }
}

#[test]
fn failures_say_what_to_do() {
    let failure = |error| send_failure(error);
    let large = failure(SendError::TooLarge { max: 396 });
    assert_eq!((large.error(), large.max_octets), (v1::SendError::TooLarge, Some(396)));
    let peer = failure(SendError::Peer { code: 9, subcode: 4 });
    assert_eq!((peer.error(), peer.peer_code, peer.peer_subcode), (v1::SendError::Peer, Some(9), Some(4)));
    assert!(failure(SendError::Refused).reason.contains("[gist.associations]"));
    assert!(failure(SendError::NoNextNode).max_octets.is_none());
    let by = Transports { tcp: true, tls: true, sctp: false };
    let unreached = failure(SendError::Unreached(by));
    assert_eq!(unreached.error(), v1::SendError::Unreached);
    assert_eq!(unreached.unreached_by, ["tcp", "tls"]);
    assert!(
        unreached.reason.contains("answered, but could not be reached by tcp, tls"),
        "{}",
        unreached.reason
    );
}

/// Each event has its own number, and those that name a peer name it.
#[test]
fn events_have_their_names() {
    let sii = SiiHandle(8);
    let events = [
        (NetworkEvent::LastNode, None),
        (NetworkEvent::Good(sii), Some(8)),
        (NetworkEvent::Tentative, None),
        (NetworkEvent::Bad, None),
        (NetworkEvent::RouteDeleted(sii), Some(8)),
        (NetworkEvent::AuthorisationChanged, None),
        (NetworkEvent::CommunicationFailure, None),
    ];
    for (number, (event, peer)) in (1..).zip(events) {
        let mri = Mri::PathCoupled(PathCoupled::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        let session = SessionId([4; 16]);
        let ApiIndication::NetworkNotification(found) = indication(
            IndicationOf::NetworkNotification { nslp: NSLP, mri, session, event },
            &InterfaceNames::default(),
        ) else {
            panic!("a notification")
        };
        assert_eq!((found.event, found.sii_handle, found.session_id), (number, peer, vec![4; 16]));
    }
}
