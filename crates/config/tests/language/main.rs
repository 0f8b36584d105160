//! What users of the language notice: mistakes and their place, protocols, values and defaults.

mod cost;
mod files;
mod page;
mod printed;
mod protocols;
mod standing;
mod support;
mod warnings;

use std::path::Path;
use std::time::Duration;

use signalbox_config::{Finding, Level, document, load_here, parse};
use signalbox_node::resources::Rate;

use support::{Directory, lines, read, settings};

#[test]
fn every_mistake_is_reported_with_place_range_and_example() {
    let text = "[node]\nnam = \"a\"\n[gist]\nretry.first = \"500\"\nhop_count = 0\ndscp = 64\n[log]\nlevel = \"loud\"\n";
    let mistakes = read(text).unwrap_err();
    assert_eq!(
        mistakes,
        [
            "node.toml:3:1: node.nam: unknown key: is name meant?",
            "node.toml:5:15: gist.retry.first: \"500\" has no unit: write a number and us, ms, s, m, h or d in quotes, \
             10ms to 1m, such as first = \"500ms\"",
            "node.toml:6:13: gist.hop_count: 0 is out of range: write a whole number, 1 to 255, such as hop_count = 64",
            "node.toml:7:8: gist.dscp: 64 is out of range: write a whole number, 0 to 63, such as dscp = 0",
            "node.toml:9:9: log.level: \"loud\" is no level: write \"error\", \"warn\", \"info\", \"debug\" or \"trace\", \
             then MODULE=LEVEL for single modules, such as level = \"info\"",
        ]
    );
}

/// What is right is said once, with the first of them.
#[test]
fn each_wrong_element_of_a_list_is_named() {
    let mistakes = read("[node]\nprotocols = [\"gist\", \"ospf\", \"qos\", \"bgp\"]\n").unwrap_err();
    let [first, second] = mistakes.as_slice() else { panic!("{mistakes:?}") };
    assert!(
        first.starts_with("node.toml:3:22: node.protocols: \"ospf\" is unknown: write a list; each "),
        "{first}"
    );
    assert_eq!(second, "node.toml:3:37: node.protocols: \"bgp\" is unknown");
    let rules = "[[policy.rules]]\naction = \"deny\"\nfrom = [\"192.0.2.0/24\", \"x\", 5]\n";
    assert_eq!(read(rules).unwrap_err().len(), 2);
}

/// A rate may be written with what it is for.
#[test]
fn a_rate_can_have_the_second() {
    let rule = |rate: &str| {
        let text = format!("[[policy.rules]]\naction = \"allow\"\nmax_rate = \"{rate}\"\n");
        settings(&text).resources.rules[0].max_rate
    };
    assert_eq!((rule("10mbit/s"), rule("10mbit")), (Some(Rate(1_250_000)), Some(Rate(1_250_000))));
}

/// Who may send a configuration to be checked chooses how many mistakes it has.
#[test]
fn of_many_mistakes_the_first_hundred_are_listed() {
    let keys: String = (0..30_000).map(|n| format!("unknown{n:05} = 1\n")).collect();
    let mistakes = read(&keys).unwrap_err();
    assert_eq!(mistakes.len(), 101);
    assert!(mistakes[0].starts_with("node.toml:2:1: unknown00000: unknown key"), "{}", mistakes[0]);
    let last = "node.toml:102:1: 29900 more mistakes are not listed: correct the first 100, then check again";
    assert_eq!(mistakes[100], last);
    let interfaces: String = (0..17_000).map(|n| format!("[interfaces.e{n}]\ncapacity = 1\n")).collect();
    assert_eq!(read(&interfaces).unwrap_err(), ["node.toml:2:2: interfaces: 17000 tables: at most 16384"]);
    let rules: String = (0..17_000).map(|n| format!("[[policy.rules]]\nname = \"r{n}\"\n")).collect();
    assert_eq!(read(&rules).unwrap_err(), ["node.toml:2:1: policy.rules: 17000 tables: at most 16384"]);
}

