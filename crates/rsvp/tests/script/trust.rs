//! What strangers can and cannot do: messages with forged addresses, by other interfaces, with odd lifetimes, and errors
//! that would go round. RFC 2205 has no such rules; it trusts every packet.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;
use signalbox_resources::intserv::Latency;
use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::{Config, Input, Output, Rsvp};
use signalbox_rsvp::wire::{
    Adspec, ErrorCode, ErrorFlags, ErrorSpec, Filter, ListedId, MessageType, RsvpHop, Selector, Session,
};

use crate::intserv::adspec_object;
use crate::rig::{
    B, Path, Resv, Rig, Sent, addr, all, at, compose, group, handle, kinds, load, one, sender, session, to,
};

/// A PathErr about sender 1 of [`session`].
fn path_err(code: ErrorCode) -> Vec<u8> {
    compose(MessageType::PATH_ERR, 255, |w| {
        w.session(&session(), false);
        w.error_spec(&ErrorSpec { node: at(2, 9), flags: ErrorFlags::default(), code, value: 0 });
        w.sender_template(&sender(1)).sender_tspec(&crate::rig::tspec(B));
    })
}

/// A node with a reservation of sender 1 from neighbor 9 at eth2.
fn reserved() -> (Rig, Resv) {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let resv = Resv::ff(&[(load(B), 1)]);
    rig.resv(&resv);
    assert_eq!(rig.reserved(2), 10_000);
    (rig, resv)
}

#[test]
fn handles_cannot_be_guessed() {
    let known: Vec<u32> = (1..=4).map(handle).collect();
    assert!(known.iter().all(|one| *one > 4), "not the numbers of the kernel: {known:?}");
    let of = |seed: u8| {
        let mut rsvp = Rsvp::new(Config::default(), [seed; 32]).unwrap();
        let mut rig = Rig::new();
        rsvp.handle(rig.now, Input::Interfaces(&rig.interfaces.clone()), &mut rig.resources);
        rsvp.handle_of(IfIndex(2)).unwrap()
    };
    assert_ne!(of(1), of(2), "nodes have handles of their own");
    let (mut rig, resv) = reserved();
    for lih in 0..100 {
        let forged = Resv { hop: RsvpHop { addr: at(2, 66), lih }, ..resv.clone() };
        assert_eq!(kinds(&rig.resv(&forged)), []);
    }
    assert_eq!(rig.rsvp.counters().bad_handle, 100);
}

#[test]
fn a_reservation_comes_from_where_its_hop_is() {
    let (mut rig, resv) = reserved();
    let more = Resv::ff(&[(load(9.0 * B), 1)]);
    // Its handle is right, but it came by another interface; its source is not its hop; a TTL shows that it was routed.
    for (iif, src, ttl) in [(3, at(2, 9), 255), (2, at(2, 66), 255), (2, at(2, 9), 254)] {
        for octets in [more.octets(), resv.tear_octets()] {
            assert_eq!(kinds(&rig.packet(iif, src, at(iif, 1), ttl, &octets)), []);
        }
    }
    assert_eq!(rig.reserved(2), 10_000);
    let (engine, layer) = (rig.rsvp.counters(), rig.rsvp.neighbors().counters());
    assert_eq!((engine.wrong_interface, layer.wrong_source, layer.distant), (2, 2, 2));
    assert_eq!(kinds(&rig.resv_tear(&resv)), [(MessageType::RESV_TEAR, at(1, 9))]);
}

#[test]
fn odd_networks_switch_the_rules_off() {
    let mut config = Config::default();
    config.neighbors.interface.trust.distant_hops = true;
    config.neighbors.interface.trust.any_source = true;
    config.neighbors.interface.trust.any_destination = true;
    let mut rig = Rig::with(config);
    let path = Path::new();
    rig.packet(1, sender(1).src, at(1, 1), 50, &path.octets());
    let resv = Resv::ff(&[(load(B), 1)]);
    rig.packet(3, at(2, 66), at(3, 1), 200, &resv.octets());
    assert_eq!(rig.reserved(2), 10_000);
}

