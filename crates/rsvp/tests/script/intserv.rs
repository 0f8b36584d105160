//! Integrated services at a router (RFC 2210, 2211, 2212, 2215).

use signalbox_core::node::Prefix;
use signalbox_resources::Config as Links;
use signalbox_resources::config::ServiceConfig;
use signalbox_resources::intserv::{ErrorTerms, Latency, RSpec, TSpec};
use signalbox_rsvp::engine::{Command, Config, Input, RsvpEvent};
use signalbox_rsvp::wire::{
    Adspec, Class, ErrorCode, ErrorFlags, FlowSpec, HeaderFlags, MessageType, Objects, RawAdspec, Service,
    Session, Writer,
};

use crate::rig::{
    B, Path, R, Resv, Rig, Sent, addr, all, at, compose, group, guaranteed, kinds, load, one, one_to, sender,
    session, tspec,
};

/// Links of 10 Mbit/s, with changes.
pub(crate) fn links(change: impl FnOnce(&mut signalbox_resources::config::LinkConfig)) -> Links {
    let mut links = Links::of_link("*", "10mbit".parse().unwrap());
    change(&mut links.links[0]);
    links
}

/// A node with these links, among neighbors of RFC 2205.
pub(crate) fn node(links: Links) -> Rig {
    Rig::with_resources(links)
}

/// An ADSPEC object.
pub(crate) fn adspec_object(adspec: &Adspec) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, MessageType::PATH, HeaderFlags::default(), 0);
    writer.adspec(adspec);
    writer.finish().unwrap();
    octets.split_off(8)
}

pub(crate) fn adspec_of(sent: &Sent) -> Adspec {
    sent.message().adspec.unwrap().read().unwrap()
}

/// A Path with the ADSPEC that senders start with.
fn advertised() -> Path {
    Path { adspec: adspec_object(&Adspec::START), ..Path::new() }
}

/// The `number`th node of a row: its eth1 leads to the previous one, its eth2, with an MTU of `mtu`, to the next.
fn in_row(number: u32, mtu: u32, links: Links) -> Rig {
    let mut rig = node(links);
    for (n, interface) in (1..).zip(&mut rig.interfaces) {
        interface.addresses = vec![at(20 * number + n, 1)];
    }
    rig.interfaces[1].mtu = mtu;
    let list = rig.interfaces.clone();
    rig.resources.interfaces(&list);
    rig.input(Input::Interfaces(&list));
    rig.routes = vec![(Prefix { addr: addr("10.0.80.0"), len: 20 }, 2)];
    rig
}

