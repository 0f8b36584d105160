//! Our table in the kernel: it is made or taken over, changed in batches, and removed.
//!
//! The table stays when its process ends, and its elements have timeouts: then pinholes close at their time, and a successor
//! takes the others over. Where the kernel supports it, the table belongs to this process as well, so that a reload of the
//! operator's ruleset (`flush ruleset`) does not remove it.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::accept;
use super::config::PinholeConfig;
use super::flow::{Flow, Shape};
use super::ruleset::{self, Entry, TABLE, Use};
use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::codec::{Connection, find, u32_of};
use crate::netlink::nftables::set::{self, Change, Element, State, Stored};
use crate::netlink::nftables::{
    self, NFPROTO_INET, NFT_MSG_GETTABLE, NFT_TABLE_F_OWNER, NFT_TABLE_F_PERSIST, NFTA_TABLE_NAME, about,
    message, text, transact,
};

const NFT_MSG_GETGEN: u16 = message(16);
const NFTA_GEN_ID: u16 = 1;

/// Our table.
pub(super) struct Table {
    config: PinholeConfig,
    requests: Batch,
    reader: Connection,
    /// Whether the table belongs to the socket of the requests.
    owned: bool,
    /// Whether elements can be prolonged in place, and removed without an error if they are missing.
    modern: bool,
    /// The number of the ruleset at the last check.
    generation: Option<u32>,
    /// Configured chains that do not exist, or do not take the rule.
    unusable: BTreeSet<String>,
}

impl Table {
    /// Makes the table, or takes over the one that a former process left, and puts the rules into the operator's chains.
    pub(super) fn open(config: &PinholeConfig) -> Result<Self, OpenError> {
        let mut table = Self {
            config: config.clone(),
            requests: Batch::open(NETLINK_NETFILTER).map_err(|error| explain(&error))?,
            reader: Connection::open_for(NETLINK_NETFILTER).map_err(|error| explain(&error))?,
            owned: config.own_table,
            modern: false,
            generation: None,
            unusable: BTreeSet::new(),
        };
        table.lay().map_err(|error| explain(&error))?;
        table.modern = table.probe().map_err(|error| explain(&error))?;
        table.accept();
        Ok(table)
    }

    fn lay(&mut self) -> io::Result<()> {
        if self.owned {
            let result = self.lay_with(NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST);
            match &result {
                Err(error) if unsupported(error) => self.owned = false,
                _ => return result,
            }
            self.lay_with(0)?;
            tracing::info!(
                "the kernel has no tables of nftables with an owner that stay when it ends (from Linux 6.9 on): other programs can \
                 remove the pinholes, such as a reload of the ruleset, and this process opens them again within two seconds"
            );
            return Ok(());
        }
        self.lay_with(0)
    }

    fn lay_with(&mut self, properties: u32) -> io::Result<()> {
        let config = &self.config;
        let compose = |requests: &mut Batch| {
            nftables::table_with(requests, NFPROTO_INET, TABLE, 0, properties);
            ruleset::compose(requests, config);
        };
        match transact(&mut self.requests, compose) {
            // What is there has another form, such as another limit: pinholes close, and open with the next refresh.
            Err(error) if unsupported(&error) || error.raw_os_error() == Some(libc::EEXIST) => {
                transact(&mut self.requests, |requests| {
                    nftables::table(requests, NFPROTO_INET, TABLE, 0, false);
                    nftables::delete_table(requests, NFPROTO_INET, TABLE);
                    compose(requests);
                })
            }
            result => result,
        }
    }

    /// Tries on an element that matches no packet what this kernel can do.
    fn probe(&mut self) -> io::Result<bool> {
        let Some((set, ..)) =
            ruleset::sets_for(Use::Allow).find(|(_, shape, ipv6)| *shape == Shape::Flow && !ipv6)
        else {
            return Ok(false);
        };
        let entry = Entry { set, element: Element { key: vec![0; 20], end: None, value: None } };
        let [short, long] = [60, 120].map(Duration::from_secs);
        for time in [short, long] {
            self.change(&[(entry.clone(), Change::Add(time))])?;
        }
        let prolonged = self.state(&entry)?.is_some_and(|state| state.timeout == long);
        self.change(&[(entry.clone(), Change::Delete)])?;
        Ok(prolonged && self.change(&[(entry, Change::Destroy)]).is_ok())
    }

    /// Whether the kernel keeps other programs from removing the table.
    pub(super) const fn is_owned(&self) -> bool {
        self.owned
    }

    /// Whether elements can be prolonged in place.
    pub(super) const fn prolongs(&self) -> bool {
        self.modern
    }

    /// How an element is removed that may have reached its timeout.
    pub(super) const fn removal(&self) -> Change {
        if self.modern { Change::Destroy } else { Change::Delete }
    }