#[test]
fn mistakes_have_their_place() {
    for (text, place, part) in [
        ("[nodes]\n", "2:2", "nodes: unknown key: is node meant?"),
        ("\n[node\n", "3:6", "unclosed table"),
        ("[node]\nname = 5\n", "3:8", "5 is not a text"),
        ("[node]\nprotocols = [\"gist\", \"ospf\"]\n", "3:22", "\"ospf\" is unknown: write a list"),
        ("[node]\nfamilies = []\n", "3:12", "write one version"),
        ("[node]\nprotocols = [\"qos\"]\n", "3:13", "qos needs gist"),
        ("[gist]\n  hold_time = \"1s\"\n", "3:3", "unknown key"),
        ("[gist]\nretry = { first = \"40s\" }\n", "3:19", "gist.retry.max: shorter than retry.first"),
        ("[gist]\nretry.attempts = 300\n", "3:18", "300 is out of range"),
        (
            "[gist]\nstate_installation = \"late\"\n",
            "3:22",
            "write one of \"immediate\", \"confirmed\", \"delayed\"",
        ),
        ("[gist]\nmax_datagram_size = \"1m\"\n", "3:21", "\"1m\" is not a size"),
        ("[gist]\nmessage_rate = 20000\n", "3:16", "20000 has no /s"),
        ("[gist]\nroute_damping.first = \"20s\"\n", "3:23", "gist.route_damping.max: shorter than"),
        ("[gist]\nrouter_alert.omitted_towards = [\"::/0\"]\n", "3:32", "never left out"),
        ("[gist]\nmin_prefix.ipv4 = 33\n", "3:19", "33 is out of range"),
        ("[interfaces.eth1.gist]\naddresses = [\"10.0.0.1\", \"10.0.0.2\"]\n", "3:13", "one of each"),
        ("[gist.associations]\ntcp_port = 70000\n", "3:12", "out of range"),
        ("[gist.associations]\ntcp_port = 271\ntls_port = 271\n", "4:12", "the same as tcp_port"),
        ("[gist.associations]\ntls_port = 271\n", "3:12", "needs keys and certificates"),
        ("[gist.associations]\nmax_queued_size = 9\n", "3:19", "from 1KiB"),
        ("[gist.associations]\npreference = [\"udp\"]\n", "3:15", "\"udp\" is unknown"),
        (
            "[gist.tls]\nkey_file = \"k\"\n",
            "3:12",
            "either certificate_file and anchors_file, or peer_keys_file",
        ),
        (
            "[gist.tls]\nkey_file = \"k\"\npeer_keys_file = \"p\"\nversions = \"1.2\"\n",
            "5:12",
            "raw public keys need TLS 1.3",
        ),
        ("[gist.tls]\nrevocations_file = \"r\"\n", "3:20", "write anchors_file"),
        ("[gist.tls]\nrevocations_required = true\n", "3:24", "write revocations_file"),
        ("[[gist.peer_rules]]\npeer = \"bob\"\naction = \"deny\"\n", "3:8", "\"bob\" is not an identity"),
        ("[[gist.peer_rules]]\npeer = \"any\"\n", "2:1", "gist.peer_rules[1].action: missing"),
        (
            "[[gist.peer_rules]]\npeer = \"any\"\naction = \"deny\"\nsource = \"::/129\"\n",
            "5:10",
            "192.0.2.0/24",
        ),
        ("[control]\nmode = \"0999\"\n", "3:8", "octal"),
        ("[control]\nsocket = \"run/x\"\n", "3:10", "absolute"),
        ("[ping]\nnslp_id = 1\n", "3:11", "belongs to another application"),
        ("[qos]\nnslp_id = 32704\n", "3:11", "is ping.nslp_id"),
        ("[ping]\nnsis_nslp_id = 33\n", "3:16", "32704 to 32767"),
        ("[ping]\nnsis_nslp_id = 32704\n", "3:16", "an NSLPID of its own"),
        ("[qos]\nrefresh = \"1ms\"\n", "3:11", "1s to 1d"),
        ("[kernel]\nmark = 0\n", "3:8", "0 is out of range"),
        ("[kernel]\nmark = 5\nown_mark = 5\n", "4:12", "the same as kernel.mark"),
        ("[kernel]\ntable = 254\n", "3:9", "253 to 255"),
        ("[rsvp]\ndscp = 64\n", "3:8", "0 to 63"),
        ("[rsvp]\nrefresh = \"30\"\n", "3:11", "has no unit"),
        ("[rsvp]\nrefresh = \"30d\"\n", "3:11", "1ms to 24d"),
        ("[rsvp]\nrefresh_multiple = 0\n", "3:20", "from 1"),
        ("[rsvp]\nstaged_refresh = { first = \"1ms\" }\n", "3:28", "rsvp.staged_refresh.first: "),
        ("[rsvp]\nstaged_refresh.factor = 1\n", "3:25", "above 1"),
        ("[rsvp.hello]\nmisses = 0.5\n", "3:10", "1 to 1000"),
        ("[rsvp.refresh_reduction]\nack_delay = \"1s\"\n", "3:13", "not below retry.first"),
        ("[rsvp.refresh_reduction]\nenabeld = true\n", "3:1", "is enabled meant?"),
        (
            "[interfaces.\"a.b\"]\nrsvp.hello.interval = \"0s\"\n",
            "3:23",
            "interfaces.\"a.b\".rsvp.hello.interval: ",
        ),
        ("[interfaces.a]\nrsvp.integrity.challenge_rate = \"3/s\"\n", "3:16", "unknown key"),
        ("[interfaces.rb]\ncapacity = \"fast\"\n", "3:12", "\"fast\" is not a rate"),
        ("[interfaces.rb]\ncapacity = \"10mbit\"\nshare = 5\n", "4:1", "unknown key"),
        ("[interfaces.rb]\ncapacity = \"10mbit\"\nper_flow_queues = 3000\n", "4:19", "0 to 2000"),
        ("[interfaces.rb]\nreservable = \"5%\"\n", "2:", "interfaces.rb.capacity: missing"),
        ("[interfaces.\"*\"]\ncapacity = \"1gbit\"\n", "2:", "cannot be enforced"),
        ("[interfaces.rb]\ncapacity = \"1gbit\"\noverhead = 999\n", "4:12", "to 256"),
        ("[interfaces.rb]\ncapacity = \"1mbit\"\nservices.best = {}\n", "4:", "is no service"),
        (
            "[interfaces.rb]\ncapacity = \"1mbit\"\nservices.guaranteed.queue = \"shared\"\n",
            "4:29",
            "delay bound",
        ),
        (
            "[qos]\nbypass_nslp_id = 32710\n[interfaces.rb]\nqos.aggregate = { dscp = 5, step = \"1mbit\" }\n",
            "5:",
            "deaggregator: missing",
        ),
        ("[enforcement]\nsignaling = \"much\"\n", "3:13", "neither a share nor a rate"),
        ("[enforcement]\nmode = \"strict\"\n", "3:8", "\"required\", \"best-effort\", \"off\""),
        ("[[policy.rules]]\nname = \"r\"\n", "2:1", "policy.rules[1].action: missing"),
        ("[[policy.rules]]\naction = \"deny\"\nmax_rate = \"1mbit\"\n", "4:12", "takes no limits"),
        ("[[policy.rules]]\naction = \"deny\"\nports = \"80\"\n", "4:9", "needs ip_protocol"),
        ("[[policy.rules]]\naction = \"deny\"\npeer = \"any\"\n", "4:8", "write \"authenticated\""),
        ("[[policy.rules]]\naction = \"deny\"\nservice = \"dscp 46\"\n", "4:11", "dscp:N"),
        ("[[keys]]\nid = 1\nsecret_file = \"k\"\n", "2:1", "keys[1].use: missing"),
        (
            "[[keys]]\nuse = \"rsvp\"\nid = 1\nsecret_file = \"k\"\nvalid_from = 1767225600\n",
            "6:14",
            "is not a date",
        ),
        (
            "[[keys]]\nuse = \"rsvp\"\nid = 1\nsecret_file = \"k\"\nlength = 16\n",
            "6:10",
            "not a key of this use",
        ),
        ("[[keys]]\nuse = \"tokens\"\nid = 1\nsecret_file = \"k\"\n", "3:7", "keys[1].entity: missing"),
    ] {
        let mistakes = read(text).expect_err(text);
        let fits = |line: &String| line.starts_with(&format!("node.toml:{place}")) && line.contains(part);
        assert!(mistakes.iter().any(fits), "{text:?} {place} {part}: {mistakes:#?}");
        assert_eq!(mistakes.len(), 1, "{text:?}: {mistakes:#?}");
        let foreign = ["field", "variant", "expected a", "invalid type", "invalid value"];
        assert!(!mistakes.iter().any(|line| foreign.iter().any(|word| line.contains(word))), "{mistakes:?}");
    }
}

