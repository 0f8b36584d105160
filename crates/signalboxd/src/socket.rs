//! The control socket: a file that this daemon owns for as long as it runs.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use signalbox_linux::confine::User;

/// A listening control socket; its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl ControlSocket {
    /// Listens at `path` with permissions `mode`, owned by this group. A directory that it makes belongs to the `user` that the
    /// daemon becomes, so that it can remove the socket at its end.
    ///
    /// The socket of a daemon that has ended is replaced.
    ///
    /// # Errors
    /// A daemon listens there already, another kind of file is in the way, or the directory cannot be written.
    pub(crate) fn bind(path: &Path, (mode, group): (u32, Option<u32>), user: &User) -> Result<Self> {
        if let Some(directory) = path.parent()
            && !directory.is_dir()
        {
            make(directory, user).with_context(|| {
                format!("cannot make {} for the control socket; set control.socket", directory.display())
            })?;
        }
        clear_stale(path)?;
        let listener = listen(path, mode, group)?;
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
            // The next daemon replaces a socket at which no process listens.
            tracing::info!(path = %self.path.display(), %error, "the control socket stays behind");
        }
    }
}

/// Makes the directory of the socket. It does not become the property of `nobody`, who may be many processes.
fn make(directory: &Path, user: &User) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    if Uid::effective().is_root() && !user.is_shared() {
        let (uid, gid) = user.ids();
        chown(directory, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Makes a socket with permissions `mode` and this group in a directory that only this user may enter, then moves it to `path`: there it
/// has its final permissions from the first moment on.
fn listen(path: &Path, mode: u32, group: Option<u32>) -> Result<UnixListener> {
    let cannot = || format!("cannot listen at {}; set control.socket", path.display());
    let private = path.with_file_name(format!(".sbxd-{}", std::process::id()));
    // A daemon that had this process id and was killed may have left the directory, empty.
    let _ = fs::remove_dir(&private);
    DirBuilder::new().mode(0o700).create(&private).with_context(cannot)?;
    let inside = private.join("s");
    let bound = UnixListener::bind(&inside).and_then(|listener| {
        if group.is_some() {
            chown(&inside, None, group)?;
        }
        fs::set_permissions(&inside, Permissions::from_mode(mode))?;
        fs::rename(&inside, path)?;
        Ok(listener)
    });
    if bound.is_err() {
        // Ignored: the error of the socket is the one to report.
        let _ = fs::remove_file(&inside);
    }
    // Ignored: an empty directory does no harm.
    let _ = fs::remove_dir(&private);
    bound.with_context(cannot)
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
        Err(error) => {
            Err(error).with_context(|| format!("cannot find out whether {} is in use", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User::find(&Uid::effective().to_string()).unwrap()
    }

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

        let socket = ControlSocket::bind(&path, (0o600, None), &user()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left in the directory");
        let error = ControlSocket::bind(&path, (0o600, None), &user()).unwrap_err().to_string();
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
        let error = ControlSocket::bind(&path, (0o600, None), &user()).unwrap_err().to_string();
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
