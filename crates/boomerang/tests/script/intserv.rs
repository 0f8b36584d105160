//! IntServ parameters instead of rates.

use signalbox_boomerang::engine::{
    BoomerangEvent as Event, Command, Reason, Rejected, Request, ServiceParameters,
};
use signalbox_boomerang::wire::{Ends, IntServ, Parameters, Pass, Qos, edit};
use signalbox_core::hops::Path;
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
    let message = fields.message(Qos::IntServ(IntServ { forward, reverse }));
    let mut octets = Vec::new();
    message.encode(&fields.ends, &mut octets);
    octets
}

/// A message for controlled load of this rate.
pub(crate) fn controlled_load(fields: &Fields, rate: f32) -> Vec<u8> {
    octets(fields, &message(rate, rate, None), &NOTHING)
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
    let buckets: Vec<_> =
        rig.resources.reservations().map(|one| (one.traffic.peak, one.traffic.min_policed)).collect();
    assert_eq!(buckets, [(Some(9000), 64); 2], "the whole token bucket, not the rate only");
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

/// A request of this node for controlled load in both directions.
fn own(guaranteed: Option<(u32, u32)>) -> Request {
    let parameters =
        ServiceParameters { bucket: 3000, peak: Some(16_000), min_policed: 64, max_packet: 1500, guaranteed };
    Request { rates: vec![rates(64_000, 32_000)], intserv: Some(parameters), ..wish() }
}

/// BOOM-F3.6.2-01, BOOM-3.2.3-09: an initiating node asks for IntServ parameters, and its own link has them. The octets are those
/// of RFC 2210.
#[test]
fn an_initiating_node_asks_for_intserv_parameters() {
    for guaranteed in [None, Some((9000, 0))] {
        let mut rig = Rig::new();
        let first = rig.command(1, Command::Open(own(guaranteed))).remove(0);
        let Qos::IntServ(specs) = first.message().body.unwrap().qos else { panic!("{first:?}") };
        let rate = guaranteed.map(|_| 9000.0);
        assert_eq!(specs.forward, message(8000.0, 16_000.0, rate));
        assert_eq!(specs.reverse, message(4000.0, 16_000.0, rate));
        let service =
            if guaranteed.is_some() { ServiceClass::Guaranteed } else { ServiceClass::ControlledLoad };
        assert_eq!(rig.resources.reservations().map(|one| one.service).collect::<Vec<_>>(), [service]);
        rig.echo(&first, |_| {});
        let granted =
            Event::Reserved { rates: rates(64_000, 32_000), refresh: 30, loops: 1, path: Path::default() };
        assert_eq!(rig.events, [(1, granted)]);
        let refresh = rig.wait(seconds(30.0)).remove(0);
        assert_eq!(refresh.message().body.unwrap().qos, first.message().body.unwrap().qos);
    }
}

/// BOOM-G12-03: the release of such a reservation is two words of zero.
#[test]
fn an_intserv_release_is_two_empty_messages() {
    let mut rig = Rig::new();
    let first = rig.command(1, Command::Open(own(None))).remove(0);
    rig.echo(&first, |_| {});
    let release = rig.command(1, Command::Close).remove(0);
    let Qos::IntServ(specs) = release.message().body.unwrap().qos else { panic!("{release:?}") };
    assert!(specs.is_empty() && specs.forward.len() == 4);
    assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
}

/// BOOM-G21-02: the offer of a refusal is the token rate that the path has. A change keeps the other parameters.
#[test]
fn the_offer_is_the_token_rate() {
    let mut rig = Rig::new();
    let first = rig.command(1, Command::Open(own(Some((9000, 0))))).remove(0);
    rig.echo(&first, |_| {});
    let change = rig.command(1, Command::Change(rates(80_000, 0))).remove(0);
    let asked = parameters(&change, Pass::Request);
    assert_eq!((asked.rate, asked.bucket, asked.guaranteed), (10_000.0, 3000.0, Some((10_000.0, 0))));
    rig.echo(&change, |octets| {
        octets[19] |= 1;
        let float = 5000.0_f32.to_be_bytes();
        octets[64 + 12..64 + 16].copy_from_slice(&float);
    });
    let Event::ChangeRefused(refusal) = rig.last_event() else { panic!("{:?}", rig.events) };
    assert_eq!(refusal.offer, rates(40_000, 0));
}

/// Parameters that no node could grant are rejected before a message leaves.
#[test]
fn a_request_has_parameters_of_a_service() {
    let with = |change: &dyn Fn(&mut ServiceParameters)| {
        let mut request = own(None);
        request.intserv.as_mut().into_iter().for_each(change);
        request
    };
    let list = Request { rates: vec![rates(64_000, 0), rates(32_000, 0)], ..own(None) };
    for wrong in [
        with(&|parameters| parameters.bucket = 0),
        with(&|parameters| parameters.guaranteed = Some((7999, 0))),
        with(&|parameters| parameters.max_packet = 0),
        list,
    ] {
        let mut rig = Rig::new();
        assert_eq!(rig.command(1, Command::Open(wrong)), []);
        assert_eq!(rig.last_event(), &Event::Rejected(Rejected::Parameters));
    }
}