/// RSVPIS-2210-2.1-01, RSVPIS-2210-2.1-04, RSVPIS-2210-2.3.2-02, RSVPIS-2215-3.5-01, RSVPIS-2215-1-01: three routers
/// with MTUs 1500, 1000 and 1500. The second has a configured latency, and guaranteed service takes packets of 800 at
/// the third; then the receiver's host.
#[test]
fn what_paths_collect_along_a_row_of_routers() {
    let to = Session { dest: at(4 * 20 + 3, 1), ..session() };
    let known = |text: &str| links(|link| link.latency = Some(text.parse().unwrap()));
    let mut third = known("30us");
    let guaranteed = third.links[0].guaranteed;
    third.links[0].guaranteed = ServiceConfig { max_packet: Some(800), ..guaranteed };
    let row = [in_row(1, 1500, known("5ms")), in_row(2, 1000, known("250us")), in_row(3, 1500, third)];
    let odd = TSpec::new(1234.5, 98_765.25, 4.0e6, 65, 1499).unwrap();
    let first = Path { session: to, tspec: odd, ..advertised() };
    let octets = first.octets();
    let mut sent = Sent {
        at: row[0].now,
        src: first.sender.src,
        dst: to.dest,
        oif: 2,
        ttl: 60,
        router_alert: true,
        tos: 0xc0,
        octets: octets.clone(),
    };
    let said = sent.message().sender_tspec.unwrap().octets().to_vec();
    for mut rig in row {
        sent = one(&rig.packet(1, sent.src, sent.dst, sent.ttl, &sent.octets), MessageType::PATH);
        assert_eq!(sent.message().sender_tspec.unwrap().octets(), said);
    }
    let adspec = adspec_of(&sent);
    let general = adspec.general;
    assert_eq!((general.broken, general.hops, general.mtu, general.latency), (false, 3, 1000, Latency(5280)));
    assert_eq!(adspec.path(Service::Guaranteed).unwrap().mtu, 800);
    assert_eq!(adspec.path(Service::ControlledLoad).unwrap().mtu, 1000);
    // C = 1500 octets and D = 1200 µs, at the second for packets of 1000.
    let terms = adspec.guaranteed.unwrap().terms.unwrap();
    assert_eq!(terms, ErrorTerms { c_tot: 4000, d_tot: 3200, c_sum: 4000, d_sum: 3200 });

    let mut host = in_row(4, 1500, links(|_| {}));
    host.command(1, Command::Session(to));
    host.packet(1, sent.src, sent.dst, sent.ttl, &sent.octets);
    let events = host.take_events(1);
    let [RsvpEvent::Path { tspec, adspec, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*tspec, odd);
    assert_eq!(adspec[..], *sent.message().adspec.unwrap().octets());
}

/// RSVPIS-2215-1-01: an unknown latency of one link makes that of the path unknown.
#[test]
fn an_unknown_latency_makes_that_of_the_path_unknown() {
    let path = one(&node(links(|_| {})).path(&advertised()), MessageType::PATH);
    assert_eq!(adspec_of(&path).general.latency, Latency::INDETERMINATE);
    let mut arriving = Adspec::START;
    arriving.general.latency = Latency::INDETERMINATE;
    arriving.general.bandwidth = signalbox_resources::intserv::Bandwidth::UNKNOWN;
    let mut rig = node(links(|link| link.latency = Some("1ms".parse().unwrap())));
    let general = adspec_of(&rig.path(&Path { adspec: adspec_object(&arriving), ..Path::new() })[0]).general;
    assert_eq!((general.latency, general.bandwidth.value()), (Latency::INDETERMINATE, 0.0));
    assert_eq!((general.hops, general.mtu), (1, 1500));
}

/// RSVPIS-2210-2.3.1-01, RSVPIS-2210-2.3.1-02: hops without RSVP set the break bit for all services, a router without a
/// service for that one.
#[test]
fn breaks_are_marked() {
    let breaks = |links: Links, ttl: u8| {
        let mut config = Config::default();
        config.neighbors.interface.reduction.reliable = false;
        config.neighbors.interface.trust.distant_hops = true;
        let mut node = Rig::with_all(config, links);
        let path = one(&node.path(&Path { ttl, ..advertised() }), MessageType::PATH);
        let adspec = adspec_of(&path);
        (adspec.general.broken, adspec.guaranteed.unwrap().broken, adspec.controlled_load.unwrap().broken)
    };
    assert_eq!(breaks(links(|_| {}), 60), (false, false, false));
    assert_eq!(breaks(links(|_| {}), 59), (true, false, false));
    let without = |link: &mut signalbox_resources::config::LinkConfig| link.guaranteed.offered = false;
    assert_eq!(breaks(links(without), 60), (false, true, false));
    // A link without resources supports no service.
    assert_eq!(breaks(Links::default(), 60), (true, true, true));
}

/// RSVPIS-2215-3.1-01: a tunnel sets the break bit, unless its operator configures the tunnel.
#[test]
fn a_tunnel_is_a_break() {
    for (name, broken) in [("*", true), ("eth2", false)] {
        let mut rig = node(Links::of_link(name, "10mbit".parse().unwrap()));
        rig.resources.interfaces(&[]);
        rig.interfaces[1].tunnel = true;
        let list = rig.interfaces.clone();
        rig.resources.interfaces(&list);
        rig.input(Input::Interfaces(&list));
        let path = one(&rig.path(&advertised()), MessageType::PATH);
        assert_eq!(adspec_of(&path).general.broken, broken, "{name}");
    }
}

/// RSVPIS-2210-2.2-01: different services have no order.
#[test]
fn another_service_cannot_be_merged() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let other = Resv::ff(&[(guaranteed(B, 2.0 * B, 0), 1)]).from(2, 8, session());
    let error = one_to(&rig.resv(&other), MessageType::RESV_ERR, at(2, 8)).error();
    assert_eq!((error.code, error.value, error.flags), (ErrorCode::TRAFFIC_CONTROL, 1, ErrorFlags::IN_PLACE));
    // With shared styles at any interface.
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    rig.path(&Path::of(group(), 1, 1));
    rig.resv(&Resv::wf(load(B)).from(3, 9, group()));
    let other = Resv::wf(guaranteed(B, 2.0 * B, 0)).from(4, 9, group());
    let error = one_to(&rig.resv(&other), MessageType::RESV_ERR, at(4, 9)).error();
    assert_eq!((error.code, error.value), (ErrorCode::TRAFFIC_CONTROL, 1));
    assert_eq!(rig.reserved(4), 0);
}

