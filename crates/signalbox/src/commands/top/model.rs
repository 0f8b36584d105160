//! What `signalbox top` knows and where its user is: a state that takes answers of the daemon and keys. It does no input or output.

use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::sample::Value;
use signalbox_units::Span;

use super::entry::{Entry, Tab};
use super::list::{List, Order};
use super::meter::Meter;
use super::text::lines;
use crate::print::{duration, enum_text, time_of_day};

/// The longest filter.
const FILTER: usize = 60;
/// How long it is said that the daemon is back.
const NEWS_US: u64 = 30_000_000;

/// What the daemon answered at one time.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// When, counted from the start of the command.
    pub(super) at: Duration,
    /// When, by the clock of this host.
    pub(super) now_unix_us: u64,
    pub(super) node: v1::GetNodeResponse,
    pub(super) links: Vec<v1::Interface>,
    /// How many messages each protocol received and sent.
    pub(super) messages: Vec<v1::MetricFamily>,
    pub(super) list: Listed,
}

/// A list, as the daemon answered.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Which one; `None`: the links only.
    pub(super) tab: Option<Tab>,
    pub(super) entries: Vec<Entry>,
    /// The daemon has more.
    pub(super) more: bool,
}

/// A key of the keyboard, or several that mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    BackTab,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// What a key asks for beside another screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// Another list: ask the daemon now.
    Ask,
    Suspend,
    Quit,
}

/// A text over the whole screen that can be longer than it.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// The first line on the screen.
    pub(super) first: usize,
    /// How many lines fit.
    height: usize,
    /// The entry that it shows; `None`: it is the help.
    key: Option<String>,
}

impl Page {
    fn step(&mut self, by: isize) {
        let last = self.lines.len().saturating_sub(self.height);
        self.first = self.first.saturating_add_signed(by).min(last);
    }

    /// So many lines fit on the screen.
    pub(super) fn fit(&mut self, height: usize) {
        self.height = height;
        self.step(0);
    }
}

/// The connection to the daemon.
#[derive(Debug)]
enum Connection {
    Up,
    Lost { since_unix_us: u64, reason: String, attempt: u32, wait: Duration },
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) every: Duration,
    pub(super) now_unix_us: u64,
    pub(super) node: v1::GetNodeResponse,
    pub(super) links: Vec<v1::Interface>,
    pub(super) tab: Tab,
    pub(super) list: List,
    /// The daemon has more entries than the list.
    pub(super) more: bool,
    pub(super) filter: String,
    /// The user writes the filter.
    pub(super) types_filter: bool,
    pub(super) largest_first: bool,
    pub(super) page: Option<Page>,
    /// Octets that went by each link.
    pub(super) links_used: Meter,
    /// Octets that went by each entry of the list.
    used: Meter,
    pub(super) received: Meter,
    pub(super) sent: Meter,
    connection: Connection,
    /// When the daemon was back, and what is said of it.
    news: Option<(u64, String)>,
}

