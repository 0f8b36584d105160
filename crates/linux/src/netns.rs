//! Named network namespaces, made and listed as `ip netns` does, so that people can inspect them with their own tools.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::{env, fs, io, panic, thread};

use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{NSFS_MAGIC, statfs};

use crate::process::{self, Identity};
use crate::sys;

const DIRECTORY: &str = "/run/netns";
/// Environment variable that is set in the process which [`reexec_in_user_namespace`] starts.
const INSIDE: &str = "SIGNALBOX_USER_NAMESPACE";

/// A named network namespace. Dropping the value leaves the namespace; [`Namespace::delete`] removes it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes the namespace `name` (letters, digits, `-`, `_`, `.`), with its loopback interface up.
    ///
    /// # Errors
    /// The name exists already or is not valid, or this process may not make namespaces.
    pub fn create(name: &str) -> io::Result<Self> {
        let fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(fit) || name.starts_with(['.', '-']) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("namespace name {name:?}")));
        }
        ip(&["netns", "add", name])?;
        let namespace = Self::open(name)?;
        ip(&["-n", name, "link", "set", "dev", "lo", "up"]).inspect_err(|_| {
            // The first error is the one to report.
            let _ = delete(name);
        })?;
        Ok(namespace)
    }

    /// Opens the existing namespace `name`, whichever process made it.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn open(name: &str) -> io::Result<Self> {
        Ok(Self { name: name.to_owned(), file: File::open(path(name))? })
    }

    /// The name of the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it. Sockets made there stay in the
    /// namespace, also when another thread uses them.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    ///
    /// # Panics
    /// `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace for good. The process's other threads stay where they are.
    ///
    /// # Errors
    /// This process may not enter it.
    pub fn enter(&self) -> io::Result<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
    }

    /// Starts `command` inside the namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.run(|| command.spawn())?
    }

    /// The processes whose main thread is in the namespace.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn processes(&self) -> io::Result<Vec<Identity>> {
        let own = self.file.metadata()?;
        let inside = |process: &Identity| {
            fs::metadata(format!("/proc/{}/ns/net", process.pid))
                .is_ok_and(|it| (it.dev(), it.ino()) == (own.dev(), own.ino()))
        };
        Ok(process::all()?.into_iter().filter(inside).collect())
    }

    /// Removes the name. The namespace itself ends with its last process and socket.
    ///
    /// # Errors
    /// This process may not remove it.
    pub fn delete(self) -> io::Result<()> {
        delete(&self.name)
    }
}

/// Names of all namespaces that begin with `prefix`, sorted.
///
/// # Errors
/// The directory of names cannot be read. A missing directory is no error.
pub fn list(prefix: &str) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    Ok(names)
}

/// Whether the name leads to a namespace. After a restart of the machine, or of its container, a file of this name can be left in `/run`
/// without a namespace.
#[must_use]
pub fn stands(name: &str) -> bool {
    statfs(&path(name)).is_ok_and(|system| system.filesystem_type() == NSFS_MAGIC)
}

/// Removes the namespace's name. A missing name is no error.
///
/// # Errors
/// This process may not remove it.
pub fn delete(name: &str) -> io::Result<()> {
    if !path(name).exists() {
        return Ok(());
    }
    ip(&["netns", "delete", name])
}

/// Whether this process may make network namespaces, determined by making one.
#[must_use]
pub fn is_permitted() -> bool {
    let unshare = || nix::sched::unshare(CloneFlags::CLONE_NEWNET).is_ok();
    thread::spawn(unshare).join().unwrap_or(false)
}

/// Whether this process runs inside the namespace that [`reexec_in_user_namespace`] made.
#[must_use]
pub fn inside_user_namespace() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs this program again, with the same arguments, as root of a user namespace of its own with a private /run, and
/// waits for it. By this means the lab works without root where the kernel allows it. What is made inside ends with the
/// program.
///
/// # Errors
/// The kernel or this system does not allow it, or the tool `unshare` is missing (package util-linux).
pub fn reexec_in_user_namespace() -> io::Result<ExitStatus> {
    let program = sys::find_program("unshare").ok_or(io::ErrorKind::NotFound)?;
    Command::new(program)
        .args(["--user", "--map-root-user", "--net", "--mount", "--", "/bin/sh", "-c"])
        .args(["mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\""])
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()
}

fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let program = sys::find_program("ip").ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "the tool `ip` is missing: apt-get install iproute2")
    })?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = if said.contains("not permitted") || said.contains("Permission denied") {
        io::ErrorKind::PermissionDenied
    } else if said.contains("File exists") {
        io::ErrorKind::AlreadyExists
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, format!("ip {}: {}", arguments.join(" "), said.trim())))
}
