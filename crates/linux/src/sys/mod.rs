//! System calls without a safe wrapper elsewhere, each behind a safe function, and the memory layouts that they
//! require.

use std::path::{Path, PathBuf};

pub(crate) mod bpf;
mod calls;
pub(crate) mod cmsg;
pub(crate) mod epoll;
pub(crate) mod ethtool;
pub(crate) mod mmsg;
pub(crate) mod packet;
pub(crate) mod refusal;
mod rights;
pub(crate) mod sockaddr;
pub(crate) mod tun;
pub(crate) mod watch;

pub use calls::kernel_version;
pub(crate) use calls::{
    check, disconnect, eventfd, get_option_octets, getrandom, interface_index, is_full, page_size,
    pidfd_open, pidfd_signal, poll, poll_fd, receive_error, receive_record, schedule_first, set_mark,
    set_option, set_option_octets, time_of, wait_for_room, write_before_start,
};
pub(crate) use rights::{receive_rights, send_rights};

/// The path of the program `name`, in `PATH` or in the usual directories of administrators' programs, which the `PATH`
/// of an ordinary user often lacks.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    find_in_path(name)
        .or_else(|| usual.iter().map(|directory| Path::new(directory).join(name)).find(|file| file.is_file()))
}

/// The path of the program `name` in the absolute directories of `PATH`.
pub(crate) fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Not the working directory, which others may write: an empty entry means it, too.
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(name)).find(|file| file.is_file())
}
