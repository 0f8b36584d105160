//! The kernel objects of enforcement, and their removal.

use std::ops::Range;

use signalbox_core::IfIndex;
use signalbox_core::traffic::{
    Excess, FlowFilter, Reservation, ReservationId, ReserveError, ServiceClass, TrafficSpec, Treatment,
};
use signalbox_linux::netns::Namespace;
use signalbox_linux::traffic::{Enforcement, Enforcer, LinkConfig, Policing, TrafficConfig};

use crate::helper::helper;
use crate::network::{Network, prefix, tool, until, without_comments};

/// The rate of the link: 10 Mbit/s.
pub(crate) const RATE: u64 = 1_250_000;

/// Enforcement at the link from `r` to `b`, with a pool of 50 classes.
pub(crate) fn config() -> TrafficConfig {
    let link = LinkConfig { classes: 50, ..LinkConfig::new("rb", RATE) };
    TrafficConfig { links: vec![link], ..TrafficConfig::default() }
}

/// The number of an interface of this thread's namespace.
pub(crate) fn ifindex(name: &str) -> IfIndex {
    let link = tool_here(&format!("ip -o link show dev {name}"));
    IfIndex(link.split(':').next().unwrap().parse().unwrap())
}

/// A reservation for UDP from `a` to port `port` of `b`, 10 kB/s.
pub(crate) fn reservation(ifindex: IfIndex, port: u16) -> Reservation {
    let filter = FlowFilter {
        protocol: Some(17),
        dst_port: Some(port),
        ..FlowFilter::between(prefix("10.1.0.1/32"), prefix("10.2.0.1/32"))
    };
    Reservation {
        ifindex,
        filters: vec![filter],
        traffic: TrafficSpec { rate: 10_000, burst: 5000, peak: None, min_policed: 64, max_packet: 1500 },
        served: None,
        treatment: Treatment::OwnQueue,
        mark_dscp: None,
        excess: Excess::Drop,
    }
}

/// Reserves for source ports, in this thread's namespace, and asserts that each reservation is granted.
pub(crate) fn reserve_all(enforcer: &mut Enforcer, interface: &str, numbers: Range<u16>) {
    let ifindex = ifindex(interface);
    for number in numbers.clone() {
        let mut reservation = reservation(ifindex, 270);
        reservation.filters[0].src_port = Some(1 + number);
        enforcer.reserve(ReservationId(number.into()), &reservation);
    }
    let results = enforcer.flush();
    assert!(results.into_iter().eq(numbers.map(|number| (ReservationId(number.into()), Ok(())))));
    assert!(enforcer.is_idle());
}

/// The queues, filters and nftables rules of a namespace.
pub(crate) fn kernel_state(namespace: &Namespace) -> String {
    ["tc qdisc show", "tc class show dev rb", "tc filter show dev rb", "nft list ruleset"]
        .map(|line| without_comments(&tool(namespace, line)))
        .join("--\n")
}

#[test]
fn two_thousand_reservations_come_and_go() {
    let net = Network::new("many");
    let before = kernel_state(&net.r);
    let fresh = net
        .r
        .run(|| {
            let mut enforcer = Enforcer::open(&config()).unwrap();
            let fresh = idle_state_here();
            reserve_all(&mut enforcer, "rb", 0..2500);
            let capabilities = enforcer.capabilities().next().unwrap();
            assert_eq!(capabilities.policing, Policing::TokenBucket);
            assert_eq!((capabilities.classes, capabilities.reservations), ((50, 50), (16_384, 2500)));
            assert_eq!(enforcer.counters().spilled, 2450);
            // The others share the class of controlled load: 2,450 times 10 kB/s.
            let class = tool_here("tc class show dev rb classid 5342:11");
            assert!(class.contains("rate 196Mbit"), "{class}");
            let own = tool_here("tc class show dev rb classid 5342:100");
            assert!(own.contains("rate 80Kbit") && own.contains("ceil 10Mbit"), "{own}");
            (0..2500).for_each(|number| enforcer.release(ReservationId(number)));
            assert_eq!(enforcer.flush(), []);
            assert_eq!(enforcer.capabilities().next().unwrap().reservations.1, 0);
            assert_eq!(idle_state_here(), fresh);
            // The released places are free for other reservations.
            reserve_all(&mut enforcer, "rb", 1000..3500);
            enforcer.close().unwrap();
            fresh
        })
        .unwrap();
    assert!(fresh.contains("htb 5342:") && fresh.contains("direct-action"), "{fresh}");
    assert_eq!(kernel_state(&net.r), before);
}