impl Model {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            now_unix_us: 0,
            node: v1::GetNodeResponse::default(),
            links: Vec::new(),
            tab: Tab::Reservations,
            list: List::default(),
            more: false,
            filter: String::new(),
            types_filter: false,
            largest_first: false,
            page: None,
            links_used: Meter::default(),
            used: Meter::default(),
            received: Meter::default(),
            sent: Meter::default(),
            connection: Connection::Up,
            news: None,
        }
    }

    /// The daemon answered.
    pub(super) fn answered(&mut self, answers: Answers) {
        let Answers { at, now_unix_us, node, links, messages, list } = answers;
        let process = |node: &v1::GetNodeResponse| (node.pid, node.start_unix_us);
        let restarted = self.node.pid != 0 && process(&self.node) != process(&node);
        if let Connection::Lost { since_unix_us, .. } = &self.connection {
            let away = duration(now_unix_us.saturating_sub(*since_unix_us));
            let what = if restarted { "; it has restarted" } else { "" };
            self.news = Some((now_unix_us, format!("connected again to the daemon, after {away}{what}")));
            self.connection = Connection::Up;
        } else if restarted {
            self.news = Some((now_unix_us, "the daemon has restarted".to_owned()));
        }
        if restarted {
            for meter in [&mut self.links_used, &mut self.used, &mut self.received, &mut self.sent] {
                meter.clear();
            }
        }
        (self.node, self.now_unix_us) = (node, now_unix_us);
        for (meter, direction) in [(&mut self.received, "received"), (&mut self.sent, "sent")] {
            meter.read(at, by_protocol(&messages, direction).into_iter());
        }
        let octets = links.iter().filter_map(|link| Some((link_key(link), link.sent_octets?)));
        self.links_used.read(at, octets);
        self.links = links;
        let entries = match (self.tab, list.tab) {
            (Tab::Links, _) => self.links.iter().cloned().map(Entry::Link).collect(),
            (wanted, Some(tab)) if wanted == tab => list.entries,
            // It answers what was asked before the user chose another list.
            _ => return,
        };
        self.more = self.tab != Tab::Links && list.more;
        let octets = entries.iter().filter_map(|entry| Some((entry.key(), entry.octets()?)));
        self.used.read(at, octets);
        let (list, order) = self.list_and_order();
        list.replace(entries, order);
        self.look_again();
    }

    /// The daemon did not answer for this reason. It is asked again after `wait`, the `attempt`th time.
    pub(super) fn lost(&mut self, now_unix_us: u64, reason: String, attempt: u32, wait: Duration) {
        let since_unix_us = match &self.connection {
            Connection::Up => now_unix_us,
            Connection::Lost { since_unix_us, .. } => *since_unix_us,
        };
        self.now_unix_us = now_unix_us;
        self.connection = Connection::Lost { since_unix_us, reason, attempt, wait };
    }

    fn list_and_order(&mut self) -> (&mut List, Order<'_>) {
        let Self { list, filter, largest_first, used, .. } = self;
        (list, Order { filter, largest_first: *largest_first, used })
    }

    /// What goes by the entries of the list.
    pub(super) const fn used(&self) -> &Meter {
        &self.used
    }

    /// Whether what is on the screen is old.
    pub(super) const fn is_lost(&self) -> bool {
        matches!(self.connection, Connection::Lost { .. })
    }

    /// What is to be said about the daemon; whether it is bad.
    pub(super) fn message(&self) -> Option<(String, bool)> {
        if let Connection::Lost { since_unix_us, reason, attempt, wait } = &self.connection {
            let since = time_of_day(*since_unix_us);
            let since = since.get(..8).unwrap_or(&since);
            let wait = Span(*wait);
            return Some((format!("no answer since {since}, attempt {attempt} in {wait}: {reason}"), true));
        }
        let news = self.news.as_ref().filter(|(at, _)| self.now_unix_us.saturating_sub(*at) < NEWS_US);
        if let Some((_, news)) = news {
            return Some((news.clone(), false));
        }
        let faults = self.node.interception.iter().flat_map(|interception| &interception.faults);
        let all: Vec<&str> = self.node.warnings.iter().chain(faults).map(String::as_str).collect();
        (!all.is_empty()).then(|| (all.join("; "), true))
    }

    /// The protocols that run, each with its sessions, peers, and messages received and sent in a thousand seconds.
    pub(super) fn protocols(&self) -> impl Iterator<Item = (String, &v1::ProtocolStatus, [Option<u64>; 2])> {
        self.node.protocols.iter().map(|row| {
            let name = enum_text(row.protocol().as_str_name(), "PROTOCOL_");
            let rates = [self.received.thousandths(&name), self.sent.thousandths(&name)];
            (name, row, rates)
        })
    }

    /// The user pressed a key.
    pub(super) fn pressed(&mut self, key: Key) -> Wish {
        match key {
            Key::Interrupt => return Wish::Quit,
            Key::Suspend => return Wish::Suspend,
            _ if self.types_filter => return self.typed(key),
            Key::Char('q') => return Wish::Quit,
            _ => {}
        }
        if let Some(page) = &mut self.page {
            let height = isize::try_from(page.height.max(2) - 1).unwrap_or(1);
            match key {
                Key::Up | Key::Char('k') => page.step(-1),
                Key::Down | Key::Char('j') => page.step(1),
                Key::PageUp => page.step(-height),
                Key::PageDown | Key::Char(' ') => page.step(height),
                Key::Home | Key::Char('g') => page.step(isize::MIN),
                Key::End | Key::Char('G') => page.step(isize::MAX),
                Key::Enter | Key::Escape | Key::Backspace | Key::Left | Key::Char('?') => self.page = None,
                Key::Char(_) | Key::Right | Key::Tab | Key::BackTab | Key::Interrupt | Key::Suspend => {}
            }
            return Wish::Nothing;
        }
        match key {
            Key::Up | Key::Char('k') => self.list.step(-1),
            Key::Down | Key::Char('j') => self.list.step(1),
            Key::PageUp => self.list.pages(-1),
            Key::PageDown | Key::Char(' ') => self.list.pages(1),
            Key::Home | Key::Char('g') => self.list.go_to_first(),
            Key::End | Key::Char('G') => self.list.go_to_last(),
            Key::Tab | Key::Right => return self.choose_beside(1),
            Key::BackTab | Key::Left => return self.choose_beside(Tab::ALL.len() - 1),
            Key::Enter => self.look(),
            Key::Char('/') => self.types_filter = true,
            Key::Char('s') => {
                self.largest_first = !self.largest_first;
                self.rearrange();
            }
            Key::Char('r') => return Wish::Ask,
            Key::Char('?' | 'h') => self.page = Some(help()),
            Key::Escape => {
                self.filter.clear();
                self.rearrange();
            }
            Key::Char(digit) => {
                let place = digit.to_digit(10).and_then(|digit| digit.checked_sub(1));
                if let Some(tab) = place.and_then(|place| Tab::ALL.get(place as usize)) {
                    return self.choose(*tab);
                }
            }
            Key::Backspace | Key::Interrupt | Key::Suspend => {}
        }
        Wish::Nothing
    }

    /// A key while the filter is written.
    fn typed(&mut self, key: Key) -> Wish {
        match key {
            Key::Char(letter) if self.filter.chars().count() < FILTER => {
                self.filter.extend(letter.to_lowercase());
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Escape => {
                self.filter.clear();
                self.types_filter = false;
            }
            Key::Enter | Key::Tab => self.types_filter = false,
            Key::Up => self.list.step(-1),
            Key::Down => self.list.step(1),
            Key::Char(_)
            | Key::Left
            | Key::Right
            | Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::BackTab
            | Key::Interrupt
            | Key::Suspend => {}
        }
        self.rearrange();
        Wish::Nothing
    }

    fn rearrange(&mut self) {
        let (list, order) = self.list_and_order();
        list.rearrange(order);
    }

    fn choose_beside(&mut self, by: usize) -> Wish {
        let place = Tab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        self.choose(Tab::ALL[(place + by) % Tab::ALL.len()])
    }

    fn choose(&mut self, tab: Tab) -> Wish {
        if tab == self.tab {
            return Wish::Nothing;
        }
        self.tab = tab;
        (self.list, self.more) = (List::default(), false);
        self.used.clear();
        Wish::Ask
    }

    /// Opens the selected entry.
    fn look(&mut self) {
        let page = self.list.selected().map(|entry| Page {
            title: entry.title(),
            lines: lines(&entry.value()),
            key: Some(entry.key()),
            ..Page::default()
        });
        self.page = page.or(self.page.take());
    }

    /// Shows the new state of the entry that is open.
    fn look_again(&mut self) {
        let Some(page) = &mut self.page else { return };
        let Some(key) = &page.key else { return };
        match self.list.find(key) {
            Some(entry) => {
                page.title = entry.title();
                page.lines = lines(&entry.value());
                page.step(0);
            }
            // Decisions leave the list when there are newer ones.
            None if !page.title.ends_with(GONE) => page.title += GONE,
            None => {}
        }
    }
}

