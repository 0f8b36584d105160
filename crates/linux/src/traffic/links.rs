//! The links of an enforcer: those of the configuration that exist, and what an earlier process left at any.

use std::io;

use super::config::{Enforcement, TrafficConfig};
use super::kept::Kept;
use super::link::Link;
use super::nft::Maps;
use super::{Enforcer, htb, nft};
use crate::error::OpenError;
use crate::netlink::codec::Connection;
use crate::netlink::interfaces::{self, LinkLayer};

impl Enforcer {
    /// Updates the links after a change of interfaces: opens configured links that are new, and removes links that are
    /// gone together with their reservations. Returns the links that could not be opened.
    pub fn refresh(&mut self) -> Vec<(String, OpenError)> {
        self.open_links(Kept::default())
    }

    pub(super) fn open_links(&mut self, mut kept: Kept) -> Vec<(String, OpenError)> {
        if self.config.enforcement == Enforcement::Off {
            return Vec::new();
        }
        let links = match self.interfaces() {
            Ok(links) => links,
            Err(error) => {
                let error = OpenError::system("reading the interfaces", &error);
                return self.config.links.iter().map(|link| (link.name.clone(), error.clone())).collect();
            }
        };
        let there = |ifindex: u32, name: &str| links.iter().any(|l| l.ifindex == ifindex && l.name == name);
        let gone = self.links.iter().filter(|(ifindex, link)| !there(**ifindex, link.name()));
        let gone: Vec<u32> = gone.map(|(ifindex, _)| *ifindex).collect();
        self.leave(&gone, &links);
        self.held.retain(|_, held| self.links.contains_key(&held.reservation.ifindex.0));
        self.adopted.by_flow.retain(|(ifindex, _), _| self.links.contains_key(&ifindex.0));
        let mut failed = Vec::new();
        let mut adopted = Vec::new();
        for (config, classifier) in self.config.links.iter().zip(&self.classifiers) {
            let Some(found) = links.iter().find(|link| link.name == config.name) else {
                let missing = self.config.scope.vrf().map_or_else(
                    || "there is no such interface".to_owned(),
                    |vrf| format!("the VRF {vrf} has no such interface"),
                );
                self.closed.insert(config.name.clone(), missing);
                continue;
            };
            if self.links.contains_key(&found.ifindex) {
                continue;
            }
            let interface = (found.ifindex, found.link_header);
            let TrafficConfig { enforcement, signaling, .. } = self.config;
            let table = self.config.scope.name(nft::TABLE);
            let here = kept.links.iter().position(|link| link.ifindex.0 == found.ifindex);
            let here = here.map(|at| kept.links.swap_remove(at)).filter(|link| link.config == *config);
            let left = here.map_or_else(Vec::new, |link| link.reservations);
            let loaded = classifier.as_ref();
            match Link::open(
                &mut self.connection,
                config,
                interface,
                enforcement,
                loaded,
                (signaling, &table),
                left,
            ) {
                Ok((link, reservations)) => {
                    adopted.extend(reservations);
                    self.closed.remove(&config.name);
                    self.links.insert(found.ifindex, link);
                    self.ahead.begin();
                }
                Err(error) => {
                    self.closed.insert(config.name.clone(), error.to_string());
                    failed.push((config.name.clone(), error));
                }
            }
        }
        if !adopted.is_empty() {
            self.adopt(adopted, kept.until);
        }
        failed
    }

