//! Other implementations as they really are: odd ADSPECs and Tspecs, refresh reduction that is offered and not done.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_rsvp::engine::neighbor::HelloConfig;
use signalbox_rsvp::engine::{Command, Config, FlowRequest, ReserveRequest, RsvpEvent};
use signalbox_rsvp::wire::{
    Adspec, Class, ErrorCode, ErrorFlags, ErrorSpec, HeaderFlags, Hello, ListedId, MessageType, Session,
    Style, Writer, checksum,
};

use crate::capable::shown;
use crate::rig::{B, Path, Resv, Rig, Sent, all, at, compose, kinds, load, one, sender, session, to, tspec};

fn adspec(of: &Adspec) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, MessageType::PATH, HeaderFlags::default(), 0);
    writer.adspec(of);
    writer.finish().unwrap();
    octets.split_off(8)
}

/// General parameters of an ADSPEC, with this bandwidth.
fn general(bandwidth: f32) -> Vec<u8> {
    let mut octets = vec![1, 0, 0, 8, 4, 0, 0, 1, 0, 0, 0, 1, 6, 0, 0, 1];
    octets.extend(bandwidth.to_bits().to_be_bytes());
    octets.extend([8, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 10, 0, 0, 1, 0, 0, 5, 0xdc]);
    octets
}

/// An ADSPEC object of these services.
fn object(services: &[Vec<u8>]) -> Vec<u8> {
    let body = services.concat();
    let (words, length) = (body.len() / 4, body.len() + 8);
    let mut octets = vec![0, 0, 13, 2, 0, 0, 0, 0];
    octets[..2].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    octets[6..8].copy_from_slice(&u16::try_from(words).unwrap().to_be_bytes());
    octets.extend(body);
    octets
}

/// Guaranteed service without parameters, and controlled load.
fn services() -> [Vec<u8>; 2] {
    [vec![2, 0, 0, 0], vec![5, 0, 0, 0]]
}

#[test]
fn an_adspec_may_have_its_services_in_any_order_and_no_limit() {
    let [guaranteed, load_service] = services();
    let object = object(&[general(f32::INFINITY), load_service, guaranteed]);
    let mut rig = Rig::new();
    let sent = rig.path(&Path { adspec: object, ..Path::new() });
    let path = one(&sent, MessageType::PATH);
    let left = path.message().adspec.unwrap().read().unwrap();
    assert!(left.controlled_load.is_some() && left.guaranteed.unwrap().terms.is_some());
    assert_eq!(left.general.bandwidth.value(), 1_250_000.0, "the link's");
    assert_eq!(rig.rsvp.counters().adspecs_mended, 0);
}

#[test]
fn a_bad_part_of_an_adspec_is_lost_and_not_the_path() {
    let [_, load_service] = services();
    let incomplete = vec![2, 0, 0, 2, 133, 0, 0, 1, 0, 0, 0, 9];
    let mut rig = Rig::new();
    let path = Path { adspec: object(&[general(1e6), incomplete, load_service]), ..Path::new() };
    let sent = rig.path(&path);
    let left = one(&sent, MessageType::PATH).message().adspec.unwrap().read().unwrap();
    assert!(left.guaranteed.is_none() && left.controlled_load.is_some());
    // A repetition is a refresh.
    assert_eq!(kinds(&rig.path(&path)), []);
    assert_eq!(rig.rsvp.counters().paths_refreshed, 1);
    // An ADSPEC that is bad as a whole.
    let other = Path { adspec: object(&[services()[1].clone()]), ..Path::of(to("10.9.0.2"), 1, 1) };
    let sent = rig.path(&other);
    assert!(one(&sent, MessageType::PATH).message().adspec.is_none());
    assert_eq!(kinds(&rig.path(&other)), []);
}

/// The sender chooses the length of services that this node does not know: a table of Paths of 60 kB each would take all memory.
#[test]
fn a_long_adspec_is_kept_without_unknown_services() {
    let [guaranteed, load_service] = services();
    let unknown = |words: u16| {
        let length = words.to_be_bytes();
        let mut octets = vec![77, 0, length[0], length[1]];
        octets.resize(4 + usize::from(words) * 4, 9);
        octets
    };
    let services = |words| object(&[general(1e6), guaranteed.clone(), load_service.clone(), unknown(words)]);
    let mut rig = Rig::new();
    // RFC 2210 §3.3: what is short goes on as it is.
    one(&rig.path(&Path { adspec: services(100), ..Path::new() }), MessageType::PATH);
    assert_eq!(rig.rsvp.counters().adspecs_mended, 0);
    let long = Path { adspec: services(15_000), ..Path::of(to("10.9.0.2"), 1, 1) };
    let sent = rig.path(&long);
    let path = one(&sent, MessageType::PATH);
    let left = path.message().adspec.unwrap();
    assert!(left.octets().len() < 200, "{}", left.octets().len());
    let known = left.read().unwrap();
    assert!(known.guaranteed.is_some() && known.controlled_load.is_some());
    assert_eq!((rig.rsvp.counters().adspecs_mended, rig.rsvp.senders()), (1, 2));
    // A repetition is a refresh.
    assert_eq!(kinds(&rig.path(&long)), []);
}

