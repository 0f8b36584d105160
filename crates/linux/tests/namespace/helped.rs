//! What the helper gives, and to whom.

use std::io::{BufRead as _, BufReader};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use signalbox_core::packet::{Transmit, router_alert_v4};
use signalbox_linux::{Change, Io, IoConfig, topology};
use socket2::{Domain, SockAddr, SockFilter, SockRef, Socket, Type};

use crate::helper::{helper, helper_at};
use crate::network::{
    GIST, Network, PATIENCE, config, datagram, families, footprint, ip, receive_one, send, tool, until,
};
use crate::privileges::{Copy, NOBODY, SOCKET, VRF, socket};
use crate::send::queries_go_to_the_next_hop;

/// A network whose router has a helper.
pub(crate) struct Helped {
    pub(crate) net: Network,
    pub(crate) path: PathBuf,
    process: Child,
}

impl Helped {
    fn new(label: &str) -> Self {
        Self::of(Network::new(label), label, None)
    }

    /// The helper is one of this VRF of the router.
    pub(crate) fn of(net: Network, label: &str, vrf: Option<&str>) -> Self {
        let path = env::temp_dir().join(format!("sbxt-{}-{label}", std::process::id()));
        let mut command = helper("privileges");
        command.env(SOCKET, &path).envs(vrf.map(|vrf| (VRF, vrf)));
        let process = net.r.spawn(&mut command).unwrap();
        until("the helper listens", || path.metadata().is_ok_and(|file| file.uid() == NOBODY));
        Self { net, path, process }
    }

    fn open(&self) -> Io {
        let config = IoConfig { helper: Some(self.path.clone()), ..config() };
        self.net.r.run(|| Io::open(&config)).unwrap().unwrap()
    }

    fn connect(&self) -> Socket {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        // A queue that stays full ends the test.
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.connect(&SockAddr::unix(&self.path).unwrap()).unwrap();
        socket
    }

    /// Returns after the helper has noticed the end of each connection that ended before.
    fn settled(&self) {
        let socket = self.connect();
        socket.send(b"?").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!((&socket).read_one(), 0, "a wrong request ends the connection");
    }

    pub(crate) fn intercepts(&self) -> bool {
        footprint(&self.net.r).contains("signalbox")
    }
}

impl Drop for Helped {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.path);
    }
}

trait ReadOne {
    fn read_one(self) -> usize;
}

impl ReadOne for &Socket {
    fn read_one(mut self) -> usize {
        std::io::Read::read(&mut self, &mut [0; 1]).unwrap()
    }
}

/// The sockets of this process.
fn own_sockets() -> Vec<(RawFd, String)> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let named = entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok()?;
        let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
        Some((entry.file_name().into_string().ok()?.parse().ok()?, inode))
    });
    named.collect()
}

/// The same for a daemon whose whole packets the helper sends (`send.rs`).
#[test]
fn a_query_goes_to_the_next_hop_of_its_flow() {
    let helped = Helped::new("helpgate");
    queries_go_to_the_next_hop(&helped.net, &mut helped.open());
}

/// A process of the daemon's user without privileges: it looks at what it gets, ends the connection, and keeps the sockets.
#[allow(unsafe_code)]
pub(crate) fn keeps_sockets() {
    let _io = Io::open(&IoConfig { helper: Some(socket()), ..config() }).unwrap();
    let raw =
        ["raw", "raw6"].map(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap());
    let is_raw = |inode: &str| raw.iter().any(|all| all.split_whitespace().any(|word| word == inode));
    let sockets = own_sockets();
    eprintln!("raw sockets: {}", sockets.iter().filter(|(_, inode)| is_raw(inode)).count());
    let (mut bound, mut locked) = (0, 0);
    for (fd, _) in &sockets {
        // SAFETY: nothing closes the sockets of this process while it looks at them.
        let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
        let socket = SockRef::from(&fd);
        let domain = socket.domain().unwrap();
        if domain == Domain::UNIX {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        } else if [Domain::IPV4, Domain::IPV6].contains(&domain) && socket.r#type().unwrap() == Type::DGRAM {
            let address = socket.local_addr().unwrap().as_socket();
            bound += usize::from(address.is_some_and(|address| address.port() == 270));
            let all = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, u32::MAX);
            let refused =
                socket.attach_filter(&[all]).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
            locked += usize::from(refused);
            // Nothing reaches a socket that is connected to somebody else, and one that was shut down sends nothing any more.
            let nobody: std::net::SocketAddr =
                if domain == Domain::IPV4 { ([192, 0, 2, 99], 9).into() } else { ([0x2001; 8], 9).into() };
            let _ = socket.connect(&nobody.into());
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
    eprintln!("bound: {bound}, locked: {locked}");
    eprintln!("kept");
    thread::sleep(Duration::from_secs(60));
}