#[test]
fn a_path_is_addressed_to_its_session() {
    let mut rig = Rig::new();
    let path = Path::new();
    for dst in [at(1, 1), at(3, 1)] {
        assert_eq!(kinds(&rig.packet(1, sender(1).src, dst, 60, &path.octets())), []);
    }
    assert_eq!((rig.rsvp.sessions(), rig.rsvp.neighbors().counters().wrong_destination), (0, 2));
    rig.path(&path);
    rig.packet(1, sender(1).src, at(1, 1), 60, &path.tear_octets());
    assert_eq!(rig.rsvp.sessions(), 1);
}

/// RFC 2205 §3.1.3: the IP source of a Path is an address of its sender.
#[test]
fn a_path_comes_from_its_sender() {
    let mut rig = Rig::new();
    let path = Path::new();
    let stranger = at(1, 66);
    assert!(rig.packet(path.iif, stranger, path.session.dest, path.ttl, &path.octets()).is_empty());
    assert_eq!(rig.rsvp.senders(), 0);
    rig.path(&path);
    rig.packet(path.iif, stranger, path.session.dest, path.ttl, &path.tear_octets());
    assert_eq!(rig.rsvp.senders(), 1);

    let mut config = Config::default();
    config.neighbors.interface.trust.any_source = true;
    let mut rig = Rig::with(config);
    rig.packet(path.iif, stranger, path.session.dest, path.ttl, &path.octets());
    assert_eq!(rig.rsvp.senders(), 1);
}

#[test]
fn a_path_that_was_routed_makes_no_state() {
    let mut rig = Rig::new();
    assert_eq!(kinds(&rig.path(&Path { ttl: 59, send_ttl: 60, ..Path::new() })), []);
    assert_eq!((rig.rsvp.sessions(), rig.rsvp.neighbors().counters().distant), (0, 1));
}

#[test]
fn a_tear_from_another_interface_ends_nothing() {
    let (mut rig, _) = reserved();
    let tear = Path { iif: 3, ..Path::new() };
    assert_eq!(kinds(&rig.path_tear(&tear)), []);
    assert_eq!((rig.reserved(2), rig.rsvp.counters().wrong_interface), (10_000, 1));
    assert_eq!(one(&rig.path_tear(&Path::new()), MessageType::PATH_TEAR).oif, 2);
}

#[test]
fn errors_come_from_where_the_state_is() {
    let (mut rig, resv) = reserved();
    // A PathErr by an interface by which the Path did not leave.
    assert_eq!(kinds(&rig.neighborly(3, at(3, 9), &path_err(ErrorCode::ADMISSION))), []);
    // A ResvErr whose hop is right, by another interface, and from another source.
    let error = resv.error_octets(1, ErrorCode::ADMISSION, 2, false);
    assert_eq!(kinds(&rig.neighborly(4, at(1, 9), &error)), []);
    assert_eq!(kinds(&rig.neighborly(1, at(1, 66), &error)), []);
    assert_eq!((rig.rsvp.counters().wrong_interface, rig.rsvp.counters().blockades), (2, 0));
    assert_eq!(kinds(&rig.neighborly(1, at(1, 9), &error)), [(MessageType::RESV_ERR, at(2, 9))]);
    let passed = rig.neighborly(2, at(2, 9), &path_err(ErrorCode::ADMISSION));
    assert_eq!(kinds(&passed), [(MessageType::PATH_ERR, at(1, 9))]);
}

#[test]
fn an_error_never_returns_to_where_it_came_from() {
    let mut rig = Rig::new();
    // A Path whose RSVP_HOP is the router downstream.
    rig.path(&Path { hop: RsvpHop { addr: at(2, 9), lih: 1 }, ..Path::new() });
    for code in [ErrorCode::ADMISSION, ErrorCode::RSVP_SYSTEM, ErrorCode::NO_PATH] {
        assert_eq!(kinds(&rig.neighborly(2, at(2, 9), &path_err(code))), []);
    }
    assert_eq!(rig.rsvp.counters().errors_returning, 3);
}

