//! Standing requests: `[[reserve]]`, `[[pinhole]]` and `[[expose]]`.

use std::time::Duration;

use signalbox_config::Config;
use signalbox_core::traffic::ServiceClass;

use crate::support::read;

const PROTOCOLS: &str =
    "node.protocols = [\"gist\", \"qos\", \"rsvp\", \"natfw\", \"casp\"]\ncasp.clients = [\"qos\"]\n";

fn all(text: &str) -> Result<Config, Vec<String>> {
    read(&format!("{PROTOCOLS}{text}"))
}

fn reserve(more: &str) -> String {
    format!("[[reserve]]\nname = \"video\"\ndestination = \"192.0.2.9\"\nrate = \"5mbit\"\n{more}")
}

#[test]
fn requests_are_read_whole() {
    let text = reserve(
        "signaling = \"casp\"\nsource = \"192.0.2.1\"\nprotocol = \"udp\"\nsource_port = 4000\n\
         destination_port = 5004\nburst = \"15k\"\nmax_packet = 1200\nat_least = \"1mbit\"\nservice = \"ef\"\n\
         priority = 7\nbidirectional = true\n",
    ) + "[[pinhole]]\nname = \"out\"\ndestination = \"2001:db8::9\"\nprotocol = \"tcp\"\ndestination_port = 443\n\
         lifetime = \"2m\"\nproxy = true\n[[expose]]\nname = \"web\"\nprotocol = \"tcp\"\nport = 8080\n\
         from = \"203.0.113.0/24\"\ntowards = \"198.51.100.1\"\nsecond_port = true\n";
    let config = all(&text).unwrap();
    let [one] = &config.standing.reserve[..] else { panic!("{config:?}") };
    assert_eq!((one.name(), one.signaling, one.rate()), ("video", "casp", 625_000));
    assert_eq!((one.burst, one.max_packet, one.at_least()), (Some(15_000), Some(1200), Some(125_000)));
    assert_eq!((one.service(), one.priority), (Some(ServiceClass::Dscp(46)), Some(7)));
    assert_eq!((one.flow.protocol, one.flow.source_port), (Some(17), Some(4000)));
    assert!(one.bidirectional && !one.receiver_initiated);
    let [out] = &config.standing.pinhole[..] else { panic!("{config:?}") };
    assert_eq!((out.name(), out.signaling, out.flow.destination_port), ("out", "natfw", Some(443)));
    assert_eq!((out.passage.lifetime, out.passage.proxy), (Some(Duration::from_secs(120)), true));
    let [web] = &config.standing.expose[..] else { panic!("{config:?}") };
    assert_eq!((web.port, web.from().map(|from| from.len)), (Some(8080), Some(24)));

    let effective = config.effective();
    assert_eq!(
        read(&effective.replacen("version = 1\n", "", 1)).unwrap().standing,
        config.standing,
        "{effective}"
    );
}

#[test]
fn mistakes_say_what_would_be_right() {
    let rsvp = |more: &str| reserve(&format!("signaling = \"rsvp\"\nprotocol = \"udp\"\n{more}"));
    let natfw = "[[pinhole]]\nname = \"a\"\ndestination = \"192.0.2.9\"\nsignaling = \"casp\"\n";
    let expose = "[[expose]]\nname = \"a\"\nprotocol = \"udp\"\nport = 5004\n";
    for (text, part) in [
        ("[[reserve]]\n".to_owned(), "reserve[1].destination: missing"),
        ("[[reserve]]\n".to_owned(), "reserve[1].rate: missing: write rate = \"10mbit\""),
        ("[[expose]]\n".to_owned(), "expose[1].port: missing"),
        (reserve("destination_port = 9\n"), "reserve[1].source_port: ports belong to an IP protocol"),
        (reserve("source = \"::1\"\n"), "reserve[1].source: IPv4 here, and IPv6"),
        (reserve("signaling = \"boomerang\"\n"), "reserve[1].signaling: boomerang does not run here"),
        (reserve("signaling = \"natfw\"\n"), "write one of \"qos\", \"rsvp\", \"boomerang\", \"casp\""),
        (reserve("bidirectional = true\nreceiver_initiated = true\n"), "one of the two"),
        (reserve(&reserve("")), "reserve[2].name: another table has this name"),
        (reserve("burst = 1000\n"), "reserve[1].burst: less than one largest packet"),
        (rsvp("at_least = \"1mbit\"\n"), "reserve[1].at_least: RSVP has none"),
        (reserve("signaling = \"rsvp\"\n"), "reserve[1].protocol: RSVP needs the IP protocol"),
        (
            natfw.to_owned(),
            "pinhole[1].signaling: casp does not run here, or not with what asks for passages",
        ),
        (expose.to_owned(), "expose[1].towards: write where the edge lies"),
        (format!("{expose}from = \"192.0.2.0/24\"\n"), "expose[1].towards: write where the edge lies"),
    ] {
        let mistakes = all(&text).map(|_| ()).unwrap_err();
        assert!(mistakes.iter().any(|mistake| mistake.contains(part)), "{text}{part}: {mistakes:#?}");
    }
    assert!(all(&format!("{expose}from = \"192.0.2.7\"\n")).is_ok(), "one sender is a direction");
}

/// A running daemon takes all of them.
#[test]
fn a_reload_takes_requests() {
    let old = all(&reserve("")).unwrap();
    let new = all(&(reserve("burst = \"15k\"\n")
        + "[[expose]]\nname = \"a\"\nprotocol = \"udp\"\nport = 9\nfrom = \"192.0.2.7\"\n"))
    .unwrap();
    let reload = old.reload(&new);
    assert_eq!(reload.needs_restart, [""; 0]);
    for key in ["reserve[1].burst", "expose[1].port"] {
        assert!(reload.applied.iter().any(|applied| applied == key), "{key}: {:?}", reload.applied);
    }
    assert_eq!(reload.config.standing, new.standing);
}
