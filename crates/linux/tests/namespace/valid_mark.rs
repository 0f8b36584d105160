//! O02: with `src_valid_mark` the kernel looks up the source of a packet with its mark. Packets of others are intercepted all the same.

use signalbox_core::metrics::Subsystem;
use signalbox_core::packet::{
    ROUTER_ALERT_RSVP_V6, Transmit, router_alert_v4, router_alert_v6, router_alert_v6_before,
};
use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept, Match};
use signalbox_linux::{Io, IoConfig, Judged, topology};

use crate::network::{
    Addresses, GIST, Network, datagram, families, footprint, gist, has_owned_tables, open, receive_one, send,
    tool,
};
use crate::rsvp::rsvp;

const SCOUT: Entry = Entry::Udp(4271);
const RSVP: Entry = Entry::Ip(46);

fn config() -> IoConfig {
    let scout = Intercept::passing(AlertRule::Any, vec![Match::word(0, 0x5c0c_0001)]);
    let scout = EntryRequest::local(SCOUT, Subsystem::protocol("scout")).with_intercept(scout);
    IoConfig { entries: vec![gist(), rsvp(), scout], ..IoConfig::default() }
}

/// A router between two hosts.
struct Path {
    net: Network,
    a: Io,
    r: Io,
    b: Io,
    /// The number of the last packet.
    last: u8,
}

impl Path {
    fn new(label: &str, config: &IoConfig) -> Self {
        let net = Network::new(label);
        let [a, b] =
            [&net.a, &net.b].map(|host| open(host, &IoConfig { intercept: false, ..config.clone() }));
        let r = open(&net.r, config);
        Self { net, a, r, b, last: 0 }
    }

    fn set(&self, key: &str, value: &str) {
        topology::set_sysctl(&self.net.r, &format!("net.ipv4.conf.{key}"), value).unwrap();
    }

    /// The router looks at the kernel, as after a report.
    fn look(&mut self) -> Judged {
        self.net.r.run(|| self.r.judge_interception()).unwrap().unwrap().unwrap()
    }

    /// The preferences of the rules of IPv4 that the daemon has.
    fn preferences(&self) -> Vec<String> {
        let rules = tool(&self.net.r, "ip rule");
        let ours = rules.lines().filter(|line| line.contains("0x5b00010e"));
        ours.map(|line| line.split(':').next().unwrap().to_owned()).collect()
    }

    /// The router takes packets of every kind, and they go no further.
    fn takes_all(&mut self, what: &str) {
        for Addresses { a: source, b: far } in families() {
            for (entry, start) in [(Entry::Udp(270), GIST), (SCOUT, &[0x5c, 0x0c, 0, 1]), (RSVP, &[0x10, 1])]
            {
                self.last += 1;
                let payload = [start, &[self.last]].concat();
                let v4 = router_alert_v4(0);
                let v6 = match entry {
                    RSVP => router_alert_v6_before(46, ROUTER_ALERT_RSVP_V6),
                    _ => router_alert_v6(0),
                };
                let options: &[u8] = if source.is_ipv4() { &v4 } else { &v6 };
                let port = if let Entry::Udp(port) = entry { port } else { 0 };
                let (src, dst) = ((source, port).into(), (far, port).into());
                let packet = Transmit { entry, src, dst, options, ..datagram(source, far, &payload) };
                send(&mut self.a, &packet);
                let got = receive_one(&mut self.r);
                assert_eq!((got.payload, got.src.ip(), got.dst.ip()), (payload, source, far), "{what}");
            }
            send(&mut self.a, &datagram(source, far, &[b"after", &[self.last][..]].concat()));
            assert_eq!(receive_one(&mut self.b).payload, [b"after", &[self.last][..]].concat(), "{what}");
        }
    }

    /// What is sent by the router and to it arrives.
    fn local_traffic_passes(&mut self) {
        for (Addresses { a, b }, near) in families().into_iter().zip(["10.1.0.2", "fd01::2"]) {
            let near = near.parse().unwrap();
            send(&mut self.a, &datagram(a, near, b"to the router"));
            assert_eq!(receive_one(&mut self.r).payload, b"to the router");
            send(&mut self.r, &datagram(near, b, b"from the router"));
            assert_eq!(receive_one(&mut self.b).src.ip(), near);
            send(&mut self.r, &datagram(near, near, b"to itself"));
            assert_eq!(receive_one(&mut self.r).payload, b"to itself");
        }
    }
}

