//! The nft tool, which makes the maps of a link where eBPF is not available.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use capctl::{Cap, CapState, ambient};

use crate::error::OpenError;
use crate::sys;

/// Passes `script` to the nft tool. `id` and `remedy` are those of the error if the kernel refuses.
pub(super) fn nft(script: &str, id: &'static str, remedy: &'static str) -> Result<(), OpenError> {
    let missing = |error: io::Error| {
        OpenError::new("missing-nft", format!("cannot run nft ({error})"), "apt-get install nftables")
    };
    let program = sys::find_program("nft").ok_or_else(|| missing(io::ErrorKind::NotFound.into()))?;
    let mut command = Command::new(program);
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = {
        let _guard = Ambient::raise();
        command.spawn().map_err(missing)?
    };
    if let Some(mut input) = child.stdin.take() {
        // If nft ends early, its own message gives the reason.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| OpenError::system("waiting for nft", &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("nft failed without a word").trim().to_owned();
    if said.contains("Operation not permitted") {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        return Err(OpenError::net_admin("laying the nftables rules", &error));
    }
    Err(OpenError::new(id, said, remedy))
}

/// A guard: while it lives, programs that this thread starts inherit CAP_NET_ADMIN, if the thread has it. File
/// capabilities alone are not inherited by other programs.
struct Ambient {
    lower: bool,
}

impl Ambient {
    fn raise() -> Self {
        let raised = !nix::unistd::geteuid().is_root()
            && ambient::is_set(Cap::NET_ADMIN) == Some(false)
            && CapState::get_current().is_ok_and(|mut state| {
                state.inheritable.add(Cap::NET_ADMIN);
                state.set_current().is_ok() && ambient::raise(Cap::NET_ADMIN).is_ok()
            });
        Self { lower: raised }
    }
}

impl Drop for Ambient {
    fn drop(&mut self) {
        if self.lower {
            // The kernel cannot refuse to lower what was raised a moment ago.
            let _ = ambient::lower(Cap::NET_ADMIN);
        }
    }
}
