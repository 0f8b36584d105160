//! The HMAC with a key of the domain.

use signalbox_boomerang::engine::{
    BoomerangEvent as Event, Command, Config, DomainKey, Integrity, Reason, Request,
};
use signalbox_boomerang::wire::{Ends, Family, Known, Pass, edit};
use signalbox_core::Time;
use signalbox_resources::Secret;

use crate::rig::*;

/// 2026 in microseconds since 1970.
const NOW_US: u64 = 1_770_000_000_000_000;

fn key(id: u32, secret: &[u8]) -> DomainKey {
    DomainKey { id, secret: Secret::new(secret), signs: true, verifies: true, from: 0, until: None }
}

fn settings(secret: &[u8]) -> Config {
    let integrity =
        Integrity { sign: true, require: true, keys: vec![key(5, secret)], ..Integrity::default() };
    Config { integrity, wall_clock_us: NOW_US, ..Config::default() }
}

fn member() -> Rig {
    Rig::with(settings(b"of the domain"))
}

/// An initiating node at another address than the node on the path.
fn user(config: Config) -> Rig {
    let mut rig = Rig::with(config);
    rig.be(IN);
    rig
}

/// The fields of the packet in which a request travels past `eth1`.
fn passing(sent: &Sent) -> Fields {
    Fields { ends: sent.ends, ..request(0) }
}

/// What a node on the path sends because of a request of an initiating node.
fn pass(rig: &mut Rig, sent: &Sent) -> Sent {
    let mut out = rig.octets(1, &passing(sent), &sent.octets);
    assert_eq!(out.len(), 1);
    out.remove(0)
}

/// A request of a node with these settings.
fn first(config: Config) -> Sent {
    user(config).command(1, Command::Open(wish())).remove(0)
}

fn refused(sent: &Sent) -> Option<Reason> {
    let message = sent.message();
    message.is_refused().then(|| Reason::of(message.body.unwrap().options.refusal().unwrap().cause))
}

#[test]
fn a_member_of_the_domain_reserves() {
    let mut rig = member();
    let sent = first(settings(b"of the domain"));
    let (offset, option) = sent.message().body.unwrap().options.authentication().unwrap();
    assert_eq!((offset, option.key, option.most), (72, 5, rates(64_000, 32_000)));
    assert_eq!(option.time_us, NOW_US + 10_000_000);
    let out = pass(&mut rig, &sent);
    assert_eq!(refused(&out), None);
    assert_eq!(out.octets[72..], sent.octets[72..], "the option goes on");
    assert!(rig.node.flows().all(|flow| flow.proved));
    // The reply has the same option, and reserves the way back.
    let mut back = out.octets.clone();
    back[0] = 0;
    let ends = Ends { src: sent.ends.dst, dst: sent.ends.src };
    edit::set_checksum(&mut back, &ends);
    assert_eq!(refused(&rig.octets(2, &Fields { ends, ..reply(0) }, &back).remove(0)), None);
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000), (Pass::Reply, 1, 32_000)]);
}

/// Without a signature, with that of another key, or with a changed flow nothing is reserved.
#[test]
fn strangers_do_not_reserve() {
    let mut rig = member();
    let unsigned = first(Config::default());
    assert_eq!(refused(&pass(&mut rig, &unsigned)), Some(Reason::Unauthenticated));
    let forged = first(settings(b"a guess"));
    assert_eq!(refused(&pass(&mut rig, &forged)), Some(Reason::Unauthenticated));
    let good = first(settings(b"of the domain"));
    // Transaction, version, padding, addresses, ports, code point, mask, key number, time, largest rates, digest.
    for at in [15, 23, 35, 39, 41, 43, 45, 63, 79, 87, 91, 95, 111] {
        let mut changed = good.clone();
        changed.octets[at] ^= 1;
        edit::set_checksum(&mut changed.octets, &changed.ends);
        pass(&mut rig, &changed);
        assert_eq!(rig.node.flow_count(), 0, "octet {at}");
    }
    // More than the initiating node asked for.
    let mut more = good.clone();
    edit::set_rate(&mut more.octets, Family::IPV4, None, Pass::Request, 64_001);
    edit::set_checksum(&mut more.octets, &more.ends);
    assert_eq!(refused(&pass(&mut rig, &more)), Some(Reason::Unauthenticated));
    assert_eq!(rig.node.flow_count(), 0);
    assert!(rig.node.counters().unauthenticated >= 4);
    assert_eq!(refused(&pass(&mut rig, &good)), None);
}

