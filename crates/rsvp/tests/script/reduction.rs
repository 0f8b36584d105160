//! Refresh reduction between two nodes (RFC 2961): state is sent once and then refreshed by its MESSAGE_ID.

use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::node::Prefix;
use signalbox_rsvp::engine::{Command, Config, Input, RsvpEvent};
use signalbox_rsvp::wire::MessageType;

use crate::rig::{B, Path, R, Resv, Rig, Sent, addr, all, at, handle, kinds, load, one, session};

/// Two nodes: eth2 of the first is connected to eth1 of the second.
pub(crate) struct Pair {
    pub(crate) up: Rig,
    pub(crate) down: Rig,
    /// Packets between them.
    pub(crate) crossed: Vec<Sent>,
}

impl Pair {
    fn new() -> Self {
        Self::with(Config::default(), Config::default())
    }

    /// With these settings of the first and the second.
    pub(crate) fn with(up: Config, down: Config) -> Self {
        let up = Rig::with_neighbors(up, "10mbit");
        let mut down = Rig::with_neighbors(down, "10mbit");
        // The second node's eth1 has the address of the first one's neighbor at eth2.
        for (interface, address) in
            down.interfaces.iter_mut().zip([at(2, 9), at(12, 1), at(13, 1), at(14, 1)])
        {
            interface.addresses = vec![address];
        }
        let list = down.interfaces.clone();
        down.input(Input::Interfaces(&list));
        down.routes = vec![(Prefix { addr: addr("10.9.0.0"), len: 16 }, 2)];
        Self { up, down, crossed: Vec::new() }
    }

    /// Carries packets between the nodes until none is left.
    pub(crate) fn carry(&mut self, from_up: Vec<Sent>, from_down: Vec<Sent>) {
        let (mut from_up, mut from_down) = (from_up, from_down);
        while !(from_up.is_empty() && from_down.is_empty()) {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            for one in from_up.into_iter().filter(|one| one.oif == 2) {
                down.extend(self.down.packet(1, one.src, one.dst, one.ttl, &one.octets));
                self.crossed.push(one);
            }
            for one in from_down.into_iter().filter(|one| one.oif == 1) {
                up.extend(self.up.packet(2, one.src, one.dst, one.ttl, &one.octets));
                self.crossed.push(one);
            }
            (from_up, from_down) = (up, down);
        }
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        let end = self.up.now + time;
        while self.up.now < end {
            let step = Duration::from_millis(5);
            let (up, down) = (self.up.wait(step), self.down.wait(step));
            self.carry(up, down);
        }
    }

    pub(crate) fn path(&mut self) {
        let sent = self.up.path(&Path::new());
        self.carry(sent, Vec::new());
    }

    pub(crate) fn resv(&mut self) {
        let resv = Resv::ff(&[(load(B), 1)]).from(2, 9, session());
        let resv = Resv { hop: signalbox_rsvp::wire::RsvpHop { addr: at(12, 9), lih: handle(2) }, ..resv };
        let sent = self.down.packet(2, at(12, 9), at(12, 1), 255, &resv.octets());
        self.carry(Vec::new(), sent);
    }
}

#[test]
fn states_are_refreshed_by_name() {
    let mut pair = Pair::new();
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(2));
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    assert_eq!(all(&pair.crossed, MessageType::PATH).len(), 1);
    assert_eq!(all(&pair.crossed, MessageType::RESV).len(), 1);
    pair.crossed.clear();
    for _ in 0..30 {
        pair.path();
        pair.resv();
        pair.wait(Duration::from_millis(u64::from(R)) / 2);
    }
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    let whole: Vec<_> = kinds(&pair.crossed)
        .into_iter()
        .filter(|(kind, _)| matches!(*kind, MessageType::PATH | MessageType::RESV))
        .collect();
    assert!(whole.len() <= 4, "{whole:?}");
    let summaries = all(&pair.crossed, MessageType::SREFRESH).len();
    assert!(summaries >= 20, "{summaries}: {:?}", kinds(&pair.crossed));
    // The counters have the messages that were sent, and one of each before; not what an Srefresh stands for.
    let counted = pair.up.rsvp.counters().paths_sent + pair.down.rsvp.counters().resvs_sent;
    assert_eq!(counted, whole.len() as u64 + 2);
    // The end of the sender ends both.
    let sent = pair.up.path_tear(&Path::new());
    pair.carry(sent, Vec::new());
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (0, 0));
    assert_eq!((pair.up.rsvp.sessions(), pair.down.rsvp.sessions()), (0, 0));
}

