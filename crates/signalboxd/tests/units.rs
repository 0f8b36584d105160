//! The systemd units in `etc/`: the daemon with its helper has no capability, and the helper has those of the network only.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The capabilities of the helper: the interception, packets with Router Alert, and ports below 1024.
const OF_HELPER: &str = "CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE";
/// Keys in which the units differ on purpose.
const OWN: [&str; 13] = [
    "ExecStart",
    "ExecReload",
    "Restart",
    "WatchdogSec",
    "LimitNOFILE",
    "LimitMEMLOCK",
    "RuntimeDirectory",
    "RuntimeDirectoryPreserve",
    "StateDirectory",
    "LogsDirectory",
    "LogsDirectoryMode",
    "SystemCallFilter",
    "RestrictAddressFamilies",
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
    // By a packet socket it would send packets to try the interception, which the helper does for it by a lookup.
    let families = |service: &Service| service["RestrictAddressFamilies"].clone();
    let alone = families(&service(&["signalboxd.service"]));
    assert_eq!(alone, format!("{} AF_PACKET", families(&daemon)));
    assert_eq!(families(&daemon), families(&service(&["signalboxd-helper.service"])));
    let with_bpf = service(&["signalboxd.service"])["SystemCallFilter"].clone();
    assert_eq!(daemon["SystemCallFilter"], with_bpf.replace("@system-service bpf ", "@system-service "));
}

/// Daemons of several VRFs have nothing in common but the directory of their configurations.
#[test]
fn a_daemon_of_a_vrf_differs_in_its_files_only() {
    let (plain, vrf) =
        (service(&["signalboxd.service"]), service(&["signalboxd.service", "signalboxd-vrf.conf"]));
    let differs: Vec<_> = plain.keys().filter(|key| plain[*key] != vrf[*key]).map(String::as_str).collect();
    assert_eq!(differs, ["ExecReload", "ExecStart", "LogsDirectory", "RuntimeDirectory", "StateDirectory"]);
    for (key, part) in [("ExecStart", "signalboxd"), ("ExecReload", "signalboxd")] {
        assert_eq!(vrf[key], plain[key].replace(&format!("/{part}.toml"), "/%i.toml"), "{key}");
    }
    for key in ["LogsDirectory", "RuntimeDirectory", "StateDirectory"] {
        assert_eq!(vrf[key], format!("{}-%i", plain[key]), "{key}");
    }
    assert_eq!(vrf.len(), plain.len());
}

/// Issue 33: the template gives the command what the documented file of a reservation has.
#[test]
fn a_reservation_of_the_template_is_the_documented_one() {
    let unit = service(&["signalbox-reserve@.service"]);
    assert_eq!(unit["ExecStart"], "signalbox reserve ${DESTINATION} --rate ${RATE} $OPTIONS");
    assert_eq!((unit["User"].as_str(), unit["Group"].as_str()), ("signalbox", "signalbox"));
    let file = unit["EnvironmentFile"].replace("%i", "video");
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operation.md")).unwrap();
    let (_, example) = page.split_once(&file).expect("the page has an example");
    for name in ["DESTINATION=", "RATE=", "OPTIONS="] {
        assert!(example.lines().take(12).any(|line| line.trim_start().starts_with(name)), "{name}");
    }
}

/// What confines the daemon confines its helper.
#[test]
fn the_helper_is_confined_as_the_daemon_is() {
    let common = |files: &[&str]| {
        let mut all = service(files);
        let is_own = |key: &String| OWN.contains(&key.as_str()) || key.contains("Capabilit");
        all.retain(|key, _| !is_own(key));
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

/// The example for logrotate and the documented steps use directories that the unit makes, with their modes: systemd lets the
/// daemon write nowhere else, and warns at each start of a mode that is another one.
#[test]
fn the_directories_of_the_unit_are_those_of_the_documents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let daemon = service(&["signalboxd.service"]);
    let logs = format!("\n/var/log/{}/audit.jsonl {{", daemon.get("LogsDirectory").expect("LogsDirectory"));
    assert!(read("etc/signalbox.logrotate").contains(&logs), "{logs}");
    let mode = daemon.get("ConfigurationDirectoryMode").expect("ConfigurationDirectoryMode");
    let step = format!("install -d -g signalbox -m {} /etc/signalbox", mode.trim_start_matches('0'));
    assert!(read("docs/operation.md").contains(&step), "{step}");
}

/// O15: `systemctl reload` with a broken file ends with an error, and the signal, which has no answer, is not sent.
#[test]
fn a_reload_checks_the_file_first() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/signalboxd.service");
    let unit = fs::read_to_string(path).unwrap();
    let steps: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("ExecReload=")).collect();
    let [check, signal] = steps.as_slice() else { panic!("{steps:?}") };
    assert!(signal.ends_with("kill -HUP $MAINPID'"), "{signal}");
    // `kill` is in no package that each system has; the shell has its own.
    assert!(signal.starts_with("/bin/sh -c "), "{signal}");
    let mut words = check.split(' ');
    assert_eq!(words.next(), Some("/usr/local/sbin/signalboxd"));
    let file = std::env::temp_dir().join(format!("signalbox-reload-{}.toml", std::process::id()));
    let run = |contents: &str| {
        fs::write(&file, contents).unwrap();
        let named = "/etc/signalbox/signalboxd.toml";
        let words = words.clone().map(|word| if word == named { file.as_os_str() } else { word.as_ref() });
        std::process::Command::new(env!("CARGO_BIN_EXE_signalboxd")).args(words).output().unwrap()
    };
    let sound = run("version = 1\n[node]\nname = \"r1\"\n");
    assert!(sound.status.success(), "{sound:?}");
    let broken = run("version = 1\n[node\n");
    assert!(!broken.status.success(), "{broken:?}");
    fs::remove_file(&file).unwrap();
}