/// What nodes change on the way is not signed: rates are lowered, the interval and the KEY change.
#[test]
fn nodes_on_the_way_may_change_what_is_theirs() {
    for change in [
        |octets: &mut Vec<u8>| edit::set_rate(octets, Family::IPV4, None, Pass::Request, 9000),
        |octets: &mut Vec<u8>| edit::set_refresh(octets, 3),
        |octets: &mut Vec<u8>| edit::set_key(octets, 7),
    ] {
        let mut sent = first(settings(b"of the domain"));
        change(&mut sent.octets);
        edit::set_checksum(&mut sent.octets, &sent.ends);
        assert_eq!(refused(&pass(&mut member(), &sent)), None);
    }
    let list = || Request { rates: vec![rates(300_000, 0), rates(50_000, 0)], ..wish() };
    let mut sent = user(settings(b"of the domain")).command(1, Command::Open(list())).remove(0);
    edit::set_rate(&mut sent.octets, Family::IPV4, Some(0), Pass::Request, 50_000);
    edit::set_checksum(&mut sent.octets, &sent.ends);
    let mut rig = member();
    assert_eq!(refused(&pass(&mut rig, &sent)), None);
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 50_000)]);
}

/// A recorded message has no effect: neither a duplicate, nor an older one, nor one of a reservation that was released, nor
/// one of another time.
#[test]
fn recorded_messages_have_no_effect() {
    let mut rig = member();
    let mut host = user(settings(b"of the domain"));
    let set_up = host.command(1, Command::Open(wish())).remove(0);
    host.echo(&set_up, |_| {});
    pass(&mut rig, &set_up);
    let expires = rig.expires();
    rig.wait(seconds(1.0));
    host.wait(seconds(1.0));
    assert_eq!(refused(&pass(&mut rig, &set_up)), None);
    assert_eq!((rig.expires(), rig.node.counters().stale), (expires, 1), "a duplicate restarts no timer");
    let release = host.command(1, Command::Close).remove(0);
    pass(&mut rig, &release);
    assert_eq!(rig.node.flow_count(), 0);
    pass(&mut rig, &set_up);
    pass(&mut rig, &release);
    assert_eq!((rig.node.flow_count(), rig.node.counters().stale), (0, 3));
    let again = host.command(2, Command::Open(wish())).remove(0);
    pass(&mut rig, &again);
    assert_eq!(rig.node.flow_count(), 1);
    pass(&mut rig, &release);
    assert_eq!(rig.node.flow_count(), 1, "the recorded release");
    for seconds in [111, 89] {
        let mut late = user(settings(b"of the domain"));
        late.now = Time::from_secs(seconds);
        let sent = late.command(1, Command::Open(wish())).remove(0);
        let mut other = member();
        other.now = Time::from_secs(100);
        assert_eq!(refused(&pass(&mut other, &sent)), Some(Reason::Unauthenticated));
    }
}

/// A reservation that was signed obeys signed messages only, also where signatures are not required.
#[test]
fn a_signed_reservation_obeys_members_only() {
    let mut config = settings(b"of the domain");
    config.integrity.require = false;
    let mut rig = Rig::with(config);
    let sent = first(settings(b"of the domain"));
    pass(&mut rig, &sent);
    assert_eq!(rig.node.flow_count(), 1);
    let unsigned = user(Config::default()).command(1, Command::Open(wish())).remove(0);
    assert_eq!(refused(&pass(&mut rig, &unsigned)), Some(Reason::Unauthenticated));
    assert_eq!(rig.node.flow_count(), 1);
    let other = Request { src_port: Some(4001), ..wish() };
    let other = user(Config::default()).command(1, Command::Open(other)).remove(0);
    assert_eq!(refused(&pass(&mut rig, &other)), None, "the policy allows it");
    assert_eq!(rig.node.flow_count(), 2);
    // A node without the key does not look at the option.
    assert_eq!(refused(&pass(&mut Rig::new(), &sent)), None);
}

