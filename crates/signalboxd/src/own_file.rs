//! Files that the daemon writes. It may run as root in a directory of somebody else.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Result, bail};
use nix::fcntl::OFlag;
use nix::unistd::Uid;

/// Opens the file at `path`, or makes it, for reading and writing. It follows no link, and only this user owns the file and may
/// open it.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // Opening a pipe of somebody else does not wait.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    // The metadata are those of the open file: the name may lead to another one a moment later.
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() != 1 {
        bail!("it is no regular file with one name");
    }
    if about.uid() != Uid::effective().as_raw() {
        bail!("it belongs to another user");
    }
    // The mode above holds for new files only.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}