#[test]
fn a_file_without_version_is_refused() {
    let mistakes = lines(parse(Path::new("node.toml"), "[node]\nname = \"a\"\n").findings);
    assert!(mistakes[0].starts_with("node.toml:1:1: version: missing: write version = 1"), "{mistakes:?}");
    let mistakes = lines(parse(Path::new("node.toml"), "version = 2\n").findings);
    assert!(mistakes[0].starts_with("node.toml:1:11: version: 2 is out of range"), "{mistakes:?}");
}

/// The file has every key of the language before version 1.
#[test]
fn every_old_key_is_refused_with_its_new_name() {
    let text = include_str!("before-version-1.toml");
    let findings = parse(Path::new("old.toml"), text).findings;
    assert!(findings.len() > 90, "{}", findings.len());
    let now = document();
    let mut named = 0;
    for finding in findings
        .iter()
        .filter(|finding| finding.message.contains("unknown key") || finding.message.contains("it is now"))
    {
        let (_, new) = finding.message.split_once("it is now ").unwrap_or_else(|| panic!("{finding}"));
        let first = new.split([' ', ',']).next().unwrap_or_default();
        if first != "the" {
            let last = first.rsplit('.').next().unwrap_or_default();
            let group =
                first.rsplit('.').nth(1).map(|group| format!("| `{group}.{last}` |")).unwrap_or_default();
            assert!(now.contains(&format!("| `{last}` |")) || now.contains(&group), "{finding}");
        }
        named += 1;
    }
    assert!(named > 80, "{named}");
}