/// The administrator of the first node has it forget the second one: state goes whole in both directions, the reservation stays, and
/// summaries are in use again after that.
#[test]
fn a_neighbor_that_is_forgotten_gets_whole_messages() {
    let mut pair = Pair::new();
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(2));
    let forget = |pair: &mut Pair, neighbor, ifindex| {
        let sent = pair.up.command(9, Command::ForgetNeighbor { neighbor, ifindex });
        pair.carry(sent, Vec::new());
        match pair.up.take_events(9)[..] {
            [RsvpEvent::NeighborForgotten { interfaces }] => interfaces,
            ref other => panic!("{other:?}"),
        }
    };
    pair.crossed.clear();
    assert_eq!(forget(&mut pair, at(2, 8), None), 0, "nobody");
    assert_eq!(forget(&mut pair, at(2, 9), Some(IfIndex(1))), 0, "elsewhere");
    pair.wait(Duration::from_secs(1));
    assert_eq!(kinds(&pair.crossed), []);
    let shown = |pair: &Pair| {
        let view = pair.up.rsvp.neighbors().view(pair.up.now);
        let row = view.into_iter().find(|row| row.address == at(2, 9)).unwrap();
        (row.last_message.is_some(), row.capable, row.states)
    };
    assert_eq!(forget(&mut pair, at(2, 9), Some(IfIndex(2))), 1);
    let path = one(&pair.crossed, MessageType::PATH);
    assert!(path.message().message_id.is_some_and(|id| id.ack_desired), "as to a new neighbor");
    // The Resv comes whole when the neighbor refreshes it.
    for _ in 0..4 {
        pair.path();
        pair.resv();
        pair.wait(Duration::from_millis(u64::from(R)) / 2);
    }
    assert_eq!(all(&pair.crossed, MessageType::PATH).len(), 1);
    assert_eq!(all(&pair.crossed, MessageType::RESV).len(), 1);
    assert_eq!(shown(&pair), (true, true, 2));
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    pair.crossed.clear();
    for _ in 0..20 {
        pair.path();
        pair.resv();
        pair.wait(Duration::from_millis(u64::from(R)) / 2);
    }
    let summaries = all(&pair.crossed, MessageType::SREFRESH).len();
    assert!(summaries >= 14, "{summaries}: {:?}", kinds(&pair.crossed));
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    // Of what a neighbor sent before nothing is shown as known.
    forget(&mut pair, at(2, 9), None);
    assert_eq!(shown(&pair), (false, false, 0));
}

/// A node that restarted has no MESSAGE_IDs: it sends NACKs, and its neighbor sends whole messages.
#[test]
fn a_node_that_lost_its_state_gets_it_again() {
    let mut pair = Pair::new();
    pair.path();
    pair.wait(Duration::from_secs(2));
    let fresh = Pair::new().down;
    let now = pair.down.now;
    pair.down = fresh;
    pair.down.now = now;
    for _ in 0..6 {
        pair.path();
        pair.wait(Duration::from_secs(15));
    }
    assert_eq!(pair.down.rsvp.senders(), 1);
}

