//! A front end asks in the place of hosts inside that do not run the application.

use std::net::SocketAddr;

use signalbox_core::pinhole::PinholeError;
use signalbox_core::service::SendError;
use signalbox_natfw::engine::{Code, Config, Failure, HostEvent, HostRequest, Input, Middlebox, Role, State};
use signalbox_natfw::wire::{ExternalAddress, Info, Information, Message, MessageType, PUBLICATION, Wish};
use signalbox_resources::Proof;
use signalbox_resources::config::{Action, Opening, RuleConfig};

use crate::rig::{EDGE, HOST, INSIDE, Kernel, Rig, Sent, addr, boxed, error, loose, notify, only, success};

const TOWARDS: &str = "198.51.100.1";
const UDP: u8 = 17;

/// A node whose rule for the network inside takes this proof.
fn node(middlebox: Middlebox, edge: bool, proof: Proof) -> Rig {
    Rig::with_rules(Config { edge, ..boxed(middlebox) }, |rules| {
        rules.rules = vec![RuleConfig {
            opens: vec![Opening::Publish],
            from: vec!["10.0.0.0/8".parse().unwrap()],
            proof: Some(proof),
            ..RuleConfig::new("programs", Action::Allow)
        }];
    })
}

fn edge() -> Rig {
    node(Middlebox::Nat, true, Proof::Link)
}

fn inner() -> Rig {
    node(Middlebox::Nat, false, Proof::Link)
}

fn wish(port: u16, exactly: bool) -> Wish {
    Wish { opens: true, exactly, port: Some(port), ..Wish::default() }
}

fn ask(rig: &mut Rig, id: u64, host: &str, wish: Wish) -> Vec<Sent> {
    let (host, towards) = (addr(host), addr(TOWARDS));
    let request = HostRequest { host, protocol: UDP, port: 5000, ifindex: INSIDE, towards, wish };
    rig.input(Input::Host { id, request: Some(request) })
}

fn told(rig: &mut Rig) -> Vec<(u64, HostEvent)> {
    core::mem::take(&mut rig.hosts)
}

fn granted(port: u16) -> HostEvent {
    HostEvent::Granted(SocketAddr::new(addr(EDGE), port))
}

fn refused(info: Info, wish: bool) -> HostEvent {
    HostEvent::Refused { failure: Failure::Code(Code::from(info)), wish }
}

fn open(external: u16, lifetime: u64) -> Kernel {
    let rule = format!("allow 0.0.0.0/0 > {EDGE} port {external} proto 17 to {HOST} port 5000 and back");
    Kernel::Open(rule, lifetime)
}

/// The answer of the next node: the place at the outermost one.
fn answer(rig: &mut Rig, sent: &Sent, port: u16) -> Vec<Sent> {
    let asked = sent.message();
    let external = Some(ExternalAddress { address: [203, 0, 113, 80].into(), port: Some(port) });
    let answer = Message {
        publication: asked.publication,
        external,
        ..success(asked.msn.unwrap(), asked.lifetime.unwrap())
    };
    rig.answer(sent, &answer)
}

/// An edge answers by itself, and refreshes without a message.
#[test]
fn an_edge_opens_for_a_host_that_does_not_signal() {
    let mut rig = edge();
    rig.slow = true;
    assert_eq!(ask(&mut rig, 1, HOST, wish(22000, false)), []);
    assert_eq!(
        (told(&mut rig), rig.kernel.as_slice()),
        (vec![], &[open(22000, 1575)][..]),
        "the kernel has not answered"
    );
    rig.slow = false;
    rig.opened();
    assert_eq!(told(&mut rig), [(1, granted(22000))]);
    let mut view = None;
    rig.natfw.walk(rig.now, 0, |one| {
        view = Some(one);
        true
    });
    let view = view.unwrap();
    assert_eq!((view.role, view.state, view.peer), (Role::Initiator, State::Established, Some(addr(HOST))));
    assert_eq!(view.policy.as_deref(), Some("rule 1 'programs'"));
    assert!(view.requester.is_some(), "who asked is shown");
    rig.kernel.clear();
    assert_eq!(rig.pass_secs(5000), []);
    assert!(
        rig.kernel.len() > 5 && rig.kernel.iter().all(|one| *one == open(22000, 1575)),
        "{:?}",
        rig.kernel
    );
    assert_eq!(told(&mut rig), [], "the place is the same");
    rig.kernel.clear();
    assert_eq!(rig.input(Input::Host { id: 1, request: None }), []);
    assert_eq!(
        (core::mem::take(&mut rig.kernel), rig.natfw.session_count(), told(&mut rig)),
        (vec![Kernel::Close], 0, vec![])
    );
    // The port is kept for the host, as after a request of its own.
    ask(&mut rig, 2, "10.0.1.3", wish(22000, true));
    assert_eq!(told(&mut rig), [(2, refused(Info::POLICY_CONFLICT, true))]);
    ask(&mut rig, 3, HOST, Wish { opens: true, ..Wish::default() });
    assert_eq!(told(&mut rig), [(3, granted(22000))]);
}