#[test]
fn protocols_run_by_name_only() {
    let running = |text: &str| {
        let node = settings(text);
        (node.gist.is_some(), node.ping.is_some(), node.qos.is_some(), node.rsvp.is_some())
    };
    assert_eq!(running(""), (true, true, true, false));
    assert_eq!(running("[rsvp.hello]\nenabled = true\n"), (true, true, true, false));
    assert_eq!(running("node.protocols = [\"rsvp\"]\n"), (false, false, false, true));
    assert_eq!(running("node.protocols = []\n"), (false, false, false, false));
    let text = "version = 1\n[node]\nprotocols = [\"gist\"]\n[rsvp]\nrefresh = \"1s\"\n";
    let loaded = parse(Path::new("node.toml"), text);
    assert!(loaded.config.is_some());
    let [warning] = &loaded.findings[..] else { panic!("{:?}", loaded.findings) };
    assert_eq!((warning.level, warning.line, warning.key.as_str()), (Level::Warning, 4, "rsvp"));
    assert!(warning.to_string().contains("warning: rsvp: a section without effect"), "{warning}");
}

#[test]
fn values_reach_the_engines() {
    let node = settings(
        "[gist]\nstate_validity = \"4s\"\nretry = { first = \"100ms\", max = \"1.5min\", attempts = 3 }\n\
         state_installation = \"confirmed\"\npeer_identity = \"r1\"\nmessage_rate = \"7/s\"\ndecision_timeout = \"2s\"\n\
         [qos]\naccept_not_supported = false\nreverse = \"ask\"\nretry.first = \"1s\"\n\
         [interfaces.eth1]\ncapacity = \"10mbit\"\nreservable = \"12.5%\"\nservices.\"dscp:46\".offered = false\n\
         [[policy.rules]]\naction = \"allow\"\nprotocols = \"qos\"\nservice = [\"ef\", \"cl\"]\nip_protocol = [\"udp\", 6]\n",
    );
    let gist = node.gist.unwrap().engine;
    assert_eq!((gist.t1, gist.t2, gist.attempts), (Duration::from_millis(100), Duration::from_secs(90), 3));
    assert_eq!((gist.identity.as_slice(), gist.dmode_rate), (&b"r1"[..], 7));
    assert!(!gist.dmode_by_link && settings("").gist.unwrap().engine.dmode_by_link);
    assert_eq!((gist.check_timeout, gist.validity), (Duration::from_secs(2), Duration::from_secs(4)));
    let qos = node.qos.unwrap();
    assert!(!qos.accept_not_supported);
    assert_eq!((qos.request_retry, qos.retry_max), (Duration::from_secs(1), Duration::from_secs(30)));
    let link = &node.resources.links[0];
    assert_eq!((link.capacity, link.max_reservations), (Some(Rate(1_250_000)), Some(16_384)));
    assert_eq!(link.reservable.of(1_000_000), 125_000);
    assert!(!link.dscp[0].service.offered && link.diffserv.offered);
    assert_eq!(node.resources.rules[0].protocol, [17, 6]);
    assert_eq!(node.resources.rules[0].service.len(), 2);
}