/// RSVPRR-2961-1.1-01: a change of POLICY_DATA alone is a trigger message with a new MESSAGE_ID, by which it is
/// refreshed then. So is a change of the ADSPEC, which leaves with the next refresh.
#[test]
fn whatever_is_new_is_said_whole() {
    let mut pair = Pair::new();
    pair.path();
    pair.wait(Duration::from_secs(2));
    let whole = |pair: &mut Pair| -> Vec<_> {
        let paths = all(&core::mem::take(&mut pair.crossed), MessageType::PATH);
        paths.iter().map(|path| path.message().message_id).collect()
    };
    let first = whole(&mut pair);
    assert!(matches!(first[..], [Some(_)]), "{first:?}");
    let policy = vec![0, 16, 14, 1, 0, 8, 0, 0, 0, 8, 0, 200, 1, 2, 3, 4];
    let adspec = crate::intserv::adspec_object(&signalbox_rsvp::wire::Adspec::START);
    let mut last = first;
    for path in [Path { extra: policy.clone(), ..Path::new() }, Path { extra: policy, adspec, ..Path::new() }]
    {
        let sent = pair.up.path(&path);
        pair.carry(sent, Vec::new());
        pair.wait(Duration::from_secs(50));
        let new = whole(&mut pair);
        assert_eq!(new.len(), 1, "{new:?}");
        assert_ne!(new, last);
        last = new;
    }
}

/// RSVPRR-2961-6-05: neighbors acknowledge nothing. After the last retransmission messages are refreshed as ever, and state
/// lives until its own lifetime is over.
#[test]
fn unacknowledged_state_lives_its_time() {
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    crate::capable::shown(&mut rig, 1, 9);
    crate::capable::shown(&mut rig, 2, 9);
    let mut sent = rig.path(&Path::new());
    sent.extend(rig.resv(&Resv::ff(&[(load(B), 1)])));
    let start = rig.now;
    sent.extend(rig.wait(Duration::from_secs(156)));
    assert_eq!(rig.rsvp.neighbors().counters().unacknowledged, 2, "the Path and the Resv");
    assert_eq!((rig.rsvp.senders(), rig.reservations()), (1, 1));
    for kind in [MessageType::PATH, MessageType::RESV] {
        let times: Vec<_> = all(&sent, kind).iter().map(|one| one.at.since(start)).collect();
        let soon = times.iter().filter(|at| **at < Duration::from_secs(10)).count();
        assert_eq!(soon, 4, "{kind}: Rl transmissions and one without MESSAGE_ID, at {times:?}");
        let late: Vec<_> = times.iter().filter(|at| **at >= Duration::from_secs(10)).collect();
        assert!(late.len() >= 3 && late.windows(2).all(|two| *two[1] - *two[0] <= Duration::from_secs(46)));
    }
    rig.wait(Duration::from_secs(3));
    assert_eq!((rig.rsvp.senders(), rig.reservations()), (0, 0));
}

/// Refreshes the Path of a pair until a whole one waits at the first node for others in a Bundle.
fn waiting_path(pair: &mut Pair) {
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(2));
    pair.crossed.clear();
    let composed = pair.up.rsvp.counters().paths_sent;
    for step in 0..400_000 {
        if step % 2_000 == 0 {
            pair.path();
            pair.resv();
        }
        pair.wait(Duration::from_millis(5));
        if pair.up.rsvp.counters().paths_sent > composed {
            assert_eq!(all(&pair.crossed, MessageType::PATH), [], "it waits for others");
            return;
        }
    }
    panic!("no Path was refreshed as a whole message");
}

/// A Path that waits for others in a Bundle is not sent after the PathTear: the next hop would hold a session of no sender.
#[test]
fn a_path_that_waits_is_not_sent_after_its_tear() {
    let mut pair = Pair::new();
    waiting_path(&mut pair);
    let sent = pair.up.path_tear(&Path::new());
    pair.carry(sent, Vec::new());
    pair.wait(Duration::from_secs(60));
    assert_eq!(all(&pair.crossed, MessageType::PATH_TEAR).len(), 1);
    assert_eq!(all(&pair.crossed, MessageType::PATH), []);
    assert_eq!((pair.up.rsvp.sessions(), pair.down.rsvp.sessions()), (0, 0));
}

