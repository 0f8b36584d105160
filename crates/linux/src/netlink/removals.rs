//! What other programs remove of ours: queues with their filters, and tables of nftables. And that they change their own rules of
//! nftables, which can be in the way of intercepted packets.
//!
//! The kernel reports all changes of queues and tables, also those of this process. A report is only the reason to look:
//! whoever restores compares what is there with what should be. Rules and routes have their reports in
//! [`super::Events`].

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use netlink_sys::{
    Socket,
    protocols::{NETLINK_NETFILTER, NETLINK_ROUTE},
};
use socket2::{SockFilter, SockRef};

use super::codec::{Message, Messages, REPLY};
use super::nftables;

/// RTNLGRP_TC.
const QUEUES: u32 = 4;
/// NFNLGRP_NFTABLES.
const TABLES: u32 = 7;
/// The name of a table in every message about it, its chains, rules, sets and elements.
const TABLE_NAME: u16 = 1;
/// The beginning of the names of our tables.
const OURS: &[u8] = b"signalbox";

/// Reports that take queues or filters away, or put others in their place.
const CONCERNED: [u16; 4] =
    [libc::RTM_NEWQDISC, libc::RTM_DELQDISC, libc::RTM_DELTCLASS, libc::RTM_DELTFILTER];

/// What the reports say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reported {
    /// Something of ours may be gone.
    pub(crate) removed: bool,
    /// Tables, chains or rules of other programs have changed. Elements of sets do not count: some programs change them all the time.
    pub(crate) rules: bool,
}

/// The receiver of these reports.
pub(crate) struct Removals {
    queues: Socket,
    /// `None` where the kernel has no nftables, or this process may not read its reports.
    tables: Option<Socket>,
    buffer: Vec<u8>,
}

impl Removals {
    pub(crate) fn open() -> io::Result<Self> {
        let queues = listen(NETLINK_ROUTE, QUEUES)?;
        // The kernel reports each change of a class, and each reservation changes one. They end here.
        SockRef::from(&queues).attach_filter(&filter())?;
        let tables = listen(NETLINK_NETFILTER, TABLES)
            .inspect_err(|error| tracing::debug!(%error, "removed tables of nftables will go unnoticed"))
            .ok();
        Ok(Self { queues, tables, buffer: vec![0; REPLY] })
    }

    /// The descriptors to wait for; -1 for none.
    pub(crate) fn fds(&self) -> [RawFd; 2] {
        [self.queues.as_raw_fd(), self.tables.as_ref().map_or(-1, AsRawFd::as_raw_fd)]
    }

    /// What was reported since the last call.
    pub(crate) fn drain(&mut self) -> Reported {
        let mut reported = Reported::default();
        let lost = drain(&self.queues, &mut self.buffer, |message| {
            reported.removed |= CONCERNED.contains(&message.kind);
        });
        reported.removed |= lost;
        if let Some(tables) = &self.tables {
            let lost = drain(tables, &mut self.buffer, |message| {
                reported.removed |= takes_ours(message);
                reported.rules |= changes_others(message);
            });
            reported.removed |= lost;
            reported.rules |= lost;
        }
        reported
    }
}

/// A socket for the reports of one group.
pub(super) fn listen(protocol: isize, group: u32) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.add_membership(group)?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Calls `each` with all messages that wait. The result is true if some were lost.
pub(super) fn drain(socket: &Socket, buffer: &mut [u8], mut each: impl FnMut(&Message<'_>)) -> bool {
    let mut lost = false;
    loop {
        match socket.recv(&mut &mut buffer[..], 0) {
            Ok(length) => {
                Messages(buffer.get(..length).unwrap_or(&[])).for_each(|message| each(&message));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => lost = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return lost,
        }
    }
}

/// Whether a report takes away a table of ours or something in it.
fn takes_ours(message: &Message<'_>) -> bool {
    nftables::REMOVALS.contains(&message.kind) && is_of_ours(message)
}

/// Whether a report says that a table, chain or rule of another program is there or gone.
fn changes_others(message: &Message<'_>) -> bool {
    nftables::RULES.contains(&message.kind) && !is_of_ours(message)
}

/// Whether a report is about a table of ours or something in it.
fn is_of_ours(message: &Message<'_>) -> bool {
    message.split::<4>().is_some_and(|(_, mut attributes)| {
        attributes.any(|(kind, name)| kind == TABLE_NAME && name.starts_with(OURS))
    })
}

/// The program that passes [`CONCERNED`] messages. A report of queues that names two begins with the removal.
fn filter() -> Vec<SockFilter> {
    const LOAD_HALF: u16 = 0x28; // BPF_LD | BPF_H | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let mut program = vec![SockFilter::new(LOAD_HALF, 0, 0, 4)];
    for (kind, left) in CONCERNED.into_iter().zip((0..4_u8).rev()) {
        // The kernel loads in network order what it wrote in the machine's.
        let kind = u32::from(u16::from_be_bytes(kind.to_ne_bytes()));
        program.push(SockFilter::new(JUMP_EQUAL, left + 1, 0, kind));
    }
    program.push(SockFilter::new(RETURN, 0, 0, 0));
    program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a report takes away something of ours, and whether it changes rules of others.
    fn judged(kind: u16, table: &[u8]) -> (bool, bool) {
        let mut body = vec![2, 0, 0, 0];
        body.extend_from_slice(&u16::try_from(4 + table.len()).unwrap().to_ne_bytes());
        body.extend_from_slice(&TABLE_NAME.to_ne_bytes());
        body.extend_from_slice(table);
        body.resize(body.len().next_multiple_of(4), 0);
        let message = Message { kind, flags: 0, sequence: 0, body: &body };
        (takes_ours(&message), changes_others(&message))
    }

    #[test]
    fn rules_of_others_concern_us_and_their_sets_do_not() {
        for kind in nftables::RULES {
            assert!(judged(kind, b"filter\0").1 && !judged(kind, b"signalbox\0").1, "{kind}");
        }
        for set in [9, 11, 12, 14] {
            assert!(!judged(nftables::message(set), b"filter\0").1, "a set or its elements");
        }
    }

    #[test]
    fn only_removals_from_our_tables_concern_us() {
        let report = |kind: u16, table: &[u8]| judged(kind, table).0;
        for kind in nftables::REMOVALS {
            assert!(report(kind, b"signalbox\0") && report(kind, b"signalbox_traffic\0"));
            assert!(!report(kind, b"filter\0"));
        }
        assert!(!report(nftables::message(0), b"signalbox\0"), "a table was added");
    }
}