/// The request goes on as that of an EXTERNAL that came from the host, and the place of the outermost NAT is told.
#[test]
fn an_inner_nat_asks_the_nodes_further_on() {
    let mut rig = inner();
    let sent = only(ask(&mut rig, 1, HOST, wish(22000, false)));
    let message = sent.message();
    assert_eq!((message.kind, sent.mri), (MessageType::EXTERNAL, loose(EDGE, TOWARDS)));
    assert_eq!(message.terminal.unwrap().ports().receiver, Some(22000));
    assert_eq!(message.publication.unwrap().wish(), wish(22000, false));
    assert_eq!((rig.kernel.len(), told(&mut rig)), (0, vec![]));
    assert_eq!(answer(&mut rig, &sent, 30000), []);
    let place = |port| HostEvent::Granted(SocketAddr::new([203, 0, 113, 80].into(), port));
    assert_eq!(
        (core::mem::take(&mut rig.kernel), told(&mut rig)),
        (vec![open(22000, 1575)], vec![(1, place(30000))])
    );
    // A refresh with the same answer is no event, one with another place is.
    for (port, events) in [(30000, vec![]), (30001, vec![(1, place(30001))])] {
        let again = rig.pass_secs(450).into_iter().next().expect("refreshed");
        answer(&mut rig, &again, port);
        assert_eq!(told(&mut rig), events);
    }
    let deletion = only(rig.input(Input::Host { id: 1, request: None }));
    assert!(deletion.message().deletes() && rig.holes.is_empty());
    assert_eq!(told(&mut rig), []);
}

/// It is repeated until there is an answer or the time is over; a refusal names what cannot be granted, and leaves nothing.
#[test]
fn a_refusal_reaches_the_front_end() {
    let mut rig = inner();
    let sent = only(ask(&mut rig, 1, HOST, wish(22000, true)));
    let again = only(rig.pass_secs(2));
    assert_eq!(again.message().publication, sent.message().publication);
    let info = Information { info: Info::POLICY_CONFLICT, object: Some(PUBLICATION) };
    let no = Message { info: Some(info), ..error(again.message().msn.unwrap(), Info::POLICY_CONFLICT) };
    assert_eq!(rig.answer(&again, &no), []);
    assert_eq!(told(&mut rig), [(1, refused(Info::POLICY_CONFLICT, true))]);
    let sent = only(ask(&mut rig, 2, HOST, wish(22000, false)));
    rig.failed(&sent, SendError::NoNextNode);
    assert_eq!(told(&mut rig), [(2, refused(Info::NO_EDGE, false))]);
    only(ask(&mut rig, 3, HOST, wish(22000, false)));
    rig.pass_secs(2000);
    assert_eq!(told(&mut rig), [(3, HostEvent::Refused { failure: Failure::NoResponse, wish: false })]);
    let size = rig.natfw.tables()[1].size;
    assert_eq!((rig.kernel.len(), rig.natfw.session_count(), size), (0, 0, 0));
}

/// The kernel of this node refuses after the nodes further on opened: they are told.
#[test]
fn what_this_node_cannot_open_is_deleted_further_on() {
    let mut rig = inner();
    rig.answer = Err(PinholeError::Full);
    let sent = only(ask(&mut rig, 1, HOST, wish(22000, false)));
    let deletion = only(answer(&mut rig, &sent, 30000));
    assert!(deletion.message().deletes());
    assert_eq!(
        (told(&mut rig), rig.natfw.session_count()),
        (vec![(1, refused(Info::NO_RESOURCES, false))], 0)
    );
}

