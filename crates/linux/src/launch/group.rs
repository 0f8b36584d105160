//! The processes of a program: those of a cgroup of its own, or else the process itself and what descends from it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::{io, process};

use crate::process::{Identity, with_parents};

/// The beginning of the names of our cgroups. The number of the process that made it follows.
const NAME: &str = "signalbox-run-";
/// The list of processes of a cgroup.
const PROCESSES: &str = "cgroup.procs";
/// Most cgroups that a program makes below its own and that are read.
const MOST_BELOW: usize = 256;
/// Most processes that are looked at.
pub(super) const MOST: usize = 4096;
/// How often what a program left running is moved out of its cgroup.
const TRIES: u32 = 3;

/// A cgroup (version 2) that this process made below its own. It is removed with this value.
#[derive(Debug)]
pub(super) struct Cgroup {
    directory: PathBuf,
    parent: PathBuf,
}

impl Cgroup {
    /// Makes it.
    ///
    /// # Errors
    /// There are no cgroups of version 2, or this user may not make one here.
    pub(super) fn make() -> io::Result<Self> {
        let parent = own_place()?;
        remove_left(&parent);
        let directory = parent.join(format!("{NAME}{}", process::id()));
        fs::create_dir(&directory)?;
        Ok(Self { directory, parent })
    }

    /// The file by which a process enters: it writes `0`.
    pub(super) fn entrance(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.directory.join(PROCESSES))
    }

    /// Its processes, and those of the cgroups below it.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let mut processes = Vec::new();
        let mut places = vec![self.directory.clone()];
        let mut read = 0;
        while let Some(place) = places.pop().filter(|_| read < MOST_BELOW && processes.len() < MOST) {
            read += 1;
            match fs::read_to_string(place.join(PROCESSES)) {
                Ok(list) => processes.extend(list.lines().filter_map(|line| line.parse::<u32>().ok())),
                // The program has removed it meanwhile.
                Err(_) if place != self.directory => continue,
                Err(error) => return Err(error),
            }
            let below = fs::read_dir(&place).into_iter().flatten().flatten();
            places.extend(
                below
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        processes.truncate(MOST);
        Ok(processes)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            // What the program left running goes on, in the cgroup from which it was started.
            for process in self.processes().unwrap_or_default() {
                let _ = fs::write(self.parent.join(PROCESSES), process.to_string());
            }
        }
    }
}

/// The directory of the cgroup of this process.
fn own_place() -> io::Result<PathBuf> {
    let missing = |what: &str| io::Error::new(io::ErrorKind::NotFound, what.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"));
    let mount = mount.and_then(|fields| fields.get(1).map(PathBuf::from));
    let mount = mount.ok_or_else(|| missing("no cgroups of version 2 are mounted"))?;
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.ok_or_else(|| missing("this process is in no cgroup of version 2"))?;
    Ok(mount.join(own))
}

/// Removes cgroups of processes that were killed. One that still has processes stays.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        if process.is_some_and(|process| Identity::of(process).is_err()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// A process and what descends from it. A process that was seen once stays, also when its parent ends.
#[derive(Debug)]
pub(super) struct Tree {
    seen: BTreeMap<u32, Identity>,
}

impl Tree {
    /// That of the process `root`.
    pub(super) fn of(root: u32) -> Self {
        Self { seen: Identity::of(root).map(|root| (root.pid, root)).into_iter().collect() }
    }

    /// Its processes.
    pub(super) fn processes(&mut self) -> io::Result<Vec<u32>> {
        let all = with_parents()?;
        let mut children: BTreeMap<u32, Vec<Identity>> = BTreeMap::new();
        let mut alive = BTreeMap::new();
        for (process, parent) in all {
            children.entry(parent).or_default().push(process);
            alive.insert(process.pid, process);
        }
        self.seen.retain(|pid, process| alive.get(pid) == Some(process));
        let mut new: Vec<u32> = self.seen.keys().copied().collect();
        while let Some(parent) = new.pop().filter(|_| self.seen.len() < MOST) {
            for child in children.remove(&parent).unwrap_or_default() {
                if self.seen.insert(child.pid, child).is_none() {
                    new.push(child.pid);
                }
            }
        }
        Ok(self.seen.keys().copied().take(MOST).collect())
    }
}
