//! A program that this process starts, and the sockets that its processes have.
//!
//! The program gets a cgroup of its own where this process may make one: whatever it starts is in it. Elsewhere its descendants are
//! followed. The descriptors of these processes name sockets by inodes (`/proc/PID/fd`), and the kernel's socket diagnostics say
//! what each of them is. Nobody is asked to send something, and no packet is read: it needs no privilege beyond that over the
//! processes.

mod group;
mod sockets;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::Identity;
use crate::sys;
use group::{Cgroup, Tree};
use sockets::Diagnostics;
pub use sockets::{Socket, Transport};

/// Most descriptors that one look reads.
const MOST_DESCRIPTORS: usize = 65_536;

/// A program that was started.
pub struct Launched {
    child: Child,
    status: Option<ExitStatus>,
    group: Group,
    diagnostics: Diagnostics,
}

enum Group {
    Cgroup(Cgroup),
    Tree(Tree, String),
}

/// What the processes of a program have at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Their sockets of TCP and UDP, in this thread's network namespace.
    pub sockets: Vec<Socket>,
    /// A process whose descriptors this one may not read.
    pub hidden: Option<u32>,
}

impl Launched {
    /// Starts a program.
    ///
    /// # Errors
    /// It cannot be started, or the kernel has no socket diagnostics.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let diagnostics = Diagnostics::open()?;
        let cgroup = Cgroup::make().and_then(|cgroup| {
            sys::write_before_start(&mut command, cgroup.entrance()?);
            Ok(cgroup)
        });
        let child = command.spawn()?;
        let is_in = |cgroup: &Cgroup| cgroup.processes().is_ok_and(|inside| inside.contains(&child.id()));
        let group = match cgroup {
            // It could not enter, and has not ended.
            Ok(cgroup) if !is_in(&cgroup) && Identity::of(child.id()).is_ok() => {
                Group::Tree(Tree::of(child.id()), "the program could not enter its cgroup".to_owned())
            }
            Ok(cgroup) => Group::Cgroup(cgroup),
            Err(error) => Group::Tree(Tree::of(child.id()), error.to_string()),
        };
        Ok(Self { child, status: None, group, diagnostics })
    }

    /// The number of its first process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Why it has no cgroup of its own, so that processes can escape.
    #[must_use]
    pub fn lacks_cgroup(&self) -> Option<&str> {
        match &self.group {
            Group::Cgroup(_) => None,
            Group::Tree(_, why) => Some(why),
        }
    }

    /// How its first process ended, if it has.
    ///
    /// # Errors
    /// The kernel refuses the question.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.status = self.child.try_wait()?;
        Ok(self.status)
    }

    /// Sends a signal to its first process, if that has not ended.
    ///
    /// # Errors
    /// It belongs to another user by now, or there is no such signal.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        if self.status.is_some() {
            return Ok(());
        }
        // It was not waited for, so that its number belongs to no other process.
        let pid = Pid::from_raw(i32::try_from(self.child.id()).map_err(io::Error::other)?);
        Ok(kill(pid, Signal::try_from(number)?)?)
    }

    /// Reads which sockets its processes have now.
    ///
    /// # Errors
    /// /proc is not mounted, or the kernel has no socket diagnostics.
    pub fn look(&mut self) -> io::Result<Look> {
        let processes = match &mut self.group {
            Group::Cgroup(cgroup) => cgroup.processes()?,
            Group::Tree(tree, _) => tree.processes()?,
        };
        let (mut inodes, mut hidden, mut read) = (HashSet::new(), None, 0);
        for process in processes {
            let descriptors = match fs::read_dir(format!("/proc/{process}/fd")) {
                Ok(descriptors) => descriptors,
                // One that has ended has none.
                Err(_) if Identity::of(process).is_err() => continue,
                Err(_) => {
                    hidden = Some(process);
                    continue;
                }
            };
            for descriptor in descriptors.flatten() {
                read += 1;
                let target = fs::read_link(descriptor.path()).unwrap_or_default();
                let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
                // The diagnostics have the lower half of the number only.
                inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()).map(|inode| inode as u32));
                if read == MOST_DESCRIPTORS {
                    break;
                }
            }
            if read == MOST_DESCRIPTORS {
                break;
            }
        }
        Ok(Look { sockets: self.diagnostics.sockets(&inodes)?, hidden })
    }
}

/// The exit status by which a shell, and programs that start others, tell how a process ended: its own status, or 128 and the number of
/// the signal that ended it.
#[must_use]
pub fn shell_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::{TcpListener, UdpSocket};
    use std::process::Stdio;

    use super::*;

    /// A program of bash that says when it is ready and ends with its standard input.
    fn bash(script: &str) -> Launched {
        let mut command = Command::new("bash");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Launched::start(command).unwrap();
        let mut line = String::new();
        BufReader::new(program.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        program
    }

    #[test]
    fn the_sockets_of_what_a_program_starts_are_its_own() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        let (tcp, udp) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
        // The shell itself has no socket: its child does.
        let script = format!(
            "(exec 3<>/dev/tcp/127.0.0.1/{}; exec 4<>/dev/udp/::1/{}; echo ready; read -r _); true",
            tcp.port(),
            udp.port()
        );
        let mut program = bash(&script);
        let look = program.look().unwrap();
        let mut remotes: Vec<_> =
            look.sockets.iter().map(|socket| (socket.transport, socket.remote.unwrap())).collect();
        remotes.sort_unstable();
        assert_eq!(remotes, [(Transport::Tcp, tcp), (Transport::Udp, udp)]);
        assert_eq!(look.hidden, None);
        drop(program.child.stdin.take());
        assert!(program.child.wait().unwrap().success());
        assert!(program.look().unwrap().sockets.is_empty());
    }

    /// Without a cgroup, what was seen once is followed when its parent ends.
    #[test]
    fn a_process_that_loses_its_parent_is_still_followed() {
        let mut program = bash("(bash -c 'echo ready; read -r _; exec sleep 60' & wait); true");
        let mut tree = Tree::of(program.id());
        let before = tree.processes().unwrap();
        assert!(before.len() > 2, "{before:?}");
        program.signal(libc::SIGKILL).unwrap();
        assert_eq!(shell_status(program.child.wait().unwrap()), 128 + 9);
        let after = tree.processes().unwrap();
        assert!(!after.contains(&program.id()) && after.len() == before.len() - 1, "{after:?}");
        for process in after {
            Identity::of(process).unwrap().terminate(std::time::Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn a_status_has_the_number_of_a_shell() {
        assert_eq!(shell_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(shell_status(ExitStatus::from_raw(15)), 143);
    }
}
