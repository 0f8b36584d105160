//! Keys of one protocol: their values, and what is missing.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use signalbox_config::{load, parse};
use signalbox_node::casp::{DNS, Mechanism, Transport};

use crate::support::{Directory, errors, lines, read, settings, warnings};

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

/// GIST and CASP share SCTP, but not a port.
#[test]
fn gist_and_casp_listen_at_different_ports() {
    let read = |port: u16| {
        let text = format!(
            "version = 1\nnode.protocols = [\"gist\", \"casp\"]\n[gist.associations]\nsctp_port = {port}\n[casp]\nsctp = true\n"
        );
        parse(Path::new("node.toml"), &text)
    };
    let config = read(270).config.unwrap();
    assert_eq!(config.settings(0, false).validated(), Ok(()));
    let kernel = config.settings(0, true);
    assert!(kernel.casp.unwrap().channels.kernel_sctp && kernel.gist.unwrap().channels.kernel_sctp);
    let found = lines(read(50003).findings);
    assert!(found.iter().any(|one| one.contains("both protocols listen there")), "{found:?}");
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

const ZONES: &str = "node.protocols = [\"gist\", \"natfw\"]\nnatfw.role = \"firewall\"\n\
     [interfaces.eth0]\nnatfw.side = \"inside\"\n[interfaces.eth1]\nnatfw.side = \"inside\"\nzone = \"guest\"\n\
     [interfaces.eth2]\nnatfw.side = \"outside\"\n[interfaces.eth3]\nzone = \"dmz\"\n";

fn with_zones(from: &str, to: &str) -> String {
    format!(
        "{ZONES}[[policy.rules]]\naction = \"allow\"\nfrom = [\"10.0.0.0/8\"]\nopens = [\"between\"]\nfrom_zone = [{from}]\nto_zone = [{to}]\n"
    )
}

/// The zone of an interface is its own key, else its side. No reservation is possible there because of it.
#[test]
fn interfaces_are_in_zones() {
    let resources = settings(&with_zones("\"guest\", \"inside\"", "\"dmz\", \"outside\"")).resources;
    let zones = ["eth0", "eth1", "eth2", "eth3", "eth4"].map(|name| resources.zones.of(name));
    assert_eq!(zones, ["inside", "guest", "outside", "dmz", "outside"]);
    let rule = &resources.rules[0];
    assert_eq!(
        (&rule.from_zone[..], &rule.to_zone[..]),
        (&["guest", "inside"].map(str::to_owned)[..], &["dmz", "outside"].map(str::to_owned)[..])
    );
    assert!(resources.links.is_empty());
}

#[test]
fn a_zone_without_an_interface_is_a_mistake() {
    for (text, part) in [
        (
            with_zones("\"guests\"", "\"dmz\""),
            "node.toml:17:13: policy.rules[1].from_zone: no interface is in the zone \"guests\": write zone = \"guests\"",
        ),
        (with_zones("", "\"lan\""), "policy.rules[1].to_zone: no interface is in the zone \"lan\""),
        (
            with_zones("\"guest\"", "").replace("[\"between\"]", "[\"reserve\", \"inward\"]"),
            "from_zone: \"reserve\" and \"block\" are for senders anywhere",
        ),
        (
            with_zones("\"guest\"", "").replace("opens = [\"between\"]\n", ""),
            "it belongs to rules with opens",
        ),
        (
            with_zones("\"guest\"", "")
                .replace("protocols = [", "protocols = [\"casp\", ")
                .replace("natfw.side = \"outside\"", "natfw.side = \"outside\"\ncasp.side = \"inside\"")
                + "[casp]\nclients = [\"natfw\"]\nnatfw.role = \"firewall\"\n",
            "interfaces.eth2: is on different sides",
        ),
    ] {
        let mistakes = read(&text).unwrap_err();
        assert!(mistakes.iter().any(|one| one.contains(part)), "{part}: {mistakes:?}");
    }
}

/// A reload takes zones, also of interfaces that had no table before.
#[test]
fn a_reload_takes_zones() {
    let old = read(&with_zones("\"guest\"", "\"dmz\"")).unwrap();
    for mode in ["", "[enforcement]\nmode = \"off\"\n"] {
        let old = if mode.is_empty() {
            old.clone()
        } else {
            read(&(with_zones("\"guest\"", "\"dmz\"") + mode)).unwrap()
        };
        let text = with_zones("\"guest\"", "\"servers\"").replace("zone = \"dmz\"", "zone = \"guest\"");
        let new = read(&(text + "[interfaces.eth4]\nzone = \"servers\"\n" + mode)).unwrap();
        let reload = old.reload(&new);
        assert_eq!(reload.needs_restart, [""; 0]);
        for key in ["interfaces.eth3.zone", "interfaces.eth4.zone", "policy.rules[1].to_zone"] {
            assert!(reload.applied.iter().any(|one| one == key), "{:?} lacks {key}", reload.applied);
        }
        assert_eq!(reload.config.settings(0, false).resources.zones.of("eth4"), "servers");
    }
}

/// The defaults of NATFW work alone: where GIST has no port for associations, its messages are datagrams.
#[test]
fn natfw_needs_no_associations() {
    let plain = "node.protocols = [\"gist\", \"natfw\"]\n";
    assert!(!settings(plain).natfw.unwrap().reliable);
    let with_port = format!("{plain}[gist.associations]\ntcp_port = 270\n");
    assert!(settings(&with_port).natfw.unwrap().reliable);
}

/// Programs are served at interfaces inside only, and where NATFW opens for them.
#[test]
fn mapping_is_for_hosts_inside() {
    const RUNS: &str = "node.protocols = [\"gist\", \"natfw\", \"mapping\"]\n\
                        [interfaces.lan]\nnatfw.side = \"inside\"\n[interfaces.wan]\nnatfw.side = \"outside\"\n";
    const NAT: &str = "[natfw]\nrole = \"nat\"\n";
    let text = "[mapping]\ninterfaces = [\"lan\"]\nprotocols = [\"pcp\"]\nfrom = [\"192.168.1.0/24\"]\n\
                towards = \"203.0.113.9\"\nmax_lifetime = \"1h\"\nmax_per_host = 7\n";
    let mapping = settings(&format!("{RUNS}{NAT}{text}")).mapping.unwrap();
    assert_eq!((mapping.engine.pcp, mapping.engine.nat_pmp, mapping.engine.translates), (true, false, true));
    assert_eq!(mapping.engine.interfaces, ["lan"]);
    assert_eq!((mapping.engine.from[0].len, mapping.towards), (24, [203, 0, 113, 9].into()));
    assert_eq!((mapping.engine.max_lifetime, mapping.engine.max_of_host), (Duration::from_secs(3600), 7));
    let firewall =
        settings(&format!("{RUNS}[natfw]\nrole = \"firewall\"\n[mapping]\ninterfaces = \"lan\"\n"));
    assert!(!firewall.mapping.unwrap().engine.translates, "NAT-PMP is for NATs");
    assert!(settings("node.protocols = [\"gist\", \"natfw\"]\n").mapping.is_none(), "off by default");
    for (text, part) in [
        (format!("{RUNS}{NAT}"), "needs an interface"),
        (format!("{RUNS}{NAT}[mapping]\ninterfaces = [\"wan\"]\n"), "wan is not inside"),
        (format!("{RUNS}{NAT}[mapping]\ninterfaces = [\"lan\", \"dmz\"]\n"), "dmz is not inside"),
        (format!("{RUNS}[mapping]\ninterfaces = [\"lan\"]\n"), "mapping opens nothing by itself"),
        ("node.protocols = [\"mapping\"]\n".to_owned(), "mapping needs natfw"),
        (format!("{RUNS}{NAT}[mapping]\nprotocols = []\n"), "write one at least"),
        (format!("{RUNS}{NAT}[mapping]\ntowards = \"2001:db8::1\"\n"), "write an IPv4 address"),
        (format!("{RUNS}{NAT}[mapping]\nmax_filters = 9\n"), "1 to 8"),
        (
            format!("{RUNS}{NAT}[mapping]\nmin_lifetime = \"2h\"\nmax_lifetime = \"1h\"\n"),
            "longer than max_lifetime",
        ),
    ] {
        let found = read(&text).unwrap_err();
        assert!(found.iter().any(|one| one.contains(part)), "{text}: {found:?}");
    }
}
