//! Announcements to all hosts: state was lost, or the address outside is another one (RFC 6887 §14.1.3, RFC 6886 §3.2.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::Time;
use signalbox_wire::Writer;

use super::Mapper;
use super::outbox::Back;
use crate::wire::{Body, CLIENT_PORT, Options, Response, ResultCode};

/// Packets of one announcement, and the time between the first two, which doubles each time.
const PACKETS: u8 = 10;
const GAP: Duration = Duration::from_millis(250);

/// Age of an epoch from which hosts notice that it begins anew.
const NOTICED: Duration = Duration::from_secs(4);

const ALL_HOSTS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)), CLIENT_PORT);
const ALL_NODES: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)), CLIENT_PORT);

/// The packets of an announcement that are left to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Announcing {
    left: u8,
    next: Time,
    gap: Duration,
}

impl Announcing {
    pub(super) const fn next(&self) -> Time {
        self.next
    }
}

impl Mapper {
    /// Mappings were lost, or hosts have to ask again: the epoch begins anew, and all hosts are told. Hosts take an epoch for valid that is
    /// up to 2 s off (RFC 6887 §8.5), so a loss that follows another one closely waits until they can notice it.
    pub(super) fn restart_epoch(&mut self) {
        if self.epoch_base == 0 && self.now.since(self.epoch_from) < NOTICED {
            self.restart_at = Some(self.epoch_from + NOTICED);
        } else {
            self.begin_epoch();
        }
    }

    /// Begins the epoch anew, and tells all hosts.
    pub(super) fn begin_epoch(&mut self) {
        (self.epoch_from, self.epoch_base, self.restart_at) = (self.now, 0, None);
        self.announce();
    }

    /// Begins an announcement.
    pub(super) fn announce(&mut self) {
        self.announcing = Some(Announcing { left: PACKETS, next: self.now, gap: GAP });
        self.send_announcements();
    }

    /// Begins an announcement after a moment.
    pub(super) fn announce_later(&mut self) {
        self.announcing = Some(Announcing { left: PACKETS, next: self.now + GAP, gap: GAP });
    }

    /// Begins an announcement, unless one is to begin in a moment anyway.
    pub(super) fn announce_once_more(&mut self) {
        if self.announcing.is_none_or(|announcing| announcing.left < PACKETS) {
            self.announce();
        }
    }

    /// Sends the next packet of an announcement, if it is due.
    pub(super) fn send_announcements(&mut self) {
        let Some(announcing) = self.announcing.filter(|announcing| announcing.next <= self.now) else {
            return;
        };
        let Announcing { left, gap, .. } = announcing;
        self.announcing =
            (left > 1).then(|| Announcing { left: left - 1, next: self.now + gap, gap: gap * 2 });
        let epoch = self.epoch();
        let nat_pmp =
            if self.has_nat_pmp() && self.outside.is_some() { Some(self.address_response()) } else { None };
        let (options, result) = (Options::default(), ResultCode::SUCCESS);
        let pcp =
            self.config.pcp.then_some(Response { result, lifetime: 0, epoch, body: Body::Announce, options });
        for at in 0..self.interfaces.served().len() {
            let Some(served) = self.interfaces.served().get(at).cloned() else { break };
            for (local, group) in [(served.ipv4, ALL_HOSTS), (served.ipv6, ALL_NODES)] {
                let Some(local) = local else { continue };
                let back = Back { client: group, local, ifindex: served.ifindex };
                if let Some(response) = pcp {
                    self.send_announcement(back, |w| response.encode(w));
                }
                if let Some(response) = nat_pmp.filter(|_| local.is_ipv4()) {
                    self.send_announcement(back, |w| response.encode(w));
                }
            }
        }
    }

    fn send_announcement(&mut self, back: Back, write: impl FnOnce(&mut Writer<'_>)) {
        let mut octets = self.out.buffer();
        write(&mut Writer::new(&mut octets));
        self.counters.announcements_sent += 1;
        self.out.send(back, octets);
    }
}
