//! Each type of error in a circle of previous hops: it comes to rest, wherever it is sent from.

use core::net::IpAddr;

use signalbox_gist::wire::{self as gist, Encapsulation, GistError, MAGIC, MessageType, ObjectType};
use signalbox_node::rsvp::{
    self as user, Filter, FlowRequest, FlowSpec, Selector, SenderRequest, Session, SessionKind, Style,
};
use signalbox_node::{Command, Config};
use signalbox_qos::wire as qos;
use signalbox_rsvp::wire as rsvp;
use signalbox_sim::{Captured, Packet};

use super::catalogue;
use super::circle::{ROUND, Ring};
use super::net::{MS, RSVP, SECOND, config, tspec, with_checksum};

/// The most packets that one error of each neighbor may cause on the links of the circle: each may go round until its
/// hop count is used up.
const MOST: usize = 6 * 64;
/// The most packets in the half minute after that, of all sessions.
const LATER: usize = 150;

/// The last packets that each router received from each of its neighbors in the circle and that fit.
fn last(ring: &Ring, fits: impl Fn(&Packet) -> bool) -> Vec<Captured> {
    let mut found: Vec<Captured> = Vec::new();
    for one in ring.sim.captured().filter(|one| ring.links.contains(&one.link) && fits(&one.packet)) {
        found.retain(|old| (old.from, old.to) != (one.from, one.to));
        found.push(one.clone());
    }
    found
}

/// The packets on the links of the circle.
fn passed(ring: &Ring) -> usize {
    ring.sim.captured().filter(|one| ring.links.contains(&one.link)).count()
}

fn message(packet: &Packet) -> Option<gist::Message<'_>> {
    let octets = packet.payload.strip_prefix(&MAGIC)?;
    gist::Message::parse(octets, Encapsulation::Normal).ok()
}

/// Whether it is Data of the session in the circle.
fn is_data(packet: &Packet, receiver: IpAddr) -> bool {
    message(packet).is_some_and(|message| {
        let data = message.header.kind == MessageType::DATA && message.nslp_data.is_some();
        data && message.mri.is_some_and(|object| object.mri.dst() == receiver)
    })
}

/// Runs a circle whose session stood before, with `forge` after a minute, and counts what passes because of it.
fn disturbed(
    config: &Config,
    begin: impl Fn(&mut Ring),
    forge: impl Fn(&Ring) -> Vec<(Captured, Packet)>,
) -> (usize, usize) {
    let run = |forge: &dyn Fn(&Ring) -> Vec<(Captured, Packet)>| {
        let mut ring = Ring::new(7, config, 250 * MS);
        begin(&mut ring);
        ring.sim.run_for(10 * SECOND);
        ring.close();
        ring.sim.run_for(60 * SECOND);
        let before = passed(&ring);
        let forged = forge(&ring);
        for (like, packet) in &forged {
            ring.sim.inject(like.link, like.to, packet.clone());
        }
        ring.sim.run_for(60 * SECOND);
        let sent = passed(&ring) - before;
        let then = passed(&ring);
        ring.sim.run_for(30 * SECOND);
        (forged.len(), sent, passed(&ring) - then)
    };
    let (_, quiet, _) = run(&|_| Vec::new());
    let (number, sent, later) = run(&forge);
    assert!(number > 0, "no message to answer");
    (sent.saturating_sub(quiet), later)
}

/// Data with another payload.
fn with_data(like: &Packet, data: &[u8]) -> Packet {
    let mut packet = like.clone();
    let old = message(like).unwrap().nslp_data.unwrap();
    let length = packet.payload.len() - old.len() - 4;
    packet.payload.truncate(length);
    let words = u16::try_from(data.len() / 4).unwrap();
    packet.payload.extend_from_slice(&ObjectType::NSLP_DATA.0.to_be_bytes());
    packet.payload.extend_from_slice(&words.to_be_bytes());
    packet.payload.extend_from_slice(data);
    let words = u16::try_from((packet.payload.len() - MAGIC.len() - 8) / 4).unwrap();
    packet.payload[6..8].copy_from_slice(&words.to_be_bytes());
    packet
}

