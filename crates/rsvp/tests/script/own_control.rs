//! A program with admission control of its own.

use std::net::IpAddr;

use signalbox_core::node::Route;
use signalbox_core::traffic::ServiceClass;
use signalbox_core::{IfIndex, Time};
use signalbox_resources::refusal::Rule;
use signalbox_resources::{Available, GrantId, GrantRequest, Policing, Refusal};
use signalbox_rsvp::engine::{Admission, Config, Granted, Input, IpReceived, Output, Rsvp};
use signalbox_rsvp::wire::MessageType;

use crate::rig::{B, Path, Resv, Rig, at, load, session};

/// Admission control that counts reservations only.
struct Counted {
    most: usize,
    granted: Vec<GrantId>,
    last: u64,
}

impl Admission for Counted {
    fn request(&mut self, _: Time, former: Option<GrantId>, ask: &GrantRequest) -> Result<Granted, Refusal> {
        let rspec = ask.guaranteed.map(|asked| asked.rspec);
        if let Some(grant) = former {
            return Ok(Granted { grant, rspec });
        }
        if self.granted.len() >= self.most {
            return Err(Refusal { rule: Rule::Default, available: 0 });
        }
        self.last += 1;
        let grant = GrantId(self.last);
        self.granted.push(grant);
        Ok(Granted { grant, rspec })
    }

    fn release(&mut self, grant: GrantId) {
        self.granted.retain(|one| *one != grant);
    }

    fn police(&mut self, _: GrantId, _: Policing) {}

    fn available(&self, _: IfIndex, _: ServiceClass) -> Option<Available> {
        None
    }
}

/// Gives a packet to a node, whose routes leave by eth2, and returns the types of what it sends.
fn give(
    rsvp: &mut Rsvp,
    control: &mut Counted,
    (iif, src, dst): (u32, IpAddr, IpAddr),
    ttl: u8,
    octets: &[u8],
) -> Vec<MessageType> {
    let now = Time::from_secs(10);
    let ifindex = IfIndex(iif);
    let packet = IpReceived { src, dst, ifindex, ttl, tos: 0, router_alert: true, payload: octets };
    rsvp.handle(now, Input::Packet(packet), control);
    let (mut sent, mut lookups) = (Vec::new(), Vec::new());
    loop {
        while let Some(output) = rsvp.poll() {
            match output {
                Output::Send(packet) => sent.push(MessageType(packet.payload[1])),
                Output::RouteLookup { id, .. } => lookups.push(id),
                Output::Reply { .. }
                | Output::MulticastLookup { .. }
                | Output::MulticastRelease { .. }
                | Output::Event { .. } => {}
            }
        }
        let Some(id) = lookups.pop() else { return sent };
        let route =
            Route { ifindex: IfIndex(2), src: at(2, 1), gateway: Some(at(2, 9)), mtu: 1500, local: false };
        rsvp.handle(now, Input::Route { id, result: Ok(route) }, control);
    }
}

/// The engine asks for grants, passes refusals on and gives grants back through the trait alone.
#[test]
fn grants_and_refusals_come_from_the_admission_control_of_the_program() {
    let mut control = Counted { most: 1, granted: Vec::new(), last: 0 };
    let mut config = Config::default();
    config.neighbors.interface.reduction.reliable = false;
    let mut rsvp = Rsvp::new(config, [9; 32]).unwrap();
    rsvp.handle(Time::from_secs(10), Input::Interfaces(&Rig::new().interfaces), &mut control);
    for n in [1, 2] {
        let path = Path::of(session(), n, 1);
        let way = (1, path.sender.src, session().dest);
        assert_eq!(give(&mut rsvp, &mut control, way, 60, &path.octets()), [MessageType::PATH]);
    }
    let below = (2, at(2, 9), at(2, 1));
    let resv = Resv::ff(&[(load(B), 1)]);
    assert_eq!(give(&mut rsvp, &mut control, below, 255, &resv.octets()), [MessageType::RESV]);
    let second = Resv::ff(&[(load(B), 2)]).octets();
    assert_eq!(give(&mut rsvp, &mut control, below, 255, &second), [MessageType::RESV_ERR]);
    assert_eq!((control.granted.len(), rsvp.reservations()), (1, 1));

    assert_eq!(give(&mut rsvp, &mut control, below, 255, &resv.tear_octets()), [MessageType::RESV_TEAR]);
    assert_eq!((control.granted.len(), rsvp.reservations()), (0, 0));
    assert_eq!(give(&mut rsvp, &mut control, below, 255, &second), [MessageType::RESV]);
}
