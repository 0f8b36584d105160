//! ADSPECs on their way: one for each interface, a hop further (RFC 2205 §2.1, §2.9, §3.1.3; PATH REFRESH of RFC 2209).

use std::time::Duration;

use signalbox_resources::intserv;
use signalbox_rsvp::engine::{Config, Input, InterfaceConfig};
use signalbox_rsvp::wire::{Adspec, HEADER_OCTETS, MessageType, RsvpHop};

use crate::rig::{Path, Rig, Sent, addr, all, at, compose, group, handle, kinds, one, sender};

/// A whole ADSPEC object of a path of so many hops.
fn adspec(hops: u8) -> Vec<u8> {
    let general = intserv::Path { hops, ..intserv::Path::START };
    let octets = compose(MessageType::PATH, 1, |w| {
        w.adspec(&Adspec { general, ..Adspec::START });
    });
    octets[HEADER_OCTETS..].to_vec()
}

fn general(sent: &Sent) -> intserv::Path {
    sent.message().adspec.unwrap().read().unwrap().general
}

fn path(hops: u8) -> Path {
    Path { adspec: adspec(hops), ..Path::of(group(), 1, 1) }
}

fn tree(mut rig: Rig) -> Rig {
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    rig
}

/// RSVP-2.1-04, RSVP-3.1.3-11: the ADSPEC is advanced for each interface by what admission control offers there; the
/// stored one does not change.
#[test]
fn each_interface_has_an_adspec_of_its_own() {
    let mut rig = tree(Rig::new());
    rig.interfaces[3].mtu = 900;
    let list = rig.interfaces.clone();
    rig.resources.interfaces(&list);
    rig.input(Input::Interfaces(&list));
    let sent = rig.path(&path(3));
    let mtus: Vec<_> = sent.iter().map(|one| (one.oif, general(one).mtu, general(one).hops)).collect();
    assert_eq!(mtus, [(3, 1500, 4), (4, 900, 4)]);
    assert!(sent.iter().all(|one| !general(one).broken));
    // A refresh adds no hop.
    let sent = rig.wait(Duration::from_secs(100));
    assert!(sent.len() >= 4 && sent.iter().all(|one| general(one).hops == 4));
    // A Path without an ADSPEC leaves without one.
    let sent = rig.path(&Path { session: crate::rig::session(), ..Path::new() });
    assert!(one(&sent, MessageType::PATH).message().adspec.is_none());
}

/// RSVP-2.9-03: hops without RSVP before this node set the global break bit.
#[test]
fn hops_without_rsvp_are_marked() {
    let mut rig = tree(Rig::distant());
    for (lih, ttl, broken) in [(1, 60, false), (2, 57, true), (3, 60, false)] {
        let hop = RsvpHop { addr: at(1, 9), lih };
        let sent = rig.path(&Path { ttl, send_ttl: 60, hop, ..path(1) });
        assert_eq!(all(&sent, MessageType::PATH).len(), 2);
        assert!(sent.iter().all(|one| general(one).broken == broken));
        let refreshed = rig.wait(Duration::from_secs(45));
        assert!(!refreshed.is_empty() && refreshed.iter().all(|one| general(one).broken == broken));
        let view: Vec<_> = rig.rsvp.view().collect();
        assert_eq!(view[0].senders[0].non_rsvp_hop, broken);
    }
    // An interface where TTLs do not show hops without RSVP.
    let mut config = Config::default();
    let behind = InterfaceConfig { non_rsvp: Some(true), ..InterfaceConfig::default() };
    config.interfaces.insert("eth1".to_owned(), behind);
    let sent = tree(Rig::with(config)).path(&path(1));
    assert!(sent.len() == 2 && sent.iter().all(|one| general(one).broken));
}

/// RSVP-2209-PATH-06: a change of the ADSPEC alone leaves with the next refresh.
#[test]
fn an_adspec_that_changes_waits_for_the_refresh() {
    let mut rig = tree(Rig::new());
    rig.path(&path(3));
    assert_eq!(kinds(&rig.path(&path(5))), []);
    let sent = rig.wait(Duration::from_secs(45));
    let paths = all(&sent, MessageType::PATH);
    assert!([3, 4].iter().all(|oif| paths.iter().any(|one| one.oif == *oif)));
    assert!(paths.iter().all(|one| general(one).hops == 6));
}

/// RSVP-2209-PREF-02: each copy has the policing flag, services and hop address of its interface.
#[test]
fn each_copy_is_made_for_its_interface() {
    // Without resources at eth4 nothing is policed there.
    let links = signalbox_resources::Config::of_link("eth3", "10mbit".parse().unwrap());
    let mut rig = tree(Rig::with_resources(links));
    for e_police in [true, false] {
        let tspec = crate::rig::tspec(if e_police { 1000.0 } else { 2000.0 });
        let sent = rig.path(&Path { e_police, tspec, ..path(3) });
        let [third, fourth] = &sent[..] else { panic!("{:?}", kinds(&sent)) };
        for (one, n) in [(third, 3), (fourth, 4)] {
            assert_eq!((one.oif, one.message().hop), (n, Some(RsvpHop { addr: at(n, 1), lih: handle(n) })));
            assert_eq!((one.src, one.dst, one.ttl), (sender(1).src, group().dest, 59));
        }
        assert_eq!((third.message().e_police, fourth.message().e_police), (false, e_police));
        assert_eq!((general(third).hops, general(third).broken), (4, false));
        assert_eq!((general(fourth).hops, general(fourth).broken), (3, true));
    }
    assert_eq!(addr("239.1.1.1"), group().dest);
}

/// RSVP-B-18: a Path with a bad ADSPEC goes on without the bad part, and no PathErr with 21/5 returns: a deviation, which
/// docs/conformance.md lists.
#[test]
fn a_bad_adspec_is_no_error() {
    let mut octets = adspec(3);
    // Object, message and service have a header each, then come two parameters of two words; the second one is the bandwidth.
    octets[24..28].copy_from_slice(&f32::NAN.to_bits().to_be_bytes());
    let mut rig = Rig::new();
    let sent = rig.path(&Path { adspec: octets, ..Path::new() });
    assert_eq!(sent.len(), 1, "{:?}", kinds(&sent));
    let path = one(&sent, MessageType::PATH);
    let left = path.message().adspec;
    assert!(left.is_none_or(|adspec| adspec.read().is_ok()), "{left:?}");
}