const GONE: &str = " (not in the list any more)";

/// The key of a link among those that are measured.
pub(super) fn link_key(link: &v1::Interface) -> String {
    link.interface.as_ref().map_or_else(String::new, |interface| interface.index.to_string())
}

/// How many messages each protocol received or sent.
fn by_protocol(families: &[v1::MetricFamily], direction: &str) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    let wanted = |family: &&v1::MetricFamily| family.name.ends_with(direction);
    for sample in families.iter().filter(wanted).flat_map(|family| &family.samples) {
        let protocol = sample.labels.iter().find(|label| label.name == "protocol");
        let (Some(protocol), Some(Value::Count(count))) = (protocol, &sample.value) else { continue };
        match sums.iter_mut().find(|(name, _)| *name == protocol.value) {
            Some((_, sum)) => *sum = sum.saturating_add(*count),
            None => sums.push((protocol.value.clone(), *count)),
        }
    }
    sums
}

fn help() -> Page {
    let lines = [
        "Keys",
        "",
        "1 to 6, Tab, left, right   another list",
        "up, down, k, j             select an entry",
        "PgUp, PgDn, Space          a screen up or down",
        "Home, End, g, G            the first or the last entry",
        "Enter                      look into the selected entry: all that the daemon says of it",
        "/                          write a filter: only entries that have all of its words",
        "Esc                        remove the filter; leave a page",
        "s                          the largest first, or in the order of the daemon",
        "r                          ask the daemon now",
        "?, h                       this page",
        "q, Ctrl-C                  end",
        "Ctrl-Z                     stop; `fg` continues",
        "",
        "Columns",
        "",
        "reserved      what admission control holds of the capacity of the link",
        "used          what has left by the link since the last answer, reserved or not; of a reservation or",
        "              passage what its own packets take, where the kernel counts them",
        "received/s    messages of a protocol; sent/s likewise",
    ];
    Page {
        title: "help".to_owned(),
        lines: lines.into_iter().map(str::to_owned).collect(),
        ..Page::default()
    }
}
