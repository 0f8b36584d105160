//! How much of the control service one user gets: connections and calls.
//!
//! Each kind of call has places. While three quarters are not in use, one user may take all of these. The last quarter is for
//! users that have few ([`signalbox_core::shares`]). Root, the user of the daemon and administrators need no share, and find some
//! places more than all others: the operator can look at a daemon that users flood.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signalbox_config::{Control, Role};
use signalbox_core::shares::Shares;
use signalbox_core::{KeyedHasher, Random};
use tonic::Status;
use tonic::transport::server::Server;

use crate::access::{Caller, needed};
use crate::api::errors::Reason;

/// Places that only privileged users find.
const EXTRA: u32 = 16;
/// Calls of applications of GIST and clients of CASP: twice as many as may be registered.
const APPLICATIONS: u32 = 256;
/// Calls that read. Each holds up to half a megabyte if its client does not read.
const READS: u32 = 128;
/// Calls that watch. Each change costs the event loop a copy for each of them.
const WATCHES: u32 = 32;
/// Connections that have no place: their calls are refused, so that users learn why.
const REFUSALS: u32 = 16;

/// Octets that a client may send ahead in one call, and over one connection.
const WINDOWS: [u32; 2] = [64 << 10, 256 << 10];
/// Most octets of the headers of a call.
const HEADERS: u32 = 8 << 10;

/// Most octets of a request.
pub(crate) const REQUEST: usize = 16 << 10;
/// The same for a message of an application, with its data.
pub(crate) const APPLICATION_REQUEST: usize = 128 << 10;
/// The same for a request that contains a configuration.
pub(crate) const CONFIG_REQUEST: usize = 1 << 20;

/// Descriptors that connections of clients take at most.
pub(crate) const fn descriptors(control: &Control) -> u32 {
    control.max_connections + EXTRA + REFUSALS + EXTRA
}

/// Connections and calls that were refused since the start.
static REFUSED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Connections, and calls, that were refused since the start because too many were open.
pub(crate) fn refused() -> (u64, u64) {
    let [connections, calls] = &REFUSED;
    (connections.load(Ordering::Relaxed), calls.load(Ordering::Relaxed))
}

/// What a place is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A connection whose calls are served.
    Connection,
    /// A connection whose calls are refused.
    Refusal,
    /// A call that holds or asks for something: a reservation, a passage, pings, an RSVP session.
    Request,
    /// A call of an application.
    Application,
    /// A call that reads.
    Read,
    /// A call that watches.
    Watch,
}

impl Kind {
    const NUMBER: usize = 6;

    /// The kind of a call, by its path.
    fn of(path: &str) -> Self {
        match needed(path) {
            Some(Role::View) if path.ends_with("/WatchEvents") => Self::Watch,
            None | Some(Role::View | Role::Administer) => Self::Read,
            Some(Role::Request) => Self::Request,
            Some(Role::Application) => Self::Application,
        }
    }

    /// What it is in words, and the key that has its limit.
    const fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Connection | Self::Refusal => ("connections", Some("control.max_connections")),
            Self::Request => ("calls", Some("control.max_calls")),
            Self::Application => ("calls of applications", None),
            Self::Read => ("calls that read", None),
            Self::Watch => ("calls that watch", None),
        }
    }
}

/// The places of all users; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Limits(Arc<[Mutex<Shares<u32>>; Kind::NUMBER]>);

impl Limits {
    /// The limits of a configuration.
    pub(crate) fn new(control: &Control) -> Self {
        // Users do not choose their numbers, so the hash of numbers needs no secret.
        let hasher = KeyedHasher::new(&mut Random::new([0; 32]));
        let limits = [control.max_connections, REFUSALS, control.max_calls, APPLICATIONS, READS, WATCHES];
        Self(Arc::new(limits.map(|limit| Mutex::new(Shares::new(limit, hasher)))))
    }

    /// The HTTP/2 server, with what one connection and one call may send.
    pub(crate) fn server(&self) -> Server {
        let [stream, connection] = WINDOWS;
        let calls = [Kind::Request, Kind::Application, Kind::Read, Kind::Watch];
        let calls: u32 = calls.into_iter().map(|kind| self.table(kind).limit() + EXTRA).sum();
        Server::builder()
            .initial_stream_window_size(stream)
            .initial_connection_window_size(connection)
            // One more than all places, so that a client reads why its call is refused instead of waiting.
            .max_concurrent_streams(calls + 1)
            .http2_max_header_list_size(HEADERS)
    }

