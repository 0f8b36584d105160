//! A list with a filter, an order and a selected entry.

use super::entry::{Cell, Entry};
use super::meter::Meter;

/// A list, what of it passes the filter, and where the user is in it.
#[derive(Debug, Default)]
pub(super) struct List {
    entries: Vec<Entry>,
    /// Places in `entries` of those that pass the filter, in the order on the screen.
    shown: Vec<usize>,
    /// The place in `shown` of the selected entry.
    selected: usize,
    /// The place in `shown` of the first one on the screen.
    first: usize,
    /// How many fit on the screen.
    page: usize,
}

/// What decides which entries are shown, and in which order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order<'a> {
    /// Only entries with these words in a column, in lower case.
    pub(super) filter: &'a str,
    pub(super) largest_first: bool,
    pub(super) used: &'a Meter,
}

impl List {
    /// Takes new entries. The selected one stays selected, if it is still there.
    pub(super) fn replace(&mut self, entries: Vec<Entry>, order: Order<'_>) {
        let key = self.selected().map(Entry::key);
        self.entries = entries;
        self.arrange(key.as_deref(), order);
    }

    /// Shows the same entries by another filter or in another order.
    pub(super) fn rearrange(&mut self, order: Order<'_>) {
        let key = self.selected().map(Entry::key);
        self.arrange(key.as_deref(), order);
    }

    fn arrange(&mut self, key: Option<&str>, Order { filter, largest_first, used }: Order<'_>) {
        let words: Vec<&str> = filter.split_whitespace().collect();
        let passes = |entry: &Entry| words.is_empty() || has(&entry.cells(used), &words);
        let all = self.entries.iter().enumerate();
        self.shown = all.filter(|(_, entry)| passes(entry)).map(|(place, _)| place).collect();
        if largest_first {
            let size = |place: &usize| self.entries.get(*place).map(|entry| entry.size(used));
            self.shown.sort_by_cached_key(|place| std::cmp::Reverse(size(place)));
        }
        let same = |place: &usize| self.entries.get(*place).map(Entry::key).as_deref() == key;
        if let Some(found) = key.and_then(|_| self.shown.iter().position(same)) {
            self.selected = found;
        }
        self.stay_inside();
    }

    /// Moves by so many entries; negative: towards the first.
    pub(super) fn step(&mut self, by: isize) {
        self.selected = self.selected.saturating_add_signed(by);
        self.stay_inside();
    }

    /// Moves by so many screens.
    pub(super) fn pages(&mut self, by: isize) {
        let page = isize::try_from(self.page.max(2) - 1).unwrap_or(1);
        self.step(by.saturating_mul(page));
    }

    pub(super) fn go_to_first(&mut self) {
        self.selected = 0;
        self.stay_inside();
    }

    pub(super) fn go_to_last(&mut self) {
        self.selected = usize::MAX;
        self.stay_inside();
    }

    /// So many entries fit on the screen.
    pub(super) fn fit(&mut self, page: usize) {
        self.page = page;
        self.stay_inside();
    }

    fn stay_inside(&mut self) {
        self.selected = self.selected.min(self.shown.len().saturating_sub(1));
        let last_first = self.shown.len().saturating_sub(self.page);
        let lowest = (self.selected + 1).saturating_sub(self.page);
        self.first = self.first.min(last_first).clamp(lowest.min(self.selected), self.selected);
    }

    pub(super) fn selected(&self) -> Option<&Entry> {
        self.shown.get(self.selected).and_then(|place| self.entries.get(*place))
    }

    /// The entry with this key.
    pub(super) fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key() == key)
    }

    /// The entries on the screen, and whether each is selected.
    pub(super) fn visible(&self) -> impl Iterator<Item = (&Entry, bool)> {
        let places = self.shown.iter().enumerate().skip(self.first).take(self.page);
        places.filter_map(|(number, place)| Some((self.entries.get(*place)?, number == self.selected)))
    }

    /// How many entries there are, how many pass the filter, and the place of the selected one among these, from 1.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.entries.len(), self.shown.len(), (self.selected + 1).min(self.shown.len()))
    }
}

/// Whether each word is part of a column.
fn has(cells: &[Cell], words: &[&str]) -> bool {
    let texts: Vec<String> = cells.iter().map(|cell| cell.text.to_lowercase()).collect();
    words.iter().all(|word| texts.iter().any(|text| text.contains(word)))
}
