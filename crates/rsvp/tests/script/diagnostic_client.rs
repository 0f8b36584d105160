//! The diagnostic client (RFC 2745 §6) against chains of nodes. Its host runs no RSVP node.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::Time;
use signalbox_rsvp::client::{Action, Client, End, Entry, Patience, Query, Report};
use signalbox_rsvp::wire::{
    Class, DiagErrors, DiagResponse, Message, MessageType, ObjectType, RsvpHop, Writer,
};

use super::diagnostic_chain::{Chain, address, requester, sender};
use super::rig::{addr, compose};

fn query(chain: &Chain) -> Query {
    Query {
        session: chain.session(),
        sender: sender(),
        last_hop: chain.last_hop(),
        max_hops: 0,
        select: Vec::new(),
        with_route: false,
        path_mtu: 1500,
        requester: requester(),
        request_id: 100,
    }
}

/// Result of a diagnosis.
struct Outcome {
    report: Report,
    took: Duration,
    /// Destinations of the DREQs.
    asked: Vec<IpAddr>,
    traceroutes: usize,
}

/// Runs a client against a chain. `passes` decides by number and octets whether a reply arrives; `stranger` answers
/// requests to other addresses.
fn play(
    chain: &mut Chain,
    query: Query,
    patience: Patience,
    route: &[IpAddr],
    mut requests: impl FnMut(usize) -> bool,
    mut replies: impl FnMut(usize, &[u8]) -> bool,
    stranger: impl Fn(IpAddr, &[u8]) -> Option<Vec<u8>>,
) -> Outcome {
    let begin = Time::from_secs(5);
    let (mut now, mut asked, mut traceroutes, mut got) = (begin, Vec::new(), 0, 0);
    let mut client = Client::new(query, patience);
    client.start(now);
    for _ in 0..1000 {
        while let Some(action) = client.poll() {
            match action {
                Action::Send { to, octets } => {
                    asked.push(to);
                    if !requests(asked.len() - 1) {
                        continue;
                    }
                    let mut answers = chain.request(to, &octets);
                    answers.extend(stranger(to, &octets));
                    for answer in answers {
                        got += 1;
                        if replies(got - 1, &answer) {
                            client.datagram(now + Duration::from_millis(10), &answer);
                        }
                    }
                }
                Action::FindRoute { to } => {
                    assert_eq!(to, sender().src);
                    traceroutes += 1;
                    client.route(now, route);
                }
            }
        }
        if let Some(report) = client.report() {
            return Outcome { report, took: now.since(begin), asked, traceroutes };
        }
        now = client.deadline().expect("it waits for something");
        client.timer(now);
    }
    panic!("no end");
}

fn simply(chain: &mut Chain, query: Query, route: &[IpAddr]) -> Outcome {
    play(chain, query, Patience::default(), route, |_| true, |_, _| true, |_, _| None)
}

/// The outgoing interface of each node, silent nodes as errors, 0.0.0.0 for lost fragments.
fn ways(report: &Report) -> Vec<Result<IpAddr, IpAddr>> {
    let way = |entry: &Entry| match entry {
        Entry::Node(node) => Ok(node.response().unwrap().outgoing),
        Entry::Silent(address) => Err(*address),
        Entry::Lost => Err(addr("0.0.0.0")),
    };
    report.entries.iter().map(way).collect()
}

/// A chain of four: the outgoing interfaces of its nodes, the receiver's first.
fn four() -> Vec<Result<IpAddr, IpAddr>> {
    [address(2, 2), address(2, 1), address(1, 1), address(0, 1)].map(Ok).to_vec()
}

/// One request, one reply, no waiting; the same with a ROUTE.
#[test]
fn answered_at_once() {
    let mut chain = Chain::new(4);
    for with_route in [false, true] {
        let outcome = simply(&mut chain, Query { with_route, ..query_of(4) }, &[]);
        assert_eq!((ways(&outcome.report), outcome.report.end), (four(), End::Complete));
        assert_eq!((outcome.asked.len(), outcome.took), (1, Duration::ZERO));
    }
    let limited = simply(&mut chain, Query { max_hops: 2, ..query_of(4) }, &[]);
    assert_eq!((ways(&limited.report), limited.report.end), (four()[..2].to_vec(), End::Complete));
    let adspec = vec![ObjectType::new(Class::ADSPEC, 0)];
    let selected = simply(&mut chain, Query { select: adspec, ..query_of(4) }, &[]);
    let Entry::Node(router) = &selected.report.entries[1] else { panic!("no node") };
    let found = router.response().unwrap();
    assert_eq!(found.objects().map(|one| one.kind.class).collect::<Vec<_>>(), [Class::ADSPEC]);
}

