//! What opens a node to strangers is a warning.

use std::path::Path;

use signalbox_config::{Level, parse};

use crate::support::{Directory, lines, read, settings, warnings};

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

#[test]
fn what_is_open_to_strangers_is_a_warning_with_its_place() {
    const LINK: &str = "[interfaces.eth1]\ncapacity = \"10mbit\"\n";
    assert_eq!(warnings(LINK), Vec::<String>::new(), "the defaults open nothing");
    for (text, place, part) in [
        ("[policy]\ndefault = \"allow\"\n", "3:11", "policy.default: open to strangers: everybody"),
        ("[policy]\ntrusted = [\"::/0\"]\n", "3:11", "policy.trusted: open to strangers: ::/0 is every"),
        ("[[policy.rules]]\nname = \"video\"\naction = \"allow\"\n", "2:1", "the rule \"video\" allows"),
        (
            "[policy]\ntrusted = [\"0.0.0.0/1\", \"local\", \"128.0.0.0/1\"]\n",
            "3:11",
            "policy.trusted: open to strangers: 0.0.0.0/1 and 128.0.0.0/1 is every",
        ),
        (
            "[[policy.rules]]\naction = \"allow\"\nfrom = [\"128.0.0.0/2\", \"0.0.0.0/1\"]\n",
            "2:1",
            "the rule number 1 allows requests of everybody",
        ),
        (
            "[[policy.rules]]\naction = \"allow\"\nproof = \"handshake\"\nvia = [\"2000::/3\"]\n",
            "2:1",
            "the rule number 1 allows requests of everybody",
        ),
        ("[control]\nmode = \"0666\"\n", "3:8", "control.mode: open to strangers: every user"),
        ("[qos]\naccept_stateless = true\n", "3:20", "qos.accept_stateless: open to strangers: one datagram"),
        ("[gist]\nupstream_queries = true\n", "3:20", "gist.upstream_queries: open to strangers:"),
        ("[gist]\nmessage_rate = \"0/s\"\n", "3:16", "gist.message_rate: open to strangers:"),
    ] {
        let found = warnings(&format!("{text}{LINK}"));
        let [one] = &found[..] else { panic!("{text}: {found:?}") };
        assert!(one.starts_with(&format!("node.toml:{place}: warning: ")) && one.contains(part), "{one}");
    }
    let proved = "[[policy.rules]]\naction = \"allow\"\nproof = \"identity\"\n";
    let private = "[policy]\ntrusted = [\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"fc00::/7\", \"2001:db8::/32\"]\n";
    for closed in [proved, private] {
        assert_eq!(warnings(&format!("{closed}{LINK}")), Vec::<String>::new());
    }
    // Where nothing can be reserved, the policy opens nothing.
    assert_eq!(warnings("[policy]\ndefault = \"allow\"\n"), Vec::<String>::new());
}

/// Threat T32: a firewall that everybody may open.
#[test]
fn a_firewall_that_everybody_may_open_is_a_warning() {
    const FIREWALL: &str = "node.protocols = [\"gist\", \"natfw\"]\nnatfw.role = \"firewall\"\n";
    const INSIDE: &str = "[interfaces.eth1]\nnatfw.side = \"inside\"\n";
    let open = |text: &str| warnings(&format!("{FIREWALL}{text}{INSIDE}"));
    let inward = open("[[policy.rules]]\naction = \"allow\"\nopens = [\"inward\"]\n");
    let part =
        "policy.rules: open to strangers: the rule number 1 lets everybody open \"inward\": give it from";
    assert!(inward.len() == 1 && inward[0].contains(part), "{inward:?}");
    let all = open("[policy]\ntrusted = [\"0.0.0.0/1\", \"128.0.0.0/1\"]\n");
    assert!(all.len() == 1 && all[0].contains("0.0.0.0/1 and 128.0.0.0/1 is every neighbor"), "{all:?}");
    let narrow = "[[policy.rules]]\naction = \"allow\"\nopens = [\"inward\"]\nfrom = [\"203.0.113.0/24\"]\n";
    assert_eq!(open(narrow), Vec::<String>::new());
    // Zones say where packets come from, not who asks.
    let zones = "[[policy.rules]]\naction = \"allow\"\nopens = [\"between\"]\nfrom_zone = [\"guest\"]\nto_zone = [\"dmz\", \"inside\"]\n\
                 [interfaces.eth2]\nzone = \"guest\"\n[interfaces.eth3]\nzone = \"dmz\"\n";
    let found = open(zones);
    let part = "lets everybody open \"between\" from the zone \"guest\" to the zone \"dmz\" or \"inside\": give it from";
    assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
    assert_eq!(open(&zones.replace("from_zone", "from = [\"10.0.0.0/8\"]\nfrom_zone")), Vec::<String>::new());
    let everybody = narrow.replace("203.0.113.0/24\"]", "0.0.0.0/1\", \"128.0.0.0/1\"]");
    assert_eq!(open(&everybody).len(), 1);
}

