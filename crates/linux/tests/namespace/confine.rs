//! A process that gave up its privileges still does all that a daemon does after its start, and nothing else.

use std::process::Stdio;
use std::time::Duration;
use std::{fs, io, thread};

use signalbox_core::IfIndex;
use signalbox_core::traffic::ReservationId;
use signalbox_linux::confine::{Confinement, FileAccess, Files, Needs, User, confine};
use signalbox_linux::traffic::{Enforcer, TrafficConfig};
use signalbox_linux::{IoConfig, topology};

use crate::helper::helper;
use crate::network::{Network, config, footprint, gist, has_owned_tables, open_here, until};
use crate::rsvp::rsvp;
use crate::traffic::{self, kernel_state, reservation};

/// The confined process: it opens everything, gives up its privileges, and does what comes later in a daemon's life.
pub(crate) fn confined(ebpf: bool) {
    let io = open_here(&IoConfig { entries: vec![gist(), rsvp()], ..config() });
    let mut enforcer = Enforcer::open(&TrafficConfig { ebpf, ..traffic::config() }).unwrap();
    let first = link(&enforcer);
    let directory = std::env::temp_dir();
    let confined = confine(&Confinement {
        user: Some(User::find("65534").unwrap()),
        capabilities: Some(Needs { admin: true, raw: true, ebpf, ..Needs::default() }),
        files: Some(Files { read: vec![directory.clone()], remove: Vec::new(), write: Vec::new() }),
        system_calls: true,
        opens_raw: false,
    })
    .unwrap();
    // A kernel before 6.0 demands CAP_BPF for elements of maps.
    let expected: [&[&str]; 2] = [&["net_admin", "net_raw"], &["net_admin", "net_raw", "bpf"]];
    assert_eq!(confined.user, 65_534);
    assert!(expected.contains(&confined.capabilities.as_slice()), "{:?}", confined.capabilities);

    // What it may not do, is refused, and the process goes on.
    assert_eq!(nix::unistd::chroot("/"), Err(nix::Error::EPERM));
    // A program of the kernel could read all its memory.
    assert!(!signalbox_linux::traffic::can_classify());
    let status = std::process::Command::new("true").status();
    assert!(!status.is_ok_and(|status| status.success()));
    if confined.files != FileAccess::Unlimited {
        let error = fs::read("/proc/self/status").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(fs::read_dir(&directory).is_ok());
    }
    eprintln!("confined");

    // The link is replaced by another of the same name.
    let second = loop {
        assert!(enforcer.refresh().is_empty());
        let now = link(&enforcer);
        if now != IfIndex::NONE && now != first {
            break now;
        }
        thread::sleep(Duration::from_millis(5));
    };
    enforcer.reserve(ReservationId(1), &reservation(second, 5004));
    assert_eq!(enforcer.flush(), [(ReservationId(1), Ok(()))]);
    enforcer.close().unwrap();
    io.close().unwrap();
}

fn link(enforcer: &Enforcer) -> IfIndex {
    enforcer.capabilities().next().unwrap().ifindex
}

fn stays_able(label: &str, part: &str, capabilities: &[&str]) {
    let net = Network::new(label);
    let (before, queues) = (footprint(&net.r), kernel_state(&net.r));
    let mut command = helper(part);
    let process = net.r.spawn(command.stderr(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let status =
        || fs::read_to_string(format!("/proc/{}/task/{}/status", process.id(), thread_of(process.id())));
    until("it is confined", || status().is_ok_and(|status| status.contains("Seccomp:\t2")));
    let status = status().unwrap();
    for line in ["Uid:\t65534\t65534\t65534\t65534", "Gid:\t65534\t65534\t65534\t65534", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert!(capabilities.iter().any(|one| status.contains(&format!("{set}:\t{one}"))), "{set}: {status}");
    }
    topology::delete_link(&net.r, "rb").unwrap();
    topology::create_veth(&net.r, "rb", &net.b, "b0").unwrap();
    for (namespace, interface) in [(&net.r, "rb"), (&net.b, "b0")] {
        topology::set_up(namespace, interface, true).unwrap();
    }
    let output = process.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    assert!(said.contains("seccomp refused the system call"), "{said}");
    assert_eq!(footprint(&net.r).contains("signalbox"), before.contains("signalbox"));
    assert_eq!(kernel_state(&net.r).contains("5342:"), queues.contains("5342:"));
}

/// The test harness runs a test in a thread of its own, and each thread has its own privileges.
fn thread_of(pid: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).max().unwrap_or(pid)
}

#[test]
fn with_ebpf_no_other_program_runs() {
    if !has_owned_tables() {
        return;
    }
    stays_able("confine", "confined", &["0000000000003000", "0000008000003000"]);
}

/// A new link gets its rules of nftables from the process itself.
#[test]
fn without_ebpf_no_other_program_runs() {
    if !has_owned_tables() {
        return;
    }
    stays_able("confine-nft", "confined-nft", &["0000000000003000"]);
}