#[test]
fn a_sender_that_says_no_smallest_packet_gets_its_reservation() {
    let mut rig = Rig::new();
    let zero = |octets: Vec<u8>, class: Class, at: usize| {
        let start = octets.windows(2).position(|two| two == [class.0, 2]).unwrap() - 2;
        let mut octets = octets;
        octets[start + at..start + at + 4].fill(0);
        octets[2..4].fill(0);
        let sum = checksum(&octets).to_be_bytes();
        octets[2..4].copy_from_slice(&sum);
        octets
    };
    let path = zero(Path::new().octets(), Class::SENDER_TSPEC, 28);
    let sent = rig.packet(1, sender(1).src, session().dest, 60, &path);
    assert_eq!(
        one(&sent, MessageType::PATH).message().sender_tspec.unwrap().read().unwrap().min_policed(),
        0
    );
    let resv = Resv::ff(&[(load(B), 1)]);
    assert_eq!(kinds(&rig.resv(&resv)), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(rig.reserved(2), 10_000);
}

#[test]
fn a_receiver_may_reserve_where_the_adspec_names_no_service() {
    let here = to("10.0.2.1");
    let bare = Adspec { guaranteed: None, controlled_load: None, ..Adspec::START };
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here));
    rig.path(&Path { adspec: adspec(&bare), ..Path::of(here, 1, 1) });
    let flows = vec![FlowRequest { flowspec: load(B), senders: vec![sender(1)] }];
    let request = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
    let sent = rig.command(1, Command::Reserve(request));
    one(&sent, MessageType::RESV);
    assert!(!rig.take_events(1).iter().any(|event| matches!(event, RsvpEvent::Refused(_))));
}

fn reliable() -> Rig {
    Rig::with_neighbors(Config::default(), "10mbit")
}

fn paths(sent: &[Sent]) -> Vec<bool> {
    all(sent, MessageType::PATH).iter().map(|one| one.message().message_id.is_some()).collect()
}

/// The neighbor offers refresh reduction, acknowledges nothing, and ignores a MESSAGE_ID that it knows.
#[test]
fn a_neighbor_that_never_acknowledges_gets_plain_rsvp() {
    let mut rig = reliable();
    shown(&mut rig, 2, 9);
    let mut sent = rig.path(&Path::new());
    sent.extend(rig.wait(Duration::from_secs(5)));
    assert_eq!(paths(&sent), [true, true, true, false], "three tries, and one as RFC 2205 has it");
    let refreshes = rig.wait(Duration::from_secs(120));
    assert!(paths(&refreshes).len() >= 2 && paths(&refreshes).iter().all(|named| !named));
    // Whatever else goes there goes once.
    let mut sent = rig.path(&Path::of(to("10.9.0.2"), 1, 1));
    sent.extend(rig.path_tear(&Path::of(to("10.9.0.2"), 1, 1)));
    sent.extend(rig.wait(Duration::from_secs(5)));
    sent.retain(|one| one.dst == to("10.9.0.2").dest);
    assert_eq!(paths(&sent), [false]);
    let layer = rig.rsvp.neighbors().counters();
    assert_eq!((layer.neighbors_plain, layer.retransmissions), (1, 2));
    // A neighbor at another interface is not concerned.
    rig.route("10.10.0.0", 16, 3);
    assert_eq!(paths(&rig.path(&Path::of(to("10.10.0.1"), 1, 1))), [true]);
}

#[test]
fn a_neighbor_that_loses_a_message_keeps_its_message_ids() {
    let mut rig = reliable();
    shown(&mut rig, 2, 9);
    let first = rig.path(&Path::new());
    rig.wait(Duration::from_millis(600));
    // It acknowledges another message meanwhile.
    let sent = rig.path(&Path::of(to("10.9.0.2"), 1, 1));
    assert_eq!(paths(&first), [true]);
    let name = one(&sent, MessageType::PATH).message().message_id.unwrap();
    rig.neighborly(2, at(2, 9), &compose(MessageType::ACK, 255, |w| _ = w.ack(&name, false)));
    rig.wait(Duration::from_secs(5));
    assert_eq!(rig.rsvp.neighbors().counters().neighbors_plain, 0);
    assert_eq!(paths(&rig.path(&Path::of(to("10.9.0.3"), 1, 1))), [true]);
}