/// Threat T32: prefixes of several rules add up, too.
#[test]
fn rules_that_together_are_for_everybody_are_a_warning() {
    const FIREWALL: &str = "node.protocols = [\"gist\", \"natfw\"]\nnatfw.role = \"firewall\"\n";
    const INSIDE: &str = "[interfaces.eth1]\nnatfw.side = \"inside\"\n";
    const LINK: &str = "[interfaces.eth1]\ncapacity = \"10mbit\"\n";
    let rule =
        |name: &str, more: &str| format!("[[policy.rules]]\nname = \"{name}\"\naction = \"allow\"\n{more}\n");
    let quarters = |more: &str| {
        let part = |n: u8| rule(&format!("part{n}"), &format!("from = [\"{}.0.0.0/2\"]\n{more}", n * 64));
        (0..3).map(part).collect::<String>()
    };
    let found = warnings(&format!("{}{LINK}", quarters("")));
    let part = "the rules \"part0\" and \"part1\" and \"part2\" together allow requests of everybody";
    assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
    let proved = quarters("proof = \"identity\"");
    assert_eq!(warnings(&format!("{proved}{LINK}")), Vec::<String>::new());
    let opens = quarters("opens = [\"inward\", \"between\"]");
    let found = warnings(&format!("{FIREWALL}{opens}{INSIDE}"));
    assert_eq!(found.len(), 2, "{found:?}");
    for (one, opening) in found.iter().zip(["inward", "between"]) {
        assert!(one.contains(&format!("together let everybody open \"{opening}\"")), "{one}");
    }
    let private = rule("a", "from = [\"10.0.0.0/8\"]") + &rule("b", "via = [\"192.0.2.0/24\"]");
    assert_eq!(warnings(&format!("{private}{LINK}")), Vec::<String>::new());
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

/// Threat T31, T32: addresses that every node on their link can forge, and interfaces at which the way of a message proves nothing.
#[test]
fn addresses_that_can_be_forged_are_warnings() {
    const LINK: &str = "[interfaces.eth1]\ncapacity = \"10mbit\"\n";
    let rule =
        |more: &str| format!("[[policy.rules]]\nname = \"office\"\naction = \"allow\"\n{more}\n{LINK}");
    let new = |protocol: &str, text: &str| {
        let runs =
            |text: &str| warnings(&format!("node.protocols = [\"gist\", \"qos\", \"{protocol}\"]\n{text}"));
        let before = runs(LINK);
        runs(text)
            .into_iter()
            .filter(|one| !before.iter().any(|old| part(old) == part(one)))
            .collect::<Vec<_>>()
    };
    for (from, protocol, found) in [
        ("from = [\"192.0.2.0/24\"]", "rsvp", 1),
        ("via = [\"192.0.2.0/24\"]", "rsvp", 1),
        ("from = [\"192.0.2.0/24\"]\nproof = \"handshake\"", "rsvp", 0),
        ("from = [\"192.0.2.0/24\"]\nprotocols = [\"qos\"]", "rsvp", 0),
        ("from = [\"192.0.2.0/24\"]\npeer = [\"authenticated\"]", "rsvp", 0),
        ("from = [\"192.0.2.0/24\"]", "boomerang", 0),
    ] {
        let all = new(protocol, &rule(from));
        assert_eq!(all.len(), found, "{protocol} {from}: {all:?}");
        let what = "the rule \"office\" takes an address that every node on its link can forge in rsvp";
        assert!(all.iter().all(|one| one.contains(what)), "{all:?}");
    }
    let neighbors = format!(
        "[casp]\nclients = [\"qos\"]\nneighbors = [\"192.0.2.1\"]\n{}",
        rule("from = [\"192.0.2.0/24\"]")
    );
    let all = new("casp", &neighbors);
    assert!(all.iter().any(|one| one.contains("can forge in casp: write proof = \"handshake\"")), "{all:?}");
    for (kernel, key) in [
        ("reverse_path = \"off\"", "kernel.reverse_path: open to strangers: messages with forged sources"),
        (
            "asymmetric = [\"eth2\"]",
            "kernel.asymmetric: open to strangers: messages with forged sources count by eth2",
        ),
    ] {
        let all = new("rsvp", &format!("[kernel]\n{kernel}\n{LINK}"));
        assert!(all.len() == 1 && all[0].contains(key), "{all:?}");
        let qos = warnings(&format!("[kernel]\n{kernel}\n{LINK}"));
        assert_eq!(qos, Vec::<String>::new(), "GIST has handshakes");
    }
}

/// Two rules that together allow everybody.
const HALVES: &str = "[[policy.rules]]\naction = \"allow\"\nfrom = [\"0.0.0.0/1\"]\n\
                      [[policy.rules]]\naction = \"allow\"\nfrom = [\"128.0.0.0/1\"]\n";
/// The same at a firewall.
const HALVES_THAT_OPEN: &str = "node.protocols = [\"gist\", \"natfw\"]\nnatfw.role = \"firewall\"\n\
    [[policy.rules]]\naction = \"allow\"\nopens = [\"inward\"]\nfrom = [\"0.0.0.0/1\"]\n\
    [[policy.rules]]\naction = \"allow\"\nopens = [\"inward\"]\nfrom = [\"128.0.0.0/1\"]\n\
    [interfaces.eth2]\nnatfw.side = \"inside\"\n";

/// Each warning with a configuration that has it, and its key.
const ALL: &[(&str, &str)] = &[
    ("include = [\"more.toml\"]\n", "include"),
    ("[rsvp]\nrouter_alert = false\n", "rsvp"),
    ("restart = { handover = false, keep_queues = \"5s\" }\n", "restart.keep_queues"),
    ("privileges.user = \"root\"\n", "privileges.user"),
    ("privileges = { capabilities = false, system_calls = false, files = false }\n", "privileges.files"),
    ("metrics.listen = \"0.0.0.0:9464\"\n", "metrics.listen"),
    ("control.mode = \"0666\"\n", "control.mode"),
    ("policy.default = \"allow\"\n", "policy.default"),
    ("policy.trusted = [\"::/0\"]\n", "policy.trusted"),
    ("[[policy.rules]]\naction = \"allow\"\n", "policy.rules"),
    (
        "node.protocols = [\"rsvp\"]\n[[policy.rules]]\naction = \"allow\"\nfrom = [\"192.0.2.0/24\"]\n",
        "policy.rules",
    ),
    (
        "node.protocols = [\"gist\", \"natfw\"]\nnatfw.role = \"firewall\"\n[[policy.rules]]\naction = \"allow\"\n\
         opens = [\"inward\"]\n[interfaces.eth2]\nnatfw.side = \"inside\"\n",
        "policy.rules",
    ),
    (HALVES, "policy.rules"),
    (HALVES_THAT_OPEN, "policy.rules"),
    (
        "node.protocols = [\"gist\", \"natfw\"]\nnatfw = { role = \"firewall\", firewall.any_protocol = true }\n\
         [interfaces.eth2]\nnatfw.side = \"inside\"\n",
        "natfw.firewall.any_protocol",
    ),
    ("node.protocols = [\"rsvp\"]\nkernel.reverse_path = \"off\"\n", "kernel.reverse_path"),
    ("node.protocols = [\"rsvp\"]\nkernel.asymmetric = [\"eth2\"]\n", "kernel.asymmetric"),
    ("node.protocols = [\"rsvp\"]\n", "rsvp.integrity"),
    ("node.protocols = [\"rsvp\"]\nrsvp.any_source = true\n", "rsvp.any_source"),
    ("qos.accept_stateless = true\n", "qos.accept_stateless"),
    ("node.protocols = [\"casp\"]\ncasp.clients = [\"qos\"]\n", "casp.peers"),
    (
        "node.protocols = [\"casp\"]\ncasp = { clients = [\"qos\"], total_answer_rate = \"0/s\" }\n",
        "casp.total_answer_rate",
    ),
    ("node.protocols = [\"boomerang\"]\n", "boomerang.prove_return"),
    ("gist.cookie_errors = true\n", "gist.cookie_errors"),
    ("gist.router_alert.required = false\n", "gist.router_alert.required"),
    ("gist.upstream_queries = true\n", "gist.upstream_queries"),
    ("gist.message_rate = \"0/s\"\n", "gist.message_rate"),
    ("", "interfaces.eth1"),
];

/// The places in the sources that make a warning.
fn sites() -> usize {
    let mut directories = vec![crate::support::root().join("crates/config/src")];
    let mut sites = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            sites += ["keys.warn(", " open(keys, ", "findings.warning("]
                .map(|call| text.matches(call).count())
                .iter()
                .sum::<usize>();
        }
    }
    sites
}