/// A signed request needs no proof of return, and the reply of a signed request must have its option.
#[test]
fn a_signature_proves_more_than_a_reply() {
    let mut rig = Rig::with(Config { prove: true, ..settings(b"of the domain") });
    let out = pass(&mut rig, &first(settings(b"of the domain")));
    assert_eq!((out.message().key, rig.node.flow_count()), (1, 1));
    let mut host = user(settings(b"of the domain"));
    let sent = host.command(1, Command::Open(wish())).remove(0);
    host.echo(&sent, |octets| octets.truncate(72));
    host.echo(&sent, |octets| octets[111] ^= 1);
    assert_eq!((host.events.len(), host.node.counters().invalid_replies), (0, 2));
    host.echo(&sent, |octets| edit::set_refresh(octets, 9));
    assert!(matches!(host.last_event(), Event::Reserved { refresh: 9, .. }));
}

/// Each message of a node is newer than the one before, whatever the clock does.
#[test]
fn times_of_a_node_increase() {
    let mut host = user(settings(b"of the domain"));
    let sent = host.command(1, Command::Open(wish())).remove(0);
    host.echo(&sent, |_| {});
    let change = host.command(1, Command::Change(rates(10_000, 0))).remove(0);
    let time = |sent: &Sent| sent.message().body.unwrap().options.authentication().unwrap().1.time_us;
    assert!(time(&change) >= time(&sent) + 128);
    host.node.set_wall_clock(NOW_US - 9_000_000);
    host.echo(&change, |_| {});
    let again = host.command(1, Command::Change(rates(20_000, 0))).remove(0);
    assert!(time(&again) >= time(&change) + 128);
}

/// The user of a message belongs to what is signed, and comes before the option.
#[test]
fn the_user_is_signed() {
    let named = || Request { user: Some(*b"alice\0\0\0"), ..wish() };
    let mut sent = user(settings(b"of the domain")).command(1, Command::Open(named())).remove(0);
    let kinds: Vec<_> = sent
        .message()
        .body
        .unwrap()
        .options
        .iter()
        .map(|one| matches!(one.option, Known::UserId(_)))
        .collect();
    assert_eq!(kinds, [true, false]);
    assert_eq!(refused(&pass(&mut member(), &sent)), None);
    sent.octets[76] = b'm';
    edit::set_checksum(&mut sent.octets, &sent.ends);
    assert_eq!(refused(&pass(&mut member(), &sent)), Some(Reason::Unauthenticated));
}

/// A node gets another key while it runs: requests with the former one are refused, those with the new one granted.
#[test]
fn keys_change_while_the_node_runs() {
    let mut rig = member();
    assert_eq!(refused(&pass(&mut rig, &first(settings(b"of the domain")))), None);
    let new = Integrity { keys: vec![key(6, b"the next one")], ..settings(b"").integrity };
    assert!(rig.node.set_integrity(Integrity { keys: Vec::new(), ..new.clone() }).is_err());
    rig.node.set_integrity(new.clone()).unwrap();
    let other = |settings: Config| {
        let request = Request { dst_port: Some(9999), ..wish() };
        user(settings).command(1, Command::Open(request)).remove(0)
    };
    assert!(refused(&pass(&mut rig, &other(settings(b"of the domain")))).is_some());
    let config = Config { integrity: new, ..settings(b"") };
    assert_eq!(refused(&pass(&mut rig, &other(config))), None);
    assert_eq!(rig.reserved().len(), 2);
}