/// A NOTIFY with this information, or a RESPONSE to the RESERVE with this RSN.
fn qos_error(info: qos::Info, rsn: Option<qos::Rsn>) -> Vec<u8> {
    let kind = if rsn.is_some() { qos::MessageType::RESPONSE } else { qos::MessageType::NOTIFY };
    let mut octets = vec![kind.0, 0, 0, 0];
    if let Some(rsn) = rsn {
        octets.extend_from_slice(&qos::ObjectType::RSN.0.to_be_bytes());
        octets.extend_from_slice(&2_u16.to_be_bytes());
        octets.extend_from_slice(&rsn.number.to_be_bytes());
        octets.extend_from_slice(&rsn.epoch.to_be_bytes());
    }
    octets.extend_from_slice(&qos::ObjectType::INFO_SPEC.0.to_be_bytes());
    octets.extend_from_slice(&[0, 1, 0, info.code, info.class.0 << 4, 0]);
    octets
}

/// The RSN of the last RESERVE that a node sent to a neighbor.
fn rsn(ring: &Ring, of: &Captured, receiver: IpAddr) -> Option<qos::Rsn> {
    let sent = ring.sim.captured().filter(|one| (one.from, one.to) == (of.to, of.from));
    let data = sent.filter(|one| is_data(&one.packet, receiver));
    data.filter_map(|one| qos::Message::parse(message(&one.packet)?.nslp_data?).ok()?.rsn).last()
}

fn begin_qos(ring: &mut Ring) {
    ring.reserve(ring.receiver, ROUND, false);
}

/// Every code of an INFO-SPEC, in NOTIFYs and in RESPONSEs to the last RESERVE, from every neighbor.
#[test]
fn errors_of_the_qos_nslp_in_a_circle_come_to_rest() {
    for info in qos::Info::CATALOGUE {
        for response in [false, true] {
            let forge = |ring: &Ring| {
                let receiver = ring.address(ring.receiver);
                let all = last(ring, |packet| is_data(packet, receiver));
                let forged = all.into_iter().filter_map(|like| {
                    let rsn = if response { Some(rsn(ring, &like, receiver)?) } else { None };
                    let packet = with_data(&like.packet, &qos_error(*info, rsn));
                    Some((like, packet))
                });
                forged.collect()
            };
            let (sent, later) = disturbed(&config(), begin_qos, forge);
            assert!(sent <= MOST && later <= LATER, "{info}, response {response}: {sent}, then {later}");
        }
    }
}

/// How an Error object begins (RFC 5971 A.4.1).
fn octets(error: GistError) -> [u8; 4] {
    let [high, low] = error.code.0.to_be_bytes();
    [error.class.0, high, low, error.subcode]
}

/// Puts octets in the place of the last ones that are like these.
fn replace(octets: &mut [u8], old: &[u8], new: &[u8]) {
    let at = octets.windows(old.len()).rposition(|some| some == old).unwrap();
    octets[at..at + old.len()].copy_from_slice(new);
}

/// Every error of GIST, from every neighbor.
#[test]
fn errors_of_gist_in_a_circle_come_to_rest() {
    let samples = catalogue::all();
    let reserve = samples.iter().find(|sample| sample.name == "GIST Data, QoS RESERVE").unwrap();
    let sample = catalogue::gist_error(reserve);
    for error in GistError::CATALOGUE {
        let forge = |ring: &Ring| {
            let receiver = ring.address(ring.receiver);
            let all = last(ring, |packet| is_data(packet, receiver));
            let forged = all.into_iter().filter_map(|like| {
                // The answer to what the router sent to this neighbor.
                let mut to = ring.sim.captured().filter(|one| (one.from, one.to) == (like.to, like.from));
                let caused = to.find(|one| is_data(&one.packet, receiver))?;
                let caused = message(&caused.packet).unwrap();
                let mut payload = sample.clone();
                let whole = gist::Message::parse(&sample[MAGIC.len()..], Encapsulation::Normal);
                let known = whole.unwrap().error.unwrap();
                replace(&mut payload, &octets(known.error), &octets(*error));
                replace(&mut payload, &known.session.unwrap().0, &caused.session.unwrap().0);
                replace(&mut payload, known.mri_octets.unwrap(), caused.mri.unwrap().octets);
                Some((like.clone(), Packet { payload, ..like.packet.clone() }))
            });
            forged.collect()
        };
        let (sent, later) = disturbed(&config(), begin_qos, forge);
        assert!(sent <= MOST && later <= LATER, "{error:?}: {sent}, then {later}");
    }
}

