//! Multicast routes: which protocols follow them. The driver reports the changes of a route to all protocols, until one
//! output ends the reports; so that output has to wait for the last protocol.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::node::Output;

use crate::composition::Place;

/// The protocols that follow the route of each group and source. Each protocol limits the routes that it follows.
#[derive(Debug, Default)]
pub(crate) struct Followers(BTreeMap<(IpAddr, IpAddr), Vec<Place>>);

impl Followers {
    /// Notes what an output of a protocol does. If another protocol still follows a route, the end of the reports becomes
    /// another lookup, whose answer changes nothing for it.
    pub(crate) fn note<E>(&mut self, protocol: Place, output: &mut Output<'_, E>) {
        if let Output::MulticastLookup { group, source } = *output {
            let followers = self.0.entry((group, source)).or_default();
            if !followers.contains(&protocol) {
                followers.push(protocol);
            }
        } else if let Output::MulticastRelease { group, source } = *output {
            let Some(followers) = self.0.get_mut(&(group, source)) else { return };
            followers.retain(|one| *one != protocol);
            if followers.is_empty() {
                self.0.remove(&(group, source));
            } else {
                *output = Output::MulticastLookup { group, source };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::ProtocolId;

    #[test]
    fn reports_end_with_the_last_protocol() {
        let (group, source) = ("232.1.1.1".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let mut followers = Followers::default();
        let mut give = |protocol, ends: bool| {
            let mut output: Output<'_, ()> = if ends {
                Output::MulticastRelease { group, source }
            } else {
                Output::MulticastLookup { group, source }
            };
            followers.note(protocol, &mut output);
            matches!(output, Output::MulticastRelease { .. })
        };
        for protocol in
            [ProtocolId::Rsvp.place(), ProtocolId::Boomerang.place(), ProtocolId::Boomerang.place()]
        {
            assert!(!give(protocol, false));
        }
        assert!(!give(ProtocolId::Boomerang.place(), true), "RSVP follows it");
        assert!(give(ProtocolId::Rsvp.place(), true));
        assert!(followers.0.is_empty());
    }
}
