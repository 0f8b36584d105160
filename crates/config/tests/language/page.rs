//! The configuration as text: the effective one, the file to begin with, and the page that describes the language.

use std::path::Path;

use signalbox_config::{Level, defaults, document, load, parse};

use crate::support::{errors, lines, read, root};

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

/// Whole files in the documentation, those that begin with the version: what a reader copies is accepted.
#[test]
fn files_in_the_documentation_are_sound() {
    let pages = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let mut files = 0;
    for path in pages.chain([root().join("README.md")]) {
        let page = std::fs::read_to_string(&path).unwrap();
        for block in page.split("```toml\n").skip(1) {
            let (text, _) = block.split_once("```").expect("the block ends");
            if text.trim_start().starts_with("version = 1\n") {
                let found = parse(Path::new("node.toml"), text).usable().map_err(errors);
                assert!(found.is_ok(), "{}: {:?}\n{text}", path.display(), found.err());
                files += 1;
            }
        }
    }
    assert!(files >= 6, "{files} files");
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
