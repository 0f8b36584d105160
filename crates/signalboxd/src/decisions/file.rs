//! The audit file: each decision as a line of JSON.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::unistd::Uid;
use signalbox_api::v1;
use signalbox_linux::confine::User;

/// Lines that could not be written since the start.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines that the audit file lacks since the start, because the disk was full or failed.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The open file.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    file: File,
    /// Lines that were lost since the last one that was written.
    missing: u64,
    /// The last line in the file is not whole.
    torn: bool,
}

impl AuditFile {
    /// Opens the file, or makes it. It belongs to the user that the daemon becomes.
    ///
    /// # Errors
    /// It cannot be opened, or it is no regular file.
    pub(crate) fn open(path: &Path, user: &User) -> Result<Self> {
        let about = || format!("cannot open the audit file {}", path.display());
        let file = append(path).with_context(about)?;
        let (owner, group) = user.ids();
        if Uid::effective().is_root()
            && let Err(error) = fchown(&file, Some(owner), Some(group))
        {
            // As in a namespace that does not have the user.
            tracing::warn!(%error, file = %path.display(), "the audit file stays with its owner");
        }
        Ok(Self { path: path.to_owned(), file, missing: 0, torn: false })
    }

    /// Opens the file of this name again, after it was moved away. If that fails, lines go to the one that is open.
    pub(super) fn reopen(&mut self) {
        match append(&self.path) {
            Ok(file) => {
                self.file = file;
                self.torn = false;
                tracing::info!(file = %self.path.display(), "audit file opened again");
            }
            Err(error) => {
                tracing::warn!(
                    "cannot open the audit file {} again: {error:#}; lines go to the former one",
                    self.path.display()
                );
            }
        }
    }

    /// Writes a line. One that cannot be written is counted; the first one is logged, and so is the end of the trouble.
    pub(super) fn write(&mut self, row: &v1::Decision) {
        let mut line = if self.torn { "\n".to_owned() } else { String::new() };
        match signalbox_json::row(row) {
            Ok(json) => line += &json,
            Err(error) => return tracing::error!(%error, "a decision has no line of JSON"),
        }
        line.push('\n');
        match self.append(line.as_bytes()) {
            Ok(()) => {
                let missing = std::mem::take(&mut self.missing);
                self.torn = false;
                if missing > 0 {
                    tracing::warn!(missing, file = %self.path.display(), "the audit file can be written again");
                }
            }
            Err(error) => {
                LOST.fetch_add(1, Ordering::Relaxed);
                self.missing += 1;
                if self.missing == 1 {
                    tracing::error!(%error, file = %self.path.display(), "the audit file cannot be written: lines are lost");
                }
            }
        }
    }

    fn append(&mut self, mut octets: &[u8]) -> std::io::Result<()> {
        while !octets.is_empty() {
            let written = self.file.write(octets)?;
            if written == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.torn = true;
            octets = octets.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Opens a file for lines at its end. It follows no link.
fn append(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        // Opening a pipe of another user does not wait.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() != 1 {
        bail!("it is no regular file with one name");
    }
    if about.permissions().mode() & 0o002 != 0 {
        bail!("every user may write to it");
    }
    Ok(file)
}
