//! Pings without a source address: the route to the destination gives it.

use signalbox_core::IfIndex;
use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_ping::engine::{Command, Input, PingEvent, PingRequest, Refusal};

use crate::rig::{DST, Out, Rig, SRC, addr};

const REFUSED: Out = Out::Event(5, PingEvent::Refused(Refusal::IdInUse));

fn request() -> PingRequest {
    PingRequest { protocol: Some(17), dst_port: Some(53), ..PingRequest::to(addr(DST)) }
}

/// Starts a ping that must ask for a route; the identifier of the lookup.
fn lookup(rig: &mut Rig) -> u64 {
    let outputs = rig.start(request());
    let [Out::Lookup(id, query)] = outputs.as_slice() else { panic!("{outputs:?}") };
    let wanted = RouteQuery { protocol: Some(17), dst_port: Some(53), ..RouteQuery::to(addr(DST)) };
    assert_eq!(*query, wanted);
    *id
}

fn answer(rig: &mut Rig, id: u64, found: bool) -> Vec<Out> {
    let route = Route { ifindex: IfIndex(2), src: addr(SRC), gateway: None, mtu: 1500, local: false };
    let result = if found { Ok(route) } else { Err(NoRoute::Unreachable) };
    rig.input(Input::Route { id, result })
}

#[test]
fn the_route_gives_the_source() {
    let mut rig = Rig::new();
    let id = lookup(&mut rig);
    let outputs = answer(&mut rig, id, true);
    let Some(Out::Event(5, PingEvent::Started { mri, .. })) = outputs.first() else { panic!("{outputs:?}") };
    assert_eq!(mri.to_string(), format!("{SRC} > {DST} port 53 proto 17"));
    assert_eq!(answer(&mut rig, id, true), [], "an answer counts once");
}

#[test]
fn without_a_route_it_is_refused() {
    let mut rig = Rig::new();
    let id = lookup(&mut rig);
    let refused = Out::Event(5, PingEvent::Refused(Refusal::NoRoute));
    assert_eq!(answer(&mut rig, id, false), [refused]);
}

#[test]
fn its_identifier_is_in_use_while_it_waits() {
    let mut rig = Rig::new();
    let id = lookup(&mut rig);
    assert_eq!(rig.start(request()), [REFUSED]);
    assert_eq!(rig.start(PingRequest { src: Some(addr(SRC)), ..request() }), [REFUSED]);
    let done = Out::Event(5, PingEvent::Done { sent: 0, received: 0 });
    assert_eq!(rig.input(Input::Command { id: 5, command: Command::Stop }), [done]);
    assert_eq!(answer(&mut rig, id, true), [], "it was stopped");
}