/// System calls of the set `@system-service` of systemd 252, which Debian 12 has, as far as the daemon can make them
/// (systemd.exec(5), `systemd-analyze syscall-filter`). `seccomp` and `landlock_*` came into the set later, and `bpf` is in none.
#[rustfmt::skip]
const OF_SYSTEMD_252: &[&str] = &[
    "accept4", "access", "arch_prctl", "bind", "brk", "capget", "capset", "clock_gettime",
    "clock_nanosleep", "clone", "clone3", "close", "close_range", "connect", "dup", "dup2", "dup3",
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2", "execve", "exit", "exit_group",
    "faccessat", "faccessat2", "fchmod", "fchown", "fcntl", "flock", "fork", "fstat", "fstatfs",
    "ftruncate", "futex", "getcwd", "getdents64", "getegid", "geteuid", "getgid", "getpeername", "getpid",
    "getrandom", "getsockname", "getsockopt", "gettid", "gettimeofday", "getuid", "ioctl", "kill",
    "listen", "lseek", "lstat", "madvise", "mkdir", "mmap", "mprotect", "mremap", "munmap", "nanosleep",
    "newfstatat", "open", "openat", "pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "poll", "ppoll",
    "prctl", "pread64", "prlimit64", "pselect6", "read", "readlink", "readlinkat", "readv", "recvfrom",
    "recvmmsg", "recvmsg", "rename", "renameat", "restart_syscall", "rseq", "rt_sigaction",
    "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity", "sched_yield", "select", "sendmmsg", "sendmsg",
    "sendto", "set_robust_list", "set_tid_address", "setgroups", "setresgid", "setresuid", "setsid",
    "setsockopt", "shutdown", "sigaltstack", "socket", "socketpair", "stat", "statfs", "statx", "sysinfo",
    "time", "timerfd_settime", "umask", "uname", "unlink", "unlinkat", "vfork", "wait4", "waitid", "write",
    "writev",
];
/// What a process makes before it has confined itself, beside what it makes afterwards.
const AT_THE_START: &[&str] = &[
    "seccomp",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "setresuid",
    "setresgid",
    "setgroups",
];

/// Whether a filter of a unit lets a call pass under systemd 252.
fn passes(filter: &str, call: &str) -> bool {
    let mut allowed = filter.split(' ');
    allowed.any(|one| one == call || one == "@system-service" && OF_SYSTEMD_252.contains(&call))
}

/// O01: no unit depends on a set that a newer systemd made larger.
#[test]
fn the_filters_name_what_the_sets_of_debian_12_lack() {
    let confined = include_str!("../../linux/src/confine/calls.rs");
    let ends_name = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let own: Vec<&str> =
        confined.split("SYS_").skip(1).filter_map(|rest| rest.split(ends_name).next()).collect();
    assert!(own.len() > 60, "{own:?}");
    for (files, bpf) in [
        (&["signalboxd.service"][..], true),
        (&["signalboxd.service", "signalboxd-helper.conf"], false),
        (&["signalboxd-helper.service"], false),
    ] {
        let filter = &service(files)["SystemCallFilter"];
        for call in own.iter().chain(AT_THE_START).filter(|call| bpf || **call != "bpf") {
            assert!(passes(filter, call), "{files:?} refuses {call}");
        }
        assert_eq!(passes(filter, "bpf"), bpf, "{files:?}");
    }
}

/// O07: the daemon waits for the network, and an interface that is late does not end the attempts.
#[test]
fn a_router_comes_up_without_a_hand() {
    for file in ["signalboxd.service", "signalboxd-helper.service"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc").join(file);
        let text = fs::read_to_string(path).unwrap();
        let (unit, _) = text.split_once("\n[Service]\n").expect("a section Service");
        for line in ["Wants=network-online.target", "StartLimitIntervalSec=0"] {
            assert!(unit.lines().any(|found| found == line), "{file} lacks {line}");
        }
        let after = unit.lines().find_map(|line| line.strip_prefix("After=")).unwrap_or_default();
        assert!(after.split(' ').any(|target| target == "network-online.target"), "{file}: {after}");
    }
}
