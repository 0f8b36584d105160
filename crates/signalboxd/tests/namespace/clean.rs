//! `signalboxd --clean`: what a crash leaves in the kernel.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use signalbox_linux::netns::Namespace;

use crate::firewall::Net;

/// Rule and route, queues, and the table of pinholes.
const SETTINGS: &str = "node.protocols = [\"gist\", \"qos\", \"natfw\"]\npolicy.default = \"allow\"\n\
    enforcement.mode = \"best-effort\"\nnatfw.role = \"firewall\"\ninterfaces.left.natfw.side = \"inside\"\n\
    interfaces.right.capacity = \"100mbit\"\n";
/// Of somebody else, with a name that begins like ours.
const FOREIGN: &str = "table inet signalbox_mine";

fn run(namespace: &Namespace, command: &mut Command) -> Output {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    namespace.spawn(command).unwrap().wait_with_output().unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn shown(namespace: &Namespace, line: &str) -> String {
    let mut words = line.split(' ');
    let output = run(namespace, Command::new(words.next().unwrap()).args(words));
    text(&output.stdout)
}

fn clean(namespace: &Namespace, file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalboxd"));
    run(namespace, command.arg("--config").arg(file).arg("--clean"))
}

/// The parts of the kernel's state that have something of ours.
fn left(namespace: &Namespace) -> Vec<&'static str> {
    let tables = shown(namespace, "nft list tables");
    let others = tables.lines().filter(|line| line.contains("signalbox") && *line != FOREIGN);
    let mut left = vec![];
    for (what, is_there) in [
        ("tables", others.count() > 0),
        ("rule", shown(namespace, "ip rule").contains("fwmark 0x5b00010e")),
        ("rule of IPv6", shown(namespace, "ip -6 rule").contains("fwmark 0x5b00010e")),
        ("route", shown(namespace, "ip route show table 270").contains("local default")),
        ("route of IPv6", shown(namespace, "ip -6 route show table 270").contains("local default")),
        ("queues", shown(namespace, "tc qdisc show dev right").contains("htb 5342:")),
    ] {
        if is_there {
            left.push(what);
        }
    }
    left
}

/// Issue 33: what is removed is said, what is somebody else's stays, and a daemon that runs loses nothing.
#[tokio::test]
async fn what_a_crash_leaves_is_removed_and_named() {
    let mut net = Net::new("clean", SETTINGS).await;
    let file = net.host().directory.join("config.toml");
    let all = ["tables", "rule", "rule of IPv6", "route", "route of IPv6", "queues"];
    shown(net.router(), "nft add table inet signalbox_mine");
    assert_eq!(left(net.router()), all, "a running daemon");

    let refused = clean(net.router(), &file);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("a daemon listens at "), "{refused:?}");
    // Another control socket hides nothing: the tables belong to a process.
    let other = net.host().directory.join("other.toml");
    fs::write(&other, fs::read_to_string(&file).unwrap().replace("/sock\"", "/other\"")).unwrap();
    if signalbox_linux::kernel_version().is_none_or(|version| version >= (5, 12)) {
        let refused = clean(net.router(), &other);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("belongs to a process that runs"), "{refused:?}");
    }
    assert_eq!(left(net.router()), all, "refused, so nothing is gone");

    net.host_mut().crash();
    assert_eq!(left(net.router()), all, "after the crash");
    let cleaned = clean(net.router(), &file);
    assert!(cleaned.status.success(), "{cleaned:?}");
    let said = text(&cleaned.stdout);
    for what in [
        "removed: control socket ",
        "removed: nftables table inet signalbox_pinholes\n",
        "removed: IPv4: rule for the mark 0x5b00010e, and routes of table 270\n",
        "removed: IPv6: rule for the mark 0x5b00010e, and routes of table 270\n",
        "removed: queues at right\n",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert_eq!(left(net.router()), [""; 0]);
    assert_eq!(shown(net.router(), "nft list tables").trim(), FOREIGN);
    assert!(!net.host().directory.join("sock").exists());

    let again = clean(net.router(), &file);
    assert_eq!(text(&again.stdout), "nothing is left to remove\n", "{again:?}");
    assert!(again.status.success());
}
