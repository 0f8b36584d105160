//! The configuration in the form that people write.

use signalbox_resources::config::{Action, Config, ExcessAction, Queue};
use signalbox_resources::units::{Hours, Ports, Share, Span};
use signalbox_resources::{Rate, Resources};

use crate::support::MBIT;

const WHOLE: &str = r#"
default = "deny"
preemption = true
max_reservations = 1000

[[link]]
interface = "eth1"
capacity = "10mbit"
reservable = "80%"
overhead = 14
buffer = 1000000
[link.controlled_load]
max_share = "5mbit"
max_each = "1mbit"
queue = "shared"
excess = "drop"
[[link.dscp]]
code = 46
[link.dscp.service]
offered = false

[[link]]
interface = "*"

[[rule]]
name = "guests"
action = "allow"
from = ["10.0.0.0/8", "2001:db8::/32"]
peer = ["*.example"]
service = ["controlled-load", "dscp 46"]
protocol = [17]
ports = ["5004", "6000-6999"]
days = ["sat", "sun"]
hours = "22:00-06:00"
max_rate = "5mbit"
max_lifetime = "90s"

[[key]]
entity = "auth.example"
id = 1
secret = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"
"#;

#[test]
fn a_whole_file_is_read() {
    let config: Config = toml::from_str(WHOLE).unwrap();
    assert_eq!((config.default, config.preemption, config.max_victims), (Action::Deny, true, 16));
    let link = &config.links[0];
    assert_eq!((link.capacity, link.reservable), (Some(Rate(10 * MBIT)), Share::Percent(80)));
    assert_eq!(link.controlled_load.max_share, Some(Share::Rate(Rate(5 * MBIT))));
    assert_eq!(
        (link.controlled_load.queue, link.controlled_load.excess),
        (Queue::Shared, ExcessAction::Drop)
    );
    assert_eq!((link.guaranteed.queue, link.own_queues), (Queue::Own, 1000));
    assert!(!link.dscp[0].service.offered);
    assert_eq!(config.link("wlan0").unwrap().reservable, Share::Percent(75));
    let rule = &config.rules[0];
    assert_eq!(rule.ports, [Ports { from: 5004, to: 5004 }, Ports { from: 6000, to: 6999 }]);
    assert_eq!(rule.hours, Some(Hours { from: 22 * 60, to: 6 * 60 }));
    assert_eq!(rule.max_lifetime, Some(Span(std::time::Duration::from_secs(90))));
    assert_eq!(config.keys[0].length, 32);
    Resources::new(config.clone(), 0, [7; 32]).unwrap();
    // The configuration is written and read again without a change.
    let again = toml::from_str::<Config>(&toml::to_string(&config).unwrap()).unwrap();
    assert_eq!(again, config);
    assert_eq!(toml::from_str::<Config>(""), Ok(Config::default()));
}

/// Values of a type are checked while they are read. The error contains the valid form.
#[test]
fn a_mistake_is_named() {
    let link = |line: &str| format!("[[link]]\ninterface = \"eth1\"\n{line}");
    let rule = |line: &str| format!("[[rule]]\nname = \"r\"\naction = \"allow\"\n{line}");
    let cases = [
        ("colour = 1".to_owned(), "unknown field `colour`"),
        (
            link("capacity = \"fast\""),
            "\"fast\" is no rate: a number and bit, kbit, mbit or gbit, like \"10mbit\"",
        ),
        (link("capacity = 10"), "expected a string"),
        (link("reservable = \"101%\""), "\"101%\" is no share: 0% to 100%, or a rate like \"8mbit\""),
        (link("[link.controlled_load]\nqueue = \"both\""), "unknown variant `both`"),
        (
            rule("from = [\"10.0.0.0/33\"]"),
            "\"10.0.0.0/33\" is no prefix, such as \"10.0.0.0/8\", nor an address",
        ),
        (rule("ports = [\"9-1\"]"), "\"9-1\" is no port or range of ports, like \"5004\" or \"5000-5999\""),
        (rule("hours = \"8-18\""), "\"8-18\" is no span of hours, like \"08:00-18:30\""),
        (
            rule("max_lifetime = \"1.5h\""),
            "\"1.5h\" is no duration: a whole number and us, ms, s, m, h or d, like \"90s\"",
        ),
        (rule("service = [\"best\"]"), "\"best\" is no service:"),
        (rule("days = [\"monday\"]"), "unknown variant `monday`"),
        ("[[rule]]\nname = \"r\"".to_owned(), "missing field `action`"),
    ];
    for (text, words) in cases {
        let error = toml::from_str::<Config>(&text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// Errors that depend on several settings name the field.
#[test]
fn a_contradiction_is_named() {
    let link = |line: &str| format!("[[link]]\ninterface = \"eth1\"\n{line}");
    let rule = |line: &str| format!("[[rule]]\nname = \"r\"\naction = \"allow\"\n{line}");
    let cases = [
        ("max_victims = 0".to_owned(), "max_victims: out of range: 1 to 1024"),
        ("max_reservations = 0".to_owned(), "max_reservations: out of range: from 1"),
        (
            link("capacity = \"0mbit\""),
            "link[1] 'eth1'.capacity: out of range: from 8bit; leave it out to have it measured",
        ),
        (link("overhead = 300"), "link[1] 'eth1'.overhead: out of range: 0 to 256 octets"),
        (link("[[link]]\ninterface = \"eth1\""), "link[2] 'eth1'.interface: named twice"),
        (
            link("[[link]]\ninterface = \"\""),
            "link[2].interface: empty: the name of an interface, or \"*\" for all that are not named",
        ),
        (link("[[link.dscp]]\ncode = 64"), "link[1] 'eth1'.dscp.code: out of range: 0 to 63"),
        (link("[[link.dscp]]\ncode = 1\n[[link.dscp]]\ncode = 1"), "link[1] 'eth1'.dscp.code: named twice"),
        (
            link("[link.guaranteed]\nqueue = \"shared\""),
            "link[1] 'eth1'.guaranteed.queue: \"shared\" cannot hold a delay bound: \"own\" or \"auto\"",
        ),
        (
            rule("peer = [\"somebody\"]"),
            "rule[1] 'r'.peer: \"somebody\" is neither a fingerprint (64 hexadecimal digits) nor a DNS name nor \"any\"",
        ),
        (rule("token = [\"\"]"), "rule[1] 'r'.token: \"\": the name of an authorizing entity, or \"any\""),
        (rule("user = [\"\"]"), "rule[1] 'r'.user: \"\": a name of a user or application, or \"any\""),
        (rule("ports = [\"1\"]"), "rule[1] 'r'.ports: needs protocol, for instance protocol = [6, 17]"),
        (
            "[[rule]]\naction = \"deny\"\nmax_rate = \"1mbit\"".to_owned(),
            "rule[1].action: \"deny\" takes no limits: leave them out, or \"allow\"",
        ),
    ];
    for (text, words) in cases {
        let config: Config = toml::from_str(&text).unwrap();
        assert_eq!(config.validated().unwrap_err().to_string(), words, "{text}");
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