/// Queues are made before reservations need them. Those that reservations have stay as they are.
#[test]
fn queues_are_made_ahead() {
    let net = Network::new("ahead");
    net.r
        .run(|| {
            let mut enforcer = Enforcer::open(&config()).unwrap();
            let own = || {
                let all = tool_here("tc class show dev rb");
                all.lines().filter(|line| line.contains(" prio 1 ")).map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(own().len(), 0, "the start makes no queue of the pool");
            reserve_all(&mut enforcer, "rb", 0..20);
            let reserved = own();
            assert_eq!(reserved.len(), 20);
            until("all are there", || {
                enforcer.prepare();
                enforcer.prepares_in().is_none()
            });
            assert_eq!(own().len(), 50);
            assert!(reserved.iter().all(|class| class.contains("rate 80Kbit") && own().contains(class)));
            assert_eq!(enforcer.capabilities().next().unwrap().classes, (50, 20));
            // Another program removes the queues: those that are made again are prepared again.
            tool_here("tc qdisc del dev rb root");
            assert_eq!(enforcer.restore(), [("rb".to_owned(), Ok(()))]);
            assert_eq!(own().len(), 20);
            assert!(enforcer.prepares_in().is_some());
            enforcer.close().unwrap();
        })
        .unwrap();
}

/// O13: the queues of an interface that gets another name go, and those of one that gets a configured name are made.
#[test]
fn the_queues_of_a_renamed_interface_go() {
    let net = Network::new("rename");
    let before = tool(&net.r, "tc qdisc show");
    let rename = |from: &str, to: &str| {
        tool_here(&format!("ip link set dev {from} down"));
        tool_here(&format!("ip link set dev {from} name {to}"));
        tool_here(&format!("ip link set dev {to} up"));
    };
    net.r
        .run(|| {
            let mut enforcer = Enforcer::open(&config()).unwrap();
            reserve_all(&mut enforcer, "rb", 0..3);
            rename("rb", "other");
            enforcer.refresh();
            let left = tool_here("tc qdisc show");
            assert!(!left.contains("5342:"), "{left}");
            rename("other", "rb");
            assert!(enforcer.refresh().is_empty());
            reserve_all(&mut enforcer, "rb", 10..13);
            // Another interface has the name now.
            rename("rb", "other");
            rename("ra", "rb");
            assert!(enforcer.refresh().is_empty());
            let queues = tool_here("tc qdisc show");
            assert!(queues.contains("htb 5342: dev rb root"), "{queues}");
            assert!(!tool_here("tc qdisc show dev other").contains("5342:"), "{queues}");
            enforcer.close().unwrap();
            rename("rb", "ra");
            rename("other", "rb");
        })
        .unwrap();
    assert_eq!(tool(&net.r, "tc qdisc show"), before);
}

#[test]
fn dropping_leaves_nothing_either() {
    let net = Network::new("drop");
    let before = kernel_state(&net.r);
    for ebpf in [true, false] {
        net.r
            .run(|| {
                let mut enforcer = Enforcer::open(&TrafficConfig { ebpf, ..config() }).unwrap();
                reserve_all(&mut enforcer, "rb", 0..30);
                assert_ne!(kernel_state_here(), before);
            })
            .unwrap();
        assert_eq!(kernel_state(&net.r), before);
    }
}

#[test]
fn what_a_killed_daemon_left_is_cleared_by_the_next() {
    let net = Network::new("killed");
    let before = kernel_state(&net.r);
    for enforcement in [Enforcement::Required, Enforcement::Off] {
        let mut victim = net.r.spawn(&mut helper("traffic-daemon")).unwrap();
        let reserved = || tool(&net.r, "tc class show dev rb").contains("rate 80Kbit");
        until("reservations stand", reserved);
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert!(reserved(), "a killed daemon cannot clean up");
        net.r
            .run(|| {
                let mut enforcer = Enforcer::open(&TrafficConfig { enforcement, ..config() }).unwrap();
                assert!(!tool_here("tc class show dev rb").contains("rate 80Kbit"));
                reserve_all(&mut enforcer, "rb", 0..20);
                enforcer.close().unwrap();
            })
            .unwrap();
        assert_eq!(kernel_state(&net.r), before);
    }
}

#[test]
fn a_qdisc_of_somebody_else_is_not_touched() {
    let net = Network::new("foreign");
    tool(&net.r, "tc qdisc add dev rb root handle 9: pfifo limit 77");
    let before = kernel_state(&net.r);
    net.r
        .run(|| {
            let refused = Enforcer::open(&config()).err().unwrap();
            assert_eq!(refused.id, "foreign-qdisc");
            let text = refused.to_string();
            assert!(text.contains("pfifo 9:") && text.contains("tc qdisc del dev rb root"), "{text}");
            assert_eq!(kernel_state_here(), before);

            // Where the configuration allows it, everything is granted without enforcement.
            let lenient = TrafficConfig { enforcement: Enforcement::BestEffort, ..config() };
            let mut enforcer = Enforcer::open(&lenient).unwrap();
            reserve_all(&mut enforcer, "rb", 0..3);
            assert!(!enforcer.is_enforced(ReservationId(0)));
            assert_eq!(enforcer.statistics(ReservationId(0)).unwrap(), None);
            assert_eq!(enforcer.counters().unenforced, 3);
            let capabilities = enforcer.capabilities().next().unwrap();
            assert_eq!(capabilities.policing, Policing::None);
            assert!(capabilities.lacking[0].contains("foreign-qdisc"), "{:?}", capabilities.lacking);
            enforcer.close().unwrap();
        })
        .unwrap();
    assert_eq!(kernel_state(&net.r), before);
}

#[test]
fn what_cannot_be_is_refused_and_what_stood_stays() {
    let net = Network::new("refused");
    let mut config = config();
    config.links[0].max_reservations = 3;
    net.r
        .run(|| {
            let mut enforcer = Enforcer::open(&config).unwrap();
            let here = ifindex("rb");
            let (id, ask) = (ReservationId(1), |enforcer: &mut Enforcer, id, reservation: &Reservation| {
                enforcer.reserve(id, reservation);
                enforcer.flush()
            });
            let base = reservation(here, 270);
            assert_eq!(ask(&mut enforcer, id, &base), [(id, Ok(()))]);
            let state = kernel_state_here();
            let elsewhere = Reservation { ifindex: ifindex("ra"), ..base.clone() };
            assert_eq!(ask(&mut enforcer, id, &elsewhere), [(id, Err(ReserveError::NoInterface))]);
            let nothing = Reservation { filters: Vec::new(), ..base.clone() };
            assert_eq!(ask(&mut enforcer, id, &nothing), [(id, Err(ReserveError::Unsupported))]);
            // Seventeen kinds of wildcards.
            let mut kinds = base.clone();
            kinds.filters = (8..25)
                .map(|len| FlowFilter::between(prefix(&format!("10.1.0.1/{len}")), prefix("10.2.0.1/32")))
                .collect();
            assert_eq!(ask(&mut enforcer, id, &kinds), [(id, Err(ReserveError::Full))]);
            kinds.filters.truncate(3);
            assert_eq!(kernel_state_here(), state);
            assert!(enforcer.is_enforced(id));
            // Five filters: four and a half are the most for three reservations.
            let mut many = base.clone();
            many.filters =
                (1..=5).map(|port| FlowFilter { src_port: Some(port), ..base.filters[0] }).collect();
            assert_eq!(ask(&mut enforcer, id, &many), [(id, Err(ReserveError::Full))]);
            assert_eq!(ask(&mut enforcer, id, &kinds), [(id, Ok(()))]);

            for (number, result) in [(2, Ok(())), (3, Ok(())), (4, Err(ReserveError::Full))] {
                let other = reservation(here, 300 + number);
                let id = ReservationId(number.into());
                // The last of four filters exceeds the limit, whatever the place.
                let result = if number == 3 { Err(ReserveError::Full) } else { result };
                assert_eq!(ask(&mut enforcer, id, &other), [(id, result)]);
            }
            assert_eq!(enforcer.counters().full, 4);
            // Release, and reserve again within one flush.
            enforcer.release(id);
            enforcer.reserve(id, &base);
            enforcer.release(ReservationId(99));
            enforcer.reserve(ReservationId(4), &reservation(here, 400));
            assert_eq!(enforcer.flush(), [(id, Ok(())), (ReservationId(4), Ok(()))]);
            enforcer.close().unwrap();
        })
        .unwrap();
}

#[test]
fn services_share_a_class_that_is_as_large_as_their_sum() {
    let net = Network::new("share");
    net.r
        .run(|| {
            let mut enforcer = Enforcer::open(&config()).unwrap();
            let here = ifindex("rb");
            let fresh = idle_state_here();
            let class = |minor: &str| tool_here(&format!("tc class show dev rb classid 5342:{minor}"));
            for (number, service) in
                (0..).zip([ServiceClass::Guaranteed, ServiceClass::Guaranteed, ServiceClass::Dscp(46)])
            {
                let treatment = Treatment::Aggregate(service);
                enforcer.reserve(ReservationId(number), &Reservation { treatment, ..reservation(here, 300) });
            }
            assert!(enforcer.flush().iter().all(|(_, result)| result.is_ok()));
            assert!(class("10").contains("rate 160Kbit"), "{}", class("10"));
            assert!(class("6e").contains("rate 80Kbit"), "{}", class("6e"));
            // One reservation moves to a queue of its own, another grows.
            enforcer.reserve(ReservationId(0), &reservation(here, 300));
            let mut larger = reservation(here, 300);
            larger.treatment = Treatment::Aggregate(ServiceClass::Guaranteed);
            larger.traffic.rate = 50_000;
            enforcer.reserve(ReservationId(1), &larger);
            assert!(enforcer.flush().iter().all(|(_, result)| result.is_ok()));
            assert!(class("10").contains("rate 400Kbit"), "{}", class("10"));
            assert!(class("100").contains("rate 80Kbit"), "{}", class("100"));
            (0..3).for_each(|number| enforcer.release(ReservationId(number)));
            enforcer.flush();
            assert_eq!(idle_state_here(), fresh);
            enforcer.close().unwrap();
        })
        .unwrap();
}

#[test]
fn links_come_and_go() {
    let net = Network::new("links");
    let before = without_comments(&tool(&net.r, "nft list ruleset"));
    let (result, state) = net
        .r
        .run(|| {
            let mut config = config();
            config.links.push(LinkConfig { classes: 2, ..LinkConfig::new("later", RATE) });
            let mut enforcer = Enforcer::open(&config).unwrap();
            let lacking = |enforcer: &Enforcer| enforcer.capabilities().nth(1).unwrap().lacking;
            assert_eq!(lacking(&enforcer), ["there is no such interface"]);
            tool_here("ip link add later type veth peer name other");
            assert!(enforcer.refresh().is_empty());
            assert_eq!(lacking(&enforcer), [""; 0]);
            reserve_all(&mut enforcer, "later", 0..2);
            reserve_all(&mut enforcer, "rb", 2..4);
            // A reservation moves to another link.
            reserve_all(&mut enforcer, "rb", 0..1);
            tool_here("ip link delete later");
            assert!(enforcer.refresh().is_empty());
            let standing = [0, 1, 2].map(|number| enforcer.is_enforced(ReservationId(number)));
            assert_eq!(standing, [true, false, true]);
            (enforcer.close(), tool_here("tc qdisc show"))
        })
        .unwrap();
    result.unwrap();
    assert!(!state.contains("5342:"), "{state}");
    assert_eq!(without_comments(&tool(&net.r, "nft list ruleset")), before);
}

#[test]
fn a_faulty_configuration_is_refused() {
    let net = Network::new("faulty");
    let faults = [
        LinkConfig::new("rb", 999),
        LinkConfig { reservable: RATE + 1, ..LinkConfig::new("rb", RATE) },
        LinkConfig { classes: 2001, ..LinkConfig::new("rb", RATE) },
        LinkConfig { max_reservations: 0, ..LinkConfig::new("rb", RATE) },
    ];
    let twice = vec![LinkConfig::new("rb", RATE), LinkConfig::new("rb", RATE)];
    for links in faults.map(|link| vec![link]).into_iter().chain([twice]) {
        let config = TrafficConfig { links, ..TrafficConfig::default() };
        let refused = net.r.run(|| Enforcer::open(&config).err()).unwrap().unwrap();
        assert_eq!(refused.id, "bad-link");
    }
}

/// Without eBPF, nftables finds the queues.
#[test]
fn without_ebpf_the_maps_are_nftables() {
    let net = Network::new("maps");
    let before = kernel_state(&net.r);
    net.r
        .run(|| {
            let mut enforcer = Enforcer::open(&TrafficConfig { ebpf: false, ..config() }).unwrap();
            let here = ifindex("rb");
            let fresh = idle_state_here();
            let capabilities = enforcer.capabilities().next().unwrap();
            assert_eq!((capabilities.policing, capabilities.marking), (Policing::ClassCeiling, true));
            assert!(capabilities.lacking[0].contains("no eBPF"), "{:?}", capabilities.lacking);
            let mut exact = reservation(here, 300);
            exact.filters[0].src_port = Some(7);
            let wide = Reservation { excess: Excess::BestEffort, ..reservation(here, 301) };
            let marked = Reservation { mark_dscp: Some(46), ..reservation(here, 302) };
            let v6 = Reservation {
                filters: vec![FlowFilter::between(prefix("fd01::/64"), prefix("fd02::1/128"))],
                ..reservation(here, 303)
            };
            for (number, reservation) in (0..).zip([&exact, &wide, &marked, &v6]) {
                enforcer.reserve(ReservationId(number), reservation);
            }
            let results: Vec<_> =
                enforcer.flush().into_iter().map(|(id, result)| (id.0, result.is_ok())).collect();
            assert_eq!(results, [(0, true), (1, true), (2, true), (3, true)]);
            let maps = tool_here("nft list table inet signalbox_traffic");
            for element in [
                "10.1.0.1 . 10.2.0.1 . udp . 7 . 300 : 5342:100",
                ". udp . 0-65535 . 301 : 5342:101",
                "fd01::/64 . fd02::1",
                "5342:102 : goto",
                "ip6 saddr . ip6 daddr . meta l4proto . th sport . th dport map @link",
                "meta priority vmap @link",
                "ip6 dscp set ef",
            ] {
                assert!(maps.contains(element), "{element} in {maps}");
            }
            let class = tool_here("tc class show dev rb classid 5342:100");
            assert!(class.contains("rate 80Kbit ceil 80Kbit"), "{class}");
            // Another class and another filter at once.
            exact.filters[0].src_port = Some(8);
            enforcer.reserve(ReservationId(0), &exact);
            assert_eq!(enforcer.flush(), [(ReservationId(0), Ok(()))]);
            let maps = tool_here("nft list table inet signalbox_traffic");
            assert!(maps.contains("udp . 8 . 300") && !maps.contains("udp . 7 . 300"), "{maps}");
            (0..4).for_each(|number| enforcer.release(ReservationId(number)));
            enforcer.flush();
            assert_eq!(idle_state_here(), fresh);
            // There is no queue left.
            reserve_all(&mut enforcer, "rb", 0..50);
            enforcer.reserve(ReservationId(50), &exact);
            assert_eq!(enforcer.flush(), [(ReservationId(50), Err(ReserveError::Full))]);
            enforcer.close().unwrap();
        })
        .unwrap();
    assert_eq!(kernel_state(&net.r), before);
}

/// An interface that another namespace had for some time comes back with its number. What the maps had of it is gone.
#[test]
fn without_ebpf_a_link_that_comes_back_has_empty_maps() {
    let net = Network::new("back");
    let away = Namespace::create(&format!("sbxt-{}-away", std::process::id())).unwrap();
    let open = || Enforcer::open(&TrafficConfig { ebpf: false, ..config() }).unwrap();
    let (mut enforcer, number) = net.r.run(|| (open(), ifindex("rb"))).unwrap();
    for _ in 0..2 {
        net.r.run(|| reserve_all(&mut enforcer, "rb", 0..5)).unwrap();
        tool(&net.r, &format!("ip link set rb netns {}", away.name()));
        net.r.run(|| assert!(enforcer.refresh().is_empty())).unwrap();
        assert_eq!(enforcer.capabilities().next().unwrap().ifindex, IfIndex::NONE);
        tool(&away, &format!("ip link set rb netns {}", net.r.name()));
        net.r.run(|| assert!(enforcer.refresh().is_empty())).unwrap();
        assert_eq!(enforcer.capabilities().next().unwrap().ifindex, number);
        assert!(!tool(&net.r, "nft list table inet signalbox_traffic").contains("elements"));
    }
    net.r.run(|| enforcer.close()).unwrap().unwrap();
    away.delete().unwrap();
}

/// The output of a tool that runs in this thread's namespace.
fn tool_here(line: &str) -> String {
    let mut words = line.split(' ');
    let output = std::process::Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The same as [`kernel_state_here`] without the classes of the pool, which have to be idle.
fn idle_state_here() -> String {
    let state = kernel_state_here();
    let is_of_pool = |line: &&str| line.starts_with("class htb 5342:") && line.contains(" prio 1 ");
    let (pool, others): (Vec<&str>, Vec<&str>) = state.lines().partition(is_of_pool);
    assert!(pool.iter().all(|class| class.contains(" rate 1Kbit ")), "{pool:#?}");
    others.join("\n")
}

fn kernel_state_here() -> String {
    ["tc qdisc show", "tc class show dev rb", "tc filter show dev rb", "nft list ruleset"]
        .map(|line| without_comments(&tool_here(line)))
        .join("--\n")
}
