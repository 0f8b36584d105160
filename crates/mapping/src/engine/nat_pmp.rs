//! Requests of NAT-PMP for mappings (RFC 6886 §3.3, §3.4).

use core::net::SocketAddr;
use core::time::Duration;

use super::Mapper;
use super::answer::nowhere;
use super::io::Inside;
use super::map::{is_reserved, prolong};
use super::outbox::Back;
use super::record::{Asked, Holder, Wish, seconds};
use super::table::NoPlace;
use crate::wire::{NatPmpResponse, NatPmpResult, Transport};

impl Mapper {
    pub(super) fn receive_nat_pmp_map(
        &mut self,
        back: Back,
        octets: &[u8],
        (transport, port): (Transport, u16),
        wish: u16,
        lifetime: u32,
    ) {
        let inside = Inside { client: back.client.ip(), protocol: transport.protocol(), port };
        match (lifetime, port) {
            (0, 0) => self.delete_all(back, transport),
            (0, _) => self.delete_one(back, transport, &inside),
            // All ports of a host cannot be mapped.
            (_, 0) => self.refuse_nat_pmp(back, (transport, port), NatPmpResult::OUT_OF_RESOURCES),
            _ => self.map_nat_pmp(back, octets, transport, inside, wish, lifetime),
        }
    }

    fn map_nat_pmp(
        &mut self,
        back: Back,
        octets: &[u8],
        transport: Transport,
        inside: Inside,
        wish: u16,
        lifetime: u32,
    ) {
        let lifetime = lifetime.min(seconds(self.config.max_lifetime));
        let known = self.mappings.find(&inside);
        if self.is_elsewhere(known, back) {
            return;
        }
        let Some(key) = known else {
            let wish = if is_reserved(inside.protocol, wish) { 0 } else { wish };
            let place = SocketAddr::new(nowhere(inside.client).ip(), wish);
            // What stands behind a request says nothing.
            let asked = Asked { octets: octets.get(..12).unwrap_or(octets).into(), lifetime };
            let record = self.record(back, inside, Holder::NatPmp, Wish { place, exactly: false }, asked);
            match self.enter(record) {
                Ok(()) => {}
                Err(NoPlace::ForNow) => self.busy(back),
                Err(NoPlace::OfHost | NoPlace::OfAll) => {
                    self.counters.refused += 1;
                    self.refuse_nat_pmp(back, (transport, inside.port), NatPmpResult::OUT_OF_RESOURCES);
                }
            }
            return;
        };
        let Some(record) = self.mappings.get(key) else { return };
        let own = record.holder == Holder::NatPmp;
        let Some((place, ends)) = record.told() else {
            if !own {
                return self.busy(back);
            }
            self.mappings.change(key, |record| record.back = back);
            return;
        };
        // A mapping of PCP is returned as it is: its nonce is not to be passed by.
        let lifetime = if own { lifetime } else { seconds(ends.since(self.now)) };
        if own {
            let to = self.now + Duration::from_secs(lifetime.into());
            self.mappings.change(key, |record| {
                record.back = back;
                prolong(&mut record.stage, to);
            });
        }
        let (epoch, internal_port) = (self.epoch(), inside.port);
        let result = NatPmpResult::SUCCESS;
        self.answer_nat_pmp(
            back,
            NatPmpResponse::Map {
                transport,
                result,
                epoch,
                internal_port,
                external_port: place.port(),
                lifetime,
            },
        );
    }

    /// Deletes a mapping. One that does not exist is answered like one that did (RFC 6886 §3.4).
    fn delete_one(&mut self, back: Back, transport: Transport, inside: &Inside) {
        let key = self.mappings.find(inside);
        if self.is_elsewhere(key, back) {
            return;
        }
        let foreign =
            key.and_then(|key| self.mappings.get(key)).is_some_and(|record| record.holder != Holder::NatPmp);
        if foreign {
            return self.refuse_nat_pmp(back, (transport, inside.port), NatPmpResult::NOT_AUTHORIZED);
        }
        if let Some(key) = key {
            self.delete(key);
        }
        self.deleted(back, transport, inside.port, NatPmpResult::SUCCESS);
    }

    /// Deletes all mappings of a host and transport that NAT-PMP made. The result says whether others are left (RFC 6886 §3.4).
    fn delete_all(&mut self, back: Back, transport: Transport) {
        let mut result = NatPmpResult::SUCCESS;
        for key in self.mappings.of_client((back.client.ip(), back.ifindex), transport.protocol()) {
            if self.mappings.get(key).is_some_and(|record| record.holder == Holder::NatPmp) {
                self.delete(key);
            } else {
                result = NatPmpResult::NOT_AUTHORIZED;
            }
        }
        self.deleted(back, transport, 0, result);
    }

    fn deleted(&mut self, back: Back, transport: Transport, internal_port: u16, result: NatPmpResult) {
        let epoch = self.epoch();
        let response =
            NatPmpResponse::Map { transport, result, epoch, internal_port, external_port: 0, lifetime: 0 };
        self.answer_nat_pmp(back, response);
    }
}
