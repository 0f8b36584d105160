//! Other programs remove what a node put into the kernel: it is noticed, and put back.

use std::time::{Duration, Instant};

use signalbox_core::traffic::ReservationId;
use signalbox_linux::netns::Namespace;
use signalbox_linux::traffic::{Enforcement, Enforcer, LinkConfig, TrafficConfig};
use signalbox_linux::{Change, Io, IoConfig, topology};

use crate::network::{Network, PATIENCE, config, footprint, gist, has_owned_tables, open, tool, until};
use crate::rsvp::rsvp;
use crate::traffic::{self, kernel_state, reserve_all};

/// Waits for reports, and looks after each, until `put_back` has found something.
fn reported<T>(io: &mut Io, mut put_back: impl FnMut(&mut Io) -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "nothing was reported as removed");
        io.wait(Some(left.min(Duration::from_secs(1)))).unwrap();
        let concerned = |change: &Change| matches!(change, Change::Removed | Change::Interfaces);
        if io.changes().iter().any(concerned)
            && let Some(found) = put_back(io)
        {
            return found;
        }
    }
}

/// The words of the kernel's state, sorted: nft lists the elements of a map in any order.
fn words(namespace: &Namespace) -> Vec<String> {
    let state = kernel_state(namespace);
    let mut words: Vec<String> = state.split([' ', ',', '\n', '\t']).map(str::to_owned).collect();
    words.retain(|word| !word.is_empty());
    words.sort();
    words
}

#[test]
fn removed_queues_and_filters_return_with_their_reservations() {
    let net = Network::new("unqueued");
    for ebpf in [true, false] {
        let enforcement = Enforcement::BestEffort;
        let config = TrafficConfig { ebpf, enforcement, ..traffic::config() };
        let mut io = Network::host(&net.r);
        let mut enforcer = net
            .r
            .run(|| {
                let mut enforcer = Enforcer::open(&config).unwrap();
                // With eBPF, twenty of them share a class.
                reserve_all(&mut enforcer, "rb", 0..if ebpf { 70 } else { 40 });
                enforcer
            })
            .unwrap();
        let whole = words(&net.r);
        let mut restored = 0;
        let queues = [
            "tc qdisc del dev rb root",
            "tc class del dev rb classid 5342:101",
            "tc qdisc del dev rb parent 5342:2",
        ];
        let others = if ebpf {
            ["tc filter del dev rb"; 2]
        } else {
            ["nft flush ruleset", "nft flush chain inet signalbox_traffic link2"]
        };
        for command in queues.into_iter().chain(others) {
            let command = match command.strip_suffix("link2") {
                Some(start) => format!("{start}link{}", net.r.run(|| traffic::ifindex("rb")).unwrap().0),
                None => command.to_owned(),
            };
            tool(&net.r, &command);
            assert_ne!(words(&net.r), whole, "{command}");
            let links = reported(&mut io, |_| {
                let links = net.r.run(|| enforcer.restore()).unwrap();
                (!links.is_empty()).then_some(links)
            });
            assert_eq!(links, [("rb".to_owned(), Ok(()))], "{command}");
            restored += 1;
            assert_eq!(words(&net.r), whole, "{command}");
            assert_eq!(net.r.run(|| enforcer.restore()).unwrap(), [], "nothing more is missing");
        }
        assert_eq!(enforcer.counters().restored, restored);
        assert!(enforcer.is_enforced(ReservationId(0)));
        // Reservations are released and made as before.
        net.r
            .run(|| {
                (0..5).for_each(|number| enforcer.release(ReservationId(number)));
                assert_eq!(enforcer.flush(), []);
                reserve_all(&mut enforcer, "rb", 100..105);
                // Removed a moment before the end: that is no error.
                tool(&net.r, "tc qdisc del dev rb root");
                enforcer.close().unwrap();
                io.close().unwrap();
            })
            .unwrap();
    }
}