fn query_of(count: usize) -> Query {
    query(&Chain::new(count))
}

/// Proves RSVPX-2745-6-01 for the retransmission timer: a request without a reply is repeated up to the limit.
#[test]
fn lost_requests_are_repeated() {
    let mut chain = Chain::new(4);
    let patience = Patience { fall_back: false, ..Patience::default() };
    let outcome = play(&mut chain, query_of(4), patience, &[], |n| n > 0, |n, _| n > 0, |_, _| None);
    assert_eq!((ways(&outcome.report), outcome.report.end), (four(), End::Complete));
    assert_eq!((outcome.asked.len(), outcome.took), (3, 2 * patience.timeout));
    let outcome = play(&mut chain, query_of(4), patience, &[], |_| false, |_, _| true, |_, _| None);
    assert_eq!(ways(&outcome.report), [Err(chain.last_hop())]);
    assert_eq!((outcome.report.end, outcome.asked.len()), (End::Silent, 3));
    assert_eq!(outcome.took, 3 * patience.timeout);
}

/// Proves RSVPX-2745-6-01 for the reassembly timer: fragments in any order are reassembled; after a loss the others are
/// reported at the end of the time, with a mark at the gap.
#[test]
fn parts_are_put_together() {
    let small = || Query { path_mtu: 240, ..query_of(4) };
    let mut chain = Chain::new(4);
    let outcome = simply(&mut chain, small(), &[]);
    assert_eq!((ways(&outcome.report), outcome.report.end), (four(), End::Complete));
    assert_eq!(outcome.asked.len(), 1);
    let lost = Err(addr("0.0.0.0"));
    for (missing, place) in [(0, 0), (1, 1), (3, 3)] {
        let outcome =
            play(&mut chain, small(), Patience::default(), &[], |_| true, |n, _| n != missing, |_, _| None);
        let mut expected = four();
        expected[place] = lost;
        assert_eq!((ways(&outcome.report), outcome.report.end), (expected, End::Partial), "{missing}");
        assert_eq!(outcome.asked.len(), 1, "what began to come is not asked for again");
        assert_eq!(outcome.took, Patience::default().reassembly + Duration::from_millis(10));
    }
    // Backwards, and twice.
    let mut client = Client::new(small(), Patience::default());
    let now = Time::from_secs(1);
    client.start(now);
    let Some(Action::Send { to, octets }) = client.poll() else { panic!("no request") };
    let replies = chain.request(to, &octets);
    assert_eq!(replies.len(), 4);
    for reply in replies.iter().rev().flat_map(|reply| [reply, reply]) {
        assert_eq!(client.report(), None);
        client.datagram(now, reply);
        if reply == &replies[0] {
            break;
        }
    }
    assert_eq!(ways(&client.report().unwrap()), four());
}

/// Proves RSVPX-2745-6-01: a router that drops type 8 is bypassed. The hops below it are asked one by one; a traceroute
/// finds the nodes behind it, which are asked from there on.
#[test]
fn a_legacy_router_on_the_way() {
    let mut chain = Chain::new(6);
    chain.deaf = vec![3];
    // The result of a traceroute from a host near the receiver.
    let route: Vec<IpAddr> = (0..5).rev().map(|link| address(link, 1)).collect();
    let outcome = simply(&mut chain, query_of(6), &route);
    let expected = vec![
        Ok(address(4, 2)),
        Ok(address(4, 1)),
        Err(address(3, 1)),
        Ok(address(2, 1)),
        Ok(address(1, 1)),
        Ok(address(0, 1)),
    ];
    assert_eq!((ways(&outcome.report), outcome.report.end), (expected, End::Complete));
    assert_eq!(outcome.traceroutes, 1);
    // Three times for all, once for one hop, once for two, three times for three, then the node behind.
    let mut asked = vec![chain.last_hop(); 3 + 1 + 1 + 3];
    asked.push(address(2, 1));
    assert_eq!(outcome.asked, asked);

    // Two of them, one the LAST-HOP, and an empty traceroute: the sender is asked at least.
    chain.deaf = vec![5, 2];
    let outcome = simply(&mut chain, query_of(6), &route);
    let expected = vec![
        Err(address(4, 2)),
        Ok(address(4, 1)),
        Ok(address(3, 1)),
        Err(address(2, 1)),
        Ok(address(1, 1)),
        Ok(address(0, 1)),
    ];
    assert_eq!((ways(&outcome.report), outcome.report.end), (expected, End::Complete));
    let outcome = simply(&mut chain, query_of(6), &[]);
    assert_eq!(ways(&outcome.report), [Err(address(4, 2)), Ok(address(0, 1))]);
    // The limit of hops counts for the whole diagnosis.
    let outcome = simply(&mut chain, Query { max_hops: 3, ..query_of(6) }, &route);
    assert_eq!(ways(&outcome.report).len(), 3);
    assert_eq!(outcome.report.end, End::Complete);
    // All nodes are silent.
    chain.deaf = (0..6).collect();
    let outcome = simply(&mut chain, query_of(6), &route);
    assert_eq!(outcome.report.end, End::Silent);
    assert!(ways(&outcome.report).iter().all(Result::is_err));
}

