//! Queues that one process leaves in force, and that the next one adopts.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use signalbox_core::traffic::{Reservation, ReservationId, ServiceClass, Treatment};
use signalbox_linux::traffic::{Enforcer, Kept, TrafficConfig};

use crate::network::{Network, ip, tool, until};
use crate::traffic::{config, ifindex, kernel_state, reservation};
use crate::traffic_flows::{close, enforcer, socket};

const PORT: u16 = 5004;
/// The first class of the pool, and the one of best effort.
const OWN: &str = "100";
const BEST_EFFORT: &str = "2";

/// The packets that a class at `r` has sent.
fn sent(net: &Network, class: &str) -> u64 {
    let text = tool(&net.r, &format!("tc -s class show dev rb classid 5342:{class}"));
    text.split_once("Sent ").unwrap().1.split(' ').filter_map(|word| word.parse().ok()).nth(1).unwrap()
}

fn wanted(net: &Network) -> Reservation {
    let mut wanted = net.r.run(|| reservation(ifindex("rb"), PORT)).unwrap();
    (wanted.traffic.rate, wanted.traffic.burst) = (1_000_000, 200_000);
    wanted
}

/// A reservation that a first enforcer made and left for this time.
fn kept(net: &Network, time: Duration) -> Kept {
    let wanted = wanted(net);
    let first = enforcer(net, &config(), |enforcer| enforcer.reserve(ReservationId(1), &wanted));
    net.r.run(|| first.keep(time)).unwrap().unwrap().unwrap()
}

fn next(net: &Network, config: &TrafficConfig, kept: Kept) -> Enforcer {
    net.r.run(|| Enforcer::open_with(config, Some(kept)).unwrap()).unwrap()
}

fn classes_in_use(enforcer: &Enforcer) -> u16 {
    enforcer.capabilities().next().unwrap().classes.1
}

/// While one process ends and the next one takes over, no packet of the flow is best effort. The reservation that is asked for
/// again changes the adopted one, with its queue.
#[test]
fn no_packet_is_best_effort_between_two_processes() {
    let net = Network::new("kept");
    let before = kernel_state(&net.r);
    let wanted = wanted(&net);
    let first = enforcer(&net, &config(), |enforcer| enforcer.reserve(ReservationId(1), &wanted));
    let (from, _to) = (socket(&net.a, 4000), socket(&net.b, PORT));
    let (done, count) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    let second = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                from.send_to(&[0; 500], (ip("10.2.0.1"), PORT)).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(1));
            }
        });
        let some = |more: u64| {
            let start = count.load(Ordering::Relaxed);
            until("packets are sent", || count.load(Ordering::Relaxed) >= start + more);
        };
        some(50);
        let kept = net.r.run(|| first.keep(Duration::from_secs(60))).unwrap().unwrap().unwrap();
        assert_eq!((kept.links.len(), kept.links[0].reservations.len()), (1, 1));
        some(50);
        let mut second = next(&net, &config(), kept);
        assert_eq!((classes_in_use(&second), second.counters().adopted), (1, 1));
        some(50);
        let mut more = wanted.clone();
        more.traffic.rate += 7000;
        second.reserve(ReservationId(9), &more);
        assert_eq!(second.flush(), [(ReservationId(9), Ok(()))]);
        assert_eq!((classes_in_use(&second), second.wait_time()), (1, None));
        some(50);
        done.store(true, Ordering::Relaxed);
        second
    });
    let all = count.load(Ordering::Relaxed);
    until("the queue has sent all packets", || sent(&net, OWN) == all);
    assert!(tool(&net.r, "tc class show dev rb").contains("rate 8056Kbit"));
    close(&net, second);
    assert_eq!(kernel_state(&net.r), before);
}

/// An adopted reservation that is not asked for again ends, and one whose change fails ends as well.
#[test]
fn what_is_not_asked_for_again_ends() {
    let net = Network::new("abandoned");
    let mut second = next(&net, &config(), kept(&net, Duration::from_secs(10)));
    assert_eq!(classes_in_use(&second), 1);
    until("it has ended", || second.wait_time() == Some(Duration::ZERO));
    assert!(!second.is_idle());
    assert_eq!(second.flush(), []);
    assert_eq!((classes_in_use(&second), second.counters().abandoned), (0, 1));
    assert!(second.is_idle() && second.wait_time().is_none());
    assert!(!tool(&net.r, "tc class show dev rb").contains("rate 8Mbit"));
    close(&net, second);

    let mut second = next(&net, &config(), kept(&net, Duration::from_secs(60)));
    let mut shared = wanted(&net);
    shared.treatment = Treatment::Aggregate(ServiceClass::Guaranteed);
    second.reserve(ReservationId(2), &shared);
    assert_eq!(second.flush(), [(ReservationId(2), Ok(()))]);
    assert_eq!(classes_in_use(&second), 0);
    second.release(ReservationId(2));
    assert_eq!(second.flush(), []);
    close(&net, second);
}

/// If no process comes in time, the flow is best effort by itself; the next process makes new queues.
#[test]
fn without_a_successor_the_reservation_ends_by_itself() {
    let net = Network::new("alone");
    let before = kernel_state(&net.r);
    let late = kept(&net, Duration::from_millis(300));
    let (from, _to) = (socket(&net.a, 4000), socket(&net.b, PORT));
    let send = |from: &UdpSocket| from.send_to(&[0; 500], (ip("10.2.0.1"), PORT)).unwrap();
    send(&from);
    until("the first packet is sent", || sent(&net, OWN) == 1);
    until("it has ended", || signalbox_linux::clock::monotonic() > late.until);
    let (own, best_effort) = (sent(&net, OWN), sent(&net, BEST_EFFORT));
    for _ in 0..20 {
        send(&from);
    }
    until("all packets are sent", || sent(&net, BEST_EFFORT) >= best_effort + 20);
    assert_eq!(sent(&net, OWN), own);
    let second = next(&net, &config(), late);
    assert_eq!((classes_in_use(&second), second.counters().adopted), (0, 0));
    close(&net, second);
    assert_eq!(kernel_state(&net.r), before);
}

/// Queues that are configured otherwise than before, or from which another program removed a part, are made again.
#[test]
fn other_queues_are_not_adopted() {
    let net = Network::new("other");
    let left = kept(&net, Duration::from_secs(60));
    let mut other = config();
    other.links[0].reservable -= 1;
    let second = next(&net, &other, left);
    assert_eq!((classes_in_use(&second), second.counters().adopted), (0, 0));
    close(&net, second);

    let left = kept(&net, Duration::from_secs(60));
    tool(&net.r, "tc class del dev rb classid 5342:100");
    let second = next(&net, &config(), left);
    assert_eq!((classes_in_use(&second), second.counters().adopted), (0, 0));
    close(&net, second);
}
