//! `[privileges]`: what the daemon keeps of its privileges after its start.

use std::path::{Path, PathBuf};

use signalbox_core::{Entry, EntryRequest};
use signalbox_linux::OpenError;
use signalbox_linux::confine::{Confinement, Files, Needs, User};
use signalbox_linux::traffic::{Enforcement, TrafficConfig};

use crate::Config;
use crate::keys::Keys;
use crate::kind::{flag, path, text};

pub(crate) const MEANING: &str = "What the daemon keeps of its privileges after its start ([security.md](security.md)). Each part that is switched off is \
     a warning.";

/// The kernel's limit of the paths of Unix sockets, without the closing zero.
const LONGEST_SOCKET: usize = 107;
/// Ports below this one need a capability.
const LOW_PORTS: u16 = 1024;

/// `[privileges]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Privileges {
    user: Option<String>,
    pub(crate) helper: Option<PathBuf>,
    capabilities: bool,
    system_calls: bool,
    files: bool,
}

impl Default for Privileges {
    fn default() -> Self {
        Self { user: None, helper: None, capabilities: true, system_calls: true, files: true }
    }
}

impl Privileges {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.option(
            "user",
            &mut self.user,
            text(64),
            "`signalbox`, or `nobody` where there is no such user",
            "Name or number of the user that the daemon becomes, if it is started as root. A reload reads files as this user. \
             `\"root\"`: it stays root.",
        );
        keys.key(
            "capabilities",
            &mut self.capabilities,
            flag(),
            "Keep only the capabilities that this configuration needs: CAP_NET_ADMIN; CAP_NET_RAW with IPv6; \
             CAP_NET_BIND_SERVICE for ports below 1024; CAP_BPF for enforcement by eBPF on kernels before 6.0.",
        );
        keys.key(
            "system_calls",
            &mut self.system_calls,
            flag(),
            "Permit only the system calls that the daemon makes (seccomp). Others fail with EPERM, and each is logged once.",
        );
        keys.key(
            "files",
            &mut self.files,
            flag(),
            "Permit only to read the directories of this file, of the files that it includes and of keys and certificates, and \
             to remove the control socket (landlock, Linux 5.13). A reload reads no file in another directory.",
        );
        keys.option(
            "helper",
            &mut self.helper,
            path("/run/signalbox/helper.sock"),
            "the daemon has the privileges itself",
            "Absolute path of the Unix socket of `signalboxd --helper`, a small process that holds the privileges. The \
             daemon then needs none, and is started as an ordinary user. Not with protocols that enforce reservations or open \
             pinholes, and only with UDP ports of entry (gist, ping, casp).",
        );
        let fits = self
            .helper
            .as_deref()
            .is_none_or(|path| path.is_absolute() && path.as_os_str().len() <= LONGEST_SOCKET);
        let message =
            "not an absolute path of at most 107 octets: write one, such as \"/run/signalbox/helper.sock\"";
        keys.check(fits, &["helper"], message);
        let whole = "a fault in the daemon then reaches everything on this machine that its user reaches: remove the key";
        if matches!(self.user.as_deref(), Some("root" | "0")) {
            keys.warn(&["user"], &format!("the daemon stays root; {whole}"));
        }
        for (name, on) in
            [("capabilities", self.capabilities), ("system_calls", self.system_calls), ("files", self.files)]
        {
            if !on {
                keys.warn(&[name], &format!("the daemon is not confined here; {whole}"));
            }
        }
    }
}

impl Config {
    /// The user that the daemon becomes if it is root.
    ///
    /// # Errors
    /// There is no such user.
    pub fn user(&self) -> Result<User, OpenError> {
        self.privileges.user.as_deref().map_or_else(User::usual, User::find)
    }

    /// What the daemon gives up after its start, with the configuration at `path`.
    #[must_use]
    pub fn confinement(&self, path: &Path, user: User) -> Confinement {
        let Privileges { capabilities, system_calls, files, .. } = self.privileges;
        let traffic = self.enforced();
        let alone = self.privileges.helper.is_none();
        let needs = Needs {
            admin: alone,
            raw: alone && self.io(Vec::new()).ipv6,
            low_ports: self.ports().any(|port| port < LOW_PORTS),
            ebpf: traffic.is_some_and(|traffic| traffic.ebpf),
        };
        let remove = self.control.socket.parent().map(Path::to_owned).into_iter().collect();
        // SIGHUP opens the audit file again.
        let write =
            self.audit.file.as_deref().and_then(Path::parent).map(Path::to_owned).into_iter().collect();
        Confinement {
            user: Some(user),
            capabilities: capabilities.then_some(needs),
            files: files.then(|| Files { read: self.directories(path), remove, write }),
            system_calls,
            opens_raw: false,
        }
    }

    /// What the helper gives up, which listens at `socket`.
    #[must_use]
    pub fn helper_confinement(&self, socket: &Path) -> Confinement {
        let Privileges { capabilities, system_calls, files, .. } = self.privileges;
        let needs = Needs { admin: true, raw: true, low_ports: true, ebpf: false };
        let remove = socket.parent().map(Path::to_owned).into_iter().collect();
        Confinement {
            user: None,
            capabilities: capabilities.then_some(needs),
            files: files.then(|| Files { read: Vec::new(), remove, write: Vec::new() }),
            system_calls,
            opens_raw: true,
        }
    }

