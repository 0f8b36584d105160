//! Random events in any order. Afterwards no state is left without refreshes, here or in admission control, and
//! refreshed state follows the rules.

use std::time::Duration;

use proptest::prelude::*;
use signalbox_core::IfIndex;
use signalbox_rsvp::engine::{
    Command, Config, FlowRequest, Input, InterfaceConfig, ReserveRequest, SenderRequest, Staged,
};
use signalbox_rsvp::kit::{B, Path, Resv, World, at, group, guaranteed, load, sender, session, tspec};
use signalbox_rsvp::wire::{ErrorCode, Filter, RsvpHop, Selector, Session, Style};

/// One event.
#[derive(Debug, Clone)]
enum Step {
    Path { of: u8, sender: u32, iif: u32, hop: u32, rate: u8, period: u32 },
    PathTear { of: u8, sender: u32, iif: u32, hop: u32 },
    Resv { of: u8, style: u8, oif: u32, hop: u32, rate: u8, senders: Vec<u32>, confirm: bool, period: u32 },
    ResvTear { of: u8, style: u8, oif: u32, hop: u32, senders: Vec<u32> },
    ResvErr { of: u8, style: u8, iif: u32, rate: u8, senders: Vec<u32>, code: u8, in_place: bool },
    Route { oif: u32 },
    Tree { sender: u32, iif: u32, oifs: Vec<u32> },
    Down { n: usize },
    Application { id: u64, of: u8, what: u8, rate: u8, senders: Vec<u32> },
    Wait { ms: u64 },
    Garbled { at: usize, to: u8 },
}

fn senders() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::btree_set(1u32..4, 1..3).prop_map(|set| set.into_iter().collect())
}

fn step() -> impl Strategy<Value = Step> {
    let period = prop::sample::select(vec![1_000u32, 5_000, 30_000]);
    prop_oneof![
        6 => (0u8..3, 1u32..4, 1u32..3, 8u32..10, 1u8..9, period.clone()).prop_map(
            |(of, sender, iif, hop, rate, period)| Step::Path { of, sender, iif, hop, rate, period }
        ),
        2 => (0u8..3, 1u32..4, 1u32..3, 8u32..10)
            .prop_map(|(of, sender, iif, hop)| Step::PathTear { of, sender, iif, hop }),
        8 => (0u8..3, 0u8..4, 2u32..5, 8u32..10, 1u8..99, senders(), any::<bool>(), period).prop_map(
            |(of, style, oif, hop, rate, senders, confirm, period)| {
                Step::Resv { of, style, oif, hop, rate, senders, confirm, period }
            }
        ),
        2 => (0u8..3, 0u8..4, 2u32..5, 8u32..10, senders())
            .prop_map(|(of, style, oif, hop, senders)| Step::ResvTear { of, style, oif, hop, senders }),
        2 => (0u8..3, 0u8..4, 1u32..3, 1u8..99, senders(), 1u8..5, any::<bool>()).prop_map(
            |(of, style, iif, rate, senders, code, in_place)| {
                Step::ResvErr { of, style, iif, rate, senders, code, in_place }
            }
        ),
        1 => (0u32..5).prop_map(|oif| Step::Route { oif }),
        1 => (1u32..4, 0u32..4, prop::collection::btree_set(1u32..5, 0..4)).prop_map(
            |(sender, iif, oifs)| Step::Tree { sender, iif, oifs: oifs.into_iter().filter(|n| *n != iif).collect() }
        ),
        1 => (0usize..4).prop_map(|n| Step::Down { n }),
        2 => (1u64..4, 0u8..3, 0u8..7, 1u8..99, senders()).prop_map(
            |(id, of, what, rate, senders)| Step::Application { id, of, what, rate, senders }
        ),
        3 => (1u64..40_000).prop_map(|ms| Step::Wait { ms }),
        // Not the refresh period: state that lives for days is still there at the end.
        1 => (40usize..120, any::<u8>()).prop_map(|(at, to)| Step::Garbled { at, to }),
    ]
}

fn of(number: u8) -> Session {
    match number {
        0 => session(),
        1 => group(),
        _ => Session { port: 6000, ..session() },
    }
}

fn resv(style: u8, rate: u8, senders: &[u32]) -> Resv {
    let flowspec = load(f32::from(rate) * B);
    match style {
        0 => Resv::ff(&senders.iter().map(|n| (flowspec, *n)).collect::<Vec<_>>()),
        1 => Resv::se(flowspec, senders),
        2 => Resv::wf(flowspec),
        _ => Resv::ff(&[(guaranteed(B, f32::from(rate) * B, 0), senders[0])]),
    }
}

