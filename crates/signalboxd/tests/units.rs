//! The systemd units in `etc/`: the daemon with its helper has no capability, and the helper has those of the network only.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The capabilities of the helper: the interception, packets with Router Alert, and ports below 1024.
const OF_HELPER: &str = "CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE";
/// Keys in which the units differ on purpose.
const OWN: [&str; 9] = [
    "ExecStart",
    "ExecReload",
    "Restart",
    "WatchdogSec",
    "LimitNOFILE",
    "RuntimeDirectory",
    "RuntimeDirectoryPreserve",
    "StateDirectory",
    "SystemCallFilter",
];

type Service = BTreeMap<String, String>;

/// The settings of the section `[Service]`. As for systemd, a key without a value resets what stands before.
fn service(files: &[&str]) -> Service {
    let mut all = Service::new();
    for file in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc").join(file);
        let text = fs::read_to_string(path).unwrap();
        let section = text.split("\n[Service]\n").nth(1).expect("a section Service");
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        for (key, value) in
            lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='))
        {
            let values = all.entry(key.to_owned()).or_default();
            if value.is_empty() {
                values.clear();
            } else if !values.is_empty() {
                values.push(' ');
            }
            values.push_str(value);
        }
    }
    all
}

#[test]
fn the_helper_has_the_capabilities_of_the_network_only() {
    let helper = service(&["signalboxd-helper.service"]);
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert_eq!(helper[key], OF_HELPER, "{key}");
    }
    assert!(helper["ExecStart"].ends_with(" --helper"), "{}", helper["ExecStart"]);
    assert_eq!((helper["User"].as_str(), helper["NoNewPrivileges"].as_str()), ("signalbox", "yes"));
}

#[test]
fn a_daemon_with_a_helper_has_no_capability() {
    let daemon = service(&["signalboxd.service", "signalboxd-helper.conf"]);
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert_eq!(daemon[key], "", "{key}");
    }
    assert_eq!((daemon["User"].as_str(), daemon["NoNewPrivileges"].as_str()), ("signalbox", "yes"));
    assert_eq!(daemon["SystemCallFilter"], "@system-service");
}

/// What confines the daemon confines its helper.
#[test]
fn the_helper_is_confined_as_the_daemon_is() {
    let common = |files: &[&str]| {
        let mut all = service(files);
        let own = |key: &String| OWN.contains(&key.as_str()) || key.contains("Capabilit");
        all.retain(|key, _| !own(key));
        all
    };
    assert_eq!(common(&["signalboxd-helper.service"]), common(&["signalboxd.service"]));
}

/// Both units and the configuration name the same file and the same socket.
#[test]
fn the_units_read_one_configuration() {
    let (daemon, helper) = (service(&["signalboxd.service"]), service(&["signalboxd-helper.service"]));
    assert_eq!(helper["ExecStart"], format!("{} --helper", daemon["ExecStart"]));
    assert_ne!(helper["RuntimeDirectory"], daemon["RuntimeDirectory"], "systemd removes it with the unit");
}

/// O15: `systemctl reload` with a broken file ends with an error, and the signal, which has no answer, is not sent.
#[test]
fn a_reload_checks_the_file_first() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/signalboxd.service");
    let unit = fs::read_to_string(path).unwrap();
    let steps: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("ExecReload=")).collect();
    let [check, signal] = steps.as_slice() else { panic!("{steps:?}") };
    assert!(signal.ends_with("kill -HUP $MAINPID"), "{signal}");
    let mut words = check.split(' ');
    assert_eq!(words.next(), Some("/usr/local/sbin/signalboxd"));
    let file = std::env::temp_dir().join(format!("signalbox-reload-{}.toml", std::process::id()));
    let run = |contents: &str| {
        fs::write(&file, contents).unwrap();
        let named = "/etc/signalbox/signalboxd.toml";
        let words = words.clone().map(|word| if word == named { file.as_os_str() } else { word.as_ref() });
        std::process::Command::new(env!("CARGO_BIN_EXE_signalboxd")).args(words).output().unwrap()
    };
    let sound = run("[node]\nname = \"r1\"\n");
    assert!(sound.status.success(), "{sound:?}");
    let broken = run("[node\n");
    assert!(!broken.status.success(), "{broken:?}");
    fs::remove_file(&file).unwrap();
}