#[test]
fn the_defaults_are_those_of_the_engines() {
    let node = settings("node.protocols = [\"gist\", \"ping\", \"qos\", \"rsvp\"]\n");
    // `policy.report_rule` decides for all protocols.
    let qos = signalbox_node::qos::Config { report_rule: false, ..Default::default() };
    assert_eq!(node.qos, Some(qos));
    assert_eq!(node.ping, Some(Default::default()));
    let mut rsvp = signalbox_node::rsvp::Config::default();
    assert_eq!(node.rsvp, Some(rsvp.clone()));
    // Without a table of the authorised peer database the default has room for more entries, and no entry.
    let engine = node.gist.unwrap().engine;
    let mut gist = signalbox_node::gist::Config::default();
    gist.associations.authorised = engine.associations.authorised.clone();
    assert_eq!(engine, gist);
    // The one that differs: RFC 3209 has 5 ms.
    rsvp = settings("node.protocols = [\"rsvp\"]\n[rsvp.hello]\nenabled = true\n").rsvp.unwrap();
    assert_eq!(rsvp.neighbors.interface.hello.unwrap().interval, Duration::from_secs(1));
}

#[test]
fn interfaces_differ_in_what_they_say_only() {
    let node = settings(
        "[node]\nprotocols = [\"rsvp\"]\n[rsvp]\nrefresh = \"2s\"\nrefresh_multiple = 4\n[rsvp.hello]\nenabled = true\n\
         interval = \"3s\"\n[interfaces.eth1]\nrsvp.refresh = \"100ms\"\nrsvp.non_rsvp_hops = true\n\
         rsvp.refresh_reduction.retry = { factor = 1.5, attempts = 9 }\n\
         [interfaces.eth2.rsvp]\nenabled = false\nhello = { enabled = false }\n[interfaces.\"*\".rsvp]\nrefresh = \"9s\"\n",
    );
    assert!(node.resources.links.is_empty(), "a part of a protocol is no link");
    let rsvp = node.rsvp.unwrap();
    let first = rsvp.of_interface("eth1");
    assert_eq!((first.refresh, first.cleanup, first.non_rsvp), (Duration::from_millis(100), 4, Some(true)));
    let interface_settings = first.neighbors.unwrap();
    assert_eq!((interface_settings.reduction.delta, interface_settings.reduction.limit), (0.5, 9));
    assert_eq!(interface_settings.hello.unwrap().interval, Duration::from_secs(3));
    let second = rsvp.of_interface("eth2");
    assert!(!second.enabled && second.neighbors.unwrap().hello.is_none());
    assert_eq!(rsvp.of_interface("eth3").refresh, Duration::from_secs(9));
    assert_eq!(rsvp.neighbors.interface.hello.unwrap().interval, Duration::from_secs(3));
}

