//! Directories for temporary files. The lab runs as root, and every user may write where temporary files are.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Names that are tried: others may be there, left over or made by somebody else.
const NAMES: u32 = 100;

/// A new directory that only this user may enter. Dropping it removes it with its files.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory. What has its name already, such as a link of another user to a directory of that user, is not used.
    ///
    /// # Errors
    /// There is no place for temporary files, or all names are taken.
    pub fn new(purpose: &str) -> Result<Self> {
        for number in 0..NAMES {
            let name = format!("signalbox-{purpose}-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        bail!("{NAMES} directories of this name are in {} already", std::env::temp_dir().display())
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the directory.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the directory for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn what_another_user_has_put_there_is_not_used() {
        let other = Scratch::new("other").unwrap();
        let link = std::env::temp_dir().join(format!("signalbox-test-{}-0", std::process::id()));
        symlink(other.path(), &link).unwrap();
        let own = Scratch::new("test").unwrap();
        fs::write(own.join("file"), "own").unwrap();
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
        assert_eq!(fs::metadata(own.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let path = own.path().to_owned();
        drop(own);
        assert!(!path.exists());
        fs::remove_file(link).unwrap();
    }
}
