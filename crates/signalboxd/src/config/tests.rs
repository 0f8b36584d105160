use std::path::Path;
use std::time::Duration;

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("node.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_is_a_node_without_applications() {
    let config = parse("").unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.control.socket, Path::new("/run/signalbox/signalboxd.sock"));
    assert!(config.ping().is_none() && config.qos().is_none());
}

#[test]
fn the_example_holds_the_defaults() {
    let text = include_str!("../../../../etc/signalboxd.toml");
    let mut config = parse(text).unwrap();
    assert_eq!(config.apps.ping, Some(PingConfig::default()));
    assert_eq!(config.apps.qos, Some(QosConfig::default()));
    config.apps = AppsConfig::default();
    assert_eq!(config, Config::default());
}

#[test]
fn every_key_of_the_example_is_documented() {
    let document = include_str!("../../../../docs/config.md");
    let mut section = String::new();
    for line in include_str!("../../../../etc/signalboxd.toml").lines() {
        // Keys without a default stand in the example as comments without a space.
        let line = line.trim_start_matches('#');
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.to_owned();
            assert!(document.contains(&format!("`[{name}]`")), "[{name}]");
        } else if let Some((key, _)) = line.split_once(" = ")
            && !key.contains(' ')
        {
            assert!(document.contains(&format!("| `{key}` |")), "{section}.{key}");
        }
    }
}

#[test]
fn a_ping_section_switches_it_on_and_enabled_off() {
    assert_eq!(parse("[apps.ping]").unwrap().ping(), Some(&PingConfig::default()));
    assert!(parse("[apps.ping]\nenabled = false").unwrap().ping().is_none());
    assert_eq!(parse("[apps.ping]\nnslp_id = 32705").unwrap().ping().map(|p| p.nslp_id), Some(32_705));
}

#[test]
fn every_protocol_can_be_left_out() {
    let protocols = |text: &str| {
        let config = parse(text).unwrap();
        let mut node = signalbox_node::Config::empty();
        for section in sections(&config) {
            section.install(&mut node);
        }
        (node.gist.is_some(), node.ping.is_some(), node.qos.is_some(), node.rsvp.is_some())
    };
    assert_eq!(protocols(""), (true, false, false, false));
    assert_eq!(protocols("[gist]\nenabled = false\n[rsvp]\n"), (false, false, false, true));
    assert_eq!(protocols("[gist]\nenabled = false\n"), (false, false, false, false));
    assert_eq!(protocols("[apps.ping]\n[apps.qos]\n[rsvp]\nenabled = false\n"), (true, true, true, false));
}

#[test]
fn values_reach_the_engine() {
    let config = parse(
        "[gist]\nstate_validity = \"4s\"\nt1 = \"100ms\"\nt2 = \"5s\"\nstate_installation = \"confirmed\"\n\
         peer_identity = \"r1\"\nmax_sessions = 7",
    )
    .unwrap();
    let engine = config.gist.engine();
    assert_eq!(engine.validity, Duration::from_secs(4));
    assert_eq!((engine.t1, engine.t2), (Duration::from_millis(100), Duration::from_secs(5)));
    assert_eq!((engine.identity.as_slice(), engine.max_sessions), (&b"r1"[..], 7));
    assert_eq!(engine.installation, signalbox_node::gist::Installation::Confirmed);
}

#[test]
fn mistakes_are_named_with_file_line_and_column() {
    for (text, place, part) in [
        ("[node]\nnam = \"a\"\n", "node.toml:2:1: ", "unknown field `nam`, expected `name`"),
        ("[nodes]\n", "node.toml:1:2: ", "unknown field `nodes`, expected one of `node`"),
        ("\n[node\n", "node.toml:2:6: ", "unclosed table"),
        ("[node]\nname = 5\n", "node.toml:2:8: ", "expected a string"),
        ("[gist]\n  t1 = 500\n", "node.toml:2:8: ", "such as \"500ms\""),
        ("[gist]\nt1 = \"500\"\n", "node.toml:2:6: ", "invalid value: string \"500\""),
        ("[gist]\nt1 = \"1ms\"\n", "node.toml:2:6: ", "gist.t1: out of range: 10 ms to 60 s"),
        ("[gist]\nt1 = \"40s\"\n", "node.toml:1:1: ", "gist.t2: out of range: t1 to 1 day"),
        ("[gist]\nattempts = 300\n", "node.toml:2:12: ", "expected u8"),
        ("[gist]\nhop_count = 0\n", "node.toml:2:13: ", "gist.hop_count: out of range: 1 to 255"),
        ("[gist]\nstate_installation = \"late\"\n", "node.toml:2:22: ", "expected one of `immediate`"),
        ("[io]\nipv4 = false\nipv6 = false\n", "node.toml:3:8: ", "both switched off"),
        ("[gist.ipv6]\nenabled = false\n", "node.toml:1:", "give `ipv4` or `ipv6` in [io]"),
        (
            "[gist]\nenabled = false\n[apps.ping]\n",
            "node.toml:2:11: ",
            "[apps.ping] is there, and needs GIST",
        ),
        ("[gist]\nenabled = false\n[apps.qos]\n", "node.toml:2:11: ", "[apps.qos] is there, and needs GIST"),
        ("[control]\nmode = \"0999\"\n", "node.toml:2:8: ", "octal"),
        ("[control]\nmode = 660\n", "node.toml:2:8: ", "octal"),
        ("[control]\nsocket = \"run/x\"\n", "node.toml:2:10: ", "absolute path"),
        ("[apps.ping]\nnslp_id = 0\n", "node.toml:2:11: ", "32704 to 32767"),
        ("[apps.ping]\nnslp_id = 1\n", "node.toml:2:11: ", "belongs to another"),
        ("[io]\nmark = 0\n", "node.toml:2:8: ", "not 0"),
        ("[io]\nmark = 5\nown_mark = 5\n", "node.toml:3:12: ", "not io.mark"),
        ("[io]\ntable = 254\n", "node.toml:2:9: ", "not 253 to 255"),
        ("[apps.rsvp]\n", "node.toml:1:7: ", "unknown field `rsvp`, expected `ping` or `qos`"),
        ("[log]\nlevel = \"loud\"\n", "node.toml:2:9: ", "expected one of `error`"),
        ("[log]\nlevel = \"info,gist=debug\"\n", "node.toml:2:9: ", "no module of Signalbox"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(place), "{text:?}: {error}");
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn a_missing_file_says_what_to_do() {
    let error = Config::load(Path::new("/nonexistent/node.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/node.toml: cannot read"), "{error}");
    assert!(error.ends_with("--config"), "{error}");
}

#[test]
fn metrics_are_off_by_default_and_an_open_address_is_a_warning() {
    assert_eq!(parse("").unwrap().metrics.listen, None);
    for local in ["127.0.0.1:9464", "[::1]:9464"] {
        let config = parse(&format!("[metrics]\nlisten = {local:?}")).unwrap();
        assert_eq!((config.metrics.listen, config.warnings().len()), (local.parse().ok(), 0));
    }
    let open = parse("[metrics]\nlisten = \"0.0.0.0:9464\"").unwrap().warnings();
    assert!(open.len() == 1 && open[0].contains("127.0.0.1"), "{open:?}");
    let wrong = parse("[metrics]\nlisten = \"9464\"").unwrap_err();
    assert!(wrong.starts_with("node.toml:2:") && wrong.contains("127.0.0.1:9464"), "{wrong}");
}