    /// Makes all changes or none.
    pub(super) fn change<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a (Entry, Change)>,
    ) -> io::Result<()> {
        let (requests, reader) = (&mut self.requests, &mut self.reader);
        transact(requests, |requests| {
            for (entry, change) in changes {
                let place = (TABLE, &entry.set[..]);
                // The kernel finds a range by its first key. Instead of one that has reached its timeout it would remove
                // another one that has this key by now.
                let removed_range = !matches!(change, Change::Add(_)) && entry.element.end.is_some();
                if removed_range && matches!(set::read(reader, place, &entry.element), Ok(None)) {
                    continue;
                }
                set::change(requests, place, &entry.element, *change);
            }
        })
    }

    /// Removes what is there, one after the other. A missing element is no error.
    pub(super) fn clear<'a>(&mut self, entries: impl IntoIterator<Item = &'a Entry>) -> io::Result<()> {
        for entry in entries {
            match self.change(&[(entry.clone(), Change::Delete)]) {
                // A missing set belongs to translations, which are not wanted.
                Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads what the kernel has of an entry; `None`: nothing.
    pub(super) fn state(&mut self, entry: &Entry) -> io::Result<Option<State>> {
        set::read(&mut self.reader, (TABLE, &entry.set), &entry.element)
    }

    /// Reads what is in the sets for a use, each with the time left.
    pub(super) fn read(
        &mut self,
        purpose: Use,
        mut each: impl FnMut(Flow, Option<&[u8]>, Duration),
    ) -> io::Result<()> {
        for (name, shape, ipv6) in ruleset::sets_for(purpose) {
            set::read_all(&mut self.reader, (TABLE, &name), |Stored { key, end, value, state }| {
                if let Some(flow) = Flow::from_keys(shape, ipv6, key, end.unwrap_or(key)) {
                    each(flow, value, state.left);
                }
            })?;
        }
        Ok(())
    }

    /// Removes all that there is for the packets of these flows.
    pub(super) fn empty(&mut self, flows: &[Flow]) -> io::Result<()> {
        let places: Vec<Entry> = flows.iter().flat_map(|flow| ruleset::elsewhere(flow, &[])).collect();
        // Where nothing is translated, sets are missing.
        let changes: Vec<_> = places.iter().map(|entry| (entry.clone(), Change::Destroy)).collect();
        if self.modern && self.config.translate && self.change(&changes).is_ok() {
            return Ok(());
        }
        self.clear(&places)
    }

    /// Restores what other programs have removed. The result is whether our table was missing, so that it is empty now.
    pub(super) fn check(&mut self) -> io::Result<bool> {
        let generation = self.generation()?;
        if generation.is_some() && generation == self.generation {
            return Ok(false);
        }
        let missing = !self.owned && !self.exists()?;
        if missing {
            self.lay()?;
        }
        self.accept();
        self.generation = self.generation()?;
        Ok(missing)
    }

    /// Puts the rule into the chains of the operator that lack it.
    fn accept(&mut self) {
        let Self { config, requests, reader, unusable, generation, .. } = self;
        for chain in &config.accept_in {
            // At the first time a rule of a former process is replaced, because its mark may be another one.
            if generation.is_some() && accept::is_installed(reader, chain).unwrap_or(false) {
                continue;
            }
            match accept::install(reader, requests, chain, config.mark) {
                Ok(()) => {
                    unusable.remove(&chain.to_string());
                    tracing::info!(%chain, "flows of pinholes are accepted");
                }
                Err(error) => {
                    if unusable.insert(chain.to_string()) {
                        tracing::warn!(%chain, %error, "flows of pinholes are not accepted here");
                    }
                }
            }
        }
    }

    fn generation(&mut self) -> io::Result<Option<u32>> {
        let mut generation = None;
        self.reader.begin(NFT_MSG_GETGEN, 0, &about(0)).transact(|message| {
            let id = message.split::<4>().and_then(|(_, attributes)| find(attributes, NFTA_GEN_ID));
            generation = id.and_then(u32_of);
        })?;
        Ok(generation)
    }

    fn exists(&mut self) -> io::Result<bool> {
        let request = self.reader.begin(NFT_MSG_GETTABLE, 0, &about(NFPROTO_INET));
        match request.attribute(NFTA_TABLE_NAME, &text(TABLE)).transact(|_| {}) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Removes the rules in the operator's chains, and the table.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        let Self { config, requests, reader, .. } = self;
        let mut result = Ok(());
        for chain in &config.accept_in {
            result = result.and(accept::remove(reader, requests, chain));
        }
        let removed = transact(requests, |requests| {
            // It is added first, so that a missing table is no error.
            nftables::table(requests, NFPROTO_INET, TABLE, 0, false);
            nftables::delete_table(requests, NFPROTO_INET, TABLE);
        });
        result.and(removed)
    }
}

fn unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

fn explain(error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::new(
            "pinholes-refused",
            format!("the kernel refuses the nftables table {TABLE} ({error})"),
            "run as root or with the capability CAP_NET_ADMIN, and stop any other daemon in this network namespace",
        ),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EINVAL | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
            OpenError::new(
                "pinholes-unsupported",
                format!("the kernel does not take the nftables table {TABLE} ({error})"),
                "the kernel needs nf_tables with connection tracking (modules nft_ct, nf_conntrack_netlink) and, for a \
                 NAT, nft_nat",
            )
        }
        _ => OpenError::system("making the nftables table for pinholes", error),
    }
}
