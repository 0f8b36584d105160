//! `signalboxd --clean`: removes what a daemon that did not end in order left, without a start.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use signalbox_config::Config;

use crate::socket::ControlSocket;

/// Removes it, and returns what was removed, in words. While it works, no daemon starts with this control socket.
pub(crate) fn clean(config: &Config) -> Result<Vec<String>> {
    let path = &config.control.socket;
    let mut removed = Vec::new();
    let held = match fs::symlink_metadata(path) {
        Ok(_) => {
            // It refuses while a process listens there, and the file goes with it.
            let socket = ControlSocket::bind(path, (0o600, None), &config.user()?)?;
            removed.push(format!("control socket {}", path.display()));
            Some(socket)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
    };
    removed.extend(config.leftovers().remove()?);
    drop(held);
    Ok(removed)
}
