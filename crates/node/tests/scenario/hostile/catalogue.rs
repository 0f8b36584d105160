//! One packet of each type of message, as a neighbor of the router would send it.

use core::net::IpAddr;

use signalbox_gist::wire as gist;
use signalbox_natfw::wire as natfw;
use signalbox_qos::wire as qos;
use signalbox_rsvp::wire as rsvp;
use signalbox_sim::{LinkId, Packet};

use super::net::{ICMP, Net, RSVP, SECOND, from_elsewhere, silent, tspec, with_checksum};
use crate::cost::meter;

/// A packet to the router.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) packet: Packet,
    pub(crate) link: LinkId,
}

/// The name of the message in a packet.
pub(crate) fn name(packet: &Packet) -> String {
    match packet.protocol {
        17 if packet.dst.port() == 270 => meter::gist(&packet.payload),
        17 => meter::casp_message(&packet.payload),
        RSVP => meter::rsvp_message(&packet.payload),
        ICMP => meter::boomerang_message(&packet.payload),
        other => format!("protocol {other}"),
    }
}

/// The largest and the smallest packet of each type that the router receives in the lives of some sessions, and
/// composed messages of the other types.
pub(crate) fn all() -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for (reduction, always) in [(false, false), (true, false), (false, true)] {
        let mut config = silent(reduction);
        crate::net::gist(&mut config).associations.always = always;
        let mut net = Net::new(1, &config);
        for one in net.lives() {
            if [17, RSVP, ICMP].contains(&one.packet.protocol) {
                let (packet, link) = (one.packet, one.link);
                samples.push(Sample { name: name(&packet), packet, link });
            }
        }
        samples.extend(notifications(&samples));
        if !always {
            samples.extend(composed(&net, &samples));
        }
    }
    samples.sort_by_key(|sample| (sample.name.clone(), sample.link, sample.packet.size()));
    let mut kept: Vec<Sample> = Vec::new();
    for (at, sample) in samples.iter().enumerate() {
        let same = |other: Option<&Sample>| {
            other.is_some_and(|other| (&other.name, other.link) == (&sample.name, sample.link))
        };
        if !(at > 0 && same(samples.get(at - 1)) && same(samples.get(at + 1))) {
            kept.push(sample.clone());
        }
    }
    kept
}

/// A RESERVE and a CREATE as NOTIFYs: GIST handles them in the same way.
pub(crate) fn notifications(samples: &[Sample]) -> Vec<Sample> {
    let qos = notification(samples, "QoS RESERVE", "GIST Data, QoS NOTIFY", qos::MessageType::NOTIFY.0);
    let natfw = natfw::MessageType::NOTIFY.0;
    qos.into_iter().chain(notification(samples, "NATFW CREATE", "GIST Data, NATFW NOTIFY", natfw)).collect()
}

/// The first message of a kind with the type of another.
fn notification(samples: &[Sample], like: &str, name: &str, kind: u8) -> Option<Sample> {
    let mut alike = samples.iter().filter(|sample| sample.name.ends_with(like));
    alike.find_map(|sample| {
        let mut packet = sample.packet.clone();
        let octets = packet.payload.strip_prefix(&gist::MAGIC)?;
        let message = gist::Message::parse(octets, gist::Encapsulation::Normal).ok()?;
        let data = message.nslp_data?;
        let at = packet.payload.windows(data.len()).position(|window| window == data)?;
        packet.payload[at] = kind;
        Some(Sample { name: name.to_owned(), packet, link: sample.link })
    })
}

/// A packet like another one with other octets.
fn with(sample: &Sample, payload: Vec<u8>) -> Packet {
    with_checksum(Packet { options: Vec::new(), payload, ..sample.packet.clone() })
}

