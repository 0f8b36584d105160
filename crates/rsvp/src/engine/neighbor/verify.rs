//! The INTEGRITY of received messages (RFC 2747 §4.2).

use core::net::IpAddr;

use signalbox_core::IfIndex;

use super::Neighbors;
use super::association::Admitted;
use super::failures::AuthenticationFailure;
use crate::engine::packet::IpReceived;
use crate::wire::{Message, MessageType};

impl Neighbors {
    /// Whether the message passes the INTEGRITY checks of the interface (RFC 2747 §4.2).
    pub(super) fn verify(&mut self, packet: &IpReceived<'_>, message: &Message<'_>, sender: IpAddr) -> bool {
        let settings = &self.config.of(packet.ifindex).integrity;
        let response = message.kind == MessageType::INTEGRITY_RESPONSE;
        if !settings.receiving {
            return !response;
        }
        let settings = *settings;
        let Some(integrity) = message.integrity else {
            return self.authentication_failed(sender, packet.ifindex, AuthenticationFailure::Unsigned);
        };
        let wall = self.config.wall(self.now);
        let Some(key) = self.keys.received(wall, integrity.key_id, packet.ifindex, sender) else {
            return self.authentication_failed(sender, packet.ifindex, AuthenticationFailure::UnknownKey);
        };
        // Checksum and digest count as zero.
        let octets = message.octets;
        let end = integrity.digest_offset.saturating_add(integrity.digest.len());
        let zeros = [0; 64];
        let parts = [
            octets.get(..2).unwrap_or_default(),
            &[0, 0],
            octets.get(4..integrity.digest_offset).unwrap_or_default(),
            zeros.get(..integrity.digest.len()).unwrap_or_default(),
            octets.get(end..).unwrap_or_default(),
        ];
        if !key.verifies(&parts, integrity.digest) {
            return self.authentication_failed(sender, packet.ifindex, AuthenticationFailure::WrongDigest);
        }
        if response {
            let taken = message.challenge.is_some_and(|challenge| {
                let same_key = challenge.key_id == integrity.key_id;
                same_key
                    && self.associations.answered(
                        sender,
                        challenge.key_id,
                        challenge.cookie,
                        integrity.sequence,
                    )
            });
            tracing::debug!(peer = %sender, fits = taken, "Integrity Response received");
            let counter =
                if taken { &mut self.counters.responses_taken } else { &mut self.counters.responses_ignored };
            *counter += 1;
            return false; // it has no other contents
        }
        self.compare_clocks(sender, integrity.sequence);
        let place = (sender, integrity.key_id, packet.ifindex);
        let number = (integrity.sequence, integrity.handshake);
        let why = match self.associations.admit(self.now, place, number, &settings, &mut self.rng) {
            Admitted::Yes => return true,
            Admitted::Replayed => AuthenticationFailure::Replayed,
            Admitted::Unwilling => AuthenticationFailure::Unwilling,
            Admitted::Full => {
                self.counters.overload += 1;
                return false;
            }
            Admitted::Challenged(ask) => {
                if let Some(ask) = ask {
                    self.challenge(&ask);
                }
                AuthenticationFailure::Unproven
            }
        };
        self.authentication_failed(sender, packet.ifindex, why)
    }

    /// Counts an authentication failure and stores it for the claimed sender. Returns `false`.
    fn authentication_failed(
        &mut self,
        sender: IpAddr,
        ifindex: IfIndex,
        why: AuthenticationFailure,
    ) -> bool {
        let counter = match why {
            AuthenticationFailure::Unsigned => &mut self.counters.integrity_missing,
            AuthenticationFailure::UnknownKey => &mut self.counters.key_unknown,
            AuthenticationFailure::WrongDigest => &mut self.counters.digest_wrong,
            AuthenticationFailure::Replayed => &mut self.counters.replayed,
            AuthenticationFailure::Unproven => &mut self.counters.challenge_pending,
            AuthenticationFailure::Unwilling => &mut self.counters.handshake_refused,
        };
        *counter += 1;
        tracing::debug!(peer = %sender, ifindex = ifindex.0, reason = ?why, "authentication failed, message dropped");
        self.failures.note(self.now, (sender, ifindex), why);
        false
    }
}
