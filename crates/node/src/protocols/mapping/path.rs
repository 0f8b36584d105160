//! Translates what the server wants of the path into requests to NATFW, and what becomes of them.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use signalbox_core::index::KeyedHasher;
use signalbox_mapping::engine::{Change, Failure, Input, Inside, MappingId, Wanted};
use signalbox_natfw::engine::{Code, Failure as Refusal, HostEvent, HostRequest};
use signalbox_natfw::wire::{Filter, Info, InfoClass, Wish};

use super::Config;

/// A key that is not printed.
struct Secret([u8; 16]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// What was asked for and is not answered.
#[derive(Debug)]
pub(super) struct Path {
    /// Lease keys are made with it.
    secret: Secret,
    /// Whether the wish alone would do.
    pending: BTreeMap<MappingId, bool>,
}

impl Path {
    pub(super) const fn new(secret: [u8; 16]) -> Self {
        Self { secret: Secret(secret), pending: BTreeMap::new() }
    }

    pub(super) const fn secret(&self) -> &[u8; 16] {
        &self.secret.0
    }

    /// The request for a mapping. It replaces that of before.
    pub(super) fn open(&mut self, id: MappingId, wanted: &Wanted, config: &Config) -> HostRequest {
        self.pending.insert(id, wanted.exactly);
        let Inside { client: host, protocol, port } = wanted.inside;
        let address = match wanted.wish.ip() {
            IpAddr::V4(v4) if !v4.is_unspecified() => Some(v4),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        };
        let filters = wanted.filters.iter().filter_map(|filter| {
            let port = Some(filter.port).filter(|port| *port != 0);
            Some(Filter { address: filter.address, prefix: filter.prefix?, port })
        });
        HostRequest {
            host,
            protocol,
            port,
            ifindex: wanted.ifindex,
            towards: config.towards(host),
            wish: Wish {
                opens: true,
                exactly: wanted.exactly,
                address,
                port: Some(wanted.wish.port()).filter(|port| *port != 0),
                key: self.lease_key(&wanted.inside),
                filters: filters.collect(),
            },
        }
    }

    /// What the nodes further on know the lease of this host, protocol and port by. They learn nothing else from it.
    fn lease_key(&self, inside: &Inside) -> [u8; 8] {
        let address = match inside.client {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut octets = address.octets().to_vec();
        octets.push(inside.protocol);
        octets.extend(inside.port.to_be_bytes());
        KeyedHasher::with_key(self.secret.0).hash_octets(&octets).to_be_bytes()
    }

    /// Nothing is wanted any more.
    pub(super) fn close(&mut self, id: MappingId) -> Option<HostRequest> {
        self.pending.remove(&id);
        None
    }

    /// What the server is told of an event; `None`: it knows that.
    pub(super) fn answered(&mut self, id: u64, event: HostEvent) -> Option<Input<'static>> {
        let id = MappingId(id);
        let pending = self.pending.remove(&id);
        let opened = |result: Result<SocketAddr, Failure>| Input::Opened { id, result };
        Some(match (event, pending) {
            (HostEvent::Granted(place), Some(_)) => opened(Ok(place)),
            (HostEvent::Granted(place), None) => Input::Changed { id, change: Change::Moved(place) },
            (HostEvent::Refused { wish: true, .. }, Some(true)) => opened(Err(Failure::Taken)),
            (HostEvent::Refused { failure, .. }, Some(_)) => opened(Err(failure_of(&failure))),
            (HostEvent::Lost, Some(_)) => opened(Err(Failure::NoPath)),
            (HostEvent::Lost, None) => Input::Changed { id, change: Change::Lost },
            (HostEvent::Refused { .. }, None) => return None,
        })
    }
}

/// Why the path did not open, for the host.
fn failure_of(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::Code(code) | Refusal::By { code, .. } => of_code(*code),
        Refusal::NoResponse
        | Refusal::NoNextNode
        | Refusal::NotSent(_)
        | Refusal::NotUpstream
        | Refusal::NoCreate => Failure::NoPath,
    }
}

