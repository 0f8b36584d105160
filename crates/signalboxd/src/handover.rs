//! The file that a planned stop leaves to the next start: the sessions of neighbors, so that their state comes back at once.
//!
//! It is beside the control socket. It is opened at the start, while the daemon may open files. A stop writes it; a crash
//! leaves it empty. Keeping it current for a crash would cost a write for each change of a session, and what it saves is
//! one refresh.

pub(crate) mod bindings;
pub(crate) mod kept;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signalbox_linux::clock;

/// The first octets of the file. Another version of its contents has another number.
const HEADER: &[u8] = b"signalbox-handover 1\n";
/// What an older file says is not true any more: neighbors have refreshed their state, or it has expired.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(60);
/// Most octets that are read.
const MOST: u64 = 128 << 20;

/// The open file.
#[derive(Debug)]
pub(crate) struct HandoverFile {
    file: File,
    path: PathBuf,
}

impl HandoverFile {
    /// Opens the file of the daemon with this control socket. Returns what the daemon before this one wrote, unless it is too old;
    /// the file is empty afterwards.
    pub(crate) fn open(socket: &Path) -> Result<(Self, Option<Vec<u8>>)> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".handover");
        let path = PathBuf::from(path);
        let cannot = || format!("cannot use {}; remove it, or set restart.handover = false", path.display());
        let mode = std::fs::symlink_metadata(&path).map_or(0, |about| about.permissions().mode());
        let mut file = crate::own_file::open(&path).with_context(cannot)?;
        if mode & 0o022 != 0 {
            bail!("{}: others may write it; remove it", path.display());
        }
        let mut octets = Vec::new();
        (&mut file).take(MOST).read_to_end(&mut octets).with_context(cannot)?;
        file.set_len(0).with_context(cannot)?;
        Ok((Self { file, path }, read(&octets, clock::since_boot_us())))
    }

    /// Writes what the node leaves. If it leaves nothing, the file is removed.
    pub(crate) fn leave(mut self, octets: &[u8]) -> Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        if octets.is_empty() {
            let inode = self.file.metadata().with_context(cannot)?.ino();
            if std::fs::symlink_metadata(&self.path).is_ok_and(|about| about.ino() == inode) {
                // Ignored: in the directory of somebody else the empty file stays, which the next start uses.
                let _ = std::fs::remove_file(&self.path);
            }
            return Ok(());
        }
        self.file.rewind().with_context(cannot)?;
        self.file.write_all(&write(octets, clock::since_boot_us())).with_context(cannot)
    }
}

fn write(octets: &[u8], now_us: u64) -> Vec<u8> {
    let mut file = HEADER.to_vec();
    file.extend_from_slice(&now_us.to_be_bytes());
    file.extend_from_slice(&(octets.len() as u64).to_be_bytes());
    file.extend_from_slice(octets);
    file
}

/// The contents of a file that is complete and not too old.
fn read(file: &[u8], now_us: u64) -> Option<Vec<u8>> {
    let rest = file.strip_prefix(HEADER)?;
    let (written, rest) = rest.split_first_chunk::<8>()?;
    let (length, octets) = rest.split_first_chunk::<8>()?;
    let age = Duration::from_micros(now_us.checked_sub(u64::from_be_bytes(*written))?);
    let complete = u64::from_be_bytes(*length) == octets.len() as u64;
    if !complete || age > MAX_AGE {
        tracing::info!(
            age_s = age.as_secs(),
            complete,
            "the sessions of the daemon before this one are not used"
        );
        return None;
    }
    Some(octets.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;

    #[test]
    fn only_a_complete_and_recent_file_is_used() {
        let file = write(b"sessions", NOW);
        assert_eq!(read(&file, NOW).as_deref(), Some(&b"sessions"[..]));
        assert!(read(&file, NOW + 59_000_000).is_some());
        assert_eq!(read(&file, NOW + 61_000_000), None, "too old");
        assert_eq!(read(&file, NOW - 1), None, "from before the machine was started");
        for end in 0..file.len() {
            assert_eq!(read(&file[..end], NOW), None, "a file that was cut");
        }
        assert_eq!(read(&[&file[..], b"x"].concat(), NOW), None);
        assert_eq!(read(b"signalbox-handover 2\n", NOW), None);
    }

    #[test]
    fn a_file_is_used_once_and_only_its_owner_opens_it() {
        let directory = std::env::temp_dir().join(format!("sbxd-handover-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("control.sock");
        let path = directory.join("control.sock.handover");

        let (file, before) = HandoverFile::open(&socket).unwrap();
        assert_eq!(before, None);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        file.leave(b"sessions").unwrap();
        let (file, before) = HandoverFile::open(&socket).unwrap();
        assert_eq!(before.as_deref(), Some(&b"sessions"[..]));
        // A crash.
        drop(file);
        let (file, before) = HandoverFile::open(&socket).unwrap();
        assert_eq!(before, None, "it is used once");
        file.leave(b"").unwrap();
        assert!(!path.exists());

        // No link is followed, and what others may write is not read.
        std::fs::write(directory.join("precious"), "precious").unwrap();
        std::os::unix::fs::symlink(directory.join("precious"), &path).unwrap();
        HandoverFile::open(&socket).unwrap_err();
        assert_eq!(std::fs::read_to_string(directory.join("precious")).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, write(b"forged", clock::since_boot_us())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        HandoverFile::open(&socket).unwrap_err();
        std::fs::remove_dir_all(directory).unwrap();
    }
}
