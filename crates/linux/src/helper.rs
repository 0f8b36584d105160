//! The helper: a small process that holds the privileges of a node whose daemon has none.
//!
//! The daemon connects to the helper's Unix socket. The helper opens the sockets that are bound to the ports of entry, gives them to
//! the daemon (SCM_RIGHTS), and installs the interception. From then on the daemon receives and sends by itself. Only packets that
//! need a raw socket, which could send anything, pass the helper (`relay`). The helper puts the interception back if another
//! program removes it, and removes it when the last daemon's connection ends, so that passing packets are forwarded without
//! a daemon. If the helper ends, the kernel removes its tables; the daemon keeps its sockets, and connects again.
//!
//! The helper takes ports, mark and table from its own configuration file, not from the daemon. The daemon sends one
//! octet, `OPEN` or `RESUME`, with its channels for packets. Each answer is a message of one kind: `SOCKETS` with a port, a mask
//! of the sockets that follow, and these sockets; at the end `READY`, or `REFUSED` with the reason.
//!
//! Several daemons are served, so that one that only holds its connection keeps no place from the next one. They get the same
//! sockets, which the helper keeps. A daemon gets new ones if no other daemon runs. A process that has shut the former ones down, or
//! does not close them, cannot block the port then.

mod relay;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{self, Mode, SFlag, fchmod};
use nix::unistd::{Uid, fchownat};
use signalbox_core::{Entry, EntryRequest};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::confine::User;
use crate::error::OpenError;
use crate::intercept::{self, Interception, Sources};
use crate::io::{IoConfig, udp};
use crate::netlink::{Change, Events, Removals, Routes};
use crate::sys;

use relay::{Channel, Relay};

pub(crate) use relay::{CHANNELS, next_hop};

/// The daemon needs the sockets and the interception.
pub(crate) const OPEN: u8 = b'O';
/// The daemon has its sockets, and needs the interception.
pub(crate) const RESUME: u8 = b'R';
/// Sockets of one port: two octets of the port, one bit for each of the sockets.
pub(crate) const SOCKETS: u8 = b'S';
/// All is open.
pub(crate) const READY: u8 = b'K';
/// Something could not be opened: the reason as text.
pub(crate) const REFUSED: u8 = b'E';

/// Time after which interfaces that could not be read are read again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Signals that do not end the process where they come: it removes first what it made.
const SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
/// Longest request.
const REQUEST: usize = 16;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Most connections. One more takes the place of the one that is needed least ([`Helper::make_room`]).
const MOST: usize = 8;

/// The helper of one node.
pub struct Helper {
    path: PathBuf,
    listener: Socket,
    /// The only user, besides root, that is served.
    user: u32,
    config: IoConfig,
    routes: Routes,
    events: Events,
    removals: Removals,
    /// The connections, the oldest one first.
    served: Vec<Served>,
    /// The bound sockets, from the first order on.
    given: Vec<udp::Sockets>,
    relay: Relay,
    /// What is laid while a daemon is ready.
    interception: Option<Interception>,
    sources: Sources,
    /// Becomes readable when one of the signals of [`SIGNALS`] comes.
    signals: SignalFd,
}

/// A daemon that is connected.
struct Served {
    socket: Socket,
    process: u32,
    /// Whether it has got what it ordered.
    ready: bool,
    channels: [Option<Channel>; CHANNELS],
}

impl Served {
    /// The descriptors to wait for.
    fn fds(&self) -> [RawFd; 1 + CHANNELS] {
        let [a, b, c] = self.channels.each_ref().map(|channel| channel.as_ref().map_or(-1, Channel::fd));
        [self.socket.as_raw_fd(), a, b, c]
    }
}