#[test]
fn errors_are_limited_for_each_state() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let resv = Resv::ff(&[(load(B), 1)]);
    rig.resv(&resv);
    let (mut path_errors, mut resv_errors) = (0, 0);
    for _ in 0..100 {
        path_errors += rig.neighborly(2, at(2, 9), &path_err(ErrorCode::RSVP_SYSTEM)).len();
        let error = resv.error_octets(1, ErrorCode::POLICY, 0, false);
        resv_errors += rig.neighborly(1, at(1, 9), &error).len();
    }
    assert!((1..=5).contains(&path_errors) && (1..=5).contains(&resv_errors), "{path_errors} {resv_errors}");
    assert!(rig.rsvp.counters().errors_limited > 180);
    rig.wait(Duration::from_secs(5));
    let sent = rig.neighborly(2, at(2, 9), &path_err(ErrorCode::RSVP_SYSTEM));
    assert_eq!(kinds(&sent), [(MessageType::PATH_ERR, at(1, 9))]);
}

/// Three routers whose previous hops form a circle: each takes the next one for its previous hop.
#[test]
fn errors_do_not_go_round_a_circle_of_previous_hops() {
    let address = |router: usize, n: u32, k: u32| -> IpAddr { addr(&format!("10.{}.{n}.{k}", 100 + router)) };
    let mut ring: Vec<Rig> = (0..3)
        .map(|i| {
            let mut rig = Rig::new();
            rig.interfaces.iter_mut().zip(1..).for_each(|(one, n)| one.addresses = vec![address(i, n, 1)]);
            let list: Vec<Interface> = rig.interfaces.clone();
            rig.input(Input::Interfaces(&list));
            rig
        })
        .collect();
    for (i, rig) in ring.iter_mut().enumerate() {
        let hop = RsvpHop { addr: address((i + 1) % 3, 2, 1), lih: 1 };
        let path = Path { hop, ..Path::new() };
        rig.packet(1, sender(1).src, session().dest, 60, &path.octets());
    }
    // Router i passes errors on by its eth1 to eth2 of router i + 1.
    let mut under_way = vec![(0, address(2, 1, 1), path_err(ErrorCode::RSVP_SYSTEM))];
    let mut passed = 0;
    while let Some((to, src, octets)) = under_way.pop() {
        assert!(passed < 100, "the error goes round for ever");
        let sent: Vec<Sent> = ring[to].packet(2, src, address(to, 2, 1), 255, &octets);
        for one in sent {
            assert_eq!((one.kind(), one.oif), (MessageType::PATH_ERR, 1));
            passed += 1;
            under_way.push(((to + 1) % 3, one.src, one.octets));
        }
    }
    assert!(passed > 0, "it is passed on at all");
}

#[test]
fn nothing_is_answered_before_the_interfaces_are_known() {
    let mut rig = Rig::new();
    rig.rsvp = Rsvp::new(Config::default(), [9; 32]).unwrap();
    assert_eq!(kinds(&rig.path(&Path::new())), []);
    assert_eq!(kinds(&rig.neighborly(1, at(1, 9), &path_err(ErrorCode::ADMISSION))), []);
    assert_eq!((rig.rsvp.sessions(), rig.rsvp.counters().disabled), (0, 2));
}

#[test]
fn an_error_of_this_node_is_not_taken_back() {
    let (mut rig, _) = reserved();
    assert_eq!(kinds(&rig.neighborly(2, at(1, 1), &path_err(ErrorCode::ADMISSION))), []);
    assert_eq!(rig.rsvp.counters().own, 1);
}

#[test]
fn no_neighbor_holds_state_for_longer_than_the_limit() {
    let day = 24 * 3_600_000;
    let mut rig = Rig::new();
    rig.path(&Path { period: day, ..Path::new() });
    let resv = Resv { period: day, ..Resv::ff(&[(load(B), 1)]) };
    rig.resv(&resv);
    rig.wait(Duration::from_secs(590));
    assert_eq!((rig.reserved(2), rig.rsvp.senders()), (10_000, 1));
    rig.wait(Duration::from_secs(20));
    assert_eq!((rig.reserved(2), rig.rsvp.senders(), rig.rsvp.sessions()), (0, 0, 0));
    // A node that refreshes seldom itself keeps its neighbors' state for as long as the RFC says.
    let mut config = Config::default();
    config.interface.refresh = Duration::from_secs(600);
    let mut rig = Rig::with(config);
    rig.path(&Path { period: 600_000, ..Path::new() });
    rig.wait(Duration::from_secs(3100));
    assert_eq!(rig.rsvp.senders(), 1);
    rig.wait(Duration::from_secs(100));
    assert_eq!(rig.rsvp.senders(), 0);
}