/// A process of the daemon's user gets the sockets of the configured port, whose filter it cannot change, and none that sends
/// what it likes. It spoils them for others, and keeps them after its connection; the next daemon receives and sends nevertheless.
#[test]
fn a_client_gets_bound_and_locked_sockets_only() {
    let helped = Helped::new("gets");
    let program = Copy::new("gets-program");
    let mut command = helper_at(&program.0, "keeps-sockets");
    command.env(SOCKET, &helped.path).uid(NOBODY).gid(NOBODY).stderr(Stdio::piped());
    let mut process = helped.net.r.spawn(&mut command).unwrap();
    let lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    for line in lines {
        let last = line == "kept";
        said.push(line);
        if last {
            break;
        }
    }
    let has = |wanted: &str| said.iter().any(|line| line == wanted);
    let fine = has("raw sockets: 0") && has("bound: 2, locked: 2") && has("kept");
    assert!(fine, "{said:#?}");
    let (mut next, mut a) = (helped.open(), Network::host(&helped.net.a));
    for (family, own) in families().into_iter().zip([ip("10.1.0.2"), ip("fd01::2")]) {
        send(&mut a, &datagram(family.a, own, GIST));
        assert_eq!(receive_one(&mut next).src.ip(), family.a);
        send(&mut next, &datagram(own, family.a, GIST));
        assert_eq!(receive_one(&mut a).src.ip(), own);
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Connections that order nothing, one that does not read, and a daemon that is served: none of them delays the next daemon,
/// however many they are.
#[test]
fn a_client_delays_no_other_one() {
    let helped = Helped::new("others");
    let first = helped.open();
    let silent: Vec<_> = (0..40).map(|_| helped.connect()).collect();
    let second = helped.open();
    let busy = helped.connect();
    busy.set_nonblocking(true).unwrap();
    while busy.send(b"O").is_ok() {}
    let third = helped.open();
    helped.settled();
    assert!(helped.intercepts());
    drop((first, second, third, silent, busy));
    until("the interception is removed", || !helped.intercepts());
}

/// The interception stays while one of several daemons is connected.
#[test]
fn the_interception_ends_with_the_last_daemon() {
    let helped = Helped::new("last");
    let idle = helped.connect();
    helped.settled();
    assert!(!helped.intercepts(), "a connection without an order is no daemon");
    let (first, second) = (helped.open(), helped.open());
    drop(first);
    helped.settled();
    assert!(helped.intercepts());
    drop(second);
    until("the interception is removed", || !helped.intercepts());
    drop(idle);
}

/// O02: the rules that `src_valid_mark` demands are the helper's, as the rule of the interception is.
#[test]
fn the_helper_keeps_the_rules_for_sources() {
    let helped = Helped::new("helpedmark");
    let net = &helped.net;
    let set = |value| topology::set_sysctl(&net.r, "net.ipv4.conf.all.src_valid_mark", value).unwrap();
    let present = || tool(&net.r, "ip rule").contains("goto");
    set("1");
    let (mut r, mut a) = (helped.open(), Network::host(&net.a));
    until("the rules are there", present);
    let (alert, family) = (router_alert_v4(0), families()[0]);
    send(&mut a, &Transmit { options: &alert, ..datagram(family.a, family.b, GIST) });
    assert_eq!(receive_one(&mut r).dst.ip(), family.b);
    // It looks at the setting after changes of rules of others, as wg-quick makes them.
    set("0");
    tool(&net.r, "nft add table ip others");
    until("the rules are gone", || !present());
    set("1");
    tool(&net.r, "nft delete table ip others");
    until("the rules are there again", present);
    drop(r);
    until("the daemon's end is noticed", || !helped.intercepts());
    until("the rules are gone with the interception", || !tool(&net.r, "ip rule").contains("5b00010e"));
}

/// O02: the daemon of a helper says whether marked packets come to it, and that no packet tries it. It needs no privilege for that.
#[test]
fn the_daemon_says_what_it_knows_of_the_interception() {
    let mut helped = Helped::new("known");
    let mut r = helped.open();
    let (process, net) = (&mut helped.process, &helped.net);
    let faults =
        |r: &mut Io| net.r.run(|| r.judge_interception()).unwrap().unwrap().expect("it intercepts").faults;
    assert_eq!(faults(&mut r), Vec::<String>::new());
    assert_eq!(net.r.run(|| r.begin_self_test()).unwrap(), ["the helper intercepts, and tries none"]);
    assert!(r.is_self_test_complete() && r.self_test_faults().is_empty());
    // The rules for sources of the helper are no fault.
    topology::set_sysctl(&net.r, "net.ipv4.conf.all.src_valid_mark", "1").unwrap();
    tool(&net.r, "nft add table ip others");
    until("the rules are there", || tool(&net.r, "ip rule").contains("goto"));
    assert_eq!(faults(&mut r), Vec::<String>::new());
    process.kill().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !r.changes().contains(&Change::Removed) || faults(&mut r).is_empty() {
        assert!(Instant::now() < deadline, "the end of the helper is not noticed");
        r.wait(Some(Duration::from_millis(100))).unwrap();
    }
    assert_eq!(faults(&mut r), ["the helper has ended: passing packets are not intercepted"]);
}

/// A daemon that orders, and does not read what it is given, does not hold up the helper: the next one is served.
#[test]
fn a_daemon_that_does_not_read_is_disconnected() {
    let helped = Helped::new("silent");
    let silent = helped.connect();
    silent.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    // It orders until it is disconnected, or until nothing is taken any more.
    while silent.send(b"O").is_ok() {}
    // With it go the node's sockets that it did not take.
    drop(silent);
    drop(helped.open());
}
