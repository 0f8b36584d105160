//! Policing flags for traffic control, and hops without RSVP (RFC 2205 §3.8).

use signalbox_core::IfIndex;
use signalbox_resources::{Config as Links, Policing};
use signalbox_rsvp::engine::Config;
use signalbox_rsvp::wire::{Adspec, FlowSpec, HeaderFlags, MessageType, RsvpHop, Writer};

use crate::rig::{B, Path, Resv, Rig, at, group, load, one, sender, session, tspec};

const NONE: Policing = Policing { entry: false, merge: false, branch: false };

/// Senders 1 and 2 come by eth1 and go out by eth3 and eth4.
fn tree() -> Rig {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
        rig.path(&Path::of(group(), n, 1));
    }
    rig
}

/// The flags of the reservation at interface `n`.
fn flags(rig: &Rig, n: u32) -> Policing {
    let mut here = rig.resources.reservations().filter(|one| one.ifindex == IfIndex(n));
    let found = here.next().unwrap().policing;
    assert!(here.next().is_none());
    found
}

/// RSVP-3.8-01, RSVP-3.8-02, RSVP-A.1-04: the first node with traffic control polices at the entry, and clears E_Police
/// for the next.
#[test]
fn entry_is_policed_once() {
    for (policed_before, entry) in [(false, true), (true, false)] {
        let mut rig = Rig::new();
        let sent = rig.path(&Path { e_police: !policed_before, ..Path::new() });
        assert!(!one(&sent, MessageType::PATH).message().e_police);
        rig.resv(&Resv::ff(&[(load(B), 1)]));
        assert_eq!(flags(&rig, 2), Policing { entry, ..NONE });
        // The flag changes with the next refresh.
        rig.path(&Path { e_police: policed_before, ..Path::new() });
        assert_eq!(flags(&rig, 2), Policing { entry: !entry, ..NONE });
        // And with a Path from another previous hop, where the data leave the router that has policed them.
        rig.path(&Path {
            e_police: !policed_before,
            hop: RsvpHop { addr: at(4, 9), lih: 5 },
            iif: 4,
            ..Path::new()
        });
        assert_eq!(flags(&rig, 2), Policing { entry, ..NONE });
    }
    // Without traffic control at the interface the next node has to police.
    let mut rig = Rig::with_resources(Links::of_link("eth3", "10mbit".parse().unwrap()));
    for e_police in [true, false] {
        let path = Path { e_police, tspec: tspec(if e_police { B } else { 2.0 * B }), ..Path::new() };
        assert_eq!(one(&rig.path(&path), MessageType::PATH).message().e_police, e_police);
    }
}

/// RSVP-3.8-01, RSVP-3.8-03: where a shared reservation has several senders.
#[test]
fn merged_senders_are_policed() {
    let merge = Policing { merge: true, ..NONE };
    let mut rig = tree();
    rig.resv(&Resv::se(load(B), &[1]).from(3, 9, group()));
    assert_eq!(flags(&rig, 3), NONE);
    rig.resv(&Resv::se(load(B), &[2]).from(3, 8, group()));
    assert_eq!(flags(&rig, 3), merge);
    rig.resv_tear(&Resv::se(load(B), &[2]).from(3, 8, group()));
    assert_eq!(flags(&rig, 3), NONE);

    let mut rig = tree();
    rig.resv(&Resv::wf(load(B)).from(3, 9, group()));
    assert_eq!(flags(&rig, 3), merge);
    rig.path_tear(&Path::of(group(), 2, 1));
    assert_eq!(flags(&rig, 3), NONE);
    rig.path(&Path::of(group(), 2, 1));
    assert_eq!(flags(&rig, 3), merge);

    let mut rig = tree();
    rig.resv(&Resv::ff(&[(load(B), 1), (load(B), 2)]).from(3, 9, group()));
    assert!(rig.resources.reservations().all(|one| one.policing == NONE));
}

/// RSVP-3.8-01, RSVP-3.8-04: where another branch of the same flow has a larger or incomparable reservation.
#[test]
fn a_branch_that_gets_more_than_it_reserves_is_policed() {
    let branch = Policing { branch: true, ..NONE };
    let ff = |n, flowspec| Resv::ff(&[(flowspec, 1)]).from(n, 9, group());
    let mut rig = tree();
    rig.resv(&ff(3, load(4.0 * B)));
    assert_eq!(flags(&rig, 3), NONE);
    rig.resv(&ff(4, load(3.0 * B)));
    assert_eq!((flags(&rig, 3), flags(&rig, 4)), (NONE, branch));
    rig.resv(&ff(4, load(5.0 * B)));
    assert_eq!((flags(&rig, 3), flags(&rig, 4)), (branch, NONE));
    rig.resv_tear(&ff(4, load(5.0 * B)));
    assert_eq!(flags(&rig, 3), NONE);
    // The flowspecs are incomparable: one has the larger rate, the other the larger bucket.
    let deep = signalbox_resources::intserv::TSpec::new(B, 9000.0, f32::INFINITY, 64, 1500).unwrap();
    rig.resv(&ff(4, FlowSpec { tspec: deep, rspec: None }));
    assert_eq!((flags(&rig, 3), flags(&rig, 4)), (branch, branch));

    // A reservation for another sender does not count, a shared one does.
    let se = |n, rate, senders: &[u32]| Resv::se(load(rate), senders).from(n, 9, group());
    let mut rig = tree();
    rig.resv(&se(3, 4.0 * B, &[1]));
    rig.resv(&se(4, 3.0 * B, &[2]));
    assert_eq!((flags(&rig, 3), flags(&rig, 4)), (NONE, NONE));
    rig.resv(&se(4, 3.0 * B, &[1, 2]));
    assert_eq!(flags(&rig, 4), Policing { merge: true, branch: true, ..NONE });
}

fn fresh_adspec() -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, MessageType::PATH, HeaderFlags::default(), 0);
    writer.adspec(&Adspec::START);
    writer.finish().unwrap();
    octets.split_off(8)
}

/// Whether a Path shows a hop without RSVP, to operators and to receivers.
fn broken(config: Config, ttl: u8) -> bool {
    let mut rig = Rig::with(config);
    let sent = rig.path(&Path { adspec: fresh_adspec(), ttl, send_ttl: 60, ..Path::new() });
    let path = one(&sent, MessageType::PATH);
    let broken = path.message().adspec.unwrap().read().unwrap().general.broken;
    let view = rig.rsvp.view().find(|one| one.session == session()).unwrap();
    assert_eq!(view.senders[0].non_rsvp_hop, broken);
    broken
}

/// RSVP-3.8-05, RSVP-3.11.2-07: by the TTL; RSVP-3.8-06: unless the interface is configured.
#[test]
fn hops_without_rsvp_are_found() {
    let mut distant = Config::default();
    distant.neighbors.interface.trust.distant_hops = true;
    assert!(!broken(Config::default(), 60));
    assert!(broken(distant, 59));
    let known = |non_rsvp| {
        let mut config = Config::default();
        let interface =
            signalbox_rsvp::engine::InterfaceConfig { non_rsvp: Some(non_rsvp), ..config.interface };
        config.interfaces.insert("eth1".to_owned(), interface);
        config
    };
    assert!(broken(known(true), 60));
    assert!(!broken(known(false), 59));
}