    /// Takes a place for a connection. Returns `None` if all places are in use.
    pub(crate) fn connection(&self, kind: Kind, caller: Option<Caller>, privileged: bool) -> Option<Place> {
        let place = self.take(kind, caller, privileged);
        if kind == Kind::Connection && place.is_none() {
            REFUSED[0].fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// Takes a place for a call.
    ///
    /// # Errors
    /// All are in use, or those that are left are for users that have few.
    pub(crate) fn call(&self, path: &str, caller: Option<Caller>, privileged: bool) -> Result<Place, Status> {
        let kind = Kind::of(path);
        self.take(kind, caller, privileged).ok_or_else(|| {
            REFUSED[1].fetch_add(1, Ordering::Relaxed);
            self.refusal(kind, caller)
        })
    }

    /// The error of a call that finds no place, or whose connection has none.
    pub(crate) fn refusal(&self, kind: Kind, caller: Option<Caller>) -> Status {
        let (what, key) = kind.words();
        let user = number(caller);
        let table = self.table(kind);
        let (all, own, limit) = (table.total(), table.held(&user), table.limit());
        let advice = key.map_or_else(|| "end some".to_owned(), |key| format!("end some, or raise {key}"));
        let text = format!("{all} {what} are open, {own} by user {user}; the limit is {limit}: {advice}");
        let details = [("limit", limit.to_string()), ("key", key.unwrap_or_default().to_owned())];
        Reason::TooMany.with(text, details)
    }

    /// The number of places of a kind that are in use.
    #[cfg(test)]
    fn open(&self, kind: Kind) -> u32 {
        self.table(kind).total()
    }

    fn take(&self, kind: Kind, caller: Option<Caller>, privileged: bool) -> Option<Place> {
        let user = number(caller);
        let mut table = self.table(kind);
        if privileged && table.total() < table.limit() + EXTRA {
            table.hold(user);
        } else {
            table.take(user).ok()?;
        }
        drop(table);
        Some(Place { limits: self.clone(), kind, user })
    }

    fn table(&self, kind: Kind) -> MutexGuard<'_, Shares<u32>> {
        let [connections, refusals, requests, applications, reads, watches] = &*self.0;
        let table = match kind {
            Kind::Connection => connections,
            Kind::Refusal => refusals,
            Kind::Request => requests,
            Kind::Application => applications,
            Kind::Read => reads,
            Kind::Watch => watches,
        };
        // Counts are changed by one step each, which cannot panic half-way.
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a user, whose places are counted together.
fn number(caller: Option<Caller>) -> u32 {
    caller.map_or(u32::MAX, |caller| caller.user)
}

/// A place in use; it is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    limits: Limits,
    kind: Kind,
    user: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limits.table(self.kind).release(self.user);
    }
}

#[cfg(test)]
mod tests {
    use signalbox_api::ping::v1::PingRequest;
    use signalbox_api::ping::v1::ping_client::PingClient;
    use signalbox_api::v1::FlowSpec;
    use tonic_types::StatusExt as _;

    use super::*;
    use crate::rig::{Rig, reason};

    const RESERVE: &str = "/signalbox.v1.Reservations/Reserve";
    const WATCH: &str = "/signalbox.v1.Node/WatchEvents";

    fn limits() -> Limits {
        Limits::new(&Control { max_calls: 256, ..Control::default() })
    }

    fn user(user: u32) -> Option<Caller> {
        Some(Caller { user, group: user })
    }

    /// Calls of one kind until one is refused.
    fn flood(limits: &Limits, path: &str, user: Option<Caller>, privileged: bool) -> (Vec<Place>, Status) {
        let mut places = Vec::new();
        loop {
            match limits.call(path, user, privileged) {
                Ok(place) => places.push(place),
                Err(status) => return (places, status),
            }
        }
    }

    #[test]
    fn a_user_who_floods_leaves_calls_to_others_and_to_root() {
        let limits = limits();
        let (places, status) = flood(&limits, RESERVE, user(1000), false);
        assert_eq!(places.len(), 192);
        assert_eq!((status.code(), reason(&status).as_str()), (tonic::Code::ResourceExhausted, "TOO_MANY"));
        assert!(
            status
                .message()
                .ends_with("192 by user 1000; the limit is 256: end some, or raise control.max_calls")
        );
        let others: Vec<_> = (0..64).map(|n| limits.call(RESERVE, user(2000 + n), false).unwrap()).collect();
        assert!(limits.call(RESERVE, user(3000), false).is_err(), "all are in use");
        let (roots, _) = flood(&limits, RESERVE, user(0), true);
        assert_eq!(roots.len(), EXTRA as usize);
        drop((places, others, roots));
        assert_eq!(flood(&limits, RESERVE, user(1000), false).0.len(), 192, "places come back");
    }

    #[test]
    fn kinds_of_calls_have_places_of_their_own() {
        let limits = limits();
        let (_watches, status) = flood(&limits, WATCH, user(1000), false);
        assert!(status.message().contains("calls that watch"), "{}", status.message());
        assert!(status.message().ends_with("the limit is 32: end some"), "{}", status.message());
        for path in [
            RESERVE,
            "/signalbox.v1.Node/GetNode",
            "/signalbox.gist.v1.Gist/Application",
            "/grpc.health.v1.Health/Check",
        ] {
            assert!(limits.call(path, user(1000), false).is_ok(), "{path}");
        }
    }

    /// The node does not answer, so that each call stays open. One more than there are places is refused at once.
    #[tokio::test]
    async fn a_call_without_place_is_refused_with_the_key_to_raise() {
        let rig = Rig::new("version = 1\n[control]\nmax_calls = 16\n").await;
        let flow = Some(FlowSpec { destination: Some("192.0.2.1".into()), ..FlowSpec::default() });
        let ping = || {
            let (mut client, flow) = (PingClient::new(rig.channel.clone()), flow.clone());
            async move { client.ping(PingRequest { flow, ..PingRequest::default() }).await }
        };
        let calls: Vec<_> = (0..16 + EXTRA).map(|_| tokio::spawn(ping())).collect();
        while rig.limits.open(Kind::Request) < 16 + EXTRA {
            tokio::task::yield_now().await;
        }
        let status = ping().await.unwrap_err();
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.metadata["key"].as_str()), ("TOO_MANY", "control.max_calls"));
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        while rig.limits.open(Kind::Request) > 0 {
            tokio::task::yield_now().await;
        }
    }
}