    /// The socket of the helper, if the daemon has one.
    #[must_use]
    pub fn helper(&self) -> Option<&Path> {
        self.privileges.helper.as_deref()
    }

    /// Checks that a daemon with a helper needs no privilege of its own.
    pub(crate) fn check_helper(&self, keys: &mut Keys<'_>) {
        if self.privileges.helper.is_none() {
            return;
        }
        let others = |entry: &EntryRequest| !matches!(entry.entry, Entry::Udp(_));
        let problem = if self.enforced().is_some() {
            "the daemon enforces reservations, for which it needs CAP_NET_ADMIN: remove the key, or set enforcement.mode = \"off\""
        } else if self.pinholes().is_some() {
            "the daemon opens pinholes, for which it needs CAP_NET_ADMIN: remove the key, or the protocol"
        } else if self.settings(0, false).entries().iter().any(others) {
            "a protocol needs raw sockets, which the helper does not open: remove the key, or the protocol"
        } else {
            return;
        };
        keys.fault(&["privileges.helper"], problem);
    }

    /// What the kernel enforces, if there are links at which it does.
    fn enforced(&self) -> Option<TrafficConfig> {
        self.traffic().filter(|traffic| traffic.enforcement != Enforcement::Off && !traffic.links.is_empty())
    }

    /// The ports at which the daemon may listen after its start.
    fn ports(&self) -> impl Iterator<Item = u16> {
        let metrics = self.metrics.listen.map(|address| address.port());
        let gist = self.settings(0, false).gist.map(|gist| gist.engine.associations);
        let gist = gist.into_iter().flat_map(|limits| [limits.tcp_port, limits.tls_port, limits.sctp_port]);
        metrics.into_iter().chain(gist.flatten())
    }

    /// The directories of all files of the configuration at `path`.
    fn directories(&self, path: &Path) -> Vec<PathBuf> {
        // The parent of a bare file name is empty.
        let parent = |path: &Path| match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => PathBuf::from("/"),
        };
        let directory = parent(path);
        // A reload looks up the users and groups that it names.
        let accounts = self.control.group.is_some() || !self.control.access.is_empty();
        let accounts = accounts.then(|| PathBuf::from("/etc"));
        let named = self.running().flat_map(|section| section.files());
        let named = named.chain(self.secrets.files()).chain(self.include.iter().cloned());
        let mut all: Vec<_> = named
            .map(|file| parent(&directory.join(file)))
            .chain([directory.clone()])
            .chain(accounts)
            .collect();
        all.sort();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let loaded = crate::parse(Path::new("/etc/signalbox/node.toml"), &format!("version = 1\n{text}"));
        loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.findings))
    }

    fn confinement(text: &str) -> Confinement {
        config(text).confinement(Path::new("/etc/signalbox/node.toml"), User::find("0").unwrap())
    }

    #[test]
    fn capabilities_follow_the_configuration() {
        let needs = |text: &str| confinement(text).capabilities.unwrap();
        let admin = Needs { admin: true, ..Needs::default() };
        assert_eq!(needs("[node]\nfamilies = [\"ipv4\"]\n"), admin);
        assert_eq!(needs("[privileges]\nhelper = \"/run/helper.sock\"\n"), Needs::default());
        assert_eq!(needs(""), Needs { raw: true, ..admin });
        assert!(needs("[gist.associations]\ntcp_port = 270\n").low_ports);
        assert!(!needs("[gist.associations]\ntcp_port = 2700\n").low_ports);
        assert!(needs("[metrics]\nlisten = \"127.0.0.1:80\"\n").low_ports);
        let link = "[interfaces.eth0]\ncapacity = \"10mbit\"\n[enforcement]\n";
        assert!(needs(link).ebpf);
        assert!(!needs(&format!("{link}mode = \"off\"\n")).ebpf);
        assert!(!needs(&format!("{link}ebpf = false\n")).ebpf);
    }

    #[test]
    fn files_of_the_configuration_stay_readable() {
        let read = confinement(
            "include = [\"conf.d/*.toml\"]\n[gist.tls]\nkey_file = \"/secret/key.pem\"\npeer_keys_file = \"peers.pem\"\n",
        )
        .files
        .unwrap()
        .read;
        assert_eq!(read, ["/etc/signalbox", "/etc/signalbox/conf.d", "/secret"].map(PathBuf::from));
    }

    #[test]
    fn what_is_switched_off_is_a_warning() {
        let text = "version = 1\n[privileges]\nuser = \"root\"\nsystem_calls = false\nfiles = false\ncapabilities = false\n";
        let loaded = crate::parse(Path::new("node.toml"), text);
        assert_eq!(loaded.findings.len(), 4, "{:?}", loaded.findings);
        assert!(loaded.findings[0].to_string().contains("stays root"), "{:?}", loaded.findings);
    }
}