#[test]
fn rejected_paths_are_answered_at_a_limited_rate() {
    let mut rig = Rig::new();
    let broken = Path { tspec: crate::rig::tspec(B), ..Path::new() };
    rig.path(&broken);
    // A port of zero conflicts with the session that is there.
    let session = Session { port: 0, ..session() };
    let filter = Filter { selector: Selector::Port(0), ..sender(2) };
    let conflicting = Path { session, sender: filter, ..Path::new() };
    let octets = conflicting.octets();
    let mut answered = 0;
    for _ in 0..2000 {
        let sent = rig.packet(1, filter.src, session.dest, 60, &octets);
        assert!(sent.iter().all(|one| one.octets.len() <= octets.len()), "no more octets than came");
        answered += sent.len();
    }
    assert_eq!(answered, 250);
    rig.input(Input::Packet(IpReceived {
        src: filter.src,
        dst: group().dest,
        ifindex: IfIndex(2),
        ttl: 60,
        tos: 0,
        router_alert: true,
        payload: &octets,
    }));
    assert!(all(&rig.wait(Duration::from_secs(1)), MessageType::PATH_ERR).is_empty());
}

/// An Srefresh that lists MESSAGE_IDs of sources of groups.
fn srefresh(listed: &[(u32, IpAddr, IpAddr)]) -> Vec<u8> {
    let ids: Vec<ListedId> = listed
        .iter()
        .map(|(id, source, group)| ListedId { id: *id, source: Some(*source), group: Some(*group) })
        .collect();
    compose(MessageType::SREFRESH, 255, |w| _ = w.id_list(7, &ids))
}

/// A node with 300 sessions of the group, by one source.
fn crowded() -> Rig {
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    rig.trees.insert((group().dest, sender(1).src), (1, vec![2]));
    for port in 1..=300 {
        rig.path(&Path { session: Session { port, ..group() }, ..Path::of(group(), 1, 1) });
    }
    assert_eq!(rig.rsvp.sessions(), 300);
    rig
}

#[test]
fn a_multicast_route_is_asked_for_once_and_released_with_its_last_sender() {
    let mut rig = crowded();
    assert_eq!(rig.asked.1.take(), Some((group().dest, sender(1).src)));
    rig.path(&Path { session: Session { port: 400, ..group() }, ..Path::of(group(), 1, 1) });
    assert_eq!(rig.asked.1, None);
    // A change reaches all of them.
    let sent = rig.tree(group(), 1, 1, &[2, 3]);
    let later = rig.wait(Duration::from_secs(3));
    let by_3 = sent.iter().chain(&later).filter(|one| one.kind() == MessageType::PATH && one.oif == 3);
    assert!(by_3.count() >= 301);
    for port in (1..=300).chain([400]) {
        assert!(rig.released.is_empty());
        rig.path_tear(&Path { session: Session { port, ..group() }, ..Path::of(group(), 1, 1) });
    }
    assert_eq!(rig.released, [(group().dest, sender(1).src)]);
    assert!(rig.rsvp.holds_nothing());
}

#[test]
fn unknown_names_of_groups_are_answered_for_those_on_the_tree() {
    let mut rig = crowded();
    let nacks = |rig: &mut Rig, iif: u32, source: IpAddr, group: IpAddr| -> usize {
        let octets = srefresh(&[(1, source, group)]);
        let mut sent = rig.neighborly(iif, at(iif, 9), &octets);
        sent.extend(rig.wait(Duration::from_millis(300)));
        sent.iter().map(|one| one.message().acks().filter(|(_, negative)| *negative).count()).sum()
    };
    assert_eq!(nacks(&mut rig, 1, sender(1).src, group().dest), 1);
    assert_eq!(nacks(&mut rig, 2, sender(1).src, group().dest), 0, "by another interface");
    assert_eq!(nacks(&mut rig, 1, sender(2).src, group().dest), 0, "of another source");
    assert_eq!(nacks(&mut rig, 1, sender(1).src, session().dest), 0, "not a group");
}