    /// Gives up links that are gone, or have another name among those that are there, and removes what they have in the kernel.
    fn leave(&mut self, gone: &[u32], there: &[LinkLayer]) {
        let mut maps = Vec::new();
        for ifindex in gone {
            let Some(mut link) = self.links.remove(ifindex) else { continue };
            // The queues of an interface go with it. One that has another name has them still, and no link of the configuration
            // names it.
            if let Some(renamed) = there.iter().find(|one| one.ifindex == *ifindex) {
                let (interface, name) = (link.name().to_owned(), &renamed.name);
                match link.close(&mut self.connection) {
                    Ok(()) => {
                        tracing::warn!(interface, name, "the interface has another name; its queues are gone")
                    }
                    Err(error) => {
                        tracing::warn!(interface, name, %error, "queues stay at a renamed interface")
                    }
                }
            }
            maps.extend(link.into_maps());
        }
        // What it has in nftables stays: the next interface of this name has another number. The last one takes the table with it.
        let removed = if maps.is_empty() {
            Ok(())
        } else if self.uses_nft() {
            // Each, also behind one that is refused.
            maps.into_iter().map(Maps::remove).fold(Ok(()), Result::and)
        } else {
            nft::remove(&self.config.scope.name(nft::TABLE))
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "nftables maps of a link that is gone stay behind");
        }
    }

    fn interfaces(&mut self) -> io::Result<Vec<LinkLayer>> {
        own_interfaces(&mut self.connection, &self.config)
    }

    /// Removes what an earlier process of ours left, except the queues of these links.
    pub(super) fn sweep(&mut self, kept: &Kept) -> Result<(), OpenError> {
        let kept = |ifindex: u32| kept.links.iter().any(|link| link.ifindex.0 == ifindex);
        let found = remove_queues(&mut self.connection, &self.config, kept)?;
        // Without queues there were no maps, or they have no effect and are removed when ours are made.
        if found.nowhere && self.config.ebpf {
            Ok(())
        } else {
            nft::remove(&self.config.scope.name(nft::TABLE))
                .map_err(|error| with_cause("removing old nftables maps", &error))
        }
    }
}

/// The interfaces that are those of an enforcer: those of its VRF. Without one, all but those of VRFs, unless the configuration names
/// them: other daemons may have queues there.
fn own_interfaces(connection: &mut Connection, config: &TrafficConfig) -> io::Result<Vec<LinkLayer>> {
    let mut links = interfaces::links(connection)?;
    let TrafficConfig { scope, links: wanted, .. } = config;
    let vrfs: Vec<u32> = links.iter().filter(|one| one.vrf).map(|one| one.ifindex).collect();
    match scope.vrf() {
        Some(vrf) => {
            let device = links.iter().find(|one| one.vrf && one.name == vrf).map(|one| one.ifindex);
            links.retain(|one| [one.ifindex, one.master].map(Some).contains(&device));
        }
        None => {
            links
                .retain(|one| !vrfs.contains(&one.master) || wanted.iter().any(|link| link.name == one.name));
        }
    }
    Ok(links)
}

/// Queues of an earlier process.
pub(super) struct Found {
    /// No interface of this machine has any, of no daemon.
    nowhere: bool,
    /// The names of the interfaces where they were removed.
    pub(super) removed: Vec<String>,
}

/// Removes the queues of an earlier process at the interfaces of this configuration, but not where they stay.
pub(super) fn remove_queues(
    connection: &mut Connection,
    config: &TrafficConfig,
    stays: impl Fn(u32) -> bool,
) -> Result<Found, OpenError> {
    let ours =
        htb::ours(connection).map_err(|error| with_cause("reading the queueing disciplines", &error))?;
    let own = match own_interfaces(connection, config) {
        // Other programs change interfaces all the time. That is no reason to enforce nothing.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            tracing::warn!(%error, "queues of an earlier run stay: the list of interfaces changed at each try");
            Vec::new()
        }
        own => own.map_err(|error| with_cause("reading the interfaces", &error))?,
    };
    let mut removed = Vec::new();
    for link in own.into_iter().filter(|link| ours.contains(&link.ifindex) && !stays(link.ifindex)) {
        tracing::info!(ifindex = link.ifindex, "removing the queues of an earlier run");
        htb::remove(connection, link.ifindex).map_err(|error| with_cause("removing old queues", &error))?;
        removed.push(link.name);
    }
    Ok(Found { nowhere: ours.is_empty(), removed })
}

fn with_cause(what: &str, error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::net_admin(what, error),
        _ => OpenError::system(what, error),
    }
}