/// Messages that the lives do not contain.
fn composed(net: &Net, samples: &[Sample]) -> Vec<Sample> {
    let sample = |name: &str| samples.iter().find(|sample| sample.name == name).unwrap();
    let (path, resv, data) = (sample("RSVP Path"), sample("RSVP Resv"), sample("GIST Data"));
    let mut all = vec![("GIST Error", data, gist_error(data))];
    for (name, sample, kind) in [
        ("RSVP PathErr", resv, rsvp::MessageType::PATH_ERR),
        ("RSVP ResvErr", path, rsvp::MessageType::RESV_ERR),
        ("RSVP ResvConf", path, rsvp::MessageType::RESV_CONF),
        ("RSVP Hello", path, rsvp::MessageType::HELLO),
        ("RSVP Srefresh", path, rsvp::MessageType::SREFRESH),
        ("RSVP Ack", path, rsvp::MessageType::ACK),
        ("RSVP Challenge", path, rsvp::MessageType::INTEGRITY_CHALLENGE),
        ("RSVP DREQ", path, rsvp::MessageType::DREQ),
        ("RSVP DREP", resv, rsvp::MessageType::DREP),
    ] {
        all.push((name, sample, rsvp_message(net, sample, kind)));
    }
    let router = net.address(net.router);
    let made = all.into_iter().map(|(name, sample, payload)| {
        let mut packet = with(sample, payload);
        packet.dst.set_ip(router);
        Sample { name: name.to_owned(), packet, link: sample.link }
    });
    made.collect()
}

/// The Error with which a node without state answers Data, as if that came from its neighbor.
pub(super) fn gist_error(data: &Sample) -> Vec<u8> {
    let mut net = Net::new(1, &silent(false));
    let router = net.router;
    net.sim.inject(data.link, router, data.packet.clone());
    net.sim.run_for(SECOND);
    let error = net.sent_by(router).next().unwrap();
    from_elsewhere(&Packet { src: error.packet.src, ..error.packet.clone() }, data.packet.src.ip()).payload
}

/// Composes a message of RSVP about the session of the lives.
pub(crate) fn rsvp_message(net: &Net, like: &Sample, kind: rsvp::MessageType) -> Vec<u8> {
    use rsvp::MessageType as Type;
    let ttl = like.packet.ttl;
    let src: IpAddr = like.packet.src.ip();
    let (session, sender, tspec) = (net.session(7003), net.template(), tspec());
    let id = rsvp::MessageId { ack_desired: true, epoch: 7, id: 1 };
    let error = rsvp::ErrorSpec {
        node: src,
        flags: rsvp::ErrorFlags::default(),
        code: rsvp::ErrorCode::ADMISSION,
        value: 2,
    };
    let flow = rsvp::FlowSpec { tspec, rspec: None };
    let mut octets = Vec::new();
    let mut w = rsvp::Writer::new(&mut octets, kind, rsvp::HeaderFlags::default(), ttl);
    match kind {
        Type::PATH_ERR => {
            w.session(&session, false).error_spec(&error).sender_template(&sender).sender_tspec(&tspec);
        }
        Type::RESV_ERR => {
            w.session(&session, false).hop(&rsvp::RsvpHop { addr: src, lih: 1 }).error_spec(&error);
            w.style(rsvp::Style::Ff).flowspec(&flow).filter_spec(&sender);
        }
        Type::RESV_CONF => {
            w.session(&session, false).error_spec(&error).resv_confirm(session.dest);
            w.style(rsvp::Style::Ff).flowspec(&flow).filter_spec(&sender);
        }
        Type::HELLO => {
            w.hello(&rsvp::Hello { ack: false, src_instance: 5, dst_instance: 0 });
        }
        Type::SREFRESH => {
            let ids: Vec<_> = (0..300).map(|id| rsvp::ListedId { id, source: None, group: None }).collect();
            w.message_id(&id).id_list(7, &ids);
        }
        Type::ACK => {
            w.ack(&id, false);
        }
        Type::INTEGRITY_CHALLENGE => {
            w.challenge(&rsvp::Challenge { key_id: 1, cookie: 2 });
        }
        Type::DREQ | Type::DREP => {
            let asked = rsvp::Diagnostic {
                max_hops: 0,
                hops: 0,
                more: false,
                request_id: 9,
                path_mtu: 1500,
                offset: 0,
                last_hop: net.address(net.router),
                sender,
                requester: (src, 40_000).into(),
            };
            w.session(&session, false).hop(&rsvp::RsvpHop { addr: src, lih: 0 }).diagnostic(&asked);
        }
        _ => panic!("{kind:?} is recorded"),
    }
    w.finish_without_checksum().unwrap();
    octets
}
