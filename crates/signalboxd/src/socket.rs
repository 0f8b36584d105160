//! The control socket: a file that this daemon owns for as long as it runs.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A listening control socket; its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl ControlSocket {
    /// Listens at `path` with permissions `mode`.
    ///
    /// The socket of a daemon that has ended is replaced.
    ///
    /// # Errors
    /// A daemon listens there already, another kind of file is in the way, or the directory cannot be written.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| {
                format!("cannot make {} for the control socket; set control.socket", directory.display())
            })?;
        }
        clear_stale(path)?;
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen at {}; set control.socket", path.display()))?;
        fs::set_permissions(path, Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the mode of {}", path.display()))?;
        let inode = fs::metadata(path).with_context(|| format!("{} vanished", path.display()))?.ino();
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.to_owned(), inode })
    }

    /// A second handle to the same listening socket, which does not block.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Another process may have replaced the file, which is its own then.
        if fs::metadata(&self.path).is_ok_and(|m| m.ino() == self.inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "control socket not removed");
        }
    }
}

/// Removes a socket at `path` on which no process listens.
fn clear_stale(path: &Path) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
    };
    if !metadata.file_type().is_socket() {
        bail!("{} exists and is no socket; remove it or set control.socket", path.display());
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!(
            "a daemon listens at {} already; stop it, or give this one its own control.socket",
            path.display()
        ),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replacing the control socket of a daemon that is gone");
            fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("cannot tell whether {} is in use", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sbxd-socket-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = directory("stale");
        let path = directory.join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file");

        let socket = ControlSocket::bind(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let error = ControlSocket::bind(&path, 0o600).unwrap_err().to_string();
        assert!(error.contains("already"), "{error}");

        drop(socket);
        assert!(!path.exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn another_file_is_left_alone() {
        let directory = directory("file");
        let path = directory.join("control.sock");
        fs::write(&path, "precious").unwrap();
        let error = ControlSocket::bind(&path, 0o600).unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_dir_all(directory).unwrap();
    }

    /// The command looks for the daemon where a configuration without `control.socket` puts it.
    #[test]
    fn daemon_and_command_agree_on_the_socket() {
        assert_eq!(signalbox_config::DEFAULT_SOCKET, signalbox_api::DEFAULT_SOCKET);
    }
}