#[test]
fn what_is_enforced_follows_the_interfaces() {
    let config = read(
        "[interfaces.rb]\ncapacity = \"10mbit\"\nreservable = \"80%\"\nper_flow_queues = 7\n\
         [interfaces.rc]\ncapacity = \"8mbit\"\nmax_reservations = 5\n\
         [enforcement]\nmode = \"best-effort\"\nsignaling = \"3%\"\n",
    )
    .unwrap();
    let traffic = config.traffic().unwrap();
    assert_eq!(traffic.enforcement, signalbox_linux::traffic::Enforcement::BestEffort);
    let [rb, rc] = &traffic.links[..] else { panic!("{:?}", traffic.links) };
    assert_eq!((rb.name.as_str(), rb.rate, rb.reservable), ("rb", 1_250_000, 1_000_000));
    assert_eq!((rb.signaling, rb.classes, rb.max_reservations), (37_500, 7, 16_384));
    assert_eq!((rc.rate, rc.max_reservations), (1_000_000, 5));
    assert!(read("node.protocols = [\"gist\"]\n").unwrap().traffic().is_none());
    let off = "[interfaces.rb]\nreservable = \"5%\"\n[enforcement]\nmode = \"off\"\n";
    assert_eq!(settings(off).resources.links[0].max_reservations, None, "a measured capacity will do");
}

#[test]
fn sockets_follow_families_and_associations() {
    let config = read(
        "node.families = [\"ipv6\"]\n[kernel]\nintercept = false\n[gist]\ndscp = 48\n[gist.associations]\n\
         accept_limit = 7\nconnect_timeout = \"3s\"\nmax_unsent_size = 8000000\n",
    )
    .unwrap();
    let io = config.io(Vec::new());
    assert!(!io.ipv4 && io.ipv6 && !io.intercept);
    assert_eq!((io.streams.tos, io.streams.accept_limit, io.streams.unsent_limit), (192, 7, 16_000_000));
    assert_eq!(io.streams.connect_timeout, Duration::from_secs(3));
}

/// O07: an interface may come after the daemon's start, also where enforcement is required. A wrong name is not silent.
#[test]
fn a_table_of_an_absent_interface_is_a_warning() {
    let directory = Directory::new("absent");
    let here = ["lo".to_owned(), "eth1".to_owned()];
    let found = |text: &str| {
        let path = directory.write("node.toml", 0o600, &format!("version = 1\n{text}"));
        load_here(&path, &here).unwrap().findings
    };
    let table = |name: &str| format!("[interfaces.{name}]\ncapacity = \"10mbit\"\n");
    assert_eq!(found(&table("eth1")), []);
    let wrong = found(&table("ehr1"));
    let [Finding { level: Level::Warning, line: 2, key, message, .. }] = &wrong[..] else {
        panic!("{wrong:?}")
    };
    assert!(key == "interfaces.ehr1" && message.contains("only lo, eth1"), "{message}");
    let part = found("node.protocols = [\"rsvp\"]\n[interfaces.ehr1.rsvp]\nany_source = true\n");
    assert!(part.iter().any(|one| one.level == Level::Warning && one.message.contains("no such interface")));
    // A machine that is not this one is not judged.
    assert_eq!(
        lines(parse(Path::new("node.toml"), &format!("version = 1\n{}", table("ehr1"))).findings),
        Vec::<String>::new()
    );
}