fn sized(rate: f32, small: u32, large: u32) -> TSpec {
    TSpec::new(rate, 3000.0, f32::INFINITY, small, large).unwrap()
}

fn load_of(tspec: TSpec) -> FlowSpec {
    FlowSpec { tspec, rspec: None }
}

/// RSVPIS-2210-2.3.2-04: the smaller M of the receivers goes upstream; the smaller of that and the largest of the
/// senders is installed.
#[test]
fn largest_packets_are_merged_downwards() {
    let mut rig = Rig::new();
    rig.path(&Path { tspec: sized(B, 64, 900), ..Path::of(session(), 1, 1) });
    rig.path(&Path { tspec: sized(B, 64, 1200), ..Path::of(session(), 2, 1) });
    let one_receiver = rig.resv(&Resv::se(load_of(sized(B, 64, 1500)), &[1, 2]));
    let upstream = |sent: &[Sent]| one(sent, MessageType::RESV).flows()[0].0.unwrap().tspec.max_packet();
    assert_eq!(upstream(&one_receiver), 1500);
    let installed =
        |rig: &Rig| rig.resources.reservations().map(|one| one.traffic.max_packet).collect::<Vec<_>>();
    assert_eq!(installed(&rig), [1200]);
    let other = Resv::se(load_of(sized(2.0 * B, 64, 900)), &[1, 2]).from(2, 8, session());
    assert_eq!(upstream(&rig.resv(&other)), 900);
    assert_eq!(installed(&rig), [900]);
}

/// RSVPIS-2210-2.3.2-05, RSVPIS-2212-Invocation-01
#[test]
fn packets_over_the_mtu_are_refused() {
    for flowspec in [
        load_of(sized(B, 64, 9000)),
        FlowSpec { rspec: Some(RSpec::new(2.0 * B, 0).unwrap()), ..load_of(sized(B, 64, 9000)) },
    ] {
        let mut rig = Rig::new();
        rig.path(&Path { tspec: sized(B, 64, 9000), ..Path::new() });
        let error = one(&rig.resv(&Resv::ff(&[(flowspec, 1)])), MessageType::RESV_ERR).error();
        assert_eq!((error.code, error.value), (ErrorCode::ADMISSION, 3));
        assert_eq!(rig.reservations(), 0);
    }
}