impl Helper {
    /// Listens at `path` for a daemon that runs as `user`. From now on SIGTERM and SIGINT end [`Helper::run`] only, and SIGHUP changes
    /// nothing.
    ///
    /// # Errors
    /// The entries of `config` are not all UDP ports, another helper listens at `path`, or the kernel refuses something.
    pub fn open(path: &Path, user: &User, config: IoConfig) -> Result<Self, OpenError> {
        if let Some(other) = config.entries.iter().find(|one| !matches!(one.entry, Entry::Udp(_))) {
            return Err(OpenError::new(
                "not-for-the-helper",
                format!("the helper opens UDP ports only, and a protocol needs {:?}", other.entry),
                "remove privileges.helper, or the protocol",
            ));
        }
        let (config, vrf) = config.for_this_machine()?;
        let netlink = |error| OpenError::system("route netlink", &error);
        let system = |error| OpenError::system("the socket of the helper", &error);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(system)?;
        }
        clear_stale(path)?;
        let listener = listening(path, |path| give_to(path, user)).map_err(system)?;
        let set: SigSet = SIGNALS.into_iter().collect();
        let signals = set
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK))
            .map_err(|error| system(error.into()))?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            user: user.ids().0,
            routes: Routes::open(vrf).map_err(netlink)?,
            events: Events::open(config.table).map_err(netlink)?,
            removals: Removals::open().map_err(netlink)?,
            relay: Relay::open(requests(&config).map(|(port, _)| port).collect(), &config)?,
            config,
            served: Vec::new(),
            given: Vec::new(),
            interception: None,
            sources: Sources::open().map_err(netlink)?,
            signals,
        })
    }

    /// Serves daemons, until a signal ends it.
    ///
    /// # Errors
    /// The kernel does not wait for descriptors.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            let [queues, tables] = self.removals.fds();
            let own = [self.signals.as_raw_fd(), self.listener.as_raw_fd(), self.events.fd(), queues, tables];
            let fds = own.into_iter().chain(self.served.iter().flat_map(Served::fds));
            let mut fds: Vec<_> = fds.map(|fd| sys::poll_fd(fd, libc::POLLIN)).collect();
            let unread = self.events.is_unread();
            sys::poll(&mut fds, unread.then_some(READ_AGAIN))?;
            let ready: Vec<bool> = fds.iter().map(|fd| fd.revents != 0).collect();
            let (own, served) = ready.split_at(own.len());
            let &[signal, listener, ref changes @ ..] = own else { continue };
            if signal && self.ends() {
                return Ok(());
            }
            // Each daemon has one request and a limited number of packets a turn.
            for (at, ready) in served.chunks(1 + CHANNELS).enumerate().rev() {
                if !self.serve(at, ready) {
                    self.end(at);
                }
            }
            if listener {
                self.accept();
            }
            if changes.contains(&true) || unread {
                self.restore();
                if let Some(vrf) = self.config.scope.vrf().filter(|_| self.routes.has_lost_vrf()) {
                    return Err(io::Error::other(format!("the VRF {vrf} is gone, and the sockets with it")));
                }
            }
        }
    }

    /// Takes a signal. Whether it ends the helper.
    fn ends(&self) -> bool {
        let Ok(signal) = self.signals.read_signal() else { return true };
        let signal = signal.and_then(|signal| Signal::try_from(i32::try_from(signal.ssi_signo).ok()?).ok());
        if signal == Some(Signal::SIGHUP) {
            tracing::info!("SIGHUP changes nothing: the helper reads its configuration at its start only");
        }
        signal.is_some_and(|signal| signal != Signal::SIGHUP)
    }

    fn accept(&mut self) {
        let accepted = self.listener.accept().and_then(|(socket, _)| {
            // A daemon that does not read must not hold up signals, and the interception.
            socket.set_nonblocking(true)?;
            Ok((peer_of(&socket)?, socket))
        });
        match accepted {
            Ok(((process, user), socket)) if user == self.user || user == 0 => {
                tracing::info!(user, process, "a daemon is connected");
                self.make_room();
                let channels = [const { None }; CHANNELS];
                self.served.push(Served { socket, process, ready: false, channels });
            }
            Ok(((process, user), _)) => {
                tracing::warn!(user, process, "refused: only the daemon's user is served");
            }
            Err(error) => tracing::warn!(%error, "a connection could not be accepted"),
        }
    }

    /// Ends a connection, if there are too many: of the process with most of them one that has got nothing, or the oldest one.
    fn make_room(&mut self) {
        if self.served.len() < MOST {
            return;
        }
        let of = |process| self.served.iter().filter(|one| one.process == process).count();
        let ranks = self.served.iter().enumerate().rev();
        let victim = ranks.max_by_key(|(_, one)| (of(one.process), !one.ready)).map(|(at, _)| at);
        if let Some(at) = victim {
            tracing::warn!(process = self.served[at].process, "disconnected: too many connections");
            self.end(at);
        }
    }

    /// Serves the connection at `at`, whose descriptors are ready as `ready` says. False: it has ended.
    fn serve(&mut self, at: usize, ready: &[bool]) -> bool {
        let Some((&request, channels)) = ready.split_first() else { return true };
        let Some(served) = self.served.get_mut(at) else { return true };
        for (kind, _) in channels.iter().enumerate().filter(|(_, ready)| **ready) {
            let Some(place) = served.channels.get_mut(kind) else { continue };
            if place.as_ref().is_some_and(|channel| !self.relay.pass(kind, channel)) {
                *place = None;
            }
        }
        !request || self.request(at)
    }

    /// Ends a connection.
    fn end(&mut self, at: usize) {
        let ended = self.served.remove(at);
        tracing::info!(process = ended.process, "the daemon is gone");
        if self.interception.is_some() && !self.is_ready() {
            self.interception = None;
            tracing::info!("passing packets are forwarded");
        }
    }

    /// Whether a daemon has got what it ordered.
    fn is_ready(&self) -> bool {
        self.served.iter().any(|served| served.ready)
    }

    /// Serves a request of the daemon at `at`, or notices its end. False: it has ended.
    fn request(&mut self, at: usize) -> bool {
        let first = !self.is_ready();
        let Some(served) = self.served.get_mut(at) else { return false };
        let mut request = [0; REQUEST];
        let (asked, descriptors) = match sys::receive_rights(&served.socket, &mut request) {
            Ok((1, descriptors)) => (request[0], descriptors),
            Ok(_) | Err(_) => return false,
        };
        if asked != OPEN && asked != RESUME {
            return false;
        }
        let mut channels = [const { None }; CHANNELS];
        for (place, descriptor) in channels.iter_mut().zip(descriptors) {
            let Ok(channel) = Channel::adopt(descriptor) else { return false };
            *place = Some(channel);
        }
        let result = match asked {
            OPEN => Self::give(&mut self.given, &served.socket, &self.config, first),
            _ => Ok(()),
        };
        let result = result.and_then(|()| {
            let wanted = intercept::is_wanted(&self.config) && self.interception.is_none();
            wanted.then(|| intercept::lay(&self.config)).transpose()
        });
        let answer = match result {
            Ok(interception) => {
                self.interception = interception.or_else(|| self.interception.take());
                served.channels = channels;
                served.ready = true;
                vec![READY]
            }
            Err(error) => {
                tracing::warn!(%error, "the daemon gets nothing");
                [&[REFUSED], error.to_string().as_bytes()].concat()
            }
        };
        let answered = sys::send_rights(&served.socket, &answer, &[]).is_ok();
        self.keep_sources();
        answered
    }

    /// Gives the bound sockets of all ports to a daemon. `first`: no other one uses those that were given before.
    fn give(
        given: &mut Vec<udp::Sockets>,
        to: &Socket,
        config: &IoConfig,
        first: bool,
    ) -> Result<(), OpenError> {
        let system = |error| OpenError::system("a socket for the daemon", &error);
        if first || given.is_empty() {
            let mut former = given.iter();
            let open = |(port, request): (u16, &EntryRequest)| {
                let sockets = match former.next() {
                    Some(former) => former.anew(port, request, config)?,
                    None => udp::Sockets::open_bound(port, request, config)?,
                };
                sockets.lock(port, request).map_err(system)?;
                Ok(sockets)
            };
            *given = requests(config).map(open).collect::<Result<_, OpenError>>()?;
        }
        for ((port, _), sockets) in requests(config).zip(given.iter()) {
            let (mask, descriptors) = sockets.descriptors();
            let [high, low] = port.to_be_bytes();
            sys::send_rights(to, &[SOCKETS, high, low, mask], &descriptors)
                .map_err(|error| OpenError::system("giving sockets to the daemon", &error))?;
        }
        Ok(())
    }

    /// Puts back what another program removed.
    fn restore(&mut self) {
        let changes = self.events.drain(&mut self.routes);
        let reported = self.removals.drain();
        if reported.removed || changes.contains(&Change::Removed) {
            self.restore_interception();
            self.keep_first();
        } else if !reported.rules && !changes.contains(&Change::Interfaces) {
            return;
        }
        self.keep_sources();
    }

    fn restore_interception(&mut self) {
        match self.interception.as_mut().map(Interception::restore) {
            Some(Ok(true)) => {
                tracing::warn!("another program removed rules or routes of the interception; they are back");
            }
            Some(Err(error)) => tracing::warn!(%error, "the interception is not whole"),
            Some(Ok(false)) | None => {}
        }
    }

    /// Adds the policy rules that a setting of the kernel demands, which changes without a report, or removes them.
    fn keep_sources(&mut self) {
        if self.interception.is_none() || !self.config.ipv4 {
            return;
        }
        let before = self.sources.obstacle().map(ToOwned::to_owned);
        match self.sources.keep(&self.config) {
            Ok(()) => match self.sources.obstacle() {
                Some(setting) if before.as_deref() != Some(setting) => {
                    let remedy = self.sources.remedy();
                    tracing::warn!(
                        "the kernel drops intercepted packets of IPv4, because {setting} is 1: {remedy}"
                    );
                }
                _ => {}
            },
            Err(error) => tracing::warn!(%error, "the interception is not whole"),
        }
    }

    /// Puts the policy rule of the interception above those of other programs.
    fn keep_first(&self) {
        match self.interception.as_ref().map(Interception::keep_first) {
            Some(Ok(above)) if !above.is_empty() => {
                let above = above.join("; ");
                tracing::warn!("other rules stand before that of the interception: {above}");
            }
            Some(Err(error)) => tracing::warn!(%error, "the interception is not whole"),
            Some(Ok(_)) | None => {}
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes a socket at `path` at which no helper listens.
fn clear_stale(path: &Path) -> Result<(), OpenError> {
    let system = |error| OpenError::system("the socket of the helper", &error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(file) if !file.file_type().is_socket() => {
            let cause = format!("{} exists and is no socket", path.display());
            return Err(OpenError::new("not-a-socket", cause, "remove it, or set privileges.helper"));
        }
        found => found.map_err(system)?,
    };
    // A helper that listens answers; the file of one that has ended is left over.
    let probe = Socket::new(Domain::UNIX, Type::SEQPACKET, None).map_err(system)?;
    probe.set_nonblocking(true).map_err(system)?;
    match probe.connect(&SockAddr::unix(path).map_err(system)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(system)
        }
        // The queue of one that serves a daemon may be full.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(system(error)),
        Ok(()) | Err(_) => {
            let cause = format!("another helper listens at {}", path.display());
            Err(OpenError::new("helper-runs", cause, "end it first"))
        }
    }
}

/// A socket at `path` that `give` gives to the user of the daemon. It listens before: a daemon that waits for its socket connects as
/// soon as it owns it.
fn listening(path: &Path, give: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<Socket> {
    let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    // The file has the mode of the socket from its first moment on.
    fchmod(&listener, Mode::S_IRUSR | Mode::S_IWUSR)?;
    listener.bind(&SockAddr::unix(path)?)?;
    listener.listen(BACKLOG)?;
    give(path)?;
    Ok(listener)
}

/// Makes the socket at `path` the property of a user. Who may write the directory, as the daemon may, could put a link to another file
/// there, so the file that is looked at is the one that changes.
fn give_to(path: &Path, user: &User) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = fcntl::open(path, flags, Mode::empty())?;
    let about = stat::fstat(&file)?;
    let is_socket = SFlag::from_bits_truncate(about.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFSOCK;
    if !is_socket || about.st_nlink != 1 || about.st_uid != Uid::effective().as_raw() {
        return Err(io::Error::other(format!("another file has taken the place of {}", path.display())));
    }
    let (uid, gid) = user.ids();
    fchownat(&file, "", Some(uid.into()), Some(gid.into()), AtFlags::AT_EMPTY_PATH)?;
    Ok(())
}

/// The UDP ports of a configuration.
fn requests(config: &IoConfig) -> impl Iterator<Item = (u16, &EntryRequest)> {
    config.entries.iter().filter_map(|request| match request.entry {
        Entry::Udp(port) => Some((port, request)),
        Entry::Ip(_) | Entry::IcmpEcho(_) => None,
    })
}

/// The process at the other end, and its user.
fn peer_of(socket: &Socket) -> io::Result<(u32, u32)> {
    // The process, the user and the group, as `struct ucred` has them.
    let mut credentials = [0; 12];
    sys::get_option_octets(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut credentials)?;
    let [a, b, c, d, e, f, g, h, ..] = credentials;
    Ok((u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sbxt-helper-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn own_user() -> User {
        User::find(&Uid::effective().to_string()).unwrap()
    }

    #[test]
    fn another_file_is_left_alone() {
        let directory = directory("file");
        let path = directory.join("helper.sock");
        fs::write(&path, "precious").unwrap();
        let error = Helper::open(&path, &own_user(), IoConfig::default()).err().unwrap();
        assert_eq!(error.id, "not-a-socket");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_socket_listens_before_it_belongs_to_the_daemon() {
        let directory = directory("listens");
        let path = directory.join("helper.sock");
        let connect = |path: &Path| {
            let client = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
            client.connect(&SockAddr::unix(path)?)
        };
        listening(&path, connect).unwrap();
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_that_takes_the_place_of_the_socket_is_not_given_away() {
        let directory = directory("place");
        let [precious, link, second, socket] =
            ["precious", "link", "second", "socket"].map(|name| directory.join(name));
        fs::write(&precious, "precious").unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        symlink(&socket, &link).unwrap();
        for path in [&precious, &link] {
            give_to(path, &own_user()).unwrap_err();
        }
        give_to(&socket, &own_user()).unwrap();
        fs::hard_link(&socket, &second).unwrap();
        give_to(&socket, &own_user()).unwrap_err();
        fs::remove_dir_all(directory).unwrap();
    }
}
