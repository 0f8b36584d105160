//! Workloads of the daemon: reading many rules, and its start.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::forward::site::{self, Daemon, Site};
use super::callgrind::{Counted, Files, command, finish, instructions};

const RULES: u32 = 10_000;

/// A router whose privileges are left as they are: callgrind makes other system calls than the daemon, and
/// writes files where the daemon may not.
const SETTINGS: &str = "node.protocols = [\"rsvp\"]\n[privileges]\nuser = \"root\"\ncapabilities = false\n\
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

/// Counts the start of a daemon. What it does later is not counted here: how often it wakes up, and so how many instructions it takes
/// for a message, depends on when packets and clients arrive.
pub(super) fn start() -> Result<Vec<Counted>> {
    let site = Site::build()?;
    let files = Files::new("daemon")?;
    let daemon = Daemon::start_below(&site, files.valgrind(), SETTINGS)?;
    let mut dump = Command::new("vgdb");
    let said = finish(dump.arg(format!("--pid={}", daemon.process()?.pid)).arg("dump"))?;
    let file = files.dump(1);
    ensure!(file.exists(), "callgrind wrote nothing: {}", String::from_utf8_lossy(&said).trim());
    let counted = Counted { part: "start".to_owned(), times: 1, sum: instructions(&file)? };
    daemon.end()?;
    Ok(vec![counted])
}