/// A node with small tables that is flooded by eth1: with Paths of `source(n)`.
fn flooded(source: impl Fn(u32) -> IpAddr) -> Rig {
    let mut rig = Rig::with(Config { max_sessions: 640, max_senders: 2000, ..Config::default() });
    for n in 0..1000_u16 {
        let session = Session { port: 1000 + n, ..session() };
        let sender = Filter { src: source(n.into()), ..sender(1) };
        rig.path(&Path { session, sender, ..Path::of(session, 1, 1) });
    }
    assert!((400..640).contains(&rig.rsvp.sessions()), "{}", rig.rsvp.sessions());
    rig
}

#[test]
fn a_flood_of_one_source_leaves_sessions_to_others() {
    let mut rig = flooded(|_| addr("10.8.0.66"));
    let before = rig.rsvp.sessions();
    for n in 1..=20 {
        let sent = rig.path(&Path::of(Session { port: 1, ..to(&format!("10.9.3.{n}")) }, n, 1));
        one(&sent, MessageType::PATH);
    }
    assert_eq!(rig.rsvp.sessions(), before + 20);
    assert!(rig.rsvp.counters().shares_refused > 0);
}

#[test]
fn a_flood_of_forged_sources_leaves_sessions_to_other_interfaces() {
    let mut rig = flooded(|n| IpAddr::from((0x0a08_0000 + n).to_be_bytes()));
    let before = rig.rsvp.sessions();
    rig.path(&Path::of(Session { port: 1, ..to("10.9.3.1") }, 1, 1));
    assert_eq!(rig.rsvp.sessions(), before);
    for n in 1..=10 {
        let session = Session { port: 1, ..to(&format!("10.9.4.{n}")) };
        one(&rig.path(&Path::of(session, n, 3)), MessageType::PATH);
    }
}

/// The previous hop of a Path is not proved: one link with any number of them leaves places to neighbors on others.
#[test]
fn previous_hops_of_one_link_leave_places_to_other_links() {
    let mut config = Config::default();
    config.neighbors.max_neighbors = 64;
    let mut rig = Rig::with(config);
    for n in 0..200_u16 {
        let hop = RsvpHop { addr: IpAddr::from((0x0a00_4000 + u32::from(n)).to_be_bytes()), lih: n.into() };
        let session = Session { port: 1000 + n, ..session() };
        rig.path(&Path { session, hop, ..Path::of(session, 1, 1) });
    }
    assert_eq!((rig.rsvp.tables()[3].size, rig.rsvp.sessions()), (48, 200), "their Paths count all the same");
    rig.path(&Path::of(Session { port: 1, ..to("10.9.4.1") }, 1, 3));
    assert_eq!(rig.rsvp.tables()[3].size, 49);
    rig.wait(Duration::from_secs(900));
    assert!(rig.rsvp.holds_nothing() && rig.rsvp.tables()[3].size == 0);
}

/// Records share hops and ADSPECs. One source that has new ones in each Path uses up its share of senders, and no other table.
#[test]
fn contents_that_differ_in_each_path_use_up_nothing_of_others() {
    let mut rig = Rig::with(Config::default());
    let mut own = Adspec::START;
    for n in 0..101_000_u32 {
        let port = u16::try_from(n % 1000).unwrap();
        let session = Session { port: u16::try_from(1 + n / 1000).unwrap(), ..session() };
        own.general.latency = Latency(n);
        let path = Path {
            sender: Filter { selector: Selector::Port(1 + port), ..sender(1) },
            hop: RsvpHop { addr: at(1, 9), lih: n },
            adspec: adspec_object(&own),
            ..Path::of(session, 1, 1)
        };
        let octets = path.octets();
        let packet = IpReceived {
            src: path.sender.src,
            dst: path.session.dest,
            ifindex: IfIndex(1),
            ttl: path.ttl,
            tos: 0,
            router_alert: true,
            payload: &octets,
        };
        rig.rsvp.handle(rig.now, Input::Packet(packet), &mut rig.resources);
        while rig.rsvp.poll().is_some() {}
    }
    assert_eq!(rig.rsvp.senders(), 101_000);
    let other = Path { adspec: adspec_object(&Adspec::START), ..Path::of(to("10.9.4.1"), 2, 3) };
    let sent = rig.path(&other);
    assert!(one(&sent, MessageType::PATH).message().adspec.is_some());
}

#[test]
fn places_that_were_given_back_are_free_again() {
    let mut rig = flooded(|_| addr("10.8.0.66"));
    rig.wait(Duration::from_secs(300));
    assert!(rig.rsvp.holds_nothing() && rig.rsvp.sessions() == 0);
}