/// Every warning says what to write instead, in its last part.
#[test]
fn each_warning_says_what_to_write_instead() {
    const SAYS: &[&str] =
        &["write ", "remove ", "give ", "set ", "add ", "name ", "use ", "correct ", "filter "];
    for (text, key) in ALL {
        let text = format!("version = 1\n{text}[interfaces.eth1]\ncapacity = \"10mbit\"\n");
        let directory = Directory::new("says");
        let path = directory.write("node.toml", 0o644, &text);
        let read = match *key {
            "include" => parse(&path, &text),
            _ => signalbox_config::load_here(&path, &["lo".to_owned(), "eth2".to_owned()]).unwrap(),
        };
        let warnings: Vec<_> = read.findings.iter().filter(|one| one.level == Level::Warning).collect();
        assert!(warnings.iter().any(|one| one.key == *key), "{key}: {:?}", read.findings);
        for warning in warnings {
            let last = [": ", "; "].iter().filter_map(|mark| warning.message.rfind(mark)).max().unwrap();
            let instead = &warning.message[last + 2..];
            assert!(SAYS.iter().any(|verb| instead.starts_with(verb)), "no remedy: {warning}");
        }
    }
    // Two more are the functions that all of them call.
    assert_eq!(sites(), ALL.len() + 2, "add a configuration with the new warning to the list");
}

/// A warning without its place.
fn part(warning: &str) -> &str {
    warning.split_once("warning: ").map_or(warning, |(_, text)| text)
}
