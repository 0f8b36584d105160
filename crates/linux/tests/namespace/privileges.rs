//! The error messages and capabilities of the program without root.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_linux::confine::User;
use signalbox_linux::helper::Helper;
use signalbox_linux::{Io, IoConfig, Scope, capability};

use crate::helper::{helper, helper_at};
use crate::network::{GIST, Network, config, datagram, families, footprint, receive_until, send, until};

pub(crate) const NOBODY: u32 = 65_534;
/// The path of the helper's socket, in the environment of a process.
pub(crate) const SOCKET: &str = "SBXT_SOCKET";

/// The VRF of a helper, in the environment of its process.
pub(crate) const VRF: &str = "SBXT_VRF";

/// A copy of this program that every user may run.
pub(crate) struct Copy(pub(crate) PathBuf);

impl Copy {
    pub(crate) fn new(label: &str) -> Self {
        let path = env::temp_dir().join(format!("sbxt-{}-{label}", std::process::id()));
        // Another process copies the file. If this process wrote it, a child forked by another thread could hold the
        // file open, and a file that is open for writing cannot be executed.
        let copied = Command::new("cp").arg(env::current_exe().unwrap()).arg(&path).status().unwrap();
        assert!(copied.success());
        Self(path)
    }

    /// The output of the program as the user `nobody` in the router.
    fn run(&self, net: &Network, part: &str) -> String {
        self.run_at(net, part, Path::new(""))
    }

    /// The same with the socket of a helper.
    fn run_at(&self, net: &Network, part: &str, socket: &Path) -> String {
        let mut command = helper_at(&self.0, part);
        command.env(SOCKET, socket);
        let output = net.r.run(|| command.uid(NOBODY).gid(NOBODY).output()).unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
        said
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // The file is in the temporary directory and has our prefix; nothing depends on its removal.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn nothing_is_missing_for_root() {
    let net = Network::new("root");
    assert_eq!(net.r.run(|| capability::check(&config())).unwrap(), []);
}

#[test]
fn missing_privileges_are_named() {
    let net = Network::new("priv");
    let said = Copy::new("priv").run(&net, "probe");
    assert!(said.contains("missing-net-admin") && said.contains("setcap"), "{said}");
    assert!(said.contains("not opened"), "{said}");
}

#[test]
fn file_capabilities_are_enough() {
    let net = Network::new("caps");
    let before = footprint(&net.r);
    let copy = Copy::new("caps");
    let wanted = "cap_net_admin,cap_net_raw,cap_net_bind_service+ep";
    if !Command::new("setcap").arg(wanted).arg(&copy.0).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no setcap, or a file system without capabilities");
    }
    let said = copy.run(&net, "probe");
    assert!(!said.contains("missing") && !said.contains("not opened"), "{said}");
    assert_eq!(footprint(&net.r), before);
}

#[test]
fn a_user_namespace_is_enough() {
    let net = Network::new("user");
    let allowed = Command::new("unshare").args(["-Urnm", "true"]).uid(NOBODY).gid(NOBODY).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: this kernel forbids user namespaces");
    }
    let said = Copy::new("user").run(&net, "user-namespace");
    assert!(said.contains("opened in a user namespace"), "{said}");
}

pub(crate) fn socket() -> PathBuf {
    env::var_os(SOCKET).map(PathBuf::from).unwrap()
}

/// Sends a datagram with a Router Alert from the host of each family on the way to the other one.
fn send_alerted(io: &mut Io, payload: &[u8]) {
    let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
    for family in families() {
        let options: &[u8] = if family.a.is_ipv4() { &v4 } else { &v6 };
        send(io, &Transmit { options, ..datagram(family.a, family.b, payload) });
    }
}

/// The process that holds the privileges.
pub(crate) fn helper_process() {
    let config = IoConfig { scope: Scope::of(env::var(VRF).ok()), ..config() };
    Helper::open(&socket(), &User::find("65534").unwrap(), config).unwrap().run().unwrap();
}

/// The process that has none.
pub(crate) fn without_privileges() {
    let mut io = Io::open(&IoConfig { helper: Some(socket()), ..config() }).unwrap();
    let took = receive_until(&mut io, |got| {
        [true, false].map(|v4| got.iter().any(|one| one.src.is_ipv4() == v4)) == [true; 2]
    });
    assert!(took.iter().all(|one| one.payload == GIST), "{took:?}");
    send_alerted(&mut io, b"sent");
    eprintln!("took and sent");
}

/// CASP-P-16: a process without privileges takes passing packets and sends with a foreign source and a Router Alert, by the
/// sockets that its helper gives it.
#[test]
fn a_helper_gives_what_needs_privileges() {
    let net = Network::new("helper");
    let before = footprint(&net.r);
    let program = Copy::new("helper");
    let socket = env::temp_dir().join(format!("sbxt-{}-socket", std::process::id()));
    let mut command = helper("privileges");
    let mut process = net.r.spawn(command.env(SOCKET, &socket)).unwrap();
    until("the helper listens", || {
        socket.metadata().is_ok_and(|file| file.uid() == NOBODY && file.mode() & 0o777 == 0o600)
    });
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let said = thread::scope(|scope| {
        let daemon = scope.spawn(|| program.run_at(&net, "without-privileges", &socket));
        while !daemon.is_finished() {
            send_alerted(&mut a, GIST);
            thread::sleep(Duration::from_millis(20));
        }
        daemon.join().unwrap()
    });
    assert!(said.contains("took and sent"), "{said}");
    let sent = receive_until(&mut b, |got| got.iter().filter(|one| one.payload == b"sent").count() == 2);
    let mut sources: Vec<_> =
        sent.iter().filter(|one| one.payload == b"sent").map(|one| one.src.ip()).collect();
    sources.sort();
    assert_eq!(sources, families().map(|family| family.a));
    until("the interception is removed", || !footprint(&net.r).contains("signalbox"));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(footprint(&net.r), before);
    std::fs::remove_file(&socket).unwrap();
}