/// A tunnel that comes and goes has another number each time: what the former one had without eBPF is gone.
#[test]
fn what_a_link_has_in_nftables_goes_with_it() {
    let net = Network::new("unlinked");
    let links = ["ra", "rb"].map(|name| LinkConfig { classes: 5, ..LinkConfig::new(name, traffic::RATE) });
    for links in [links.to_vec(), links[1..].to_vec()] {
        let alone = links.len() == 1;
        let config = TrafficConfig {
            ebpf: false,
            enforcement: Enforcement::BestEffort,
            links,
            ..TrafficConfig::default()
        };
        let mut enforcer = net.r.run(|| Enforcer::open(&config).unwrap()).unwrap();
        // The names of what links have there, without their numbers.
        let named = || {
            let state = tool(&net.r, "nft list ruleset");
            let mut names: Vec<_> = state
                .split_whitespace()
                .filter_map(|word| word.strip_prefix("link"))
                .map(|word| word.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned())
                .collect();
            names.sort();
            names
        };
        let whole = named();
        for number in 0..3_u64 {
            net.r
                .run(|| {
                    let mut marked = traffic::reservation(traffic::ifindex("rb"), 5004);
                    marked.mark_dscp = Some(46);
                    enforcer.reserve(ReservationId(number), &marked);
                    assert_eq!(enforcer.flush(), [(ReservationId(number), Ok(()))]);
                })
                .unwrap();
            topology::delete_link(&net.r, "rb").unwrap();
            assert_eq!(net.r.run(|| enforcer.refresh()).unwrap(), []);
            assert_eq!(named().is_empty(), alone, "of ra alone");
            assert_eq!(named().len() * 2, if alone { 0 } else { whole.len() });
            topology::create_veth(&net.r, "rb", &net.b, "b0").unwrap();
            assert_eq!(net.r.run(|| enforcer.refresh()).unwrap(), []);
            assert_eq!(named(), whole, "as before");
        }
        net.r.run(|| enforcer.close()).unwrap().unwrap();
        assert_eq!(tool(&net.r, "nft list tables"), "");
    }
}

#[test]
fn queues_of_another_program_stay_and_ours_return_after_them() {
    let net = Network::new("replaced");
    let mut io = Network::host(&net.r);
    let mut enforcer = net
        .r
        .run(|| {
            let mut enforcer = Enforcer::open(&traffic::config()).unwrap();
            reserve_all(&mut enforcer, "rb", 0..5);
            enforcer
        })
        .unwrap();
    let whole = kernel_state(&net.r);
    tool(&net.r, "tc qdisc replace dev rb root handle 9: pfifo limit 77");
    let theirs = kernel_state(&net.r);
    let look = |io: &mut Io, enforcer: &mut Enforcer| {
        reported(io, |_| {
            let links = net.r.run(|| enforcer.restore()).unwrap();
            (!links.is_empty()).then_some(links)
        })
    };
    let links = look(&mut io, &mut enforcer);
    assert_eq!(links[0].1.as_ref().unwrap_err().id, "foreign-qdisc");
    assert_eq!(kernel_state(&net.r), theirs);
    let lacking = enforcer.capabilities().next().unwrap();
    assert!(!lacking.queues && lacking.lacking[0].contains("pfifo 9:"), "{lacking:?}");
    tool(&net.r, "tc qdisc del dev rb root");
    assert_eq!(look(&mut io, &mut enforcer), [("rb".to_owned(), Ok(()))]);
    assert_eq!(kernel_state(&net.r), whole);
    assert!(enforcer.capabilities().next().unwrap().queues);
    // Another program's queues are no obstacle to the end either, and stay.
    tool(&net.r, "tc qdisc replace dev rb root handle 9: pfifo limit 77");
    net.r.run(|| enforcer.close()).unwrap().unwrap();
    assert_eq!(kernel_state(&net.r), theirs);
}

#[test]
fn removed_rules_and_routes_of_the_interception_return() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("unruled");
    let raw = IoConfig { entries: vec![rsvp()], ..config() };
    let both = IoConfig { entries: vec![gist(), rsvp()], ..config() };
    let loose = IoConfig { own_tables: false, ..config() };
    let rules = [
        "ip rule del pref 270",
        "ip route flush table 270",
        "ip -6 rule del pref 270",
        "ip -6 route flush table 270",
    ];
    let tables =
        ["nft flush ruleset", "nft flush chain ip signalbox prerouting", "nft delete table ip6 signalbox"];
    let cases = [(&raw, &rules[2..], &[][..]), (&both, &rules[..], &[]), (&loose, &rules[..], &tables[..])];
    for (config, rules, tables) in cases {
        let mut io = open(&net.r, config);
        let whole = footprint(&net.r);
        for command in rules.iter().chain(tables) {
            tool(&net.r, command);
            reported(&mut io, |io| net.r.run(|| io.restore()).unwrap().unwrap().then_some(()));
            assert_eq!(footprint(&net.r), whole, "{command}");
            assert!(!net.r.run(|| io.restore()).unwrap().unwrap(), "nothing more is missing");
        }
        net.r.run(|| io.close()).unwrap().unwrap();
    }
}

/// The kernel removes routes of IPv6 with the loopback interface.
#[test]
fn routes_return_with_the_loopback_interface() {
    let net = Network::new("loopback");
    let mut io = open(&net.r, &config());
    let led = || tool(&net.r, "ip -6 route show table 270").contains("local default");
    assert!(led());
    tool(&net.r, "ip link set lo down");
    until("the route is gone", || !led());
    reported(&mut io, |io| net.r.run(|| io.restore()).unwrap().err());
    tool(&net.r, "ip link set lo up");
    reported(&mut io, |io| net.r.run(|| io.restore()).unwrap().unwrap().then_some(()));
    assert!(led());
}
