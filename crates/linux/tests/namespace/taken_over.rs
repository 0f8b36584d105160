//! What a daemon can still do that a stranger has taken over: a process in the same confinement tries it.
//!
//! The table of docs/security.md says what is possible and what is refused. The process tries each row of it, and the test
//! compares.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, io, ptr};

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use signalbox_linux::confine::{Confinement, FileAccess, Files, Needs, User, confine};
use signalbox_linux::topology;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::helper::helper;
use crate::network::{Network, bind, tool, until};

const NOBODY: u32 = 65_534;
const VICTIM: &str = "SBXT_VICTIM";
const DIRECTORY: &str = "SBXT_DIRECTORY";
/// A source that no host here has.
const FORGED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
/// The host behind the router, and its port.
const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1)), 5005);
/// The table of netfilter that belongs to somebody else, and one that the process makes.
const TABLES: [&str; 2] = ["operators", "strangers"];

/// What the process has when it is confined.
struct Ground {
    /// A process of the same user that is not the daemon's.
    victim: i32,
    /// The directory with the files of the test: `read`, `write`, `remove`.
    directory: PathBuf,
    /// A raw socket of the daemon.
    raw: Socket,
}

/// The results of one row: what was tried, and what became of it.
type Results = Vec<(String, io::Result<()>)>;
type Attempt = (&'static str, fn(&Ground) -> Results);

/// The rows of the table. The last ones stop others from being tried.
const ATTEMPTS: &[Attempt] = &[
    ("remove and make tables of netfilter, also those of others", tables),
    ("change routes", |_| vec![tried("a route", route())]),
    ("send IP packets with any source, by a raw socket that it has", |ground| {
        let packet = forged_packet();
        vec![tried("sendto", ground.raw.send_to(&packet, &SockAddr::from(TARGET)).map(drop))]
    }),
    ("send UDP with any source, by a new socket", |_| vec![tried("IP_TRANSPARENT", transparent())]),
    ("connect to services, also of this machine", |_| vec![tried("connect", connects())]),
    ("open raw sockets", |_| {
        [
            (Domain::IPV4, libc::IPPROTO_ICMP),
            (Domain::IPV4, libc::IPPROTO_RAW),
            (Domain::IPV6, libc::IPPROTO_RAW),
        ]
        .map(|(domain, protocol)| socket(domain, Type::RAW, protocol))
        .into()
    }),
    ("open packet sockets, which read a whole link", |_| {
        [Type::RAW, Type::DGRAM].map(|kind| socket(Domain::PACKET, kind, 0x0300)).into()
    }),
    ("other families of netlink: the keys of IPsec, WireGuard, audit, a list of all sockets", |_| {
        // XFRM, generic, audit, sock_diag, uevent, connector, crypto
        [6, 16, 9, 4, 15, 11, 21]
            .map(|protocol| socket(Domain::from(libc::AF_NETLINK), Type::RAW, protocol))
            .into()
    }),
    ("other families of sockets", |_| {
        [
            libc::AF_ALG,
            libc::AF_VSOCK,
            libc::AF_KEY,
            libc::AF_BLUETOOTH,
            libc::AF_CAN,
            libc::AF_TIPC,
            libc::AF_XDP,
        ]
        .map(|family| socket(Domain::from(family), Type::RAW, 0))
        .into()
    }),
    ("read and change elements of its own maps of eBPF", |_| {
        // Without a descriptor of a map the kernel answers "bad descriptor".
        [1, 2, 3, 4].map(bpf).into()
    }),
    ("everything else of bpf(2): maps by number, programs, links, raw tracepoints, BTF", |_| {
        (0..40).filter(|command| !(1..=4).contains(command)).map(bpf).collect()
    }),
    ("end other processes of its user", ends),
    ("read or change the memory of other processes", |ground| {
        let of = ground.victim as usize;
        vec![
            call("ptrace", libc::SYS_ptrace, [libc::PTRACE_ATTACH as usize, of, 0, 0]),
            call("process_vm_readv", libc::SYS_process_vm_readv, [of, 0, 0, 0]),
            call("process_vm_writev", libc::SYS_process_vm_writev, [of, 0, 0, 0]),
            call("pidfd_open", libc::SYS_pidfd_open, [of, 0, 0, 0]),
            tried("mem", fs::read(format!("/proc/{of}/mem")).map(drop)),
        ]
    }),
    ("start programs directly", |_| vec![tried("/bin/true", run(&mut Command::new("/bin/true")))]),
    ("start programs by the dynamic linker, with the same limits", |_| {
        let linker = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let linker = linker.into_iter().find(|path| Path::new(path).exists()).unwrap();
        vec![tried(linker, run(Command::new(linker).arg("/bin/true")))]
    }),
    ("execute memory that it has written", |_| memory()),
    ("change its own code by /proc", |_| {
        vec![tried("mem", fs::OpenOptions::new().write(true).open("/proc/thread-self/mem").map(drop))]
    }),
    ("namespaces: enter or make them, also with a new process", namespaces),
    ("mount and chroot", |_| {
        let path = c"/".as_ptr().addr();
        vec![
            call("mount", libc::SYS_mount, [path, path, 0, libc::MS_BIND as usize]),
            call("umount2", libc::SYS_umount2, [path, 0, 0, 0]),
            call("open_tree", libc::SYS_open_tree, [libc::AT_FDCWD as usize, path, 1, 0]),
            call("fsopen", libc::SYS_fsopen, [c"tmpfs".as_ptr().addr(), 0, 0, 0]),
            call("pivot_root", libc::SYS_pivot_root, [path, path, 0, 0]),
            call("chroot", libc::SYS_chroot, [path, 0, 0, 0]),
        ]
    }),
    ("become another user, or get capabilities back", |_| {
        let header = [0x2008_0522_u32, 0];
        let all = [u32::MAX, u32::MAX, 0, u32::MAX, u32::MAX, 0];
        vec![
            call("setuid", libc::SYS_setuid, [0; 4]),
            call("setgroups", libc::SYS_setgroups, [0; 4]),
            call("capset", libc::SYS_capset, [header.as_ptr().addr(), all.as_ptr().addr(), 0, 0]),
        ]
    }),
    ("io_uring, keys, perf, userfaultfd, memfd", |_| {
        vec![
            call("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
            call("keyctl", libc::SYS_keyctl, [0, usize::MAX, 0, 0]),
            call("add_key", libc::SYS_add_key, [0; 4]),
            call("request_key", libc::SYS_request_key, [0; 4]),
            call("perf_event_open", libc::SYS_perf_event_open, [0; 4]),
            call("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0]),
            call("memfd_create", libc::SYS_memfd_create, [c"x".as_ptr().addr(), 0, 0, 0]),
        ]
    }),
    ("modules, kexec, restart, the clock, the name of the machine, the log of the kernel", |_| {
        [
            ("init_module", libc::SYS_init_module),
            ("finit_module", libc::SYS_finit_module),
            ("kexec_load", libc::SYS_kexec_load),
            ("reboot", libc::SYS_reboot),
            ("clock_settime", libc::SYS_clock_settime),
            ("sethostname", libc::SYS_sethostname),
            ("syslog", libc::SYS_syslog),
            ("swapon", libc::SYS_swapon),
            ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ]
        .map(|(name, number)| call(name, number, [0; 4]))
        .into()
    }),
    ("write settings of the kernel (/proc/sys)", |_| {
        vec![tried("ip_forward", fs::write("/proc/sys/net/ipv4/ip_forward", "0"))]
    }),
    ("read secrets of others, such as /etc/shadow", |_| {
        vec![tried("shadow", fs::read("/etc/shadow").map(drop))]
    }),
    ("read files outside its directories that everybody may read", |_| {
        vec![tried("passwd", fs::read("/etc/passwd").map(drop))]
    }),
    ("write in directories that it only reads, or outside", |ground| {
        let read = ground.directory.join("read");
        vec![
            tried("new", fs::write(read.join("new"), "x")),
            tried("old", fs::write(read.join("file"), "x")),
            tried("outside", fs::write("/dev/shm/sbxt-taken-over", "x")),
        ]
    }),
    ("read the directories of its configuration and keys", |ground| {
        vec![tried("file", fs::read(ground.directory.join("read/file")).map(drop))]
    }),
    ("make and change files in the directory of `audit.file`", |ground| {
        let write = ground.directory.join("write");
        let old = fs::OpenOptions::new().write(true).open(write.join("file"));
        vec![
            tried(
                "new",
                fs::OpenOptions::new().write(true).create_new(true).open(write.join("new")).map(drop),
            ),
            tried("old", old.map(drop)),
        ]
    }),
    ("remove files in the directory of the control socket", |ground| {
        vec![tried("file", fs::remove_file(ground.directory.join("remove/file")))]
    }),
    ("rename and empty files, make links, directories and devices, change rights", |ground| {
        let path = |name| std::ffi::CString::new(ground.directory.join(name).to_str().unwrap()).unwrap();
        let (old, new) = (path("write/file"), path("write/other"));
        let here = libc::AT_FDCWD as usize;
        let (from, to) = (old.as_ptr().addr(), new.as_ptr().addr());
        vec![
            call("renameat2", libc::SYS_renameat2, [here, from, here, to]),
            call("linkat", libc::SYS_linkat, [here, from, here, to]),
            call("symlinkat", libc::SYS_symlinkat, [from, here, to, 0]),
            call("mkdirat", libc::SYS_mkdirat, [here, to, 0o700, 0]),
            call("mknodat", libc::SYS_mknodat, [here, to, libc::S_IFIFO as usize, 0]),
            call("fchmodat", libc::SYS_fchmodat, [here, from, 0o777, 0]),
            call("fchownat", libc::SYS_fchownat, [here, from, 0, 0]),
            call("truncate", libc::SYS_truncate, [from, 0, 0, 0]),
            tried("O_TRUNC", fs::write(ground.directory.join("write/file"), "x")),
        ]
    }),
    ("take links down", |_| vec![tried("lo", link_down())]),
];

fn tried(what: &str, result: io::Result<()>) -> (String, io::Result<()>) {
    (what.to_owned(), result)
}

fn call(what: &str, number: i64, [a, b, c, d]: [usize; 4]) -> (String, io::Result<()>) {
    // SAFETY: the callers pass numbers, null, and addresses of live values, which the calls only read; calls that could do more are
    // to be refused, and the process ends after them.
    let result = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
    (what.to_owned(), if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) })
}

/// Runs a program. The child has the same confinement, and ends by a signal where it may not execute.
fn run(command: &mut Command) -> io::Result<()> {
    let success = command.status()?.success();
    if success { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

fn bpf(command: usize) -> (String, io::Result<()>) {
    // No map, no program and no other object has the number -1.
    let attributes = [u8::MAX; 8].into_iter().chain([0; 120]).collect::<Vec<_>>();
    call(
        &format!("command {command}"),
        libc::SYS_bpf,
        [command, attributes.as_ptr().addr(), attributes.len(), 0],
    )
}

fn socket(domain: Domain, kind: Type, protocol: i32) -> (String, io::Result<()>) {
    let opened = Socket::new(domain, kind, Some(Protocol::from(protocol)));
    (format!("{domain:?} {kind:?} {protocol}"), opened.map(drop))
}

/// A netlink message.
fn message(kind: u16, flags: i32, body: &[u8]) -> Vec<u8> {
    let mut octets = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend(u16::try_from(flags | libc::NLM_F_REQUEST).unwrap().to_ne_bytes());
    octets.extend([0; 8]);
    octets.extend(body);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// Sends a request, and reads the answer of the kernel to it.
fn ask(protocol: isize, request: &[u8]) -> io::Result<()> {
    let socket = netlink_sys::Socket::new(protocol)?;
    socket.send_to(request, &netlink_sys::SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let code = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

fn tables(_: &Ground) -> Results {
    let change = |kind: u16, flags, name: &str| {
        // NFPROTO_INET, and the attribute NFTA_TABLE_NAME.
        let mut body = vec![1, 0, 0, 0];
        body.extend(u16::try_from(5 + name.len()).unwrap().to_ne_bytes());
        body.extend([1, 0]);
        body.extend(name.as_bytes());
        body.push(0);
        let subsystem = 10_u16;
        let batch = [0, 0, 0, subsystem.to_be_bytes()[1]];
        let begin = message(0x10, 0, &batch);
        let end = message(0x11, 0, &batch);
        let change = message(subsystem << 8 | kind, flags | libc::NLM_F_ACK, &body);
        tried(name, ask(NETLINK_NETFILTER, &[begin, change, end].concat()))
    };
    vec![change(2, 0, TABLES[0]), change(0, libc::NLM_F_CREATE, TABLES[1])]
}

fn route() -> io::Result<()> {
    // IPv4, 32 bits, the main table, by hand, the whole net, a black hole; the attribute RTA_DST.
    let mut body = vec![2, 32, 0, 0, 254, 3, 0, 6, 0, 0, 0, 0, 8, 0, 1, 0];
    body.extend([10, 9, 9, 9]);
    ask(NETLINK_ROUTE, &message(libc::RTM_NEWROUTE, libc::NLM_F_ACK | libc::NLM_F_CREATE, &body))
}

fn link_down() -> io::Result<()> {
    // The first interface, no flag set of those that change: up.
    let mut body = vec![0; 4];
    body.extend([1_u32, 0, 1].iter().flat_map(|word| word.to_ne_bytes()));
    ask(NETLINK_ROUTE, &message(libc::RTM_NEWLINK, libc::NLM_F_ACK, &body))
}

/// A datagram of UDP, without checksum.
fn forged_packet() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 31, 0, 0, 0, 0, 20, 17, 0, 0];
    packet.extend(FORGED.octets());
    packet.extend([10, 2, 0, 1]);
    for word in [7_u16, TARGET.port(), 11, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(b"raw");
    packet
}

fn transparent() -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_ip_transparent_v4(true)?;
    socket.bind(&SocketAddr::from((FORGED, 7008)).into())?;
    socket.send_to(b"udp", &TARGET.into()).map(drop)
}

fn connects() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    TcpStream::connect(listener.local_addr()?).map(drop)
}

/// Signals, and the signal that the kernel sends to the owner of a socket.
fn ends(ground: &Ground) -> Results {
    let (victim, kill) = (ground.victim as usize, libc::SIGKILL as usize);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let fd = socket.as_raw_fd() as usize;
    let results = vec![
        call("kill", libc::SYS_kill, [victim, kill, 0, 0]),
        call("tkill", libc::SYS_tkill, [victim, kill, 0, 0]),
        call("tgkill", libc::SYS_tgkill, [victim, victim, kill, 0]),
        call("F_SETSIG", libc::SYS_fcntl, [fd, 10, kill, 0]),
        call("F_SETOWN", libc::SYS_fcntl, [fd, libc::F_SETOWN as usize, victim, 0]),
    ];
    let _ = call("O_ASYNC", libc::SYS_fcntl, [fd, libc::F_SETFL as usize, libc::O_ASYNC as usize, 0]);
    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    results
}

fn memory() -> Results {
    let both = (libc::PROT_WRITE | libc::PROT_EXEC) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: new memory, which nothing uses.
    let page =
        unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags as i32, -1, 0) };
    // SAFETY: as above.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), 4096, both as i32, flags as i32, -1, 0) };
    let mapped = if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) };
    vec![
        tried("mmap", mapped),
        call("mprotect", libc::SYS_mprotect, [page.addr(), 4096, libc::PROT_EXEC as usize, 0]),
    ]
}

