//! Records of what became of reservations.

use signalbox_core::NslpId;
use signalbox_core::service::{Indication, NetworkEvent, SendError};
use signalbox_qos::engine::{Command, Flow, Input, QosEvent, QosRequest, ReserveRequest};
use signalbox_qos::wire::{Hop, Hops, Info, InfoSpec, Message, MessageType, Part, Source};
use signalbox_resources::decision::{End, Outcome, Why};

use crate::reroute::octets_of;
use crate::rig::{BEHIND, Rig, Sent, addr, octets, qspec, reserve};

const FAR: &str = "10.9.9.9";

/// What became of requests, and why.
fn decided(rig: &mut Rig) -> Vec<(Outcome, Why)> {
    std::iter::from_fn(|| rig.resources.next_decision()).map(|one| (one.outcome, one.why)).collect()
}

/// The answer of a node further on to a request: it refuses.
fn refusal(request: &Sent) -> Vec<u8> {
    let source = Source::Address(addr(FAR));
    let info = Some(InfoSpec { source, ..InfoSpec::from(Info::RESERVATION_FAILURE) });
    let message = request.message();
    octets(&Message { info, rii: message.rii, rsn: message.rsn, ..Message::new(MessageType::RESPONSE) })
}

fn refuse(rig: &mut Rig, request: &Sent) -> Vec<Sent> {
    rig.receive_octets(BEHIND, request.mri.inverted(), request.session, &refusal(request))
}

fn beyond() -> Option<std::net::IpAddr> {
    Some(addr(FAR))
}

#[test]
fn a_relay_records_which_node_further_on_refused() {
    let mut rig = Rig::new();
    rig.resources.record_decisions(true);
    let onward = rig.reserved(3, 10_000);
    assert_eq!(refuse(&mut rig, &onward).len(), 1, "it is passed on");
    let ended = Why::End(End::RefusedBeyond(beyond()));
    assert_eq!(decided(&mut rig), [(Outcome::Granted, Why::Allowed), (Outcome::Ended, ended)]);
}

#[test]
fn the_host_of_the_user_records_which_node_refused() {
    let to = Flow { src: Some(addr("192.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    let command = || Command::Reserve(Box::new(ReserveRequest::new(to, QosRequest::rate(10_000))));
    let begun = |rig: &mut Rig| {
        rig.resources.record_decisions(true);
        let [first] = <[Sent; 1]>::try_from(rig.input(Input::Command { id: 1, command: command() })).unwrap();
        rig.sent(&first);
        first
    };
    let mut rig = Rig::new();
    let first = begun(&mut rig);
    refuse(&mut rig, &first);
    let ended = Why::End(End::RefusedBeyond(beyond()));
    assert_eq!(decided(&mut rig), [(Outcome::Granted, Why::Allowed), (Outcome::Ended, ended)]);
    // A user who releases it is no other node.
    let mut rig = Rig::new();
    begun(&mut rig);
    rig.input(Input::Command { id: 1, command: Command::Release });
    let ended = Why::End(End::User);
    assert_eq!(decided(&mut rig), [(Outcome::Granted, Why::Allowed), (Outcome::Ended, ended)]);
}

/// A change that a node further on refuses leaves what stood before, and the next end has its own reason.
#[test]
fn the_reason_is_that_of_one_refusal() {
    let mut rig = Rig::new();
    rig.resources.record_decisions(true);
    let onward = rig.reserved(3, 10_000);
    let confirmed = Message {
        info: Some(Info::RESERVED.into()),
        rii: onward.message().rii,
        ..Message::new(MessageType::RESPONSE)
    };
    rig.back(&confirmed);
    let more = qspec(20_000);
    let [change] =
        <[Sent; 1]>::try_from(rig.receive(&Message { rii: Some(8), ..reserve(4, &more) })).unwrap();
    refuse(&mut rig, &change);
    decided(&mut rig);
    rig.receive(&Message { flags: signalbox_qos::wire::MessageFlags::TEAR, ..reserve(5, &[]) });
    assert_eq!(decided(&mut rig), [(Outcome::Ended, Why::End(End::TornDown))]);
}

/// While the next node is down the host stands alone. When the end of the flow has answered again, the user learns of that, too.
#[test]
fn the_user_learns_that_the_far_end_answers_again() {
    let to = Flow { src: Some(addr("192.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    let command = Command::Reserve(Box::new(ReserveRequest::new(to, QosRequest::rate(10_000))));
    let mut rig = Rig::new();
    let [first] = <[Sent; 1]>::try_from(rig.input(Input::Command { id: 1, command })).unwrap();
    rig.failed(&first, SendError::NoNextNode);
    let told = |rig: &mut Rig| -> Vec<Option<bool>> {
        let events = std::mem::take(&mut rig.events).into_iter();
        let granted = events.filter_map(|event| match event {
            QosEvent::Granted(granted) | QosEvent::Rerouted(granted) => Some(granted.far_end),
            _ => None,
        });
        granted.collect()
    };
    assert_eq!(told(&mut rig), [Some(false)]);
    let nslp = NslpId::QOS;
    let event = NetworkEvent::Good(BEHIND);
    let (mri, session) = (first.mri, first.session);
    let sent = rig.input(Input::Indication(Indication::NetworkNotification { nslp, mri, session, event }));
    let repair = crate::relay::one(sent);
    let end = Hop::new(addr("203.0.113.9"), Part::Rate(0));
    let hops = octets_of(&[end]);
    let granted = Message {
        info: Some(Info::RESERVED.into()),
        rii: repair.message().rii,
        hops: Hops::from_octets(&hops),
        ..Message::new(MessageType::RESPONSE)
    };
    rig.receive_octets(BEHIND, repair.mri.inverted(), repair.session, &octets(&granted));
    assert_eq!(told(&mut rig), [Some(true)]);
}