/// A Path that waits for others is dropped when a newer one about the same state is sent: the newer one is the last.
#[test]
fn a_path_that_waits_is_not_sent_after_a_newer_one() {
    let mut pair = Pair::new();
    waiting_path(&mut pair);
    let newer = Path { tspec: crate::rig::tspec(2.0 * B), ..Path::new() };
    let sent = pair.up.path(&newer);
    pair.carry(sent, Vec::new());
    pair.wait(Duration::from_secs(2));
    // Whether alone or in a Bundle.
    let paths = pair.crossed.iter().map(|one| match one.kind() {
        MessageType::PATH => 1,
        MessageType::BUNDLE => {
            let parts = one.message().sub_messages();
            parts.filter(|part| part[1] == MessageType::PATH.0).count()
        }
        _ => 0,
    });
    assert_eq!(paths.sum::<usize>(), 1);
}

/// A MESSAGE_ID that waits for others in an Srefresh is not sent when its state ends.
#[test]
fn a_message_id_that_waits_is_not_sent_after_the_tear() {
    let mut pair = Pair::new();
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(2));
    let before = pair.up.rsvp.neighbors().counters().states_summarised;
    for _ in 0..40_000 {
        if pair.up.rsvp.neighbors().counters().states_summarised > before {
            break;
        }
        pair.wait(Duration::from_millis(5));
    }
    pair.crossed.clear();
    assert!(pair.up.rsvp.neighbors().counters().states_summarised > before);
    let sent = pair.up.path_tear(&Path::new());
    pair.carry(sent, Vec::new());
    pair.wait(Duration::from_secs(60));
    let from_up: Vec<_> = pair.crossed.iter().filter(|one| one.dst == at(12, 9) || one.oif == 2).collect();
    assert!(from_up.iter().all(|one| one.kind() != MessageType::SREFRESH), "{:?}", kinds(&pair.crossed));
}

/// A Resv with a RESV_CONFIRM that was lost is not sent again after its ResvTear.
#[test]
fn a_lost_resv_is_not_sent_again_after_its_tear() {
    let mut pair = Pair::new();
    pair.path();
    pair.wait(Duration::from_secs(2));
    pair.crossed.clear();
    let resv = Resv::ff(&[(load(B), 1)]).from(2, 9, session()).confirmed(addr("10.9.0.7"));
    let resv = Resv { hop: signalbox_rsvp::wire::RsvpHop { addr: at(12, 9), lih: handle(2) }, ..resv };
    let lost = pair.down.packet(2, at(12, 9), at(12, 1), 255, &resv.octets());
    assert_eq!(all(&lost, MessageType::RESV).len(), 1);
    let sent = pair.down.packet(2, at(12, 9), at(12, 1), 255, &resv.tear_octets());
    assert_eq!(all(&sent, MessageType::RESV_TEAR).len(), 1);
    pair.carry(Vec::new(), sent);
    pair.wait(Duration::from_secs(60));
    assert_eq!(all(&pair.crossed, MessageType::RESV), []);
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (0, 0));
}

/// A PathTear or ResvTear that was lost is not sent again when its state was made again: it would end the new state.
#[test]
fn a_lost_tear_is_not_sent_again_after_new_state() {
    let mut pair = Pair::new();
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(2));
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    let resv = Resv::ff(&[(load(B), 1)]).from(2, 9, session());
    let resv = Resv { hop: signalbox_rsvp::wire::RsvpHop { addr: at(12, 9), lih: handle(2) }, ..resv };
    let lost = pair.down.packet(2, at(12, 9), at(12, 1), 255, &resv.tear_octets());
    assert_eq!(all(&lost, MessageType::RESV_TEAR).len(), 1);
    pair.resv();
    pair.wait(Duration::from_secs(5));
    assert_eq!(all(&pair.crossed, MessageType::RESV_TEAR), []);
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    let lost = pair.up.path_tear(&Path::new());
    assert_eq!(all(&lost, MessageType::PATH_TEAR).len(), 1);
    pair.path();
    pair.wait(Duration::from_secs(5));
    assert_eq!(all(&pair.crossed, MessageType::PATH_TEAR), []);
    assert_eq!((pair.down.rsvp.senders(), pair.down.reservations()), (1, 1));
}