/// RSVPIS-2212-Invocation-01: r, b, p, m, M and R, each wrong by itself.
#[test]
fn requests_that_cannot_be_are_refused() {
    let right = [B, 3000.0, 2.0 * B].map(f32::to_bits);
    let with = |at: usize, value: u32| {
        let mut words = [right[0], right[1], right[2], 64, 1500, (2.0 * B).to_bits(), 0];
        words[at] = value;
        words
    };
    let answer = |[r, b, p, m, max, rate, slack]: [u32; 7]| {
        let words = [0x0000_000a, 0x0200_0009, 0x7f00_0005, r, b, p, m, max, 0x8200_0002, rate, slack]
            .map(u32::to_be_bytes);
        let object = [&[0, 48, 9, 2][..], words.as_flattened()].concat();
        let mut rig = Rig::new();
        rig.path(&Path::new());
        let resv = compose(MessageType::RESV, 255, |w| {
            let plain = Resv::ff(&[]);
            w.session(&session(), false).hop(&plain.hop).time_values(R).style(plain.style);
            w.body(&object).filter_spec(&sender(1));
        });
        let sent = rig.neighborly(2, at(2, 9), &resv);
        let error =
            all(&sent, MessageType::RESV_ERR).pop().map(|sent| (sent.error().code, sent.error().value));
        assert_eq!(error.is_none(), rig.reservations() == 1);
        error
    };
    assert_eq!(answer(with(0, right[0])), None);
    for (at, what) in [(0, "r"), (1, "b"), (2, "p"), (3, "m"), (4, "M"), (5, "R")] {
        assert_eq!(answer(with(at, 0)), None, "{what} is not given");
    }
    let bad = Some((ErrorCode::TRAFFIC_CONTROL, 3));
    let cases = [
        ("r is negative zero", with(0, (-0.0_f32).to_bits())),
        ("b is negative", with(1, (-1.0_f32).to_bits())),
        ("p < r", with(2, (B / 2.0).to_bits())),
        ("m > M", with(3, 1501)),
        ("R is infinite", with(5, f32::INFINITY.to_bits())),
        ("R < r", with(5, (B / 2.0).to_bits())),
        ("R is no number", with(5, f32::NAN.to_bits())),
    ];
    for (what, words) in cases {
        assert_eq!(answer(words), bad, "{what}");
    }
}

/// RSVPIS-2210-3.2.1-03, RSVPIS-2210-3.2.1-04: the smaller m counts, also that of a later sender: the headers of its
/// packets may then exceed the link.
#[test]
fn headers_are_counted_for_the_smallest_packets() {
    for (rate, fits) in [(10.0 * B, true), (65.0 * B, false)] {
        let mut rig = node(links(|link| link.overhead = 40));
        rig.path(&Path { tspec: sized(rate, 500, 1500), ..Path::of(session(), 1, 1) });
        let wanted = Resv::wf(load_of(sized(rate, 500, 1500)));
        assert_eq!(kinds(&rig.resv(&wanted)), [(MessageType::RESV, at(1, 9))]);
        let small = |rig: &Rig| rig.resources.reservations().next().unwrap().traffic.min_policed;
        let before = rig.reserved(2);
        assert_eq!((small(&rig), before as f32), (500, rate * 540.0 / 500.0));
        let sent = rig.path(&Path { tspec: sized(B, 40, 1500), ..Path::of(session(), 2, 1) });
        if fits {
            assert_eq!((small(&rig), rig.reserved(2) as f32), (40, rate * 2.0));
            assert_eq!(all(&sent, MessageType::RESV_ERR).len(), 0);
        } else {
            let error = one_to(&sent, MessageType::RESV_ERR, at(2, 9)).error();
            assert_eq!(
                (error.code, error.value, error.flags),
                (ErrorCode::ADMISSION, 2, ErrorFlags::IN_PLACE)
            );
            assert_eq!((small(&rig), rig.reserved(2)), (500, before));
        }
    }
}