/// Other limits while the node runs: what stands stays, and what is new finds the limits of its time.
#[test]
fn limits_change_while_the_node_runs() {
    let mut rig = Rig::with(Config { max_sessions: 8, ..Config::default() });
    let path = |rig: &mut Rig, n: u8| {
        rig.path(&Path::of(Session { port: 1, ..to(&format!("10.9.3.{n}")) }, n.into(), 1));
        rig.rsvp.sessions()
    };
    (1..=6).for_each(|n| assert_eq!(path(&mut rig, n), u32::from(n)));
    let limit = |rig: &mut Rig, config: Config| rig.rsvp.set_limits(rig.now, &config).unwrap();
    limit(&mut rig, Config { max_sessions: 4, ..Config::default() });
    assert_eq!((path(&mut rig, 7), rig.rsvp.counters().shares_refused), (6, 1));
    limit(&mut rig, Config { max_sessions: 100, ..Config::default() });
    assert_eq!(path(&mut rig, 8), 7);
    // A lifetime that is granted from now on ends after the new limit: refreshes are not received.
    let mut short = Config::default();
    short.interface.refresh = Duration::from_millis(10);
    short.interface.max_lifetime = Duration::from_secs(1);
    limit(&mut rig, short);
    assert_eq!(path(&mut rig, 9), 8);
    let mut wrong = Config::default();
    wrong.interface.max_lifetime = Duration::ZERO;
    assert!(rig.rsvp.set_limits(rig.now, &wrong).is_err());
}

/// 1,000 Paths with previous hops of their own, then wildcard Resvs: 50 Resvs caused 51,000.
#[test]
fn a_wildcard_resv_goes_to_many_previous_hops_in_parts() {
    let mut rig = Rig::new();
    for n in 0..1000_u32 {
        let source = IpAddr::from((0x0a08_1000 + n).to_be_bytes());
        let hop = RsvpHop { addr: IpAddr::from((0x0a00_4000 + n).to_be_bytes()), lih: n };
        rig.path(&Path { sender: Filter { src: source, ..sender(1) }, hop, ..Path::new() });
    }
    let mut sent = 0;
    for n in 1..=20_u8 {
        let resv = Resv { scope: Vec::new(), ..Resv::wf(load(f32::from(n) * B)) };
        sent += all(&rig.resv(&resv), MessageType::RESV).len();
    }
    assert!(sent <= 20 * 64, "{sent}");
    // Each gets the last one.
    let later = rig.wait(Duration::from_secs(1));
    let last: std::collections::BTreeSet<IpAddr> = all(&later, MessageType::RESV)
        .iter()
        .filter(|one| one.rates().first().is_some_and(|(rate, _)| (*rate - 20.0 * B).abs() < 1.0))
        .map(|one| one.dst)
        .collect();
    assert!(last.len() >= 1000 - 64 && sent + later.len() < 3000, "{} {}", last.len(), later.len());
}

/// A Bundle of this Path, as the neighbor `k` at the interface of the Path sends it.
fn bundled(path: &Path, rig: &mut Rig) -> Vec<Sent> {
    let octets = compose(MessageType::BUNDLE, 255, |w| _ = w.body(&path.octets()));
    rig.neighborly(path.iif, path.hop.addr, &octets)
}