/// Whoever acknowledges a Path is the next hop: the refreshes go there. A stranger on another link, who read the MESSAGE_ID,
/// could take them away from the next hop, and its NACK would have the Path sent again.
#[test]
fn an_acknowledgment_by_another_link_counts_for_nothing() {
    let mut rig = reliable();
    shown(&mut rig, 2, 9);
    let sent = rig.path(&Path::new());
    let name = one(&sent, MessageType::PATH).message().message_id.unwrap();
    for negative in [false, true] {
        for iif in [1, 3] {
            let ack = compose(MessageType::ACK, 255, |w| _ = w.ack(&name, negative));
            assert_eq!(paths(&rig.neighborly(iif, at(iif, 66), &ack)), [false; 0]);
        }
    }
    assert_eq!(rig.rsvp.neighbors().counters().acks_elsewhere, 4);
    let repeated = rig.wait(Duration::from_secs(5));
    assert_eq!(paths(&repeated), [true, true, false], "it is still not acknowledged");

    // Where hops without RSVP lie between, routes can differ by direction.
    let mut config = Config::default();
    config.neighbors.interface.trust.distant_hops = true;
    let mut rig = Rig::with_neighbors(config, "10mbit");
    let sent = rig.path(&Path::new());
    let name = one(&sent, MessageType::PATH).message().message_id.unwrap();
    rig.neighborly(3, at(3, 66), &compose(MessageType::ACK, 255, |w| _ = w.ack(&name, false)));
    assert_eq!(paths(&rig.wait(Duration::from_secs(5))), [false; 0]);
}

#[test]
fn a_neighbor_that_refuses_message_ids_is_asked_once() {
    let mut rig = reliable();
    assert_eq!(paths(&rig.path(&Path::new())), [true]);
    let refusal = compose(MessageType::PATH_ERR, 255, |w| {
        w.session(&session(), false);
        let error = ErrorSpec {
            node: at(2, 9),
            flags: ErrorFlags::default(),
            code: ErrorCode::UNKNOWN_CLASS,
            value: u16::from(Class::MESSAGE_ID.0) << 8 | 1,
        };
        w.error_spec(&error).sender_template(&sender(1)).sender_tspec(&tspec(B));
    });
    assert_eq!(paths(&rig.neighborly(2, at(2, 9), &refusal)), [false]);
    let mut sent = rig.path(&Path::of(to("10.9.0.2"), 1, 1));
    sent.extend(rig.wait(Duration::from_secs(5)));
    sent.retain(|one| one.dst == to("10.9.0.2").dest);
    assert_eq!(paths(&sent), [false]);
}

/// An Srefresh with unknown MESSAGE_IDs of a stranger: 61 kB caused 190 kB to a forged source.
#[test]
fn unknown_message_ids_of_strangers_cause_no_more_octets_than_came() {
    let mut rig = reliable();
    let ids: Vec<ListedId> = (0..15_000).map(|id| ListedId { id, source: None, group: None }).collect();
    let octets = compose(MessageType::SREFRESH, 255, |w| _ = w.id_list(7, &ids));
    let stranger: IpAddr = at(1, 66);
    let mut sent = rig.neighborly(1, stranger, &octets);
    sent.extend(rig.wait(Duration::from_secs(1)));
    let left: usize = sent.iter().map(|one| one.octets.len() + 20).sum();
    assert!(!sent.is_empty() && left * 2 <= (octets.len() + 20) * 3, "{left} of {}", octets.len());
    assert!(rig.rsvp.neighbors().counters().nacks_limited > 0);
}

/// State of a lost neighbor is sent again in parts.
#[test]
fn what_a_lost_neighbor_had_is_sent_in_parts() {
    let mut config = Config::default();
    let hello = HelloConfig { interval: Duration::from_secs(1), ..HelloConfig::default() };
    config.neighbors.interface.hello = Some(hello);
    let mut rig = Rig::with_neighbors(config, "10mbit");
    for port in 1..=1000 {
        let sent = rig.path(&Path { session: Session { port, ..session() }, ..Path::new() });
        let name = one(&sent, MessageType::PATH).message().message_id.unwrap();
        rig.neighborly(2, at(2, 9), &compose(MessageType::ACK, 255, |w| _ = w.ack(&name, false)));
    }
    let say = |rig: &mut Rig, src_instance: u32| {
        let hello = Hello { ack: false, src_instance, dst_instance: 0 };
        let octets = compose(MessageType::HELLO, 1, |w| _ = w.hello(&hello));
        rig.packet(2, at(2, 9), at(2, 1), 1, &octets)
    };
    say(&mut rig, 5);
    let sent = say(&mut rig, 6);
    assert!(paths(&sent).len() <= 64, "{}", paths(&sent).len());
    let sent = rig.wait(Duration::from_millis(50));
    assert!((64..=400).contains(&paths(&sent).len()), "{}", paths(&sent).len());
    let sent = rig.wait(Duration::from_millis(300));
    assert!(paths(&sent).len() >= 600);
}
