//! Settings that do not fit, and rates as text.

use signalbox_resources::Rate;
use signalbox_resources::config::{Action, Config, DscpConfig, LinkConfig, Queue, RuleConfig};
use signalbox_resources::units::Identity;

/// A change of a configuration with one link and one rule that allows.
type Change = fn(&mut Config);

fn config() -> Config {
    Config {
        links: vec![LinkConfig::new("eth1", None)],
        rules: vec![RuleConfig::new("r", Action::Allow)],
        ..Config::default()
    }
}

/// Errors name the field.
#[test]
fn a_contradiction_is_named() {
    assert_eq!(config().validated(), Ok(()));
    let cases: [(Change, &str); 13] = [
        (|c| c.max_victims = 0, "max_victims: out of range: 1 to 1024"),
        (|c| c.max_reservations = 0, "max_reservations: out of range: from 1"),
        (
            |c| c.links[0].capacity = Some(Rate(0)),
            "link[1] 'eth1'.capacity: out of range: from 8bit; leave it out to have it measured",
        ),
        (|c| c.links[0].overhead = 300, "link[1] 'eth1'.overhead: out of range: 0 to 256 octets"),
        (|c| c.links.push(c.links[0].clone()), "link[2] 'eth1'.interface: named twice"),
        (
            |c| c.links.push(LinkConfig::new("", None)),
            "link[2].interface: empty: the name of an interface, or \"*\" for all that are not named",
        ),
        (
            |c| {
                let service = c.links[0].diffserv;
                c.links[0].dscp = vec![DscpConfig { code: 64, service }];
            },
            "link[1] 'eth1'.dscp.code: out of range: 0 to 63",
        ),
        (
            |c| c.links[0].guaranteed.queue = Queue::Shared,
            "link[1] 'eth1'.guaranteed.queue: \"shared\" cannot hold a delay bound: \"own\" or \"auto\"",
        ),
        (
            |c| c.rules[0].peer = vec![Identity::Any],
            "rule[1] 'r'.peer: \"any\" matches every request, as does a rule without peer: \"authenticated\"",
        ),
        (
            |c| c.rules[0].token = vec![String::new()],
            "rule[1] 'r'.token: \"\": the name of an authorizing entity, or \"any\"",
        ),
        (
            |c| c.rules[0].user = vec![String::new()],
            "rule[1] 'r'.user: \"\": a name of a user or application, or \"any\"",
        ),
        (
            |c| c.rules[0].ports = vec!["1".parse().unwrap()],
            "rule[1] 'r'.ports: needs ip_protocol, for instance ip_protocol = [\"udp\"]",
        ),
        (
            |c| {
                c.rules[0].action = Action::Deny;
                c.rules[0].max_rate = Some(Rate(1));
            },
            "rule[1] 'r'.action: \"deny\" takes no limits: leave them out, or \"allow\"",
        ),
    ];
    for (change, words) in cases {
        let mut config = config();
        change(&mut config);
        assert_eq!(config.validated().unwrap_err().to_string(), words);
    }
}

#[test]
fn rates_are_read_and_written() {
    for (text, octets) in [
        ("10mbit", 1_250_000),
        ("10 Mbit/s", 1_250_000),
        ("2.5mbit", 312_500),
        ("64kbit", 8_000),
        ("1gbit", 125_000_000),
        ("8bit", 1),
        ("0.064 mbit", 8_000),
    ] {
        assert_eq!(text.parse(), Ok(Rate(octets)), "{text}");
        assert_eq!(Rate(octets).to_string().parse(), Ok(Rate(octets)), "{text}");
    }
    for text in
        ["", "mbit", "10", "1.2.3mbit", "-1mbit", "10mbps", "99999999999999999999gbit", ".mbit", "1e3bit"]
    {
        assert!(text.parse::<Rate>().is_err(), "{text}");
    }
    for (octets, text) in [
        (1_250_000, "10 Mbit/s"),
        (0, "0 bit/s"),
        (156_250, "1.25 Mbit/s"),
        (100, "800 bit/s"),
        (125, "1 kbit/s"),
    ] {
        assert_eq!(Rate(octets).to_string(), text);
    }
    assert_eq!(Rate(u64::MAX).to_string(), "147573952589.676 Gbit/s");
}
