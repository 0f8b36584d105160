//! Flows of IPsec (RFC 2207): sessions with virtual ports, senders by their SPIs.

use signalbox_core::traffic::FlowFilter;
use signalbox_rsvp::engine::{Command, FlowRequest, Refused, ReserveRequest, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{ErrorCode, Filter, MessageType, Selector, Session, SessionKind, Style};

use crate::rig::{B, Path, Resv, Rig, at, kinds, load, one, sender, session, tspec};

const ESP: u8 = 50;
const AH: u8 = 51;

fn ipsec(protocol: u8) -> Session {
    Session { kind: SessionKind::Gpi, protocol, port: 9000, ..session() }
}

fn by_spi(spi: u32) -> Filter {
    Filter { selector: Selector::Gpi(spi), ..sender(1) }
}

fn path(protocol: u8, spi: u32) -> Path {
    Path { session: ipsec(protocol), sender: by_spi(spi), ..Path::new() }
}

fn ff(protocol: u8, rate: f32, spi: u32) -> Resv {
    let flows = vec![(Some(load(rate)), vec![by_spi(spi)])];
    Resv { flows, ..Resv::ff(&[]) }.from(2, 9, ipsec(protocol))
}

/// The classifier's filters.
fn classified(rig: &Rig) -> Vec<FlowFilter> {
    let mut all: Vec<FlowFilter> = rig.resources.reservations().flat_map(|one| one.filters).collect();
    all.sort_by_key(|filter| filter.spi);
    all
}

/// RSVPX-2207-4-06, RSVPX-2207-4-07: senders with one address are classified by SPI; the virtual port is in no packet.
#[test]
fn packets_are_classified_by_their_spi() {
    for protocol in [ESP, AH] {
        let mut rig = Rig::new();
        for spi in [0xabcd, 0x1234_5678] {
            let sent = one(&rig.path(&path(protocol, spi)), MessageType::PATH);
            assert_eq!(
                (sent.message().session, sent.message().sender),
                (Some(ipsec(protocol)), Some(by_spi(spi)))
            );
            let sent = one(&rig.resv(&ff(protocol, B, spi)), MessageType::RESV);
            assert_eq!(sent.flows(), [(Some(load(B)), Some(by_spi(spi)))]);
        }
        let filters = classified(&rig);
        assert_eq!(filters.iter().map(|one| one.spi).collect::<Vec<_>>(), [Some(0xabcd), Some(0x1234_5678)]);
        for filter in filters {
            assert_eq!((filter.protocol, filter.src_port, filter.dst_port), (Some(protocol), None, None));
            assert_eq!((filter.src.addr, filter.dst.addr), (sender(1).src, session().dest));
        }
    }
}

/// RSVPX-2207-4-07: WF classifies by destination and protocol only.
#[test]
fn the_wildcard_takes_all_spis() {
    let mut rig = Rig::new();
    rig.path(&path(ESP, 7));
    rig.path(&path(ESP, 8));
    rig.resv(&Resv::wf(load(B)).from(2, 9, ipsec(ESP)));
    let [filter] = &classified(&rig)[..] else { panic!("{:?}", classified(&rig)) };
    assert_eq!((filter.protocol, filter.spi, filter.dst_port, filter.src.len), (Some(ESP), None, None, 0));
    assert_eq!(filter.dst.addr, session().dest);
}

/// RSVPX-2207-4-05
#[test]
fn another_spi_is_another_sender() {
    let mut rig = Rig::new();
    rig.path(&path(ESP, 7));
    let sent = rig.resv(&ff(ESP, B, 8));
    assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(2, 9))]);
    assert_eq!(sent[0].error().code, ErrorCode::NO_SENDER);
    assert_eq!(rig.reservations(), 0);
}

fn refused(rig: &mut Rig, command: Command) -> Option<Refused> {
    rig.command(1, command);
    match rig.take_events(1).pop() {
        Some(RsvpEvent::Refused(why)) => Some(why),
        _ => None,
    }
}

/// RSVPX-2207-4-01, RSVPX-2207-4-02, RSVPX-2207-4-03: invalid requests of an application.
#[test]
fn invalid_requests_of_applications_are_refused() {
    let mut rig = Rig::new();
    assert_eq!(refused(&mut rig, Command::Session(ipsec(17))), Some(Refused::NoGpi));
    let no_port = Session { port: 0, ..ipsec(ESP) };
    assert_eq!(refused(&mut rig, Command::Session(no_port)), Some(Refused::BadPort));
    for (of, right, wrong) in [
        (ipsec(ESP), Selector::Gpi(7), Selector::Port(4000)),
        (session(), Selector::Port(4000), Selector::Gpi(7)),
    ] {
        assert_eq!(refused(&mut rig, Command::Session(of)), None);
        let announce = |selector| {
            let template = Filter { src: at(1, 1), selector };
            let policy = Box::default();
            Command::Sender(SenderRequest {
                adspec: false,
                ttl: 9,
                policy,
                ..SenderRequest::new(template, tspec(B))
            })
        };
        let reserve = |selector| {
            let senders = vec![Filter { selector, ..sender(1) }];
            let flows = vec![FlowRequest { flowspec: load(B), senders }];
            let policy = Box::default();
            Command::Reserve(ReserveRequest { style: Style::Ff, flows, confirm: false, policy })
        };
        assert_eq!(refused(&mut rig, announce(wrong)), Some(Refused::ConflictingTypes));
        assert_eq!(refused(&mut rig, reserve(wrong)), Some(Refused::ConflictingTypes));
        assert_eq!(refused(&mut rig, announce(right)), None);
        assert_eq!(refused(&mut rig, reserve(right)), None);
        assert_eq!(refused(&mut rig, Command::Close), None);
    }
    assert_eq!(refused(&mut rig, Command::Session(ipsec(AH))), None);
}