fn namespaces(_: &Ground) -> Results {
    let mut results = vec![
        call("unshare", libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0, 0]),
        call("setns", libc::SYS_setns, [0, libc::CLONE_NEWNET as usize, 0, 0]),
    ];
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID] {
        // SAFETY: the child, which has a copy of the memory, ends at once.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flag | libc::SIGCHLD, 0, 0, 0, 0) };
        results.push((format!("clone {flag:x}"), child(pid)));
    }
    // clone_args: the flags first, the signal fifth.
    let mut arguments = [0_u64; 8];
    (arguments[0], arguments[4]) = (libc::CLONE_NEWUSER as u64, libc::SIGCHLD as u64);
    // SAFETY: as above; the arguments are live and of the size given.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) };
    results.push(tried("clone3", child(pid)));
    results
}

/// Ends the child, and tells the parent whether there was one.
fn child(pid: i64) -> io::Result<()> {
    match pid {
        // SAFETY: takes no pointer, and runs nothing of the parent.
        0 => unsafe { libc::_exit(0) },
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The process: it is confined as a daemon that enforces reservations, and then tries everything.
pub(crate) fn process() {
    let directory = PathBuf::from(env::var(DIRECTORY).unwrap());
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW))).unwrap();
    let ground = Ground { victim: env::var(VICTIM).unwrap().parse().unwrap(), directory, raw };
    let one = |name| vec![ground.directory.join(name)];
    let confined = confine(&Confinement {
        user: Some(User::find("65534").unwrap()),
        capabilities: Some(Needs { admin: true, raw: true, ebpf: true, ..Needs::default() }),
        files: Some(Files { read: one("read"), remove: one("remove"), write: one("write") }),
        system_calls: true,
        opens_raw: false,
    })
    .unwrap();
    assert_eq!(confined.files, FileAccess::Limited, "this test needs landlock");
    for (row, attempt) in ATTEMPTS {
        let results = attempt(&ground);
        let refused = |result: &io::Result<()>| {
            let error = result.as_ref().err().and_then(io::Error::raw_os_error);
            // Any other error comes of what the call was given: it was let through.
            error.is_some_and(|error| [libc::EPERM, libc::EACCES, libc::ENOSYS].contains(&error))
        };
        let all = results.iter().all(|(_, result)| refused(result));
        let none = !results.iter().any(|(_, result)| refused(result));
        let word = if all { "refused" } else { "possible" };
        assert!(all || none, "{row}: {results:?}");
        let errors = results.iter().map(|(what, result)| {
            let error = result.as_ref().err().and_then(io::Error::raw_os_error).unwrap_or(0);
            format!("{what}: {error}")
        });
        eprintln!("row\t{row}\t{word}\t{}", errors.collect::<Vec<_>>().join(", "));
    }
}

