//! Files that a configuration names: secrets, certificates and drop-ins.

use signalbox_config::load;
use signalbox_node::rsvp::neighbor::{Algorithm, KeyUse};

use crate::support::{Directory, errors, lines, read};

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
    assert_eq!(rsvp.neighbors.interface.integrity.window, 8);
    assert!(!rsvp.of_interface("lan").neighbors.unwrap().integrity.sending);
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
fn included_files_are_regular_and_of_limited_size() {
    let directory = Directory::new("irregular");
    let fault = |include: &str| {
        let file = directory.write("node.toml", 0o644, &format!("version = 1\ninclude = [\"{include}\"]\n"));
        let faults = errors(load(&file).unwrap().usable().unwrap_err());
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].clone()
    };
    let irregular = fault("/dev/zero");
    assert!(irregular.ends_with("include: cannot read /dev/zero: it is no regular file"), "{irregular}");
    directory.write("large.toml", 0o644, &"#\n".repeat(600 << 10));
    let large = fault("large.toml");
    assert!(large.ends_with("large.toml: it has more than 1048576 octets"), "{large}");
}
