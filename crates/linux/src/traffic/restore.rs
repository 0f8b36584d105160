//! Queues that another program removed are made again, with the rates and filters of the reservations that they serve.
//!
//! The maps of the eBPF program keep the reservations and their token buckets meanwhile, because this process holds them.

use std::collections::BTreeSet;
use std::io;

use super::{Enforcer, nft};
use crate::error::OpenError;

impl Enforcer {
    /// Compares the queues, filters and rules of all open links with what should be there, and makes again what another
    /// program removed. Returns the links where something was missing, with the reason where it could not be made.
    pub fn restore(&mut self) -> Vec<(String, Result<(), OpenError>)> {
        let mut results = Vec::new();
        let mut made = BTreeSet::new();
        for (ifindex, link) in &mut self.links {
            match link.mend(&mut self.connection) {
                Ok(false) => {}
                Ok(true) => {
                    made.insert(*ifindex);
                    results.push((link.name().to_owned(), Ok(())));
                }
                Err(error) => results.push((link.name().to_owned(), Err(error))),
            }
        }
        if !made.is_empty() {
            self.ahead.begin();
            self.serve_again(&made);
        }
        results.extend(self.restore_rules());
        self.counters.restored += results.iter().filter(|(_, result)| result.is_ok()).count() as u64;
        results
    }

    /// Gives the new queues of these links the rates of their reservations.
    pub(super) fn serve_again(&mut self, made: &BTreeSet<u32>) {
        let Self { links, requests, held, adopted, .. } = self;
        let held = held.values().map(|held| (&held.reservation, &held.place));
        let adopted = adopted.by_flow.values().map(|(reservation, place)| (reservation, place));
        for (reservation, place) in held.chain(adopted) {
            let ifindex = reservation.ifindex.0;
            let Some(link) = links.get(&ifindex) else { continue };
            if made.contains(&ifindex) && place.shared().is_none() {
                link.restore(reservation, place, requests);
            }
        }
        made.iter().filter_map(|ifindex| links.get(ifindex)).for_each(|link| link.share_all(requests));
        match requests.send() {
            Ok(refused) if refused.is_empty() => {}
            Ok(refused) => tracing::warn!(?refused, "classes were not restored"),
            Err(error) => tracing::warn!(%error, "classes were not restored"),
        }
    }

    /// Makes the table of nftables again if a part of it is gone. It holds the rules of all links that use it.
    fn restore_rules(&mut self) -> Vec<(String, Result<(), OpenError>)> {
        if !self.uses_nft() {
            return Vec::new();
        }
        let whole = self.links.values().map(super::Link::has_rules).collect::<io::Result<Vec<_>>>();
        let removed = match whole {
            Ok(whole) if !whole.contains(&false) => return Vec::new(),
            Ok(_) => nft::remove(&self.config.scope.name(nft::TABLE)),
            Err(error) => Err(error),
        };
        let removed = removed.map_err(|error| OpenError::system("restoring the nftables maps", &error));
        let Self { links, held, .. } = self;
        let uses_nft = links.iter_mut().filter(|(_, link)| link.uses_nft());
        uses_nft
            .map(|(ifindex, link)| {
                let here = held.values().filter(|held| held.reservation.ifindex.0 == *ifindex);
                let made = removed.clone().and_then(|()| link.make_rules()).and_then(|()| {
                    here.map(|held| &held.place)
                        .try_for_each(|place| link.fill_maps(place))
                        .map_err(|error| OpenError::system("filling the nftables maps", &error))
                });
                (link.name().to_owned(), made)
            })
            .collect()
    }
}
