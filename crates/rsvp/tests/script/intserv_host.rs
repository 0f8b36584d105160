//! Integrated services at hosts: ADSPECs of senders, and the requests of receivers (RFC 2210 §2).

use std::time::Duration;

use signalbox_core::hops;
use signalbox_resources::intserv::{ErrorTerms, Latency, TSpec};
use signalbox_rsvp::engine::{Command, FlowRequest, Refused, ReserveRequest, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{
    Adspec, ControlledLoad, Filter, FlowSpec, Guaranteed, MessageType, Overrides, Selector, Session, Style,
};

use crate::intserv::{adspec_object, adspec_of};
use crate::rig::{B, Path, Resv, Rig, Sent, all, at, guaranteed, load, one, sender, session};

/// A session whose receiver is this node.
fn here() -> Session {
    Session { dest: at(3, 1), ..session() }
}

fn local_sender() -> Filter {
    Filter { src: at(1, 1), selector: Selector::Port(4000) }
}

fn announce() -> Command {
    Command::Sender(SenderRequest {
        ttl: 20,
        ..SenderRequest::new(local_sender(), TSpec::new(5.0 * B, 3000.0, f32::INFINITY, 64, 1500).unwrap())
    })
}

fn reserve(style: Style, flows: &[(FlowSpec, &[u32])]) -> Command {
    let flows = flows.iter().map(|(flowspec, senders)| FlowRequest {
        flowspec: *flowspec,
        senders: senders.iter().map(|n| sender(*n)).collect(),
    });
    Command::Reserve(ReserveRequest { style, flows: flows.collect(), confirm: false, policy: Box::default() })
}

/// A Path of sender `n` for this node, with this ADSPEC.
fn path(n: u32, adspec: &Adspec) -> Path {
    Path { adspec: adspec_object(adspec), ..Path::of(here(), n, 1) }
}

/// An ADSPEC with this MTU, and one for controlled load if it differs.
fn of_mtu(all: u32, load: Option<u32>) -> Adspec {
    let mut adspec = Adspec::START;
    adspec.general.hops = 2;
    adspec.general.mtu = all;
    let overrides = Overrides { mtu: load, ..Overrides::default() };
    adspec.controlled_load = Some(ControlledLoad { broken: false, overrides });
    adspec
}

/// M of the requests, by sender.
fn asked(sent: &[Sent]) -> Vec<(u32, Option<Filter>)> {
    let resv = one(sent, MessageType::RESV);
    resv.flows().into_iter().map(|(flowspec, of)| (flowspec.unwrap().tspec.max_packet(), of)).collect()
}

/// RSVPIS-2210-2.1-02: the default ADSPEC has all supported services.
#[test]
fn a_sender_offers_every_service() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(session()));
    let path = one(&rig.command(1, announce()), MessageType::PATH);
    let adspec = adspec_of(&path);
    assert_eq!((adspec.general.hops, adspec.general.latency), (1, Latency::INDETERMINATE));
    let Some(Guaranteed { broken: false, terms: Some(terms), .. }) = adspec.guaranteed else {
        panic!("{adspec:?}")
    };
    assert_eq!(terms, ErrorTerms { c_tot: 1500, d_tot: 1200, c_sum: 1500, d_sum: 1200 });
    assert_eq!(adspec.controlled_load, Some(ControlledLoad::default()));
}

/// RSVPIS-2210-3.1-03: an m of 0 is illegal, and no sender of this node announces one.
#[test]
fn a_sender_without_a_smallest_packet_gets_one() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(session()));
    let Command::Sender(mut request) = announce() else { unreachable!() };
    request.tspec = request.tspec.with_min_policed(0).unwrap();
    let path = one(&rig.command(1, Command::Sender(request)), MessageType::PATH);
    // The smallest IPv4 packet.
    assert_eq!(path.message().sender_tspec.unwrap().read().unwrap().min_policed(), 20);
}

/// RSVPIS-2210-2.1-05, RSVPIS-2210-2.3.2-01: the sender gets the merged request of all receivers, without their smaller
/// packets.
#[test]
fn a_sender_gets_the_merged_request() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(session()));
    rig.command(1, announce());
    let resv = |rate: f32, large: u32, hop: u32| {
        let tspec = TSpec::new(rate, 3000.0, f32::INFINITY, 64, large).unwrap();
        let flow = (Some(FlowSpec { tspec, rspec: None }), vec![local_sender()]);
        Resv { flows: vec![flow], ..Resv::ff(&[]) }.from(2, hop, session())
    };
    rig.resv(&resv(B, 1500, 9));
    rig.resv(&resv(2.0 * B, 900, 8));
    let merged = TSpec::new(2.0 * B, 3000.0, f32::INFINITY, 64, 900).unwrap();
    let events = rig.take_events(1).pop();
    let flowspec = FlowSpec { tspec: merged, rspec: None };
    let (senders, policy) = (vec![local_sender()], Box::default());
    assert_eq!(
        events,
        Some(RsvpEvent::Resv { style: Style::Ff, flowspec, senders, policy, path: hops::Path::default() })
    );
    let sent = rig.wait(Duration::from_secs(60));
    let paths = all(&sent, MessageType::PATH);
    assert!(!paths.is_empty());
    for path in paths {
        assert_eq!(path.message().sender_tspec.unwrap().read().unwrap().max_packet(), 1500);
    }
}

