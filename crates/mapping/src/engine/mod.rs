//! The server of PCP and NAT-PMP as an engine without clock, socket or thread.
//!
//! A host asks for a port. The engine asks the path ([`Output::Open`]): every NAT and firewall between the host and the other network. Only
//! the answer of the whole path is told to the host, with the external place at the outermost node.
//!
//! **Drain invariant.** After each [`Mapper::handle`], call [`Mapper::poll`] until it returns `None`, then ask
//! [`Mapper::next_deadline`]. Extra polls have no effect. Time never runs backwards.
//!
//! * `receive` decides who may ask, and reads requests in the order of RFC 6887 §8.2. `map` is MAP of PCP, `nat_pmp` the mapping of
//!   NAT-PMP, `answer` composes what they are told.
//! * `path` is what the path answers and reports: a mapping stands, is lost, asked for again, or moves.
//! * `handover` keeps mappings and the epoch over a planned restart.
//! * `announce` tells all hosts that state was lost.
//! * `record` is one mapping, `table` all of them, with shares of hosts. `outbox` holds outputs until they are polled, `interfaces` the
//!   addresses of this node.

mod announce;
mod answer;
mod config;
mod counters;
mod handover;
mod interfaces;
mod io;
mod map;
mod nat_pmp;
mod outbox;
mod path;
mod receive;
mod record;
mod table;
mod view;

use core::net::Ipv4Addr;

use signalbox_core::index::KeyedHasher;
use signalbox_core::metrics::Table;
use signalbox_core::shared_rate::SharedRate;
use signalbox_core::shares::RateShares;
use signalbox_core::{Random, Time};

pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use io::{Change, Command, Dropped, Event, Failure, Input, Inside, MappingId, Next, Output, Wanted};
pub use view::{MappingView, State};

use announce::Announcing;
use interfaces::Interfaces;
use outbox::Outbox;
use table::Mappings;

/// The server of PCP and NAT-PMP of one node.
#[derive(Debug)]
pub struct Mapper {
    config: Config,
    counters: Counters,
    /// The time of the last input.
    now: Time,
    interfaces: Interfaces,
    mappings: Mappings,
    /// Requests of all hosts, of each host, and of each host with PREFER_FAILURE.
    rate: SharedRate,
    host_rate: RateShares,
    exact_rate: RateShares,
    /// Questions to the path because of requests, of all hosts and of each host.
    open_rate: SharedRate,
    host_open_rate: RateShares,
    /// The address by which hosts outside reach mappings, and the last one that was known.
    outside: Option<Ipv4Addr>,
    last_outside: Option<Ipv4Addr>,
    epoch_from: Time,
    /// The epoch of then: that of the node before this one.
    epoch_base: u32,
    /// When the epoch begins anew, because it had begun too short a time before for hosts to notice another loss.
    restart_at: Option<Time>,
    announcing: Option<Announcing>,
    /// The first announcement was made.
    started: bool,
    out: Outbox,
}

impl Mapper {
    /// A server without mappings. Keys of tables are drawn from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        let rate = SharedRate::new(config.rate, config.rate, Some(KeyedHasher::new(&mut rng)));
        let host_rate = RateShares::new(config.host_rate, KeyedHasher::new(&mut rng));
        let exact_rate = RateShares::new(config.exact_rate, KeyedHasher::new(&mut rng));
        let open_rate = SharedRate::new(config.open_rate, config.open_rate, Some(KeyedHasher::new(&mut rng)));
        let host_open_rate = RateShares::new(config.host_open_rate, KeyedHasher::new(&mut rng));
        Self {
            mappings: Mappings::new(&config, &mut rng),
            config,
            counters: Counters::default(),
            now: Time::ZERO,
            interfaces: Interfaces::default(),
            rate,
            host_rate,
            exact_rate,
            open_rate,
            host_open_rate,
            outside: None,
            last_outside: None,
            epoch_from: Time::ZERO,
            epoch_base: 0,
            restart_at: None,
            announcing: None,
            started: false,
            out: Outbox::default(),
        }
    }

    /// Takes one input at `now`. Drain [`Mapper::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.now = self.now.max(now);
        self.run_timers(matches!(input, Input::Timer));
        if self.restart_at.is_some_and(|at| at <= self.now) {
            self.begin_epoch();
        }
        self.send_announcements();
        match input {
            Input::Timer => {}
            Input::Packet(ref packet) => self.receive(packet),
            Input::Dropped { client, why } => self.dropped(client, why),
            Input::Interfaces(interfaces) => {
                self.interfaces.set(interfaces, &self.config);
                self.start();
            }
            Input::Outside(address) => self.set_outside(address),
            Input::Opened { id, result } => self.opened(id, result),
            Input::Changed { id, change } => self.changed(id, change),
            Input::Handover { entries, elapsed } => self.take_over(entries, elapsed),
            Input::Command { id, command: Command::Clear(inside) } => self.clear(id, &inside),
            Input::Command { id: _, command: Command::End } => {}
        }
    }

    /// The next output, if any. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// Who takes the next output of [`Mapper::poll`]; `None`: there is no output.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.out.next()
    }

    /// When [`Input::Timer`] is due next; `None` while no timer runs.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let announcing = self.announcing.map(|announcing| announcing.next());
        self.mappings.next_deadline().into_iter().chain(announcing).chain(self.restart_at).min()
    }

    /// The tables that users can fill.
    #[must_use]
    pub const fn tables(&self) -> [Table; 1] {
        [Table::new("mappings", self.mappings.len(), self.config.max_mappings)]
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The first interfaces are known: this server has no mappings that hosts may know of, and says so soon, unless it takes over those
    /// of the node before it.
    fn start(&mut self) {
        if !core::mem::replace(&mut self.started, true) {
            self.epoch_from = self.now;
            self.announce_later();
        }
    }

    /// Another address outside makes all mappings others (RFC 6887 §8.5, RFC 6886 §3.6). The first address is announced.
    fn set_outside(&mut self, address: Option<Ipv4Addr>) {
        self.outside = address;
        let Some(address) = address else { return };
        match self.last_outside.replace(address) {
            Some(before) if before != address => self.restart_epoch(),
            Some(_) => {}
            None => self.announce_once_more(),
        }
    }

    fn clear(&mut self, id: u64, inside: &Inside) {
        let ended = self.mappings.find(inside).and_then(|key| self.end(key));
        let event = if ended.is_some() { Event::Cleared } else { Event::Unknown };
        self.counters.cleared += u64::from(ended.is_some());
        self.out.event(id, event);
    }
}