/// A Bundle has the source of its neighbor, so that no filter judges the senders in it: routing does.
#[test]
fn a_path_in_a_bundle_comes_from_where_its_sender_is() {
    let reducing = || Rig::with_neighbors(Config::default(), "10mbit");
    // The sender is behind eth1. A node at eth3 announces it, with its own address as the hop.
    let forged = Path::of(session(), 1, 3);
    let mut rig = reducing();
    assert_eq!(kinds(&bundled(&forged, &mut rig)), []);
    assert_eq!((rig.rsvp.senders(), rig.rsvp.counters().announced_elsewhere), (0, 1));
    assert_eq!(kinds(&bundled(&Path::new(), &mut rig)), [(MessageType::PATH, session().dest)]);
    // It takes nothing over either, and the state is refreshed by its own hop without another lookup.
    assert_eq!(kinds(&bundled(&forged, &mut rig)), []);
    assert_eq!((rig.rsvp.counters().hop_changes, rig.rsvp.counters().announced_elsewhere), (0, 2));
    let lookups = rig.lookups;
    bundled(&Path::new(), &mut rig);
    assert_eq!((rig.lookups, rig.rsvp.counters().paths_refreshed), (lookups, 1));
    // A sender that moved is announced from its new place, and a sender without route from no place.
    rig.route("10.8.0.0", 16, 3);
    bundled(&forged, &mut rig);
    assert_eq!((rig.rsvp.counters().hop_changes, rig.rsvp.senders()), (1, 1));
    rig.routes.retain(|(prefix, _)| prefix.addr != addr("10.8.0.0"));
    assert_eq!(kinds(&bundled(&Path::of(session(), 2, 3), &mut rig)), []);
    assert_eq!(rig.rsvp.senders(), 1);

    let mut config = Config::default();
    config.neighbors.interface.trust.any_source = true;
    let mut rig = Rig::with_neighbors(config, "10mbit");
    bundled(&forged, &mut rig);
    assert_eq!(rig.rsvp.senders(), 1);
}

/// Paths that wait for routing have little room, and find it again.
#[test]
fn paths_in_bundles_that_wait_are_few() {
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    let octets = compose(MessageType::BUNDLE, 255, |w| {
        for n in 1..=200 {
            w.body(&Path::of(session(), n, 3).octets());
        }
    });
    for _ in 0..10 {
        rig.neighborly(3, at(3, 9), &octets);
    }
    assert_eq!((rig.rsvp.senders(), rig.rsvp.counters().announced_elsewhere), (0, 2000));
    let all = rig.rsvp.counters().overload;
    // Without answers the room ends.
    for _ in 0..10 {
        let packet = IpReceived {
            src: at(3, 9),
            dst: at(3, 1),
            ifindex: IfIndex(3),
            ttl: 255,
            tos: 0,
            router_alert: false,
            payload: &octets,
        };
        rig.rsvp.handle(rig.now, Input::Packet(packet), &mut rig.resources);
    }
    assert_eq!(rig.rsvp.counters().overload - all, 2000 - 1024);
}

/// Whether the last packet to `dst` goes to a node that has proved nothing.
fn unproved(rig: &mut Rig, iif: u32, src: IpAddr, dst: IpAddr, octets: &[u8], to: IpAddr) -> Option<bool> {
    let (ifindex, ttl) = (IfIndex(iif), octets[4]);
    let packet = IpReceived { src, dst, ifindex, ttl, tos: 0, router_alert: true, payload: octets };
    rig.rsvp.handle(rig.now, Input::Packet(packet), &mut rig.resources);
    let mut found = None;
    while let Some(output) = rig.rsvp.poll() {
        match output {
            Output::Send(packet) if packet.dst == to => found = Some(packet.unproved),
            _ => {}
        }
    }
    found
}

/// Packets to addresses that perhaps no node has, because only a message names them, leave by a buffer of their own.
#[test]
fn packets_to_hops_that_have_proved_nothing_are_marked() {
    let (mut rig, resv) = reserved();
    // The claimed hop of a Path gets a Resv, and nothing shows that it is there.
    let more = Resv::ff(&[(load(2.0 * B), 1)]);
    assert_eq!(unproved(&mut rig, 2, at(2, 9), at(2, 1), &more.octets(), at(1, 9)), Some(true));
    // The Path itself goes to the router that routing names.
    let path = Path { tspec: crate::rig::tspec(2.0 * B), ..Path::new() };
    let dst = session().dest;
    assert_eq!(unproved(&mut rig, 1, sender(1).src, dst, &path.octets(), dst), Some(false));
    // Whoever reserves with the right handle has received a Path.
    let error = path_err(ErrorCode::ADMISSION);
    assert_eq!(unproved(&mut rig, 2, at(2, 9), at(2, 1), &error, at(1, 9)), Some(true));
    let error = resv.error_octets(1, ErrorCode::ADMISSION, 2, false);
    assert_eq!(unproved(&mut rig, 1, at(1, 9), at(1, 1), &error, at(2, 9)), Some(false));
    // What passes through.
    let dst = addr("10.9.7.7");
    let foreign = resv.octets();
    assert_eq!(unproved(&mut rig, 1, at(1, 9), dst, &foreign, dst), Some(true));
}