fn begin_rsvp(ring: &mut Ring) {
    let [sender, receiver] = [ring.sender, ring.receiver];
    let dest = ring.address(receiver);
    let session = Session { dest, protocol: 17, kind: SessionKind::Ports, port: ROUND };
    let template = Filter { src: ring.address(sender), selector: Selector::Port(4000) };
    let request = SenderRequest::new(template, tspec());
    let flowspec = FlowSpec { tspec: tspec(), rspec: None };
    let flows = vec![FlowRequest { flowspec, senders: vec![template] }];
    let reserve = user::ReserveRequest { style: Style::Ff, flows, confirm: true, policy: Box::default() };
    for (node, command) in [
        (sender, user::Command::Session(session)),
        (sender, user::Command::Sender(request)),
        (receiver, user::Command::Session(session)),
        (receiver, user::Command::Reserve(reserve)),
    ] {
        ring.sim.command(node, Command::Rsvp { id: ROUND.into(), command });
    }
}

/// Every code, in PathErrs and ResvErrs, from every neighbor, with and without refresh reduction.
#[test]
fn errors_of_rsvp_in_a_circle_come_to_rest() {
    for reduction in [false, true] {
        let mut config = config();
        config.rsvp.as_mut().unwrap().neighbors.interface.reduction.reliable = reduction;
        for code in 1..=25 {
            for kind in [rsvp::MessageType::PATH_ERR, rsvp::MessageType::RESV_ERR] {
                let forge = |ring: &Ring| forged_rsvp(ring, kind, rsvp::ErrorCode(code));
                let (sent, later) = disturbed(&config, begin_rsvp, forge);
                assert!(sent <= MOST && later <= LATER, "{kind:?} {code}, {reduction}: {sent}, then {later}");
            }
        }
    }
}

fn forged_rsvp(ring: &Ring, kind: rsvp::MessageType, code: rsvp::ErrorCode) -> Vec<(Captured, Packet)> {
    let session =
        Session { dest: ring.address(ring.receiver), protocol: 17, kind: SessionKind::Ports, port: ROUND };
    let sender = Filter { src: ring.address(ring.sender), selector: Selector::Port(4000) };
    let both = last(ring, |packet| packet.protocol == RSVP);
    let forged = both.into_iter().map(|like| {
        // Between neighbors.
        let link = like.link;
        let [src, dst] =
            [like.from, like.to].map(|node| ring.sim.address_on(node, link, signalbox_sim::Family::V4));
        let error = rsvp::ErrorSpec { node: src, flags: rsvp::ErrorFlags::default(), code, value: 0 };
        let mut payload = Vec::new();
        let mut w = rsvp::Writer::new(&mut payload, kind, rsvp::HeaderFlags::default(), 255);
        if kind == rsvp::MessageType::PATH_ERR {
            w.session(&session, false).error_spec(&error).sender_template(&sender).sender_tspec(&tspec());
        } else {
            w.session(&session, false).hop(&rsvp::RsvpHop { addr: src, lih: 1 }).error_spec(&error);
            w.style(Style::Ff).flowspec(&FlowSpec { tspec: tspec(), rspec: None }).filter_spec(&sender);
        }
        w.finish_without_checksum().unwrap();
        let mut packet = Packet { payload, ttl: 255, options: Vec::new(), ..like.packet.clone() };
        packet.src.set_ip(src);
        packet.dst.set_ip(dst);
        (like, with_checksum(packet))
    });
    forged.collect()
}
