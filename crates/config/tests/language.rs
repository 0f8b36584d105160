//! What users of the language notice: mistakes, defaults, drop-ins, and the page that describes it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use signalbox_config::{Config, Finding, Level, defaults, document, load, load_here, parse};
use signalbox_node::casp::{DNS, Mechanism, Transport};
use signalbox_node::resources::Rate;
use signalbox_node::rsvp::neighbour::{Algorithm, KeyUse};

/// Reads a file after `version = 1`, which is its first line.
fn read(text: &str) -> Result<Config, Vec<String>> {
    let text = format!("version = 1\n{text}");
    let loaded = parse(Path::new("node.toml"), &text).usable();
    loaded.map(|(config, _)| config).map_err(errors)
}

/// The mistakes without the warnings.
fn errors(findings: Vec<Finding>) -> Vec<String> {
    lines(findings.into_iter().filter(|one| one.level == Level::Error).collect())
}

fn lines(findings: Vec<Finding>) -> Vec<String> {
    findings.iter().map(Finding::to_string).collect()
}

fn settings(text: &str) -> signalbox_node::Config {
    read(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).settings(0, false)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory of this test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("signalbox-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, mode: u32, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn metrics_are_off_by_default_and_an_open_address_is_a_warning() {
    assert_eq!(read("").unwrap().metrics.listen, None);
    let findings = |address: &str| {
        let text = format!("version = 1\n[metrics]\nlisten = {address:?}");
        lines(parse(Path::new("node.toml"), &text).findings)
    };
    for local in ["127.0.0.1:9464", "[::1]:9464"] {
        assert_eq!(findings(local), Vec::<String>::new());
    }
    let open = findings("0.0.0.0:9464");
    assert!(open.len() == 1 && open[0].contains("127.0.0.1"), "{open:?}");
    let wrong = findings("9464");
    assert!(wrong.len() == 1 && wrong[0].starts_with("node.toml:3:") && wrong[0].contains("127.0.0.1:9464"));
}

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
fn every_old_key_is_told_what_became_of_it() {
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
    assert_eq!(node.qos, Some(Default::default()));
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
    assert_eq!(rsvp.neighbours.interface.hello.unwrap().interval, Duration::from_secs(1));
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
    let own = first.neighbours.unwrap();
    assert_eq!((own.reduction.delta, own.reduction.limit), (0.5, 9));
    assert_eq!(own.hello.unwrap().interval, Duration::from_secs(3));
    let second = rsvp.of_interface("eth2");
    assert!(!second.enabled && second.neighbours.unwrap().hello.is_none());
    assert_eq!(rsvp.of_interface("eth3").refresh, Duration::from_secs(9));
    assert_eq!(rsvp.neighbours.interface.hello.unwrap().interval, Duration::from_secs(3));
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

#[test]
fn secrets_come_from_files_that_others_cannot_read() {
    let directory = Directory::new("secrets");
    let text = "version = 1\n[node]\nprotocols = [\"gist\", \"qos\", \"rsvp\"]\n[rsvp.integrity]\nenabled = true\nwindow = 8\n\
                [interfaces.lan.rsvp]\nintegrity = { enabled = false }\n\
                [[keys]]\nuse = \"rsvp\"\nid = 7\nsecret_file = \"shared.key\"\n\
                [[keys]]\nuse = \"rsvp\"\nid = 8\nsecret_file = \"shared.key\"\nalgorithm = \"hmac-md5\"\n\
                direction = \"receive\"\nneighbor = \"10.0.0.2\"\nvalid_until = 2033-05-18T03:33:20Z\n\
                [[keys]]\nuse = \"tokens\"\nid = 1\nentity = \"auth.example\"\nsecret_file = \"token.key\"\n";
    let file = directory.write("node.toml", 0o644, text);
    directory.write("token.key", 0o600, "0123456789abcdef\n");
    let fails = || errors(load(&file).unwrap().usable().unwrap_err());
    let missing = fails();
    assert!(missing[0].contains(":12:15: keys[1].secret_file: cannot read"), "{missing:?}");
    assert_eq!(missing.len(), 2);
    directory.write("shared.key", 0o644, "secret\n");
    let open = fails();
    assert!(open[0].contains("are 0644") && open[0].contains("chmod 600"), "{open:?}");
    directory.write("shared.key", 0o600, "\n");
    assert!(fails()[0].contains("keys[1].secret_file: the file is empty"));
    directory.write("shared.key", 0o640, "secret\n");
    let (config, _) = load(&file).unwrap().usable().unwrap();
    let node = config.settings(0, false);
    let rsvp = node.rsvp.unwrap();
    assert_eq!(rsvp.neighbours.interface.integrity.window, 8);
    assert!(!rsvp.of_interface("lan").neighbours.unwrap().integrity.sending);
    let [sha, md5] = &rsvp.keys[..] else { panic!("two keys") };
    assert_eq!((sha.id, sha.algorithm), (7, Algorithm::HmacSha256));
    assert_eq!(
        (md5.algorithm, md5.usage, md5.until),
        (Algorithm::HmacMd5, KeyUse::Receive, Some(2_000_000_000))
    );
    assert_eq!(sha.secret, signalbox_node::rsvp::Secret::new(*b"secret"));
    assert_eq!(node.resources.keys[0].secret, "30313233343536373839616263646566");
    assert!(!format!("{config:?}").contains("secret\""));
    assert!(
        config.effective().contains("secret_file = \"shared.key\"")
            && !config.effective().contains("30313233")
    );
}

#[test]
fn integrity_without_a_key_and_keys_without_integrity_are_mistakes() {
    let rsvp = "[node]\nprotocols = [\"rsvp\"]\n";
    let key = "[[keys]]\nuse = \"rsvp\"\nid = 1\nsecret_file = \"k\"\n";
    for (text, part) in [
        ("[rsvp.integrity]\nenabled = true\n".to_owned(), "4:1: rsvp.integrity: there is no key for sign"),
        ("[rsvp.integrity]\nenabled = true\nsign = false\n".to_owned(), "no key for require"),
        (key.to_owned(), "6:6: keys[1].id: nothing is signed or verified"),
    ] {
        let mistakes = read(&format!("{rsvp}{text}")).unwrap_err();
        assert!(mistakes[0].contains(part), "{mistakes:?}");
    }
}

#[test]
fn tls_files_are_checked() {
    let directory = Directory::new("tls");
    let keys = rcgen::KeyPair::generate().unwrap();
    let text = "version = 1\n[gist.associations]\ntls_port = 271\n[gist.tls]\nkey_file = \"key.pem\"\n\
                peer_keys_file = \"peers.pem\"\nversions = [\"1.3\"]\n";
    let file = directory.write("node.toml", 0o644, text);
    let fails = || errors(load(&file).unwrap().usable().unwrap_err());
    directory.write("key.pem", 0o644, &keys.serialize_pem());
    let both = fails();
    assert!(both[0].contains(":5:12: gist.tls.key_file: ") && both[0].contains("chmod 600"), "{both:?}");
    assert!(both[1].contains(":6:18: gist.tls.peer_keys_file: cannot read"), "{both:?}");
    directory.write("key.pem", 0o600, &keys.serialize_pem());
    directory.write("peers.pem", 0o644, "nothing");
    assert!(fails()[0].contains("[tls-pem]"));
    directory.write("peers.pem", 0o644, &keys.public_key_pem());
    let (config, _) = load(&file).unwrap().usable().unwrap();
    assert!(config.settings(0, false).gist.unwrap().channels.tls.is_some());
}

#[test]
fn included_files_are_merged_in_the_order_of_their_names() {
    let directory = Directory::new("include");
    let main = "version = 1\ninclude = [\"conf.d/*.toml\", \"last.toml\"]\n[gist]\nhop_count = 1\nip_ttl = 5\n\
                [interfaces.eth1]\ncapacity = \"1mbit\"\n[[policy.rules]]\nname = \"a\"\naction = \"allow\"\n";
    let file = directory.write("node.toml", 0o644, main);
    directory.write(
        "conf.d/20.toml",
        0o644,
        "[gist]\nhop_count = 3\n[interfaces.eth2]\ncapacity = \"2mbit\"\n",
    );
    directory.write("conf.d/10.toml", 0o644, "gist.hop_count = 2\n[interfaces.eth1]\nreservable = \"10%\"\n");
    directory.write("conf.d/notes.txt", 0o644, "not TOML");
    directory.write("last.toml", 0o644, "[[policy.rules]]\nname = \"b\"\naction = \"deny\"\n");
    let (config, _) = load(&file).unwrap().usable().unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    let node = config.settings(0, false);
    let gist = node.gist.unwrap().engine;
    assert_eq!((gist.hops, gist.ip_ttl), (3, 5));
    let links: Vec<_> =
        node.resources.links.iter().map(|link| (link.interface.as_str(), link.reservable.of(100))).collect();
    assert_eq!(links, [("eth1", 10), ("eth2", 75)]);
    let rules: Vec<_> = node.resources.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(rules, ["a", "b"]);
    directory.write("conf.d/30.toml", 0o644, "include = \"x\"\n[gist]\nhop_count = 0\n");
    let mistakes = errors(load(&file).unwrap().findings);
    assert!(mistakes[0].contains("conf.d/30.toml:1:1: include: an included file"), "{mistakes:?}");
    assert!(mistakes[1].contains("conf.d/30.toml:3:13: gist.hop_count: 0 is out of range"), "{mistakes:?}");
    std::fs::remove_file(directory.0.join("last.toml")).unwrap();
    assert!(lines(load(&file).unwrap().findings).iter().any(|line| line.contains("last.toml: No such file")));
}

#[test]
fn the_effective_text_is_a_file_of_the_same_meaning() {
    let text = "[node]\nname = \"r7\"\nprotocols = [\"gist\", \"qos\", \"rsvp\"]\n[gist.associations]\ntcp_port = 270\n\
                [interfaces.\"*\"]\nrsvp.enabled = false\n[interfaces.eth1]\ncapacity = \"100mbit\"\nrsvp.refresh = \"10s\"\n\
                services.guaranteed = { max_share = \"20mbit\" }\n[[policy.rules]]\nname = \"office\"\naction = \"allow\"\n\
                protocols = [\"qos\"]\nfrom = \"192.0.2.0/24\"\npeer = \"dns:*.example.org\"\nmax_rate = \"10mbit\"\n\
                hours = \"08:00-18:00\"\n[enforcement]\nmode = \"off\"\n";
    let config = read(text).unwrap();
    let effective = config.effective();
    let again = parse(Path::new("effective.toml"), &effective);
    assert_eq!(errors(again.findings), Vec::<String>::new(), "{effective}");
    let again = again.config.unwrap();
    assert_eq!(again.settings(0, false), config.settings(0, false));
    assert_eq!(again.digest(), config.digest());
    assert_ne!(read("").unwrap().digest(), config.digest());
    assert!(!effective.contains("[ping]"), "only what runs");
}

#[test]
fn the_defaults_are_a_sound_file_without_effect() {
    let text = defaults();
    let loaded = parse(Path::new("defaults.toml"), &text);
    let mistakes: Vec<_> = loaded.findings.iter().filter(|one| one.level == Level::Error).collect();
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    let named = read("node.name = \"r1\"\n").unwrap();
    assert_eq!(loaded.config.unwrap().settings(0, false), named.settings(0, false));
}

#[test]
fn two_configurations_differ_in_keys() {
    let rules = |action: &str| {
        let rule = |name: &str, action: &str| {
            format!("[[policy.rules]]\nname = \"{name}\"\naction = \"{action}\"\n")
        };
        read(&format!("node.name = \"a\"\n{}{}", rule("first", "allow"), rule("second", action))).unwrap()
    };
    assert_eq!(rules("deny").differences(&rules("deny")), [""; 0]);
    assert_eq!(rules("deny").differences(&rules("allow")), ["policy.rules[2].action"]);
}

#[test]
fn the_file_to_begin_with_is_sound() {
    let path = root().join("etc/signalboxd.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let loaded = load(&path).unwrap();
    assert_eq!(lines(loaded.findings), Vec::<String>::new());
    let shown: String =
        text.lines().map(|line| format!("{}\n", line.strip_prefix('#').unwrap_or(line))).collect();
    let table: Result<toml::Table, _> = shown
        .lines()
        .filter(|line| !line.starts_with(' '))
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        .parse();
    assert!(table.is_ok(), "{table:?}");
}

/// The page without the test protocol, which some builds have.
fn page() -> String {
    let page = document().replace(", \"beacon\"", "");
    match page.split_once("## `[beacon]`\n") {
        Some((before, after)) => {
            let (_, after) = after.split_once("\n## ").expect("it is not the last section");
            format!("{before}## {after}")
        }
        None => page,
    }
}

/// `SIGNALBOX_WRITE=1 cargo test -p signalbox-config` writes it.
#[test]
fn the_page_is_current() {
    let path = root().join("docs/config.md");
    if std::env::var_os("SIGNALBOX_WRITE").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let current = std::fs::read_to_string(path).unwrap();
    assert!(current == page(), "docs/config.md is not current: run make generated");
}

/// The corpus of the fuzz target, each file cut at each line and with each line left out: the target's property holds.
#[test]
fn damaged_configurations_are_refused_or_shown_alike() {
    let mut files = 0;
    for entry in std::fs::read_dir(root().join("fuzz/corpus/config")).unwrap() {
        let octets = std::fs::read(entry.unwrap().path()).unwrap();
        signalbox_config::fuzz::config(&octets);
        files += 1;
        let Ok(text) = String::from_utf8(octets) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            let (before, after) = lines.split_at(at);
            signalbox_config::fuzz::config(before.join("\n").as_bytes());
            signalbox_config::fuzz::config([before, &after[1..]].concat().join("\n").as_bytes());
        }
    }
    assert!(files >= 3, "{files} files");
}

/// Threat T02: a configuration without a policy grants nothing to strangers.
#[test]
fn the_default_policy_denies_and_trusts_users_and_authenticated_neighbors() {
    use signalbox_node::resources::config::Action;
    use signalbox_node::resources::units::Trusted;
    let resources = settings("").resources;
    assert_eq!((resources.default, resources.trusted), (Action::Deny, Trusted::usual()));
    let named = settings("[policy]\ntrusted = [\"local\", \"192.0.2.0/24\"]\n").resources;
    assert_eq!(named.trusted[1].to_string(), "192.0.2.0/24");
    let wrong = read("[policy]\ntrusted = [\"any\"]\n").unwrap_err();
    assert!(wrong.len() == 1 && wrong[0].starts_with("node.toml:3:12: policy.trusted: "), "{wrong:?}");
}

fn warnings(text: &str) -> Vec<String> {
    lines(parse(Path::new("node.toml"), &format!("version = 1\n{text}")).findings)
}

#[test]
fn what_is_open_to_strangers_is_a_warning_with_its_place() {
    const LINK: &str = "[interfaces.eth1]\ncapacity = \"10mbit\"\n";
    assert_eq!(warnings(LINK), Vec::<String>::new(), "the defaults open nothing");
    for (text, place, part) in [
        ("[policy]\ndefault = \"allow\"\n", "3:11", "policy.default: open to strangers: everybody"),
        ("[policy]\ntrusted = [\"::/0\"]\n", "3:11", "policy.trusted: open to strangers: ::/0 is every"),
        ("[[policy.rules]]\nname = \"video\"\naction = \"allow\"\n", "2:1", "the rule \"video\" allows"),
        ("[control]\nmode = \"0666\"\n", "3:8", "control.mode: open to strangers: every user"),
        ("[qos]\naccept_stateless = true\n", "3:20", "qos.accept_stateless: open to strangers: one datagram"),
        ("[gist]\nupstream_queries = true\n", "3:20", "gist.upstream_queries: open to strangers:"),
        ("[gist]\nmessage_rate = \"0/s\"\n", "3:16", "gist.message_rate: open to strangers:"),
    ] {
        let found = warnings(&format!("{text}{LINK}"));
        let [one] = &found[..] else { panic!("{text}: {found:?}") };
        assert!(one.starts_with(&format!("node.toml:{place}: warning: ")) && one.contains(part), "{one}");
    }
    // Where nothing can be reserved, the policy opens nothing.
    assert_eq!(warnings("[policy]\ndefault = \"allow\"\n"), Vec::<String>::new());
}

#[test]
fn rsvp_without_keys_and_its_relaxed_rules_are_warnings() {
    let runs = "node.protocols = [\"rsvp\"]\n";
    let bare = warnings(runs);
    assert!(bare.len() == 1 && bare[0].contains("without [rsvp.integrity]"), "{bare:?}");
    let relaxed =
        warnings(&format!("{runs}[interfaces.eth1]\ncapacity = \"1mbit\"\nrsvp = {{ any_source = true }}\n"));
    let keys: Vec<_> = relaxed.iter().filter(|one| one.contains("any_source: open to strangers")).collect();
    assert!(keys.len() == 1 && keys[0].starts_with("node.toml:5:"), "{relaxed:?}");
}

/// The keys of a domain: their files, their use and what is missing.
#[test]
fn boomerang_has_keys_of_a_domain() {
    let directory = Directory::new("boomerang-keys");
    let head = "version = 1\n[node]\nprotocols = [\"boomerang\"]\n[boomerang]\nprove_return = true\n";
    let key = |id: &str| format!("[[keys]]\nuse = \"boomerang\"\nid = {id}\nsecret_file = \"domain.key\"\n");
    let on = "[boomerang.integrity]\nenabled = true\nwindow = \"3s\"\n";
    directory.write("domain.key", 0o600, "of the domain\n");
    let first = |text: String| {
        let file = directory.write("node.toml", 0o644, &text);
        errors(load(&file).unwrap().usable().unwrap_err()).remove(0)
    };
    assert!(first(format!("{head}{on}")).contains("there is no key for sign"));
    assert!(first(format!("{head}{}", key("1"))).contains("it is not used: write enabled = true"));
    assert!(first(format!("{head}{on}{}direction = \"send\"\n", key("1"))).contains("no key for require"));
    assert!(first(format!("{head}{on}{}", key("4294967296"))).contains("32 bits"));
    assert!(first(format!("{head}{on}{}{}", key("1"), key("1"))).contains("another key with it"));
    assert!(first(format!("{head}{on}{}interface = \"lan\"\n", key("1"))).contains("not a key of this use"));
    let file = directory.write(
        "node.toml",
        0o644,
        &format!("{head}{on}{}direction = \"send\"\n{}", key("1"), key("2")),
    );
    let (config, _) = load(&file).unwrap().usable().unwrap();
    let integrity = config.settings(0, false).boomerang.unwrap().integrity;
    assert!(integrity.sign && integrity.require);
    assert_eq!(integrity.window, Duration::from_secs(3));
    let keys: Vec<_> = integrity.keys.iter().map(|key| (key.id, key.signs, key.verifies)).collect();
    assert_eq!(keys, [(1, true, false), (2, true, true)]);
    assert_eq!(integrity.keys[0].secret, signalbox_node::resources::Secret::new(*b"of the domain"));
}

#[test]
fn boomerang_has_whole_seconds_rules_and_a_warning() {
    let runs = "node.protocols = [\"boomerang\"]\n";
    let bare = warnings(runs);
    assert!(bare.len() == 1 && bare[0].contains("boomerang.prove_return: open to strangers"), "{bare:?}");
    assert_eq!(warnings(&format!("{runs}[boomerang]\nprove_return = true\n")), Vec::<String>::new());
    let text = "[boomerang]\nrefresh = \"3s\"\nhold_multiple = 2\nrouter_alert = { ipv4 = false, ipv6 = 65534 }\n\
                [interfaces.eth1]\nboomerang.trusted = false\n[interfaces.\"*\"]\nboomerang.trusted = true\n\
                [[policy.rules]]\naction = \"allow\"\nprotocols = [\"boomerang\"]\n";
    let node = settings(&format!("{runs}{text}"));
    let config = node.boomerang.unwrap();
    assert_eq!((config.refresh, config.hold, config.router_alert), (3, 2.0, false));
    assert_eq!((config.router_alert_v6, config.trusted_elsewhere), (Some(65_534), true));
    assert_eq!(config.trusted.into_iter().collect::<Vec<_>>(), [("eth1".to_owned(), false)]);
    assert_eq!(node.resources.rules[0].signaling, [signalbox_core::ReserverId::BOOMERANG]);
    for (wrong, part) in [
        ("refresh = \"1500ms\"", "whole seconds"),
        ("refresh = \"10m\"", "1s to"),
        ("router_alert.ipv6 = 1", "65503 to 65534"),
    ] {
        let found = read(&format!("{runs}[boomerang]\n{wrong}\n")).unwrap_err();
        assert!(found.iter().any(|one| one.contains(part)), "{wrong}: {found:?}");
    }
}

/// A NAT of CASP has an inside, an outside and external ports of its own; the kernel translates for it.
#[test]
fn a_nat_of_casp_has_sides_and_ports() {
    const RUNS: &str =
        "version = 1\nnode.protocols = [\"casp\", \"gist\", \"natfw\"]\n[casp]\nclients = [\"natfw\"]\n";
    const SIDES: &str = "[interfaces.eth0]\ncasp.side = \"inside\"\nnatfw.side = \"inside\"\n\
                         [interfaces.eth1]\ncasp.side = \"outside\"\nnatfw.side = \"outside\"\n";
    let read = |text: &str| parse(Path::new("node.toml"), &format!("{RUNS}{text}"));
    for (text, part) in [
        ("[casp.natfw]\nrole = \"nat\"\n", "casp.natfw.role: needs an inside"),
        ("[casp.natfw]\nrole = \"nat\"\n[interfaces.eth0]\ncasp.side = \"inside\"\n", "needs an outside"),
        ("[casp.natfw]\nnat.address = \"2001:db8::1\"\n", "IPv4 only"),
        ("[casp.natfw]\nnat.ports = \"0-9\"\n", "0 is no port"),
        (&format!("[casp.natfw]\nrole = \"nat\"\n[natfw]\nrole = \"nat\"\n{SIDES}"), "used twice"),
    ] {
        let found = lines(read(text).findings);
        assert!(found.iter().any(|one| one.contains(part)), "{text}: {found:?}");
    }
    let text = format!(
        "[casp.natfw]\nrole = \"nat\"\nnat.ports = \"40000-40009\"\nnat.address = \"203.0.113.9\"\nnat.substitutes = false\n\
         [natfw]\nrole = \"nat\"\nnat.ports = \"40010-40019\"\n{SIDES}"
    );
    let loaded = read(&text);
    let config = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    let node = config.settings(0, false);
    let natfw = node.casp.as_ref().and_then(|casp| casp.natfw.as_ref()).unwrap();
    assert_eq!((natfw.first_port, natfw.last_port, natfw.substitutes), (40_000, 40_009, false));
    assert_eq!(
        (natfw.inside.clone(), natfw.outside.clone()),
        (vec!["eth0".to_owned()], vec!["eth1".to_owned()])
    );
    assert_eq!(natfw.external, Some([203, 0, 113, 9].into()));
    assert!(config.pinholes().is_some_and(|pinholes| pinholes.translate));
}

#[test]
fn segments_of_casp_have_scopes_and_code_points() {
    const RUNS: &str = "node.protocols = [\"casp\"]\n[casp]\npeers = [\"10.0.0.0/8\"]\nclients = [\"qos\"]\n\
                        [interfaces.eth1]\ncapacity = \"10mbit\"\n";
    let text = "[[casp.qos.segments]]\nscope = 7\ninterfaces = [\"eth1\"]\nnodes = [\"10.0.2.0/24\"]\ndscp = 34\noutside = 8\n\
                map = [{ from = 10, to = 12 }]\n[[casp.qos.segments]]\nscope = 8\n";
    let qos = settings(&format!("{RUNS}{text}")).casp.unwrap().qos.unwrap();
    let [outer, inner] = &qos.segments[..] else { panic!("{:?}", qos.segments) };
    assert_eq!((outer.scope, outer.dscp, outer.outside, &outer.map[..]), (7, Some(34), 8, &[(10, 12)][..]));
    assert_eq!((outer.interfaces.clone(), outer.nodes[0].len), (vec!["eth1".to_owned()], 24));
    assert_eq!((inner.scope, inner.dscp, inner.outside), (8, None, 0));
    for (wrong, part) in [
        ("[[casp.qos.segments]]\ndscp = 64\n", "0 to 63"),
        ("[[casp.qos.segments]]\nmap = [{ from = 64 }]\n", "0 to 63"),
        ("[[casp.qos.segments]]\nscope = 256\n", "0 to 255"),
        ("[[casp.qos.segments]]\n[[casp.qos.segments]]\n", "a scope of its own"),
    ] {
        let found = read(&format!("{RUNS}{wrong}")).unwrap_err();
        assert!(found.iter().any(|one| one.contains(part)), "{wrong}: {found:?}");
    }
}

#[test]
fn casp_has_ports_transports_and_mechanisms_by_prefix() {
    let runs = "node.protocols = [\"casp\"]\n";
    let bare = warnings(runs);
    assert!(bare.len() == 1 && bare[0].contains("casp.peers: open to strangers"), "{bare:?}");
    let unlimited = warnings(&format!("{runs}casp.total_answer_rate = \"0/s\"\n"));
    assert!(
        unlimited.iter().any(|one| one.contains("total_answer_rate: open to strangers")),
        "{unlimited:?}"
    );
    let text = "[casp]\npeers = [\"10.0.0.0/8\"]\nrefresh = \"5s\"\ntransport = \"udp\"\nsctp = true\n\
                neighbors = [\"10.0.0.2\"]\nports = { messages = 7000, scout = 7001 }\ndiscovery = [\"scout\"]\n\
                [[casp.towards]]\nto = [\"10.9.0.0/16\"]\ndiscovery = [\"static\", \"scout\"]\nnext = \"10.0.0.9\"\n\
                transport = \"sctp\"\n\
                [[casp.towards]]\nto = [\"10.8.0.0/16\"]\ndiscovery = [\"dns\", \"scout\"]\ndomain = \"example.net\"\n\
                [casp.dns]\nresolvers = [\"10.0.0.53\"]\n";
    assert_eq!(warnings(&format!("{runs}{text}")), Vec::<String>::new());
    let config = settings(&format!("{runs}{text}")).casp.unwrap();
    let engine = &config.engine;
    assert_eq!((engine.refresh.as_secs(), engine.port, engine.scout_port), (5, 7000, 7001));
    assert_eq!((engine.transport, engine.mechanisms.len(), config.sctp), (Transport::Udp, 1, true));
    assert_eq!(engine.transports[0].1, Transport::Sctp);
    let next = "10.0.0.9".parse().unwrap();
    assert_eq!(engine.discovery[0].1, [Mechanism::Static(next), Mechanism::Scout]);
    assert_eq!(engine.discovery[1].1, [Mechanism::External(DNS), Mechanism::Scout]);
    assert_eq!(config.dns.resolvers, ["10.0.0.53".parse::<IpAddr>().unwrap()]);
    assert_eq!((config.dns.domains[0].0.len, config.dns.domains[0].1.as_str()), (16, "example.net"));
    for (wrong, part) in [
        ("transport = \"tls\"", "[casp.tls]"),
        ("transport = \"sctp\"", "sctp = true"),
        ("ports = { messages = 7, scout = 7 }", "three different ports"),
        ("discovery = []", "write one mechanism"),
        ("[[casp.towards]]\nto = [\"10.0.0.0/8\"]\ndiscovery = [\"static\"]", "belong together"),
        ("router_alert_ipv6 = 1", "65503 to 65534"),
        ("discovery = [\"dns\"]", "dns"),
        ("[[casp.towards]]\nto = [\"10.0.0.0/8\"]\ndiscovery = [\"dns\"]", "belong together"),
        ("[[casp.towards]]\nto = [\"10.0.0.0/8\"]\ndiscovery = [\"dns\"]\ndomain = \"a..b\"", "not a domain"),
    ] {
        let found = read(&format!("{runs}[casp]\n{wrong}\n")).unwrap_err();
        assert!(found.iter().any(|one| one.contains(part)), "{wrong}: {found:?}");
    }
}

/// A name that no interface has was silent before, and its reservations were refused.
#[test]
fn a_table_of_an_absent_interface_is_a_mistake_where_enforcement_is_required() {
    let directory = Directory::new("absent");
    let here = ["lo".to_owned(), "eth1".to_owned()];
    let found = |text: &str| {
        let path = directory.write("node.toml", 0o600, &format!("version = 1\n{text}"));
        load_here(&path, &here).unwrap().findings
    };
    let table = |name: &str| format!("[interfaces.{name}]\ncapacity = \"10mbit\"\n");
    assert_eq!(found(&table("eth1")), []);
    let wrong = found(&table("ehr1"));
    let [Finding { level: Level::Error, line: 2, key, message, .. }] = &wrong[..] else {
        panic!("{wrong:?}")
    };
    assert!(key == "interfaces.ehr1" && message.contains("only lo, eth1"), "{message}");
    let later = found(&format!("enforcement.mode = \"best-effort\"\n{}", table("tun0")));
    assert!(matches!(&later[..], [Finding { level: Level::Warning, .. }]), "{later:?}");
    let part = found("node.protocols = [\"rsvp\"]\n[interfaces.ehr1.rsvp]\nany_source = true\n");
    assert!(part.iter().any(|one| one.level == Level::Error && one.message.contains("no such interface")));
    // A machine that is not this one is not judged.
    assert_eq!(
        lines(parse(Path::new("node.toml"), &format!("version = 1\n{}", table("ehr1"))).findings),
        Vec::<String>::new()
    );
}

/// Features of GIST that one network needs and another must not have.
#[test]
fn keys_of_gist_reach_the_engine() {
    let text = "[gist]\ncookie_errors = true\nrouter_alert = { required = false, omitted_towards = [\"10.0.0.0/8\"] }\n\
                min_prefix = { ipv4 = 24, ipv6 = 64 }\n[interfaces.eth1.gist]\naddresses = [\"192.0.2.1\", \"2001:db8::1\"]\n\
                sources = \"10.1.0.0/16\"\n[interfaces.\"*\".gist]\nsources = [\"10.0.0.0/8\"]\n";
    let config = settings(text).gist.unwrap().engine;
    assert!(config.cookie_errors && config.intercept_without_alert);
    assert_eq!((config.min_dst_prefix_v4, config.min_dst_prefix_v6), (24, 64));
    assert_eq!(config.without_router_alert[0].len, 8);
    let own: Vec<_> =
        config.own_addresses.iter().map(|own| (&*own.interface, own.address.to_string())).collect();
    assert_eq!(own, [("eth1", "192.0.2.1".to_owned()), ("eth1", "2001:db8::1".to_owned())]);
    let filters: Vec<_> =
        config.ingress_filters.iter().map(|one| (&*one.interface, one.prefix.len)).collect();
    assert_eq!(filters, [("*", 8), ("eth1", 16)]);
    let opened = lines(parse(Path::new("node.toml"), &format!("version = 1\n{text}")).findings);
    for key in ["gist.cookie_errors", "gist.router_alert.required"] {
        assert!(
            opened.iter().any(|line| line.contains(key) && line.contains("open to strangers")),
            "{opened:#?}"
        );
    }
}

/// The NAT gateway runs without any other protocol. It needs both sides, and binds in the kernel.
#[test]
fn a_nat_gateway_has_two_sides_and_forwards() {
    const RUNS: &str = "version = 1\nnode.protocols = [\"gist_nat\"]\n";
    const SIDES: &str =
        "[interfaces.eth0]\ngist_nat.side = \"inside\"\n[interfaces.eth1]\ngist_nat.side = \"outside\"\n";
    const FORWARD: &str = "[[gist_nat.forwards]]\nprotocol = \"tcp\"\nports = \"8000-8003\"\n";
    let read = |text: &str| parse(Path::new("node.toml"), &format!("{RUNS}{text}"));
    for (text, part) in [
        ("", "gist_nat needs an inside"),
        ("[interfaces.eth0]\ngist_nat.side = \"inside\"\n", "gist_nat needs an outside"),
        ("[gist_nat]\naddress = \"2001:db8::1\"\n", "IPv4 only"),
        ("[gist_nat]\nmax_lifetime = \"1s\"\n", "out of range"),
        (FORWARD, "address: missing"),
        (&format!("{FORWARD}address = \"fd00::1\"\n"), "IPv4 only"),
        (&format!("{FORWARD}address = \"192.168.1.2\"\nport = 65534\n"), "end at 65535"),
    ] {
        let found = lines(read(text).findings);
        assert!(found.iter().any(|one| one.contains(part)), "{text}: {found:?}");
    }
    let forward = format!("{FORWARD}address = \"192.168.1.2\"\nport = 80\n");
    let loaded = read(&format!("[gist_nat]\nports = \"20000-20099\"\nsilent = true\n{SIDES}{forward}"));
    let config = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    assert!(config.pinholes().is_some_and(|pinholes| pinholes.translate));
    let node = config.settings(0, false);
    assert_eq!((node.protocols().len(), node.validated()), (1, Ok(())));
    let gateway = node.gist_nat.unwrap();
    assert_eq!((gateway.inside, gateway.outside), (vec!["eth0".to_owned()], vec!["eth1".to_owned()]));
    assert_eq!((gateway.first_port, gateway.last_port, gateway.silent), (20_000, 20_099, true));
    let forward = gateway.forwards[0];
    assert_eq!((forward.protocol, forward.first_port, forward.last_port, forward.port), (6, 8000, 8003, 80));
}

/// The role of a middlebox needs sides; the kernel's part follows from the role.
#[test]
fn a_firewall_or_nat_has_an_inside_and_rules_of_its_own() {
    const RUNS: &str = "version = 1\nnode.protocols = [\"gist\", \"natfw\"]\n";
    let read = |text: &str| parse(Path::new("node.toml"), &format!("{RUNS}{text}"));
    for (text, part) in [
        ("[natfw]\nrole = \"firewall\"\n", "natfw.role: needs an inside"),
        ("[natfw]\nrole = \"nat\"\n[interfaces.eth0]\nnatfw.side = \"inside\"\n", "needs an outside"),
        ("[natfw]\nnslp_id = 1\n", "write 33"),
        ("[natfw]\nnat.address = \"2001:db8::1\"\n", "IPv4 only"),
        ("[natfw]\nmin_lifetime = \"2h\"\n", "longer than max_lifetime"),
        ("[natfw]\nhold = \"5s\"\n", "out of range"),
        ("[firewall]\nmark = 0x30000000\n", "more than one bit"),
        ("[firewall]\naccept_in = [\"filter forward\"]\n", "family, table and name"),
        ("[[policy.rules]]\naction = \"allow\"\nopens = [\"all\"]\n", "\"all\" is unknown"),
        (
            "[[policy.rules]]\naction = \"allow\"\nopens = [\"inward\"]\nuser = [\"any\"]\n",
            "remove it, or opens",
        ),
    ] {
        let found = lines(read(text).findings);
        assert!(found.iter().any(|one| one.contains(part)), "{text}: {found:?}");
    }
    let sides = "[interfaces.eth0]\nnatfw.side = \"inside\"\n[interfaces.eth1]\nnatfw.side = \"outside\"\n";
    let rule = "[[policy.rules]]\naction = \"allow\"\nopens = [\"inward\", \"block\"]\n";
    let accept = "[firewall]\naccept_in = [\"inet filter forward\"]\n";
    let text =
        format!("[natfw]\nrole = \"nat\"\nedge = true\nnat.ports = \"40000-41000\"\n{sides}{rule}{accept}");
    let loaded = read(&text);
    let config = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    let node = config.settings(0, false);
    let natfw = node.natfw.unwrap();
    assert_eq!((natfw.inside, natfw.outside), (vec!["eth0".to_owned()], vec!["eth1".to_owned()]));
    assert_eq!((natfw.first_port, natfw.last_port, natfw.edge), (40_000, 41_000, true));
    assert_eq!(node.resources.rules[0].opens.len(), 2);
    assert!(node.resources.links.is_empty(), "a side makes no link to reserve at");
    let pinholes = config.pinholes().unwrap();
    assert!(pinholes.translate && pinholes.accept_in[0].to_string() == "inet filter forward");
    let host = read("").config.unwrap();
    assert_eq!((host.pinholes(), host.settings(0, false).natfw.is_some()), (None, true));
}