/// RSVPIS-2212-Guidelines-03: each link reserves the receiver's R, although the senders send far less.
#[test]
fn a_shared_service_rate_is_asked_for_at_each_link() {
    let mut rig = Rig::new();
    rig.path(&Path { tspec: tspec(B), ..Path::of(session(), 1, 1) });
    let sent = rig.resv(&Resv::wf(guaranteed(20.0 * B, 94.0 * B, 0)));
    let error = one(&sent, MessageType::RESV_ERR).error();
    // The flow fits, but not at the rate for the receiver's delay.
    assert_eq!((error.code, error.value), (ErrorCode::ADMISSION, 1));
    let sent = rig.resv(&Resv::wf(guaranteed(20.0 * B, 90.0 * B, 0)));
    assert_eq!(one(&sent, MessageType::RESV).flows()[0].0, Some(guaranteed(20.0 * B, 90.0 * B, 0)));
    assert_eq!(rig.reserved(2), 900_000);
}

/// RSVPIS-2212-Policing-01, RSVPIS-2212-Policing-03: guaranteed service is policed to its bucket at the entry; behind a
/// router that policed it, and at merge points, the burst of queued packets is allowed for.
#[test]
fn what_queues_did_is_allowed_for_inside() {
    let mut behind = Adspec::START;
    let terms = ErrorTerms { c_tot: 9000, d_tot: 70_000, c_sum: 2500, d_sum: 50_000 };
    behind.guaranteed =
        behind.guaranteed.map(|one| signalbox_rsvp::wire::Guaranteed { terms: Some(terms), ..one });
    let adspec = adspec_object(&behind);
    let of = |n, e_police| Path { e_police, adspec: adspec.clone(), ..Path::of(session(), n, 1) };
    let mut rig = Rig::new();
    rig.path(&of(1, true));
    rig.resv(&Resv::se(guaranteed(10.0 * B, 20.0 * B, 0), &[1]));
    assert_eq!(rig.bursts(2), [3000]);
    rig.path(&of(1, false));
    assert_eq!(rig.bursts(2), [3000 + 2500 + 5000]);
    rig.path(&of(1, true));
    assert_eq!(rig.bursts(2), [3000]);
    rig.path(&of(2, false));
    rig.resv(&Resv::se(guaranteed(10.0 * B, 20.0 * B, 0), &[1, 2]));
    assert_eq!(rig.bursts(2), [3000 + 2500 + 5000]);
    // For controlled load this is a local matter.
    let mut rig = Rig::new();
    rig.path(&of(1, false));
    rig.resv(&Resv::ff(&[(load(10.0 * B), 1)]));
    assert_eq!(rig.bursts(2), [3000]);
}

/// RSVPIS-2210-2.2-04: contents that are longer than any known ones.
#[test]
fn long_adspecs_are_carried_whole() {
    let mut object = adspec_object(&Adspec::START);
    let strange: Vec<u8> = [&[0x4d, 0, 0, 29, 0x99, 0, 0, 28][..], &[7; 112]].concat();
    object.extend_from_slice(&strange);
    let length = u16::try_from(object.len()).unwrap();
    object[..2].copy_from_slice(&length.to_be_bytes());
    object[6..8].copy_from_slice(&(length / 4 - 2).to_be_bytes());
    assert!(object.len() >= 200);
    let here = Session { dest: at(3, 1), ..session() };
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here));
    rig.path(&Path { session: here, adspec: object.clone(), ..Path::new() });
    let events = rig.take_events(1);
    let [RsvpEvent::Path { adspec, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(adspec[..], object);
    let sent = rig.path(&Path { adspec: object, ..Path::new() });
    let sent = sent[0].message().adspec.unwrap().octets().to_vec();
    // Contents of an unknown service: only the break bit is set.
    let mut broken = strange;
    broken[1] = 0x80;
    assert!(sent.ends_with(&broken));
    assert!(RawAdspec::from_octets(&sent).is_some());
    assert!(Objects::at(&sent, 0).all(|object| object.unwrap().kind.class == Class::ADSPEC));
}