/// RSVPIS-2210-2.1-04: one FLOWSPEC, with service, TSpec and RSpec.
#[test]
fn a_receiver_answers_with_one_flowspec() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here()));
    rig.path(&path(1, &of_mtu(1500, None)));
    let wanted = guaranteed(B, 2.0 * B, 70);
    let sent = rig.command(1, reserve(Style::Ff, &[(wanted, &[1])]));
    assert_eq!(one(&sent, MessageType::RESV).flows(), [(Some(wanted), Some(sender(1)))]);
}

/// RSVPIS-2210-2.2-03: services that senders do not offer are not requested.
#[test]
fn a_service_that_is_not_offered_is_not_asked_for() {
    let only_load = Adspec { guaranteed: None, ..of_mtu(1500, None) };
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here()));
    // Requested before and after the ADSPEC is known.
    for _ in 0..2 {
        let mut sent = rig.command(1, reserve(Style::Ff, &[(guaranteed(B, 2.0 * B, 0), &[1])]));
        sent.extend(rig.path(&path(1, &only_load)));
        assert_eq!(all(&sent, MessageType::RESV).len(), 0);
        assert_eq!(rig.take_events(1).pop(), Some(RsvpEvent::Refused(Refused::NotOffered)));
    }
    let sent = rig.command(1, reserve(Style::Ff, &[(load(B), &[1])]));
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(B, 1)]);
    // A Path without an ADSPEC forbids nothing.
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here()));
    rig.path(&Path::of(here(), 1, 1));
    let sent = rig.command(1, reserve(Style::Ff, &[(guaranteed(B, 2.0 * B, 0), &[1])]));
    one(&sent, MessageType::RESV);
}

/// RSVPIS-2210-2.3.2-03, RSVPIS-2210-3.2.1-02, RSVPIS-2210-3.2.1-03: M is the path MTU of each sender, with shared
/// styles of all; smaller if the application says so, and smaller as soon as the path MTU decreases.
#[test]
fn a_receiver_asks_for_packets_that_pass() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here()));
    rig.path(&path(1, &of_mtu(1400, None)));
    rig.path(&path(2, &of_mtu(1200, Some(900))));
    let ff = reserve(Style::Ff, &[(load(B), &[1]), (load(B), &[2])]);
    let mut of_each = asked(&rig.command(1, ff));
    of_each.sort();
    assert_eq!(of_each, [(900, Some(sender(2))), (1400, Some(sender(1)))]);
    let sent = rig.path(&path(1, &of_mtu(1000, None)));
    assert_eq!(asked(&sent), [(1000, Some(sender(1)))]);
    let sent = rig.command(1, reserve(Style::Wf, &[(load(B), &[])]));
    assert_eq!(asked(&sent), [(900, None)]);
    let tspec = TSpec::new(B, 3000.0, f32::INFINITY, 64, 300).unwrap();
    let sent = rig.command(1, reserve(Style::Wf, &[(FlowSpec { tspec, rspec: None }, &[])]));
    assert_eq!(asked(&sent), [(300, None)]);
    assert_eq!(sent.last().unwrap().flows()[0].0.unwrap().tspec.min_policed(), 64);
}

/// RSVPIS-2210-2.3.1-01, RSVPIS-2210-2.3.1-02: values behind a break bit are not used.
#[test]
fn values_behind_a_break_bit_are_not_used() {
    let mut everywhere = of_mtu(700, None);
    everywhere.general.broken = true;
    let mut of_load = of_mtu(700, None);
    of_load.controlled_load = Some(ControlledLoad { broken: true, ..ControlledLoad::default() });
    let mut of_other = of_mtu(700, None);
    of_other.guaranteed = of_other.guaranteed.map(|one| Guaranteed { broken: true, ..one });
    for (adspec, expected) in [(everywhere, 1500), (of_load, 1500), (of_other, 700)] {
        let mut rig = Rig::new();
        rig.command(1, Command::Session(here()));
        rig.path(&path(1, &adspec));
        let sent = rig.command(1, reserve(Style::Ff, &[(load(B), &[1])]));
        assert_eq!(asked(&sent), [(expected, Some(sender(1)))], "{adspec:?}");
        let events = rig.take_events(1);
        let [RsvpEvent::Path { adspec: reported, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(reported[..], adspec_object(&adspec), "the application gets the break bit");
    }
}