#[test]
fn packets_of_others_are_taken_when_their_source_is_looked_up_with_their_mark() {
    if !has_owned_tables() {
        return;
    }
    let mut path = Path::new("vmark", &config());
    path.look();
    let unmarked = footprint(&path.net.r);
    for of in ["all", "ra"] {
        for filter in ["0", "1", "2"] {
            path.set("all.rp_filter", filter);
            path.set(&format!("{of}.src_valid_mark"), "1");
            let judged = path.look();
            assert_eq!(judged, Judged::default());
            path.takes_all(&format!("{of}.src_valid_mark = 1, rp_filter = {filter}"));
            path.local_traffic_passes();
            let untried = path.net.r.run(|| path.r.begin_self_test()).unwrap();
            let [reason] = &untried[..] else { panic!("{untried:?}") };
            let start = format!("IPv4: net.ipv4.conf.{of}.src_valid_mark is 1");
            assert!(reason.starts_with(&start), "{reason}");
            // Packets of the test of IPv6 are on their way.
            crate::selftest::await_packets(&mut path.r);
            assert_eq!(path.r.self_test_faults(), Vec::<String>::new());
            path.set(&format!("{of}.src_valid_mark"), "0");
            path.takes_all("the setting is 0 again, and the daemon did not look");
            path.look();
            assert_eq!(footprint(&path.net.r), unmarked);
            path.takes_all("the setting is 0 again");
        }
    }
    // The test looks by itself: the kernel reports no change of the setting.
    path.set("all.src_valid_mark", "1");
    assert_eq!(path.net.r.run(|| path.r.begin_self_test()).unwrap().len(), 1);
    crate::selftest::await_packets(&mut path.r);
    path.takes_all("seen by the test");
    path.net.r.run(|| path.r.close()).unwrap().unwrap();
    assert!(!footprint(&path.net.r).contains("0x5b00010e"), "no rule stays behind");
}

#[test]
fn the_rules_for_sources_follow_the_rule_of_the_interception() {
    if !has_owned_tables() {
        return;
    }
    let mut path = Path::new("vmarkvpn", &config());
    path.set("all.src_valid_mark", "1");
    path.look();
    assert_eq!(path.preferences(), ["269", "270", "271"]);
    // As wg-quick does it.
    for line in [
        "ip route add default via 10.2.0.1 dev rb table 51820",
        "ip rule add not fwmark 0xca6c table 51820",
        "ip rule add table main suppress_prefixlength 0",
    ] {
        tool(&path.net.r, line);
    }
    path.set("all.rp_filter", "1");
    assert_eq!(path.look(), Judged { raised: vec![("IPv4", 266)], faults: vec![] });
    assert_eq!(path.preferences(), ["265", "266", "267"]);
    path.takes_all("with the VPN");
    path.local_traffic_passes();
    // What other programs remove comes back, and theirs may go.
    for line in [
        "ip rule delete preference 265",
        "ip rule delete table 51820",
        "ip rule delete table main suppress_prefixlength 0",
    ] {
        tool(&path.net.r, line);
        assert_eq!(path.look(), Judged::default());
        assert_eq!(path.preferences(), ["265", "266", "267"]);
        path.takes_all(line);
    }
    // A rule that leads the packets elsewhere is seen.
    let config = IoConfig { keep_rule_first: false, ..config() };
    path.net.r.run(|| path.r.close()).unwrap().unwrap();
    path.r = open(&path.net.r, &config);
    tool(&path.net.r, "ip rule add preference 100 fwmark 0x5b00010e table 51820");
    let faults = path.look().faults;
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[1].starts_with("IPv4: intercepted packets are not led to this node"), "{faults:?}");
}

/// Daemons of several VRFs have the same mark, and rules at different places. None removes what another one needs, also at its end;
/// without the setting no daemon needs any.
#[test]
fn the_rules_around_that_of_another_daemon_stay() {
    if !has_owned_tables() {
        return;
    }
    let mut path = Path::new("vmarkbeside", &config());
    let beside = "preference 260 fwmark 0x5b00010e lookup 17694730 protocol 91";
    let around = ["preference 259 iif lo fwmark 0x5b00010e goto 261", "preference 261 fwmark 0x5b00010e nop"];
    tool(&path.net.r, &format!("ip rule add {beside}"));
    let add = |path: &Path| {
        for rule in around.into_iter().rev() {
            tool(&path.net.r, &format!("ip rule add {rule} protocol 91"));
        }
    };
    path.set("all.src_valid_mark", "1");
    path.look();
    // The other one is there, and has not looked yet.
    assert_eq!(path.preferences(), ["260", "269", "270", "271"]);
    add(&path);
    path.look();
    assert_eq!(path.preferences(), ["259", "260", "261", "269", "270", "271"]);
    path.takes_all("beside the rules of another daemon");
    path.set("all.src_valid_mark", "0");
    path.look();
    assert_eq!(path.preferences(), ["260", "270"]);
    path.set("all.src_valid_mark", "1");
    path.look();
    add(&path);
    path.net.r.run(|| path.r.close()).unwrap().unwrap();
    path.r = open(&path.net.r, &IoConfig { intercept: false, ..config() });
    assert_eq!(path.preferences(), ["259", "260", "261"]);
}

/// A daemon that was killed leaves its rules: they go with the next one, or when it looks and the setting is 0.
#[test]
fn rules_that_a_predecessor_left_are_removed() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("vmarkleft");
    let before = footprint(&net.r);
    for intercept in [true, false] {
        for rule in
            ["preference 269 iif lo fwmark 0x5b00010e goto 271", "preference 271 fwmark 0x5b00010e nop"]
        {
            tool(&net.r, &format!("ip rule add {rule} protocol 91"));
        }
        let mut r = open(&net.r, &IoConfig { intercept, ..config() });
        if intercept {
            net.r.run(|| r.judge_interception()).unwrap().unwrap();
            assert!(!tool(&net.r, "ip rule").contains("goto"));
        } else {
            assert_eq!(footprint(&net.r), before);
        }
        net.r.run(|| r.close()).unwrap().unwrap();
        assert_eq!(footprint(&net.r), before);
    }
}