/// What stood and ends is reported once: because a node further on ended it, because the rules changed, because an administrator wants it.
#[test]
fn a_loss_is_reported() {
    for way in 0..3 {
        let mut rig = inner();
        let sent = only(ask(&mut rig, 1, HOST, wish(22000, false)));
        answer(&mut rig, &sent, 30000);
        told(&mut rig);
        let sent = match way {
            0 => rig.answer(&sent, &notify(Info::TERMINATED)),
            1 => {
                rig.resources.reload(rig.now, signalbox_resources::Config::default()).unwrap();
                rig.judge()
            }
            _ => rig.input(Input::Command {
                id: 9,
                command: signalbox_natfw::engine::Command::Delete(sent.session),
            }),
        };
        assert_eq!(
            sent.iter().filter(|sent| sent.message().deletes()).count(),
            usize::from(way > 0),
            "{way}"
        );
        assert_eq!(told(&mut rig), [(1, HostEvent::Lost)], "{way}");
        assert_eq!((rig.holes.len(), rig.natfw.session_count()), (0, 0), "{way}");
    }
}

/// A route that changes further on makes this node ask again, in the same session.
#[test]
fn a_change_of_the_route_asks_again() {
    let mut rig = inner();
    let sent = only(ask(&mut rig, 1, HOST, wish(22000, false)));
    answer(&mut rig, &sent, 30000);
    told(&mut rig);
    let again = only(rig.answer(&sent, &notify(Info::ROUTE_CHANGE)));
    assert_eq!((again.message().kind, again.session), (MessageType::EXTERNAL, sent.session));
    answer(&mut rig, &again, 30000);
    assert_eq!((told(&mut rig), rig.holes.len()), (vec![], 1));
}

/// The packets of a host that does not signal prove its link and no more: a rule has to say that this is enough.
#[test]
fn a_host_has_proved_its_link_only() {
    for (proof, middlebox) in [(Proof::Handshake, Middlebox::Nat), (Proof::Identity, Middlebox::Firewall)] {
        let mut rig = node(middlebox, true, proof);
        assert_eq!(ask(&mut rig, 1, HOST, wish(5000, false)), []);
        assert_eq!(told(&mut rig), [(1, refused(Info::AUTHORIZATION, false))]);
        assert_eq!((rig.kernel.len(), rig.natfw.session_count()), (0, 0));
    }
    // The rule is for other hosts.
    let mut rig = edge();
    ask(&mut rig, 1, "172.16.0.1", wish(5000, false));
    assert_eq!(told(&mut rig), [(1, refused(Info::AUTHORIZATION, false))]);
}

/// A host behind a firewall has the place that it has inside.
#[test]
fn a_firewall_opens_for_the_address_of_the_host() {
    let mut rig = node(Middlebox::Firewall, true, Proof::Link);
    ask(&mut rig, 1, HOST, Wish { opens: true, ..Wish::default() });
    assert_eq!(told(&mut rig), [(1, HostEvent::Granted(SocketAddr::new(addr(HOST), 5000)))]);
    assert_eq!(rig.kernel, [Kernel::Open(format!("allow 0.0.0.0/0 > {HOST} port 5000 proto 17"), 1575)]);
}

/// Another request with the same identifier takes the place of the first one, with its port; what a stop ends is deleted further on.
#[test]
fn a_request_takes_the_place_of_the_former_one() {
    let mut rig = inner();
    let first = only(ask(&mut rig, 1, HOST, wish(22000, false)));
    answer(&mut rig, &first, 22000);
    told(&mut rig);
    let sent = ask(&mut rig, 1, HOST, Wish { opens: true, ..Wish::default() });
    let [deletion, second] = <[Sent; 2]>::try_from(sent).unwrap();
    assert!(deletion.message().deletes() && deletion.session == first.session);
    assert_eq!(second.message().terminal.unwrap().ports().receiver, Some(22000));
    answer(&mut rig, &second, 22000);
    assert_eq!((told(&mut rig).len(), rig.natfw.session_count()), (1, 1));
    let deletion = only(rig.input(Input::Stop { handed_over: true }));
    assert!(deletion.message().deletes() && deletion.session == second.session);
}
