//! The error messages and capabilities of the program without root.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use signalbox_linux::capability;

use crate::helper::helper_at;
use crate::network::{Network, config, footprint};

const NOBODY: u32 = 65_534;

/// A copy of this program that every user may run.
struct Copy(PathBuf);

impl Copy {
    fn new(label: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sbxt-{}-{label}", std::process::id()));
        // Another process copies the file. If this process wrote it, a child forked by another thread could hold the
        // file open, and a file that is open for writing cannot be executed.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&path).status().unwrap();
        assert!(copied.success());
        Self(path)
    }

    /// The output of the program as the user `nobody` in the router.
    fn run(&self, net: &Network, part: &str) -> String {
        let mut command = helper_at(&self.0, part);
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
        return eprintln!("skipped: this kernel lets nobody make user namespaces");
    }
    let said = Copy::new("user").run(&net, "user-namespace");
    assert!(said.contains("opened in a user namespace"), "{said}");
}
