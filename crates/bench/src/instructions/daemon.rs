//! Workloads of the daemon: reading many rules, and a life on real sockets with many sessions.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::forward::rsvp::ends::Ends;
use super::super::forward::site::{self, Daemon, Site};
use super::callgrind::{Counted, Files, command, finish, instructions};

const RULES: u32 = 10_000;
const SESSIONS: u32 = 1_000;
/// Addresses that the flows go to.
const DESTINATIONS: u32 = 256;
/// Set-ups under way at a time. With one, the daemon wakes up as often in each run.
const WINDOW: u32 = 1;

/// A router whose privileges are left as they are: callgrind makes other system calls than the daemon, and
/// writes files where the daemon may not. Its refreshes are rare: with the default period a slow machine would count them too.
const SETTINGS: &str = "node.protocols = [\"rsvp\"]\n[rsvp]\nrefresh = \"10m\"\n[privileges]\nuser = \"root\"\ncapabilities = false\n\
     system_calls = false\nfiles = false\n[policy]\ndefault = \"allow\"\n[enforcement]\nmode = \"off\"\n\
     [interfaces.\"*\"]\ncapacity = \"40gbit\"\n";

/// Counts `signalboxd --check` of a configuration with many rules.
pub(super) fn check() -> Result<Vec<Counted>> {
    let files = Files::new("rules")?;
    let mut text = String::from("version = 1\nnode.protocols = [\"rsvp\"]\n");
    for number in 0..RULES {
        let [.., high, low] = number.to_be_bytes();
        writeln!(
            text,
            "[[policy.rules]]\nname = \"rule {number}\"\naction = \"allow\"\nsource = [\"10.{high}.{low}.0/24\"]\n\
             max_rate = \"1mbit\""
        )?;
    }
    let config = files.path("signalboxd.toml");
    fs::write(&config, text).with_context(|| config.display().to_string())?;
    let mut words = files.valgrind();
    words.push(site::program()?.into());
    words.extend(["--config".into(), config.into(), "--check".into()]);
    finish(&mut command(words)?)?;
    let sum = instructions(&files.last())?;
    Ok(vec![Counted { part: format!("--check, each of {RULES}"), times: RULES.into(), sum }])
}

/// Counts the start of a daemon, the set-up of sessions, a list of them, and the end.
pub(super) fn live() -> Result<Vec<Counted>> {
    let site = Site::build()?;
    let files = Files::new("daemon")?;
    let daemon = Daemon::start_below(&site, files.valgrind(), SETTINGS)?;
    let process = daemon.process()?;
    let mut counted = Vec::new();
    let mut part = |name: &str, times: u32| -> Result<()> {
        let mut dump = Command::new("vgdb");
        let said = finish(dump.arg(format!("--pid={}", process.pid)).arg("dump"))?;
        let file = files.dump(counted.len() + 1);
        ensure!(file.exists(), "callgrind wrote nothing: {}", String::from_utf8_lossy(&said).trim());
        counted.push(Counted { part: name.to_owned(), times: times.into(), sum: instructions(&file)? });
        Ok(())
    };
    part("start", 1)?;
    let mut ends = Ends::open(&site, DESTINATIONS, false)?;
    ends.set_up(0, SESSIONS, WINDOW)?;
    part("RSVP set-up", SESSIONS)?;
    let rows = daemon.rsvp_sessions()?;
    ensure!(rows == usize::try_from(SESSIONS)?, "{rows} of {SESSIONS} sessions were shown");
    part("show, each session", SESSIONS)?;
    daemon.end()?;
    let end = Counted {
        part: "end, each session".to_owned(),
        times: SESSIONS.into(),
        sum: instructions(&files.last())?,
    };
    counted.push(end);
    Ok(counted)
}