fn of_code(code: Code) -> Failure {
    match (Info { class: InfoClass(code.class), code: code.code }) {
        Info::AUTHENTICATION
        | Info::AUTHORIZATION
        | Info::POLICY_CONFLICT
        | Info::SOURCE_RANGE
        | Info::DESTINATION_RANGE => Failure::NotAllowed,
        // A node of another make that has no publications is no path.
        Info::NO_EDGE
        | Info::NR_NOT_REACHED
        | Info::SESSION_TERMINATED
        | Info::TERMINATED
        | Info::EXPIRED
        | Info::UNKNOWN_OBJECT
        | Info::EXTERNAL_SIDE => Failure::NoPath,
        Info::PROTOCOL_NOT_SUPPORTED | Info::PLAIN_IP | Info::SOURCE_PORTS | Info::DESTINATION_PORTS => {
            Failure::Protocol
        }
        // What is left is for a time, or a fault of a node.
        _ => Failure::NoResources,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Path {
        Path::new([7; 16])
    }

    fn wanted(exactly: bool) -> Wanted {
        let inside = Inside { client: [192, 168, 1, 20].into(), protocol: 6, port: 22_000 };
        let wish = SocketAddr::new([0, 0, 0, 0].into(), 22_000);
        Wanted { inside, ifindex: signalbox_core::IfIndex(2), wish, exactly, filters: Vec::new() }
    }

    fn refused(info: Info, wish: bool) -> HostEvent {
        HostEvent::Refused { failure: Refusal::Code(info.into()), wish }
    }

    fn failure(path: &mut Path, exactly: bool, event: HostEvent) -> Failure {
        path.open(MappingId(1), &wanted(exactly), &Config::default());
        match path.answered(1, event) {
            Some(Input::Opened { result: Err(failure), .. }) => failure,
            other => panic!("{other:?}"),
        }
    }

    /// The key says which host, protocol and port it is, to who has the secret.
    #[test]
    fn a_lease_key_belongs_to_one_port_of_one_host() {
        let key = |path: &Path, change: fn(&mut Inside)| {
            let mut inside = wanted(false).inside;
            change(&mut inside);
            path.lease_key(&inside)
        };
        let same = key(&path(), |_| ());
        assert_eq!(same, key(&path(), |_| ()));
        let others: [fn(&mut Inside); 3] =
            [|one| one.client = [192, 168, 1, 21].into(), |one| one.protocol = 17, |one| one.port = 22_001];
        for other in others {
            assert_ne!(same, key(&path(), other));
        }
        assert_ne!(same, key(&Path::new([8; 16]), |_| ()));
    }

    #[test]
    fn the_first_grant_answers_and_the_next_one_is_a_change() {
        let mut path = path();
        let place = SocketAddr::new([203, 0, 113, 1].into(), 22_000);
        path.open(MappingId(1), &wanted(false), &Config::default());
        let granted = |path: &mut Path| path.answered(1, HostEvent::Granted(place));
        assert!(matches!(granted(&mut path), Some(Input::Opened { result: Ok(at), .. }) if at == place));
        assert!(matches!(granted(&mut path), Some(Input::Changed { change: Change::Moved(_), .. })));
        let lost = path.answered(1, HostEvent::Lost);
        assert!(matches!(lost, Some(Input::Changed { change: Change::Lost, .. })));
        assert!(path.answered(1, refused(Info::INTERNAL, false)).is_none(), "it waits for nothing");
    }

    #[test]
    fn a_refusal_tells_the_host_what_it_can_do() {
        let mut path = path();
        for (info, expected) in [
            (Info::AUTHORIZATION, Failure::NotAllowed),
            (Info::NO_EDGE, Failure::NoPath),
            (Info::UNKNOWN_OBJECT, Failure::NoPath),
            (Info::PROTOCOL_NOT_SUPPORTED, Failure::Protocol),
            (Info::NO_RESOURCES, Failure::NoResources),
            (Info::INTERNAL, Failure::NoResources),
        ] {
            assert_eq!(failure(&mut path, false, refused(info, false)), expected, "{info}");
        }
        assert_eq!(failure(&mut path, true, refused(Info::POLICY_CONFLICT, true)), Failure::Taken);
        assert_eq!(failure(&mut path, false, refused(Info::POLICY_CONFLICT, true)), Failure::NotAllowed);
        let silent = HostEvent::Refused { failure: Refusal::NoResponse, wish: false };
        assert_eq!(failure(&mut path, false, silent), Failure::NoPath);
    }
}