/// A next hop that falls silent, as the master of a VRRP group that dies, takes no MESSAGE_ID any more, and no
/// route changes. When its reservation has expired, the Path goes out whole, so that it reaches the router that came in its place.
#[test]
fn a_path_goes_whole_when_the_next_hop_refreshes_nothing_any_more() {
    let mut pair = Pair::new();
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(2));
    assert_eq!(pair.up.reservations(), 1);
    let mut sent = Vec::new();
    while pair.up.reservations() > 0 {
        pair.up.path(&Path::new());
        sent.extend(pair.up.wait(Duration::from_secs(5)));
    }
    let whole = all(&sent, MessageType::PATH);
    assert!(!whole.is_empty() && whole.iter().all(|one| one.oif == 2), "{:?}", kinds(&sent));
    assert!(!all(&sent, MessageType::SREFRESH).is_empty(), "{:?}", kinds(&sent));
}

fn moved(rig: &mut Rig, n: u32, address: std::net::IpAddr) -> Vec<Sent> {
    rig.input(Input::NeighborMoved { ifindex: IfIndex(n), address })
}

/// The next hop's address moves to another router at the same link, and no route changes (VRRP): that router has none of the
/// MESSAGE_IDs, and gets the whole Path at once. Nothing is given up because of it: anybody on the link can forge the change.
#[test]
fn a_path_goes_whole_when_another_router_takes_the_place_of_the_next_hop() {
    let mut pair = Pair::new();
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(2));
    for (n, address) in [(2, at(2, 8)), (3, at(2, 9)), (1, at(1, 9)), (2, addr("fe80::9"))] {
        assert_eq!(kinds(&moved(&mut pair.up, n, address)), []);
    }
    let sent = moved(&mut pair.up, 2, at(2, 9));
    assert_eq!(one(&sent, MessageType::PATH).oif, 2);
    assert_eq!(sent.len(), 1);
    assert_eq!(pair.up.reservations(), 1);
    // The router there has a new MESSAGE_ID to acknowledge, after which Srefreshes go on.
    pair.carry(sent, Vec::new());
    pair.crossed.clear();
    for _ in 0..6 {
        pair.path();
        pair.resv();
        pair.wait(Duration::from_secs(15));
    }
    assert!(all(&pair.crossed, MessageType::PATH).is_empty(), "{:?}", kinds(&pair.crossed));
    assert!(!all(&pair.crossed, MessageType::SREFRESH).is_empty());
    assert_eq!(pair.up.rsvp.counters().neighbors_followed, 1);
}

/// A change that is reported again and again makes the Paths of the link go in parts, one after the other.
#[test]
fn many_paths_to_a_next_hop_that_moves_go_in_parts() {
    let mut rig = Rig::new();
    for n in 1..=200 {
        rig.path(&Path::of(session(), n, 1));
    }
    assert_eq!(kinds(&moved(&mut rig, 2, at(2, 9))).len(), 64);
    for _ in 0..100 {
        assert_eq!(kinds(&moved(&mut rig, 2, at(2, 9))), []);
    }
    let paths = all(&rig.wait(Duration::from_millis(100)), MessageType::PATH);
    let mut senders: Vec<_> = paths.iter().map(|one| one.src).collect();
    senders.sort_unstable();
    senders.dedup();
    assert_eq!(senders.len(), 200);
    assert!(paths.len() <= 400, "{}", paths.len());
    assert_eq!(rig.wait(Duration::from_millis(100)).len(), 0, "nothing is left to send");
}
