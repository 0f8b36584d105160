//! Responses of the server.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::Time;

use super::epoch::Rule;
use super::mapping::Speech;
use super::{Client, Event, LONGEST, SPREAD};
use crate::wire::{Body, NatPmpResponse, NatPmpResult, Response, ResultCode, Version};

impl Client {
    /// Takes a datagram that came in at the port from which requests leave. What is not from the server, or answers nothing, is dropped.
    pub fn packet(&mut self, now: Time, from: SocketAddr, octets: &[u8]) {
        self.now = self.now.max(now);
        if from != self.config.server {
            self.counts.stray += 1;
            return;
        }
        // A server of NAT-PMP answers PCP with 8 octets, which no length check of PCP may drop first (RFC 6887 §8.3).
        if Version::of(octets) == Some(Version::NatPmp) {
            return self.nat_pmp(octets);
        }
        match Response::parse(octets) {
            Ok(response) => self.pcp(&response),
            Err(_) => self.counts.malformed += 1,
        }
    }

    /// Takes a datagram to the port of announcements, 5350.
    pub fn announcement(&mut self, now: Time, from: SocketAddr, octets: &[u8]) {
        self.now = self.now.max(now);
        if from != self.config.server {
            self.counts.stray += 1;
            return;
        }
        let epoch = match Version::of(octets) {
            Some(Version::NatPmp) => match NatPmpResponse::parse(octets) {
                Ok(NatPmpResponse::Address { epoch, .. }) => Some((epoch, Rule::NatPmp)),
                Ok(NatPmpResponse::Map { .. } | NatPmpResponse::UnsupportedVersion { .. }) | Err(_) => None,
            },
            Some(Version::Pcp) => match Response::parse(octets) {
                Ok(response) if response.body == Body::Announce => Some((response.epoch, Rule::Pcp)),
                Ok(_) | Err(_) => None,
            },
            None => None,
        };
        let Some((epoch, rule)) = epoch else {
            self.counts.malformed += 1;
            return;
        };
        if !self.epoch.is_valid(self.now, epoch, rule) {
            self.renew_all(SPREAD);
        }
    }

    fn pcp(&mut self, response: &Response<'_>) {
        let Body::Map(map) = response.body else {
            self.counts.stray += 1;
            return;
        };
        let name = (map.protocol, map.internal_port);
        let key = self.names.get(&name).copied();
        let known =
            key.and_then(|key| self.mappings.get(key)).is_some_and(|mapping| *mapping.nonce() == map.nonce);
        let Some(key) = key.filter(|_| known) else {
            self.counts.stray += 1;
            return;
        };
        self.speaks_pcp = true;
        // After the match, in errors too (RFC 6887 §8.3).
        let valid = self.epoch.is_valid(self.now, response.epoch, Rule::Pcp);
        let lifetime = Duration::from_secs(response.lifetime.into()).min(LONGEST);
        self.answered(key, response.result, map.external, lifetime);
        if !valid {
            self.renew_all(Duration::ZERO);
        }
    }

    fn nat_pmp(&mut self, octets: &[u8]) {
        let Ok(response) = NatPmpResponse::parse(octets) else {
            self.counts.malformed += 1;
            return;
        };
        match response {
            NatPmpResponse::UnsupportedVersion { .. } => self.fall_back(),
            NatPmpResponse::Address { .. } => self.counts.stray += 1,
            NatPmpResponse::Map { transport, result, epoch, internal_port, external_port, lifetime } => {
                let key = self.names.get(&(transport.protocol(), internal_port)).copied();
                // NAT-PMP has no proof of its answers, so one counts only while a request waits.
                let asked = |key| {
                    self.mappings.get(key).is_some_and(|one| one.speech == Speech::NatPmp && one.waits())
                };
                let Some(key) = key.filter(|key| asked(*key)) else {
                    self.counts.stray += 1;
                    return;
                };
                let valid = self.epoch.is_valid(self.now, epoch, Rule::NatPmp);
                let place = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), external_port);
                let (code, error) = of_nat_pmp(result);
                let lifetime = Duration::from_secs(lifetime.into()).min(LONGEST);
                self.answered(key, code, place, if code == ResultCode::SUCCESS { lifetime } else { error });
                if !valid {
                    self.renew_all(Duration::ZERO);
                }
            }
        }
    }

    /// The server speaks NAT-PMP only: all requests of PCP that wait are asked again by it. What it cannot ask for is refused.
    fn fall_back(&mut self) {
        let waiting = self.mappings.iter().filter(|(_, one)| one.speech == Speech::Pcp && one.waits());
        let keys: Vec<_> = waiting.map(|(key, _)| key).collect();
        if keys.is_empty() {
            self.counts.stray += 1;
        }
        for key in keys {
            let Some(mapping) = self.mappings.get_mut(key) else { continue };
            // A server that has answered by PCP is not given up for 8 octets that anybody can forge.
            if self.speaks_pcp && mapping.transmissions() < 2 {
                continue;
            }
            if mapping.transport().is_some() {
                mapping.fall_back();
                self.transmit(key);
                continue;
            }
            let code = ResultCode::UNSUPP_VERSION;
            self.refused(key, code, Duration::from_secs(code.usual_lifetime().into()));
        }
    }

    /// Takes the answer to the request of a mapping.
    fn answered(
        &mut self,
        key: signalbox_core::Key,
        code: ResultCode,
        place: SocketAddr,
        lifetime: Duration,
    ) {
        let Some(mapping) = self.mappings.get_mut(key) else { return };
        if mapping.is_released() {
            if code == ResultCode::SUCCESS && !lifetime.is_zero() {
                // The response to the last renewal overtook nothing: the deletion is still to be answered.
                return;
            }
            self.remove(key);
            return;
        }
        if code != ResultCode::SUCCESS {
            return self.refused(key, code, lifetime);
        }
        // The answer to a deletion that the caller took back.
        if lifetime.is_zero() {
            return;
        }
        if !mapping.fits(place) {
            self.counts.stray += 1;
            return;
        }
        let name = mapping.name();
        let wait = mapping.grant(self.now, place, lifetime, &mut self.rng);
        self.arm(key, wait);
        self.tell(Event::Granted { name, place, lifetime });
    }

    fn refused(&mut self, key: signalbox_core::Key, code: ResultCode, lifetime: Duration) {
        if code == ResultCode::NO_RESOURCES {
            self.no_new_before = self.now + lifetime;
        }
        if let Some(mapping) = self.remove(key)
            && !mapping.is_released()
        {
            self.tell(Event::Refused { name: mapping.name(), code, lifetime });
        }
    }
}

/// The code of PCP that corresponds to a result of NAT-PMP, and how long such an error lasts.
fn of_nat_pmp(result: NatPmpResult) -> (ResultCode, Duration) {
    let code = match result {
        NatPmpResult::SUCCESS => ResultCode::SUCCESS,
        NatPmpResult::NOT_AUTHORIZED => ResultCode::NOT_AUTHORIZED,
        NatPmpResult::OUT_OF_RESOURCES => ResultCode::NO_RESOURCES,
        NatPmpResult::UNSUPPORTED_OPCODE => ResultCode::UNSUPP_OPCODE,
        NatPmpResult::UNSUPPORTED_VERSION => ResultCode::UNSUPP_VERSION,
        _ => ResultCode::NETWORK_FAILURE,
    };
    (code, Duration::from_secs(code.usual_lifetime().into()))
}