/// A node of a traceroute without path state is off the path (§5.6): the next one is asked. At the LAST-HOP it is the
/// answer.
#[test]
fn nodes_off_the_path() {
    let no_path = |octets: &[u8]| {
        let asked = Message::parse(octets).unwrap();
        let zero = addr("0.0.0.0");
        compose(MessageType::DREP, 64, |w: &mut Writer<'_>| {
            w.session(&asked.session.unwrap(), false).hop(&RsvpHop { addr: addr("10.7.7.7"), lih: 0 });
            w.diagnostic(&asked.diagnostic().unwrap());
            w.diag_response(&DiagResponse {
                arrival: 0,
                incoming: zero,
                outgoing: zero,
                previous: zero,
                d_ttl: 0,
                merged: false,
                errors: DiagErrors::NO_PATH,
                cleanup: 0,
                refresh: 0,
                objects: &[],
            });
        })
    };
    let elsewhere = addr("10.6.6.6");
    let stranger = |to: IpAddr, octets: &[u8]| (to == elsewhere).then(|| no_path(octets));
    let mut chain = Chain::new(4);
    chain.deaf = vec![2];
    let route = [address(2, 1), elsewhere, address(1, 1)];
    let outcome = play(&mut chain, query_of(4), Patience::default(), &route, |_| true, |_, _| true, stranger);
    let expected = vec![Ok(address(2, 2)), Err(address(2, 1)), Ok(address(1, 1)), Ok(address(0, 1))];
    assert_eq!((ways(&outcome.report), outcome.report.end), (expected, End::Complete));
    assert!(outcome.asked.contains(&elsewhere));

    let begin = Query { last_hop: elsewhere, ..query_of(4) };
    let outcome = play(&mut chain, begin, Patience::default(), &[], |_| true, |_, _| true, stranger);
    assert_eq!((outcome.report.entries.len(), outcome.report.end), (1, End::Complete));
}

/// Octets that do not answer the request change nothing: other identifiers, sessions, requesters, types.
#[test]
fn foreign_replies() {
    let mut chain = Chain::new(4);
    let now = Time::from_secs(1);
    let mut client = Client::new(query(&chain), Patience::default());
    client.start(now);
    let Some(Action::Send { to, octets }) = client.poll() else { panic!("no request") };
    assert_eq!(Message::parse(&octets).unwrap().diagnostic().unwrap().request_id, 100);
    let reply = chain.request(to, &octets).remove(0);
    let with = |change: &dyn Fn(&mut Query)| {
        let mut other = query(&Chain::new(4));
        change(&mut other);
        let mut stranger = Client::new(other, Patience::default());
        stranger.start(now);
        let Some(Action::Send { octets, .. }) = stranger.poll() else { panic!("no request") };
        octets
    };
    let mut drep = with(&|query| query.request_id = 7);
    drep[1] = 9;
    drep[2..4].copy_from_slice(&[0, 0]);
    for foreign in [&b"hello"[..], &[], &octets, &drep] {
        client.datagram(now, foreign);
        assert_eq!((client.report(), client.deadline()), (None, Some(now + Patience::default().timeout)));
    }
    for change in [
        &(|query: &mut Query| query.session.port = 9) as &dyn Fn(&mut Query),
        &|query| query.sender.src = addr("10.1.0.77"),
        &|query| query.requester.set_port(9),
    ] {
        let mut drep = with(change);
        drep[1] = 9;
        drep[2..4].copy_from_slice(&[0, 0]);
        client.datagram(now, &drep);
        assert_eq!(client.report(), None);
    }
    client.datagram(now, &reply);
    assert_eq!(client.report().unwrap().end, End::Complete);
    client.datagram(now, &reply);
    client.timer(now + Duration::from_secs(60));
    assert_eq!(client.report().unwrap().entries.len(), 4);
}
