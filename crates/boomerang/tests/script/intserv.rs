//! IntServ parameters instead of rates.

use signalbox_boomerang::engine::Reason;
use signalbox_boomerang::wire::{
    Body, Ends, Flags, Format, IntServ, Message, Options, Parameters, Pass, Qos, QosFormat, edit,
};
use signalbox_core::traffic::ServiceClass;

use crate::rig::*;

const NOTHING: [u8; 4] = [0; 4];

/// A message for controlled load, or guaranteed service of this rate.
fn message(rate: f32, peak: f32, guaranteed: Option<f32>) -> Vec<u8> {
    let (service, words) = if guaranteed.is_some() { (2, 9) } else { (5, 6) };
    let mut octets = vec![0, 0, 0, words + 1, service, 0, 0, words, 127, 0, 0, 5];
    for value in [rate, 3000.0, peak] {
        octets.extend(value.to_be_bytes());
    }
    octets.extend(64_u32.to_be_bytes());
    octets.extend(1500_u32.to_be_bytes());
    if let Some(rate) = guaranteed {
        octets.extend([130, 0, 0, 2]);
        octets.extend(rate.to_be_bytes());
        octets.extend(0_u32.to_be_bytes());
    }
    octets
}

fn octets(fields: &Fields, forward: &[u8], reverse: &[u8]) -> Vec<u8> {
    let message = Message {
        pass: fields.pass,
        identifier: 7,
        sequence: 9,
        transaction: fields.transaction,
        format: Format::of(fields.flow.family(), QosFormat::INTSERV),
        flags: Flags(fields.flags),
        refresh: fields.refresh,
        padding: 0,
        key: fields.key,
        body: Some(Body {
            flow: fields.flow,
            qos: Qos::IntServ(IntServ { forward, reverse }),
            options: Options::none(),
        }),
    };
    let mut octets = Vec::new();
    message.encode(&fields.ends, &mut octets);
    octets
}

fn pass(rig: &mut Rig, fields: &Fields, forward: &[u8], reverse: &[u8]) -> Sent {
    let ifindex = if fields.pass == Pass::Request { 1 } else { 2 };
    let mut sent = rig.octets(ifindex, fields, &octets(fields, forward, reverse));
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

fn parameters(sent: &Sent, pass: Pass) -> Parameters {
    let Qos::IntServ(specs) = sent.message().body.unwrap().qos else { panic!("{sent:?}") };
    Parameters::parse(specs.of(pass)).unwrap()
}

/// BOOM-P-07, BOOM-G21-01: controlled load in one direction, guaranteed service in the other. A refresh is no change.
#[test]
fn parameters_reserve_their_service() {
    let mut rig = Rig::new();
    let (load, bound) = (message(8000.0, 9000.0, None), message(4000.0, 9000.0, Some(5000.0)));
    let out = pass(&mut rig, &request(1), &load, &bound);
    assert!(!out.message().is_refused());
    pass(&mut rig, &reply(1), &load, &bound);
    let held: Vec<_> =
        rig.resources.reservations().map(|one| (one.ifindex.0, one.service, one.traffic.rate)).collect();
    assert_eq!(held, [(2, ServiceClass::ControlledLoad, 8000), (1, ServiceClass::Guaranteed, 4000)]);
    assert!(rig.node.flows().all(|flow| flow.rate.is_none()));
    let installs = rig.installs;
    pass(&mut rig, &request(1), &load, &bound);
    assert_eq!((rig.installs, rig.node.counters().refreshed), (installs, 1));
    pass(&mut rig, &request(1), &message(9000.0, 9000.0, None), &bound);
    assert_eq!(rig.node.counters().changed, 1);
    assert_eq!(rig.resources.reservations().map(|one| one.traffic.rate).max(), Some(9000));
    // A change to a rate of a code point, and a release.
    pass_rates(&mut rig, 32_000);
    assert_eq!(rig.node.flows().filter_map(|flow| flow.rate).collect::<Vec<_>>(), [32_000]);
    pass(&mut rig, &request(1), &NOTHING, &NOTHING);
    pass(&mut rig, &reply(1), &NOTHING, &NOTHING);
    assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
}

fn pass_rates(rig: &mut Rig, rate: u32) {
    let out = rig.pass(&Fields { rates: vec![rates(rate, 0)], ..request(1) });
    assert!(!out.message().is_refused());
}

/// BOOM-G21-02: a node that refuses lowers the token rate and the peak rate to what it has, in the direction of the pass.
#[test]
fn a_refusal_lowers_the_token_rate_and_the_peak_rate() {
    let mut rig = Rig::new();
    // The link has 25000 octets a second.
    let (much, little) = (message(30_000.0, 40_000.0, None), message(20_000.0, 90_000.0, None));
    let out = pass(&mut rig, &request(1), &much, &little);
    assert!(out.message().is_refused() && out.message().key == 0);
    let refusal = out.message().body.unwrap().options.refusal().unwrap();
    assert_eq!(Reason::of(refusal.cause), Reason::Resources);
    let forward = parameters(&out, Pass::Request);
    assert_eq!((forward.rate, forward.peak, forward.bucket), (25_000.0, 25_000.0, 3000.0));
    let reverse = parameters(&out, Pass::Reply);
    assert_eq!((reverse.rate, reverse.peak), (20_000.0, 90_000.0), "the other direction is left alone");
    let back =
        pass(&mut rig, &Fields { flags: 1, key: 0, ..reply(1) }, &much, &message(26_000.0, 26_000.0, None));
    assert_eq!(parameters(&back, Pass::Reply).rate, 25_000.0);
    assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
}

/// Parameters that no service has are refused, and change nothing.
#[test]
fn impossible_parameters_are_refused() {
    let mut rig = Rig::new();
    let good = message(8000.0, 9000.0, None);
    let mut other_service = good.clone();
    other_service[4] = 6;
    let mut other_parameter = good.clone();
    other_parameter[8] = 126;
    for (wrong, reason) in [
        (other_service, Reason::Unsupported),
        (other_parameter, Reason::Unsupported),
        (message(f32::NAN, 9000.0, None), Reason::BadRequest),
        (message(-1.0, 9000.0, None), Reason::BadRequest),
        (message(8000.0, 9000.0, Some(1.0)), Reason::BadRequest),
    ] {
        let out = pass(&mut rig, &request(1), &wrong, &NOTHING);
        let refusal = out.message().body.unwrap().options.refusal().unwrap();
        assert_eq!(Reason::of(refusal.cause), reason);
        assert_eq!(rig.node.flow_count(), 0);
    }
    for length in 0..good.len() {
        assert_eq!(Parameters::parse(&good[..length]), None);
    }
    let ends = Ends { src: ip(IN), dst: ip(FEN) };
    let mut cut = octets(&request(1), &good, &NOTHING);
    cut.truncate(cut.len() - 8);
    edit::set_checksum(&mut cut, &ends);
    assert_eq!(rig.octets(1, &request(1), &cut)[0].octets, cut, "a cut message passes unchanged");
}
