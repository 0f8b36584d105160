//! The directory of a reproduction: what each command printed, so that an interrupted reproduction goes on.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::experiment::Command;

/// The file that a reproduction holds.
const LOCK: &str = "lock";
/// The directory of what the commands printed.
const RUNS: &str = "runs";

/// The directory. While it exists here no other reproduction uses it.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    _lock: Flock<File>,
}

/// What a command printed, and how it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) command: Vec<String>,
    /// The programs that ran, by the digests of their files, and the machine.
    pub(crate) made_by: Value,
    pub(crate) started_unix_us: u64,
    pub(crate) elapsed_ms: u64,
    /// The objects that it printed.
    pub(crate) objects: Vec<Value>,
    /// Why it failed, if it did.
    pub(crate) reason: Option<String>,
}

impl Store {
    /// Opens the directory, and makes it where it is missing.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let runs = directory.join(RUNS);
        fs::create_dir_all(&runs).with_context(|| format!("cannot make {}", runs.display()))?;
        let path = directory.join(LOCK);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(mut file, _)| {
            let mut process = String::new();
            // Without the number the sentence is still true.
            let _ = file.read_to_string(&mut process);
            anyhow!("another reproduction uses {} (process {})", directory.display(), process.trim())
        })?;
        let text = format!("{}\n", std::process::id());
        lock.set_len(0)
            .and_then(|()| lock.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the path of a file of a command.
    pub(crate) fn of(&self, command: &Command, end: &str) -> PathBuf {
        self.directory.join(RUNS).join(format!("{}.{end}", name(&command.words)))
    }

    /// Returns what a command of these programs printed before on this machine, unless it failed.
    pub(crate) fn kept(&self, command: &Command, made_by: &Value) -> Option<Kept> {
        let text = fs::read(self.of(command, "json")).ok()?;
        // A file of another version is made again.
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        let same = kept.command == command.words && kept.made_by == *made_by && kept.reason.is_none();
        same.then_some(kept)
    }

    /// Keeps what a command printed.
    pub(crate) fn keep(&self, command: &Command, kept: &Kept) -> Result<()> {
        write(&self.of(command, "json"), &serde_json::to_vec(kept)?)
    }

    /// Writes a file of the directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        write(&path, text.as_bytes()).map(|()| path)
    }
}

/// Writes a file as a whole: what stood there stays if that is not possible.
fn write(path: &Path, octets: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(octets).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        // A part of a file is of no use.
        let _ = fs::remove_file(&beside);
        let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let rest = if full { "; what was measured before is kept, and the same command goes on" } else { "" };
        anyhow!("cannot write {}: {error}{rest}", path.display())
    })
}

/// Returns the words of a command as the name of a file.
fn name(words: &[String]) -> String {
    let letters = words
        .iter()
        .filter(|word| *word != "--json")
        .flat_map(|word| ["-"].into_iter().flat_map(str::chars).chain(word.trim_start_matches('-').chars()));
    let name: String = letters
        .skip(1)
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' })
        .collect();
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use std::time::Duration;

    use super::*;

    fn command(text: &str) -> Command {
        Command { words: text.split(' ').map(str::to_owned).collect(), takes: Duration::ZERO }
    }

    fn kept(command: &Command, reason: Option<String>) -> Kept {
        let command = command.words.clone();
        Kept {
            command,
            made_by: json!({"version": 1}),
            started_unix_us: 1,
            elapsed_ms: 2,
            objects: vec![json!({"a": 1})],
            reason,
        }
    }

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("signalbox-reproduce-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_succeeded_with_the_same_programs_is_kept() {
        let directory = directory("kept");
        let store = Store::open(&directory).expect("writable");
        let (command, other) = (command("lab run x --set n=3 --json"), command("lab run x --set n=4 --json"));
        assert!(store.of(&command, "json").ends_with("runs/lab-run-x-set-n-3.json"));
        store.keep(&command, &kept(&command, None)).expect("writable");
        assert_eq!(
            store.kept(&command, &json!({"version": 1})).map(|kept| kept.objects),
            Some(vec![json!({"a": 1})])
        );
        assert!(
            store.kept(&command, &json!({"version": 2})).is_none()
                && store.kept(&other, &json!({"version": 1})).is_none()
        );
        store.keep(&command, &kept(&command, Some("lost".to_owned()))).expect("writable");
        assert!(store.kept(&command, &json!({"version": 1})).is_none(), "what failed is repeated");
        fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn two_reproductions_do_not_use_one_directory() {
        let directory = directory("lock");
        let store = Store::open(&directory).expect("writable");
        let said = Store::open(&directory).expect_err("in use").to_string();
        assert!(
            said.starts_with("another reproduction uses ")
                && said.ends_with(&format!("(process {})", std::process::id())),
            "{said}"
        );
        drop(store);
        Store::open(&directory).expect("free again");
        fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn a_full_disk_leaves_what_stood_there() {
        let said = write(Path::new("/dev/full/x"), b"x").expect_err("no directory").to_string();
        assert!(said.starts_with("cannot write /dev/full/x: "), "{said}");
        let directory = directory("full");
        fs::create_dir_all(&directory).expect("writable");
        let path = directory.join("kept.json");
        fs::write(&path, "before").expect("writable");
        // The file beside it is a device without space.
        std::os::unix::fs::symlink("/dev/full", path.with_extension("new")).expect("writable");
        let said = write(&path, b"after").expect_err("full").to_string();
        assert!(said.contains("what was measured before is kept, and the same command goes on"), "{said}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "before");
        fs::remove_dir_all(directory).expect("ours");
    }
}
