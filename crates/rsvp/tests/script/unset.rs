//! Fields that routers leave out of FLOWSPEC and SENDER_TSPEC. The octets have the form of two public captures: routers of
//! one maker send m = 0 and M = 0, with a source port of 0.

use signalbox_rsvp::wire::{Filter, MessageType, Selector, Style, Writer};

use super::rig::*;

/// SENDER_TSPEC or FLOWSPEC with these words after the service header, written by hand.
fn object(class: u8, service: u8, words: &[u32]) -> Vec<u8> {
    let count = u16::try_from(words.len()).unwrap();
    let mut octets = (count * 4 + 12).to_be_bytes().to_vec();
    octets.extend([class, 2, 0, 0]);
    octets.extend((count + 1).to_be_bytes());
    octets.extend([service, 0]);
    octets.extend(count.to_be_bytes());
    octets.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    octets
}

const TOKEN_BUCKET: u32 = 127 << 24 | 5;
const RATE_SLACK: u32 = 130 << 24 | 2;

/// r = 10,000 octets a second, b = 1,000 octets, p = r, and neither m nor M.
fn bucket(rate: f32) -> Vec<u32> {
    vec![TOKEN_BUCKET, rate.to_bits(), 1000_f32.to_bits(), rate.to_bits(), 0, 0]
}

fn controlled(rate: f32) -> Vec<u8> {
    object(9, 5, &bucket(rate))
}

fn guaranteed(rate: f32, service: f32) -> Vec<u8> {
    object(9, 2, &[bucket(rate), vec![RATE_SLACK, service.to_bits(), 0]].concat())
}

/// A sender whose template has no port.
fn portless(n: u32) -> Filter {
    Filter { selector: Selector::Port(0), ..sender(n) }
}

fn path(n: u32, tspec: &[u8]) -> Vec<u8> {
    let of = Path::of(session(), n, 1);
    compose(MessageType::PATH, of.send_ttl, |w| {
        w.session(&of.session, false).hop(&of.hop).time_values(R);
        w.sender_template(&portless(n)).body(tspec);
    })
}

fn resv(style: Style, flowspec: &[u8], senders: &[u32]) -> Vec<u8> {
    let of = Resv::wf(load(B));
    compose(MessageType::RESV, 255, |w: &mut Writer<'_>| {
        w.session(&of.session, false).hop(&of.hop).time_values(R).style(style);
        if style != Style::Ff {
            w.body(flowspec);
        }
        for n in senders {
            if style == Style::Ff {
                w.body(flowspec);
            }
            w.filter_spec(&portless(*n));
        }
    })
}

/// A node with Paths of two senders, whose SENDER_TSPECs are these.
fn rig(tspec: &[u8]) -> Rig {
    let mut rig = Rig::new();
    for n in [1, 2] {
        let sent = rig.packet(1, sender(n).src, session().dest, 60, &path(n, tspec));
        assert_eq!(kinds(&sent), [(MessageType::PATH, session().dest)], "{n}");
    }
    rig
}

fn given() -> Vec<u8> {
    let words = [TOKEN_BUCKET, B.to_bits(), 3000_f32.to_bits(), f32::INFINITY.to_bits(), 64, 1200];
    object(12, 1, &words)
}

#[test]
fn a_flowspec_without_packet_sizes_is_granted_in_each_style_and_service() {
    let flows = |style| if style == Style::Ff { 20_000 } else { 10_000 };
    for flowspec in [controlled(B), guaranteed(B, B)] {
        for (style, senders) in [(Style::Wf, &[][..]), (Style::Ff, &[1, 2]), (Style::Se, &[1, 2])] {
            let mut rig = rig(&given());
            let octets = resv(style, &flowspec, senders);
            let sent = rig.neighborly(2, at(2, 9), &octets);
            let up = one(&sent, MessageType::RESV);
            assert_eq!(up.dst, at(1, 9), "{style}");
            assert_eq!(rig.reserved(2), flows(style), "{style}");
            // The previous hop gets a whole flowspec: some refuse an M of 0.
            for (sent, _) in up.flows() {
                let sent = sent.unwrap();
                assert_eq!((sent.tspec.rate(), sent.tspec.max_packet()), (B, 1200), "{style}");
                assert_eq!(sent.rspec.is_some(), flowspec.len() > 36, "{style}");
            }
            // A repetition is a refresh.
            assert_eq!(kinds(&rig.neighborly(2, at(2, 9), &octets)), [], "{style}");
        }
    }
}

#[test]
fn packets_of_an_unknown_size_fit_the_link() {
    let mut rig = rig(&object(12, 1, &bucket(B)));
    let sent = rig.neighborly(2, at(2, 9), &resv(Style::Ff, &controlled(B), &[1]));
    assert_eq!(one(&sent, MessageType::RESV).flows()[0].0.unwrap().tspec.max_packet(), 1500);
    assert_eq!(rig.reserved(2), 10_000);
}

/// RFC 2210 §3.1: the SENDER_TSPEC goes on as it came.
#[test]
fn a_sender_that_gives_no_rate_is_limited_by_the_request_only() {
    let nothing = object(12, 1, &[TOKEN_BUCKET, 0, 0, 0, 0, 0]);
    let mut rig = Rig::new();
    let sent = rig.packet(1, sender(1).src, session().dest, 60, &path(1, &nothing));
    let tspec = one(&sent, MessageType::PATH).message().sender_tspec.unwrap().read().unwrap();
    assert_eq!((tspec.rate(), tspec.bucket(), tspec.max_packet()), (0.0, 0.0, 0));
    let sent = rig.neighborly(2, at(2, 9), &resv(Style::Ff, &controlled(2.0 * B), &[1]));
    one(&sent, MessageType::RESV);
    assert_eq!(rig.reserved(2), 20_000);
}

#[test]
fn a_request_for_no_bandwidth_stands_and_takes_none() {
    let zero = object(9, 5, &[TOKEN_BUCKET, 0, 0, 0, 0, 0]);
    let service = object(9, 2, &[TOKEN_BUCKET, 0, 0, 0, 0, 0]);
    for flowspec in [zero, service] {
        let mut rig = rig(&given());
        let sent = rig.neighborly(2, at(2, 9), &resv(Style::Ff, &flowspec, &[1]));
        assert_eq!(one(&sent, MessageType::RESV).rates(), [(1.0, 1)]);
        assert_eq!(rig.reserved(2), 1);
    }
}

#[test]
fn an_unlimited_rate_is_what_the_sender_announces() {
    let infinite = f32::INFINITY.to_bits();
    let all = object(9, 5, &[TOKEN_BUCKET, infinite, infinite, infinite, 0, 0]);
    let mut rig = rig(&given());
    one(&rig.neighborly(2, at(2, 9), &resv(Style::Ff, &all, &[1])), MessageType::RESV);
    assert_eq!(rig.reserved(2), 10_000);
}

/// What no RFC lets be read as "not given" stays refused.
#[test]
fn a_fault_is_refused() {
    for rate in [-0.0_f32, -1.0, 0.5, f32::NAN] {
        let mut rig = rig(&given());
        let sent = rig.neighborly(2, at(2, 9), &resv(Style::Ff, &controlled(rate), &[1]));
        let error = one(&sent, MessageType::RESV_ERR).error();
        assert_eq!((error.code.0, error.value), (21, 3), "{rate}");
    }
}
