//! The system calls that the daemon can make after its start (seccomp).
//!
//! The crate `seccompiler` turns the list into a program of the kernel; Firecracker uses it for the same purpose. The kernel
//! stores which calls are allowed without conditions, so that these cost nothing.

use std::collections::BTreeMap;
use std::io;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use super::refused;
use crate::error::OpenError;
use crate::sys::{self, refusal};

/// Memory, threads, time, signals, and the end.
const PROCESS: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    // Another filter answers it ([`restrict`]).
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Descriptors and files. Landlock and the permissions of the user decide about files.
const FILES: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_getdents64,
    libc::SYS_unlinkat,
    libc::SYS_getcwd,
    libc::SYS_readlinkat,
];

/// Sockets and what waits for them.
const NETWORK: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_settime,
];

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_unlink,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_time,
    libc::SYS_access,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

/// The families of netlink that are used after the start. By others a process with CAP_NET_ADMIN reads the keys of IPsec and WireGuard.
const NETLINK: [isize; 2] = [NETLINK_ROUTE, NETLINK_NETFILTER];
/// The bits of a socket's type that are not flags.
const TYPE: u64 = 0xf;
/// The commands of fcntl(2): duplicates and flags. With others the kernel sends signals to processes in the name of this one.
const COMMANDS: [libc::c_int; 6] =
    [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];
/// The flags of clone(2) that make namespaces, in which a process has all capabilities.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
/// The requests of ioctl(2): whether a read blocks, the octets that wait to be read or to be acknowledged, the number and
/// name of an interface, its speed, the terminal.
const REQUESTS: [u64; 7] = [
    libc::FIONBIO,
    libc::FIONREAD,
    libc::TIOCOUTQ,
    libc::SIOCGIFINDEX,
    libc::SIOCGIFNAME,
    sys::ethtool::REQUEST,
    libc::TCGETS,
];

/// Allows the calls of this module from now on. Others return EPERM and are logged.
pub(super) fn restrict(opens_raw: bool) -> Result<(), OpenError> {
    let limiting = |error| refused("limiting system calls", &error);
    let programs = [without_clone3(), filter(opens_raw)].map(|program| program.map_err(io::Error::other));
    refusal::log().map_err(limiting)?;
    for program in programs {
        apply_filter(&program.map_err(limiting)?).map_err(|error| limiting(io::Error::other(error)))?;
    }
    Ok(())
}

/// The flags of clone3(2) are in memory, where no filter sees them. Libraries use clone(2) if the kernel does not have it.
fn without_clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = [(libc::SYS_clone3, Vec::new())].into();
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, missing, architecture)?.try_into()
}

fn filter(opens_raw: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (number, argument, values) in [
        (libc::SYS_ioctl, 1, REQUESTS.to_vec()),
        (
            libc::SYS_prctl,
            0,
            vec![libc::PR_SET_NAME.unsigned_abs().into(), libc::PR_GET_NAME.unsigned_abs().into()],
        ),
        (libc::SYS_fcntl, 1, COMMANDS.map(|command| command.unsigned_abs().into()).to_vec()),
        (libc::SYS_socketpair, 0, vec![libc::AF_UNIX.unsigned_abs().into()]),
        // Elements of maps. The programs are loaded before; one that is loaded later could read all memory of the kernel.
        (libc::SYS_bpf, 0, sys::bpf::ELEMENTS.map(i64::from).map(i64::cast_unsigned).to_vec()),
    ] {
        let one = |value| rule(argument, SeccompCmpOp::Eq, value);
        rules.insert(number, values.into_iter().map(one).collect::<Result<_, _>>()?);
    }
    // Memory that is written is never executed.
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(number, vec![rule(2, SeccompCmpOp::MaskedEq(executable), 0)?]);
    }
    let none = SeccompCmpOp::MaskedEq(NAMESPACES.unsigned_abs().into());
    rules.insert(libc::SYS_clone, vec![rule(0, none, 0)?]);
    rules.insert(libc::SYS_socket, sockets(opens_raw)?);
    for number in [PROCESS, FILES, NETWORK, OLDER].into_iter().flatten() {
        // A call without conditions is allowed always.
        rules.insert(*number, Vec::new());
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, architecture)?.try_into()
}

/// The sockets that are opened after the start.
fn sockets(opens_raw: bool) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let family = |family: libc::c_int| condition(0, SeccompCmpOp::Eq, family.unsigned_abs().into());
    let mut rules = vec![SeccompRule::new(vec![family(libc::AF_UNIX)?])?];
    for protocol in NETLINK {
        let protocol = condition(2, SeccompCmpOp::Eq, protocol.unsigned_abs() as u64)?;
        rules.push(SeccompRule::new(vec![family(libc::AF_NETLINK)?, protocol])?);
    }
    let raw = opens_raw.then_some(libc::SOCK_RAW);
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM].into_iter().chain(raw) {
        for internet in [libc::AF_INET, libc::AF_INET6] {
            let kind = condition(1, SeccompCmpOp::MaskedEq(TYPE), kind.unsigned_abs().into())?;
            rules.push(SeccompRule::new(vec![family(internet)?, kind])?);
        }
    }
    Ok(rules)
}

fn rule(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![condition(argument, operation, value)?])
}

fn condition(
    argument: u8,
    operation: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}