fn command(what: u8, of: Session, rate: u8, senders: &[u32]) -> Command {
    let rate = f32::from(rate) * B;
    let flows = |style| {
        let senders = if style == Style::Wf { Vec::new() } else { vec![sender(senders[0])] };
        vec![FlowRequest { flowspec: load(rate), senders }]
    };
    let reserve = |style| {
        Command::Reserve(ReserveRequest { style, flows: flows(style), confirm: true, policy: Box::default() })
    };
    match what {
        0 => Command::Session(of),
        1 => Command::Sender(SenderRequest {
            ttl: 9,
            ..SenderRequest::new(Filter { src: at(1, 1), selector: Selector::Port(4000) }, tspec(rate))
        }),
        2 => reserve(Style::Ff),
        3 => reserve(Style::Wf),
        4 => Command::ReleaseReservation,
        5 => Command::ReceiveAt(at(2, 1)),
        _ => Command::Close,
    }
}

fn apply(world: &mut World, step: &Step) {
    match step {
        Step::Path { of: number, sender, iif, hop, rate, period } => {
            let path = Path {
                hop: RsvpHop { addr: at(*iif, *hop), lih: *hop },
                tspec: tspec(f32::from(*rate) * 10.0 * B),
                period: *period,
                ..Path::of(of(*number), *sender, *iif)
            };
            world.path(&path);
        }
        Step::PathTear { of: number, sender, iif, hop } => {
            let hop = RsvpHop { addr: at(*iif, *hop), lih: *hop };
            world.path_tear(&Path { hop, ..Path::of(of(*number), *sender, *iif) });
        }
        Step::Resv { of: number, style, oif, hop, rate, senders, confirm, period } => {
            let confirm = confirm.then(|| at(9, 9));
            let resv = resv(*style, *rate, senders).from(*oif, *hop, of(*number));
            world.resv(&Resv { confirm, period: *period, ..resv });
        }
        Step::ResvTear { of: number, style, oif, hop, senders } => {
            world.resv_tear(&resv(*style, 1, senders).from(*oif, *hop, of(*number)));
        }
        Step::ResvErr { of: number, style, iif, rate, senders, code, in_place } => {
            let octets = resv(*style, *rate, senders).from(3, 9, of(*number)).error_octets(
                *iif,
                ErrorCode(*code),
                2,
                *in_place,
            );
            world.neighborly(*iif, at(*iif, 9), &octets);
        }
        Step::Route { oif } => drop(world.route("10.9.0.0", 24, *oif)),
        Step::Tree { sender, iif, oifs } => drop(world.tree(group(), *sender, *iif, oifs)),
        Step::Down { n } => {
            let mut list = world.interfaces.clone();
            list[*n].up = false;
            world.resources.interfaces(&list);
            world.input(Input::Interfaces(&list));
            let list = world.interfaces.clone();
            world.resources.interfaces(&list);
            world.input(Input::Interfaces(&list));
        }
        Step::Application { id, of: number, what, rate, senders } => {
            world.command(*id, command(*what, of(*number), *rate, senders));
        }
        Step::Wait { ms } => drop(world.wait(Duration::from_millis(*ms))),
        Step::Garbled { at: place, to } => {
            let mut octets = Path::new().octets();
            if let Some(octet) = octets.get_mut(*place) {
                *octet = *to;
            }
            octets[2..4].fill(0);
            world.packet(1, sender(1).src, session().dest, 60, &octets);
        }
    }
}

/// Checks that admission control and the engine have the same reservations, interface by interface.
fn check(world: &World) {
    assert!(world.rsvp.senders() <= 40 && world.rsvp.sessions() <= 10);
    for n in 1..=4 {
        assert!(world.reserved(n) <= 937_500, "more than the share of eth{n}");
    }
    for one in world.resources.reservations() {
        assert!((1..=4).map(IfIndex).any(|ifindex| ifindex == one.ifindex) && !one.filters.is_empty());
    }
    assert!(world.reservations() <= world.rsvp.reservations() as usize);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_left_without_refreshes(
        steps in prop::collection::vec(step(), 1..80),
        staged in any::<bool>(),
        named in any::<bool>(),
    ) {
        let stages = Staged { first: Duration::from_millis(500), factor: 2.0, tears: true, ..Staged::default() };
        let staged = staged.then_some(stages);
        let interface = InterfaceConfig { staged, ..InterfaceConfig::default() };
        let config = Config { interface, ..Config::default() };
        let mut world = if named { World::with_neighbors(config, "10mbit") } else { World::with(config) };
        for step in &steps {
            apply(&mut world, step);
            check(&world);
        }
        for id in 1..4 {
            world.command(id, Command::Close);
        }
        world.wait(Duration::from_secs(400));
        let left = (world.rsvp.sessions(), world.rsvp.senders(), world.rsvp.reservations(), world.reservations());
        prop_assert_eq!(left, (0, 0, 0, 0));
        prop_assert!(world.rsvp.holds_nothing(), "neighbors, addresses or names are still there");
    }
}
