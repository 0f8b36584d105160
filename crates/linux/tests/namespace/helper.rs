//! This test program as another process: a daemon that a test kills, or a user without privileges.

use std::env;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use signalbox_core::node::{StreamError, StreamId, StreamKind};
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::stream::{StreamBuffer, StreamConfig, StreamEvent};
use signalbox_linux::traffic::Enforcer;
use signalbox_linux::{Io, IoConfig, capability};

const PART: &str = "SBXT_PART";

use crate::network::{config, gist, open_here};
use crate::rsvp::rsvp;

/// A command that runs this program in `part`.
pub(crate) fn helper(part: &str) -> Command {
    helper_at(&env::current_exe().unwrap(), part)
}

/// The same for a copy of this program.
pub(crate) fn helper_at(program: &Path, part: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "helper::process", "--ignored", "--nocapture"]).env(PART, part);
    command
}

/// The entry of the helper process, not a test of its own.
#[test]
#[ignore = "a process for other tests"]
fn process() {
    let config = config();
    match env::var(PART).as_deref() {
        Ok("daemon") => {
            // The kernel removes owned tables with their daemon. Without owner they stay, as on older kernels.
            let _io = open_here(&IoConfig { own_tables: false, ..config });
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("rsvp-daemon") => {
            let _io = open_here(&IoConfig { entries: vec![gist(), rsvp()], ..config });
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("traffic-daemon") => {
            let mut enforcer = Enforcer::open(&crate::traffic::config()).unwrap();
            crate::traffic::reserve_all(&mut enforcer, "rb", 0..20);
            eprintln!("reserved");
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("pinhole-daemon") => crate::pinhole_rulesets::daemon(),
        Ok("probe") => {
            capability::check(&config).iter().for_each(|missing| eprintln!("{missing}"));
            match Io::open(&config) {
                Ok(io) => io.close().unwrap(),
                Err(error) => eprintln!("not opened: {error}"),
            }
        }
        Ok("tcp-listener") => {
            let listener = TcpListener::bind("[::]:7000").unwrap();
            let _streams: Vec<_> = listener.incoming().take(2).collect();
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("privileges") => crate::privileges::helper_process(),
        Ok("without-privileges") => crate::privileges::without_privileges(),
        Ok("keeps-sockets") => crate::helped::keeps_sockets(),
        Ok("confined") => crate::confine::confined(true),
        Ok("confined-nft") => crate::confine::confined(false),
        Ok("taken-over") => crate::taken_over::process(),
        Ok("few-descriptors") => few_descriptors(),
        Ok("user-namespace") if !netns::inside_user_namespace() => {
            assert!(!netns::is_permitted());
            assert!(netns::reexec_in_user_namespace().unwrap().success());
        }
        Ok("user-namespace") => {
            let namespace = Namespace::create("inner").unwrap();
            namespace.run(|| open_here(&config).close().unwrap()).unwrap();
            namespace.delete().unwrap();
            eprintln!("opened in a user namespace");
        }
        _ => {}
    }
}

/// Opens connections to itself until the process has no descriptor left, and then closes them.
fn few_descriptors() {
    let streams = StreamConfig { accept_limit_per_source: 1000, ..StreamConfig::default() };
    let mut io = open_here(&IoConfig { intercept: false, streams, ..config() });
    let (mut buffer, mut names) = (StreamBuffer::new(), (1..).step_by(2).map(StreamId));
    io.streams().listen(StreamKind::Tcp, 7000).unwrap();
    let here: IpAddr = "10.2.0.1".parse().unwrap();
    let (mut opened, mut full, mut turns) = (Vec::new(), None::<Instant>, 0);
    let start = Instant::now();
    // The listener pauses, so the loop must pause, too, although connections wait during that time.
    while full.is_none_or(|full| full.elapsed() < Duration::from_millis(300)) {
        assert!(start.elapsed() < Duration::from_secs(30), "never full");
        if full.is_none() {
            opened.extend(names.next());
            io.streams().open(*opened.last().unwrap(), StreamKind::Tcp, here, (here, 7000).into());
        } else {
            turns += 1;
        }
        io.wait(Some(Duration::from_millis(if full.is_none() { 1 } else { 20 }))).unwrap();
        io.changes();
        while let Some(event) = io.streams().next_event(&mut buffer).unwrap() {
            if let StreamEvent::Closed { error, .. } = event {
                assert_eq!(error, Some(StreamError::Other));
                full = full.or(Some(Instant::now()));
            }
        }
    }
    assert!(turns < 40, "{turns} turns");
    let failed = io.streams().counters().accept_failed;
    assert!((1..10).contains(&failed), "{failed}");
    let before = io.streams().counters().accepted;
    opened.into_iter().for_each(|stream| io.streams().close(stream, false));
    // A connection that waited is accepted or, if the kernel abandoned all of them, a new one.
    let mut asked = Instant::now();
    while io.streams().counters().accepted == before {
        let counters = io.streams().counters();
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "not accepted again: {failed} before, {counters:?}"
        );
        if asked.elapsed() > Duration::from_secs(1) {
            asked = Instant::now();
            io.streams().open(names.next().unwrap(), StreamKind::Tcp, here, (here, 7000).into());
        }
        io.wait(Some(Duration::from_millis(20))).unwrap();
        while io.streams().next_event(&mut buffer).unwrap().is_some() {}
    }
    eprintln!("accepted again");
}