/// What the table of the page says: each row with its word.
fn page() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(path).unwrap();
    let table = page.split("### What a daemon can do that a stranger has taken over").nth(1).unwrap();
    let table = table.split("\n#").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().to_owned());
        (cells.next().unwrap(), cells.next().unwrap())
    })
    .collect()
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries everything in a network of its own, and compares with the page.
#[test]
fn a_daemon_that_is_taken_over_can_do_what_the_page_says() {
    let label = "taken";
    let net = Network::new(label);
    let directory = env::temp_dir().join(format!("sbxt-{}-{label}", std::process::id()));
    for name in ["read", "write", "remove"] {
        fs::create_dir_all(directory.join(name)).unwrap();
        fs::write(directory.join(name).join("file"), "x").unwrap();
        for (path, mode) in [(directory.join(name), 0o777), (directory.join(name).join("file"), 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    topology::nft(&net.r, &format!("add table inet {}", TABLES[0])).unwrap();
    topology::set_sysctl(&net.b, "net.ipv4.conf.all.rp_filter", "0").unwrap();
    topology::set_sysctl(&net.b, "net.ipv4.conf.b0.rp_filter", "0").unwrap();
    topology::set_up(&net.r, "lo", true).unwrap();
    let target = bind(&net.b, TARGET);
    let mut victim = Ended(net.r.spawn(Command::new("sleep").arg("600").uid(NOBODY).gid(NOBODY)).unwrap());
    let mut command = helper("taken-over");
    command.env(VICTIM, victim.0.id().to_string()).env(DIRECTORY, &directory);
    let process = net.r.spawn(command.stderr(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let output = process.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let page = page();
    let rows = said.lines().filter_map(|line| line.strip_prefix("row\t"));
    let rows: Vec<Vec<_>> = rows.map(|row| row.split('\t').collect()).collect();
    let wrong: Vec<_> =
        rows.iter().filter(|row| page.get(row[0]).is_none_or(|word| word != row[1])).collect();
    assert!(wrong.is_empty(), "not as docs/security.md says: {wrong:#?}");
    assert_eq!(rows.len(), page.len(), "a row of docs/security.md is not tried");

    // What is possible had its effect, and what is refused had none.
    let listed = tool(&net.r, "nft list tables");
    assert!(!listed.contains(TABLES[0]) && listed.contains(TABLES[1]), "{listed}");
    assert!(tool(&net.r, "ip route").contains("blackhole 10.9.9.9"));
    assert!(!tool(&net.r, "ip link show lo").contains("UP"));
    assert_eq!(tool(&net.r, "cat /proc/sys/net/ipv4/ip_forward").trim(), "1");
    target.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut got = BTreeMap::new();
    let mut octets = [0; 16];
    until("the forged datagrams are there", || {
        let (length, source) = target.recv_from(&mut octets).unwrap();
        got.insert(octets[..length].to_vec(), source.ip());
        got.len() == 2
    });
    assert_eq!(got, [(b"raw".to_vec(), FORGED.into()), (b"udp".to_vec(), FORGED.into())].into());
    assert!(victim.0.try_wait().unwrap().is_none(), "the process of somebody else ended");
    assert!(directory.join("write/new").exists() && !directory.join("read/new").exists());
    fs::remove_dir_all(&directory).unwrap();
}
