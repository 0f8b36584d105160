//! The user and the capabilities of the process.

use std::io;

use capctl::{Cap, CapSet, CapState, ambient, bounding, cap_set_ids};
use nix::unistd::geteuid;

use super::User;
use crate::sys;

/// The capabilities that a daemon needs after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// CAP_NET_ADMIN: the mark of each socket, queues, rules and routes.
    pub admin: bool,
    /// CAP_NET_RAW: hop-by-hop options of IPv6 in packets that it sends.
    pub raw: bool,
    /// CAP_NET_BIND_SERVICE: it listens at ports below 1024.
    pub low_ports: bool,
    /// CAP_BPF on kernels before 6.0: it changes maps of the classifier. No program is loaded any more, so CAP_PERFMON, with
    /// which a program can read the memory of the kernel, is never kept.
    pub ebpf: bool,
}

/// Whether bpf(2) needs CAP_BPF for elements of maps too: kernels before 6.0 do, where `kernel.unprivileged_bpf_disabled` is set.
fn elements_need_rights() -> bool {
    // Where the version cannot be read, the older rule is the safe one.
    sys::kernel_version().is_none_or(|version| version < (6, 0))
}

impl Needs {
    fn capabilities(self) -> CapSet {
        let mut set = CapSet::empty();
        set.set_state(Cap::NET_ADMIN, self.admin);
        set.set_state(Cap::NET_RAW, self.raw);
        set.set_state(Cap::NET_BIND_SERVICE, self.low_ports);
        set.set_state(Cap::BPF, self.ebpf && elements_need_rights());
        set
    }
}

/// Becomes `user`, if the process is root, and drops the capabilities that are not needed.
pub(super) fn reduce(user: Option<&User>, needs: Option<Needs>) -> io::Result<()> {
    let mut state = CapState::get_current()?;
    let keep = needs.map_or(state.permitted, Needs::capabilities).intersection(state.permitted);
    if needs.is_some() {
        if ambient::is_supported() {
            ambient::clear()?;
        }
        // Without CAP_SETPCAP the bounding set stays; no_new_privs has the same effect.
        if state.effective.has(Cap::SETPCAP) {
            for cap in Cap::iter().filter(|cap| !keep.has(*cap)) {
                bounding::ensure_dropped(cap)?;
            }
        }
    }
    if let Some(user) = user.filter(|user| geteuid().is_root() && !user.is_root() && user.exists_here()) {
        cap_set_ids(Some(user.uid), Some(user.gid), Some(&user.groups))?;
    }
    state.permitted = keep;
    state.effective = keep;
    state.inheritable = CapSet::empty();
    Ok(state.set_current()?)
}

/// The names of the capabilities of this thread.
pub(super) fn kept() -> Vec<&'static str> {
    let state = CapState::get_current();
    let names = [
        (Cap::NET_ADMIN, "net_admin"),
        (Cap::NET_RAW, "net_raw"),
        (Cap::NET_BIND_SERVICE, "net_bind_service"),
        (Cap::BPF, "bpf"),
    ];
    let Ok(state) = state else { return Vec::new() };
    let known = names.iter().filter(|(cap, _)| state.permitted.has(*cap)).map(|(_, name)| *name);
    let more = state.permitted.size() > known.clone().count();
    known.chain(more.then_some("others")).collect()
}
