use super::*;

fn bucket() -> common::TokenBucket {
    common::TokenBucket {
        rate_octets_per_s: 8000,
        burst_octets: Some(4000),
        peak_octets_per_s: None,
        min_policed_octets: Some(64),
        max_packet_octets: Some(1500),
    }
}

#[test]
fn a_request_is_converted_and_back() {
    let guaranteed =
        common::Guaranteed { rate_octets_per_s: Some(9000), slack_us: Some(7), delay_bound_us: None };
    let flowspec = v1::Flowspec {
        traffic: Some(common::TokenBucket { peak_octets_per_s: Some(16_000), ..bucket() }),
        service: Some(common::Service { service: Some(common::service::Service::Guaranteed(guaranteed)) }),
    };
    let selector = Some(ApiSelector::SourcePort(5));
    let filter = v1::Filter { source: Some("10.0.0.1".into()), selector };
    let asked = v1::Reserve {
        style: v1::Style::SharedExplicit.into(),
        flows: vec![v1::FlowDescriptor { flowspec: Some(flowspec), senders: vec![filter.clone()] }],
        confirm: true,
        policy: None,
    };
    let taken = reserve(&asked).unwrap();
    assert_eq!((taken.style, taken.confirm), (Style::Se, true));
    assert_eq!(filter_to_api(&taken.flows[0].senders[0]), filter);
    assert_eq!(flowspec_to_api(&taken.flows[0].flowspec), flowspec);
}

#[test]
fn rates_that_no_float_has_are_rounded_up() {
    // The next float after 2^24 + 1 is 2^24 + 2.
    let asked = common::TokenBucket { rate_octets_per_s: (1 << 24) + 1, ..bucket() };
    let tspec = traffic("traffic", Some(&asked)).unwrap();
    assert_eq!(traffic_to_api(&tspec).rate_octets_per_s, (1 << 24) + 2);
    let fraction = TSpec::new(1000.25, 1500.5, f32::INFINITY, 64, 1500).unwrap();
    let shown = traffic_to_api(&fraction);
    assert_eq!((shown.rate_octets_per_s, shown.burst_octets), (1001, Some(1501)));
    assert_eq!(shown.peak_octets_per_s, None);
}

#[test]
fn what_a_message_does_not_give_is_absent() {
    let tspec = signalbox_node::resources::intserv::Given::tspec(1000.0, 0.0, 0.0, 0, 0).unwrap();
    let shown = traffic_to_api(&tspec);
    assert_eq!((shown.burst_octets, shown.peak_octets_per_s, shown.max_packet_octets), (None, None, None));
    assert_eq!(shown.min_policed_octets, Some(0));
    // A receiver may request it as it is shown: what is absent has its default.
    assert_eq!(traffic("traffic", Some(&shown)).unwrap().max_packet(), MAX_PACKET);
}

#[test]
fn an_own_sender_needs_no_source() {
    let asked = v1::Sender { traffic: Some(bucket()), ..v1::Sender::default() };
    let source = "10.0.0.9".parse().unwrap();
    let taken = sender(&asked, Some(source)).unwrap();
    assert_eq!(taken.template, Filter { src: source, selector: Selector::Port(0) });
    assert_eq!((taken.ttl, taken.adspec), (SenderRequest::TTL, true));
    assert_eq!(sender(&asked, None).unwrap_err().field, "sender.filter.source");
}

#[test]
fn wrong_values_name_their_field() {
    let register = |ip_protocol, destination_port| {
        let destination = "10.0.0.1".into();
        let register = v1::Register { destination, ip_protocol, destination_port, ..v1::Register::default() };
        session(&register).unwrap_err().field
    };
    assert_eq!(register(0, Some(1)), "register.ip_protocol");
    assert_eq!(register(17, Some(70_000)), "register.destination_port");
    assert_eq!(register(17, Some(0)), "register.destination_port", "absence has one form");
    let slow = common::TokenBucket { rate_octets_per_s: 0, ..bucket() };
    let slow = v1::Sender { traffic: Some(slow), ..v1::Sender::default() };
    let error = sender(&slow, Some("10.0.0.1".parse().unwrap())).unwrap_err().to_string();
    assert!(error.starts_with("sender.traffic: token rate r"), "{error}");
    let empty = v1::Reserve { flows: vec![v1::FlowDescriptor::default()], ..v1::Reserve::default() };
    assert_eq!(reserve(&empty).unwrap_err().field, "reserve.flows.flowspec");
}

#[test]
fn an_error_has_a_cause_that_other_protocols_have_too() {
    let error = |code| {
        let error =
            ErrorSpec { node: "10.0.0.1".parse().unwrap(), flags: Default::default(), code, value: 2 };
        failure(error)
    };
    let admission = error(ErrorCode::ADMISSION);
    assert_eq!((admission.cause(), admission.node.as_deref()), (common::Cause::Admission, Some("10.0.0.1")));
    let code = common::failure::Code::Rsvp(common::RsvpCode { code: 1, value: 2 });
    assert_eq!(admission.code, Some(code));
    assert_eq!(error(ErrorCode(200)).cause(), common::Cause::Protocol);
}
