//! The session identifiers of the users of this host.
//!
//! A user gets the same session for the same flow each time, also from the daemon after a crash. What a lost reservation of theirs
//! left on the path is then replaced by the next request, instead of being in its way until it expires. Others cannot compute it:
//! it depends on a secret, which is in a file beside the control socket.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ring::hmac;
use signalbox_core::SessionId;
use signalbox_linux::clock;

/// Octets of the secret.
const SECRET: usize = 32;

/// What makes the sessions of users.
#[derive(Clone)]
pub(crate) struct Sessions(hmac::Key);

impl Sessions {
    /// Takes the secret of the daemon with this control socket, or makes it. Without the file sessions are other ones after a crash.
    pub(crate) fn open(socket: &Path) -> Result<Self> {
        match secret(socket) {
            Ok(secret) => Ok(Self::of(&secret)),
            Err(error) => {
                tracing::warn!(
                    "{error:#}; after a crash, a user's own former reservation refuses the same request until it expires"
                );
                Ok(Self::of(&fresh()?))
            }
        }
    }

    /// Sessions by this secret.
    pub(crate) fn of(secret: &[u8; SECRET]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The session of a user's flow. `user`: `None` if the kernel does not give it.
    pub(crate) fn of_flow(&self, user: Option<u32>, flow: &str) -> SessionId {
        let mut context = hmac::Context::with_key(&self.0);
        match user {
            Some(user) => {
                context.update(&[1]);
                context.update(&user.to_be_bytes());
            }
            None => context.update(&[0]),
        }
        context.update(flow.as_bytes());
        let tag = context.sign();
        let mut id = [0; 16];
        id.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        SessionId(id)
    }
}

fn fresh() -> Result<[u8; SECRET]> {
    clock::seed().context("the kernel gives no random numbers")
}

fn secret(socket: &Path) -> Result<[u8; SECRET]> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".sessions");
    let path = PathBuf::from(path);
    let cannot = || format!("cannot use {}", path.display());
    let mut file = crate::own_file::open(&path).with_context(cannot)?;
    let mut octets = Vec::new();
    (&mut file).take(SECRET as u64 + 1).read_to_end(&mut octets).with_context(cannot)?;
    if let Ok(secret) = octets.try_into() {
        return Ok(secret);
    }
    let secret = fresh()?;
    file.set_len(0).with_context(cannot)?;
    std::io::Seek::rewind(&mut file).with_context(cannot)?;
    file.write_all(&secret).with_context(cannot)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_belongs_to_one_user_and_one_flow() {
        let sessions = Sessions::of(&[7; SECRET]);
        let session = sessions.of_flow(Some(1), "a");
        assert_eq!(session, sessions.of_flow(Some(1), "a"));
        for other in [
            sessions.of_flow(Some(2), "a"),
            sessions.of_flow(None, "a"),
            sessions.of_flow(Some(1), "b"),
            Sessions::of(&[8; SECRET]).of_flow(Some(1), "a"),
        ] {
            assert_ne!(session, other);
        }
    }

    /// The daemon after a crash finds the secret. A file with other contents is written again.
    #[test]
    fn the_next_daemon_has_the_same_sessions() {
        let directory = std::env::temp_dir().join(format!("signalbox-sessions-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("control.sock");
        let first = Sessions::open(&socket).unwrap().of_flow(Some(1), "a");
        assert_eq!(first, Sessions::open(&socket).unwrap().of_flow(Some(1), "a"));
        std::fs::write(directory.join("control.sock.sessions"), "short").unwrap();
        let second = Sessions::open(&socket).unwrap().of_flow(Some(1), "a");
        assert_ne!(first, second);
        assert_eq!(second, Sessions::open(&socket).unwrap().of_flow(Some(1), "a"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
