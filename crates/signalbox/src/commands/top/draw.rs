//! The screen, from the state.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::entry::{Cell, Column, Tab, Tone, link};
use super::model::{Model, Page, link_key};
use super::text::tenths;
use crate::print::{duration, or_dash, time_of_day};

/// The least screen. A smaller one says so.
const LEAST: (u16, u16) = (30, 8);
/// Between columns.
const GAP: u16 = 2;

/// Where the next line goes, and whether colors are wanted.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    /// The next line.
    y: u16,
    colors: bool,
}

/// Draws the whole screen. `colors`: beside bold and inverse letters.
pub(super) fn draw(model: &mut Model, buffer: &mut Buffer, colors: bool) {
    let area = buffer.area;
    let mut pen = Pen { buffer, area, y: area.y, colors };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        pen.line(&format!("needs {} x {}", LEAST.0, LEAST.1), Style::new());
        return;
    }
    title(model, &mut pen);
    let (message, bad) = model.message().unwrap_or_default();
    let style = pen.style(if bad { Tone::Bad } else { Tone::Good }).add_modifier(Modifier::BOLD);
    pen.line(&message, style);
    if let Some(page) = &mut model.page {
        let right = draw_page(page, &mut pen);
        pen.last_line("Esc back  up, down move  q quit", &right);
        return;
    }
    if model.tab != Tab::Links {
        links(model, &mut pen);
    }
    protocols(model, &mut pen);
    tabs(model, &mut pen);
    list(model, &mut pen);
    end(model, &mut pen);
}

impl Pen<'_> {
    /// Lines that are left, without that of the keys.
    const fn left(&self) -> u16 {
        (self.area.bottom() - 1).saturating_sub(self.y)
    }

    fn style(&self, tone: Tone) -> Style {
        let color = match tone {
            Tone::Plain => return Style::new(),
            Tone::Good => Color::Green,
            Tone::High => Color::Yellow,
            Tone::Bad => Color::Red,
        };
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    /// Writes a text of at most this width; what does not fit is cut, with a mark at its end.
    fn text(&mut self, x: u16, text: &str, width: u16, style: Style) {
        let right = self.area.right().min(x.saturating_add(width));
        if self.y >= self.area.bottom() || x >= right {
            return;
        }
        let width = right - x;
        // A text of a peer can be long. What is behind this cannot be on the screen.
        let most = usize::from(width) + 1;
        let short = text.char_indices().nth(most * 4).map_or(text, |(end, _)| &text[..end]);
        self.buffer.set_stringn(x, self.y, short, width.into(), style);
        if short.chars().nth(width.into()).is_some() {
            self.buffer.set_stringn(right - 1, self.y, "~", 1, style);
        }
    }

    fn line(&mut self, text: &str, style: Style) {
        self.text(self.area.x, text, self.area.width, style);
        self.y += 1;
    }

    /// A line in inverse letters, with a text at each end.
    fn bar(&mut self, left: &str, right: &str) {
        let row = Rect { y: self.y, height: 1, ..self.area };
        let style = Style::new().add_modifier(Modifier::REVERSED);
        self.buffer.set_style(row, style);
        let width = u16::try_from(right.chars().count()).unwrap_or(u16::MAX).min(self.area.width);
        self.text(self.area.x, left, self.area.width - width, style);
        self.text(self.area.right() - width, right, width, style);
        self.y += 1;
    }

    fn last_line(&mut self, left: &str, right: &str) {
        self.y = self.area.bottom() - 1;
        self.bar(left, right);
    }
}

fn title(model: &Model, pen: &mut Pen<'_>) {
    let up = duration(model.now_unix_us.saturating_sub(model.node.start_unix_us));
    let left = format!("signalbox top  {}  {}  up {up}", model.node.name, model.node.version);
    let now = time_of_day(model.now_unix_us);
    let old = if model.is_lost() { "OLD  " } else { "" };
    let every = signalbox_units::Span(model.every);
    pen.bar(&left, &format!("{old}{} UTC, every {every}", now.get(..8).unwrap_or(&now)));
}

/// A table of these columns, with a line that names them. `selected`: the number of a row in inverse letters.
fn table(columns: &[Column], rows: &[Vec<Cell>], selected: Option<usize>, pen: &mut Pen<'_>) {
    let widths = widths(columns, rows, pen.area.width);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut x = pen.area.x;
    for (Column(name, _), width) in columns.iter().zip(&widths) {
        pen.text(x, &name.to_uppercase(), *width, bold);
        x = x.saturating_add(width + GAP);
    }
    pen.y += 1;
    for (number, row) in rows.iter().enumerate() {
        if selected == Some(number) {
            let line = Rect { y: pen.y, height: 1, ..pen.area };
            pen.buffer.set_style(line, Style::new().add_modifier(Modifier::REVERSED));
        }
        let mut x = pen.area.x;
        for (cell, width) in row.iter().zip(&widths) {
            let style = pen.style(cell.tone);
            pen.text(x, &cell.text, *width, style);
            x = x.saturating_add(width + GAP);
        }
        pen.y += 1;
    }
}

/// The widths of the columns that have a place on the screen. Those that may be cut give way first, the last ones are left out then.
fn widths(columns: &[Column], rows: &[Vec<Cell>], screen: u16) -> Vec<u16> {
    let count = |text: &str| u16::try_from(text.chars().take(1000).count()).unwrap_or(1000);
    let natural = columns.iter().enumerate().map(|(number, Column(name, _))| {
        let cells = rows.iter().filter_map(|row| row.get(number)).map(|cell| count(&cell.text));
        cells.max().unwrap_or(0).max(count(name))
    });
    let natural: Vec<u16> = natural.collect();
    let least = natural.iter().zip(columns).map(|(natural, Column(_, least))| match least {
        0 => *natural,
        least => *natural.min(least),
    });
    let mut least: Vec<u16> = least.collect();
    let sum = |widths: &[u16]| widths.iter().map(|width| u32::from(width + GAP)).sum::<u32>();
    let screen = u32::from(screen + GAP);
    while least.len() > 1 && sum(&least) > screen {
        least.pop();
    }
    let mut rest = u16::try_from(screen.saturating_sub(sum(&least))).unwrap_or(0);
    for (width, natural) in least.iter_mut().zip(&natural) {
        let more = natural.saturating_sub(*width).min(rest);
        *width += more;
        rest -= more;
    }
    least
}

/// The first columns of the links of a known capacity, beside another list: the fullest ones, if there is no place for all.
fn links(model: &Model, pen: &mut Pen<'_>) {
    let room = usize::from(pen.left() / 4);
    let mut rows: Vec<_> = model.links.iter().filter(|row| row.capacity_octets_per_s.is_some()).collect();
    if room == 0 || rows.is_empty() {
        return;
    }
    let hidden = rows.len().saturating_sub(room);
    if hidden > 0 {
        let share = |row: &&signalbox_api::v1::Interface| {
            let of = row.capacity_octets_per_s.unwrap_or(0);
            super::text::percent(row.reserved_octets_per_s, of)
        };
        rows.sort_by_cached_key(|row| std::cmp::Reverse(share(row)));
        rows.truncate(room);
    }
    let cells: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let mut cells = link(row, model.links_used.rate(&link_key(row)));
            cells.truncate(5);
            cells
        })
        .collect();
    table(&Tab::Links.columns()[..5], &cells, None, pen);
    if hidden > 0 {
        pen.line(&format!("and {hidden} more: key 1 lists all links"), Style::new());
    }
    pen.y += 1;
}

/// The protocols that run.
fn protocols(model: &Model, pen: &mut Pen<'_>) {
    const COLUMNS: [Column; 5] = [
        Column("protocol", 0),
        Column("sessions", 0),
        Column("peers", 0),
        Column("received/s", 0),
        Column("sent/s", 0),
    ];
    // Below stand the names of the lists, those of the columns, and some entries.
    let room = usize::from(pen.left().saturating_sub(8));
    let all = model.node.protocols.len();
    if room == 0 || all == 0 {
        return;
    }
    let rows = model.protocols().take(room).map(|(name, row, [received, sent])| {
        let name = row.nslp_id.map_or_else(|| name.clone(), |id| format!("{name} (NSLP {id})"));
        vec![
            name.into(),
            row.sessions.to_string().into(),
            or_dash(row.peers).into(),
            or_dash(received.map(tenths)).into(),
            or_dash(sent.map(tenths)).into(),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    table(&COLUMNS, &rows, None, pen);
    if all > rows.len() {
        pen.line(&format!("and {} more", all - rows.len()), Style::new());
    }
    pen.y += 1;
}

fn tabs(model: &Model, pen: &mut Pen<'_>) {
    let mut x = pen.area.x;
    for (number, tab) in Tab::ALL.iter().enumerate() {
        let text = format!(" {} {} ", number + 1, tab.name());
        let style = if *tab == model.tab {
            Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
        } else {
            Style::new()
        };
        let width = u16::try_from(text.chars().count()).unwrap_or(0);
        pen.text(x, &text, width, style);
        x += width;
    }
    pen.y += 1;
}

fn list(model: &mut Model, pen: &mut Pen<'_>) {
    model.list.fit(usize::from(pen.left().saturating_sub(1)));
    let visible: Vec<_> = model.list.visible().collect();
    let selected = visible.iter().position(|(_, selected)| *selected);
    let rows: Vec<_> = visible.iter().map(|(entry, _)| entry.cells(model.used())).collect();
    let none = rows.is_empty();
    table(model.tab.columns(), &rows, selected, pen);
    if none && pen.left() > 0 {
        let text = if model.filter.is_empty() { "none" } else { "none that passes the filter" };
        pen.line(text, Style::new());
    }
}

fn end(model: &Model, pen: &mut Pen<'_>) {
    let (all, shown, at) = model.list.counts();
    let more = if model.more { "+" } else { "" };
    let order = if model.largest_first { ", largest first" } else { "" };
    let right = if model.filter.is_empty() {
        format!("{at} of {all}{more}{order}")
    } else {
        format!("{at} of {shown} of {all}{more}{order}")
    };
    let left = if model.types_filter {
        format!("filter: {}_  Enter keep  Esc remove", model.filter)
    } else if model.filter.is_empty() {
        "q quit  / filter  Enter look  s sort  ? help".to_owned()
    } else {
        format!("filter: {}  Esc remove  q quit  ? help", model.filter)
    };
    pen.last_line(&left, &right);
}

/// Draws a page. Returns which of its lines are on the screen.
fn draw_page(page: &mut Page, pen: &mut Pen<'_>) -> String {
    pen.line(&page.title.clone(), Style::new().add_modifier(Modifier::BOLD));
    let room = usize::from(pen.left());
    page.fit(room);
    for line in page.lines.iter().skip(page.first).take(room) {
        pen.line(line, Style::new());
    }
    let all = page.lines.len();
    format!("{} to {} of {all}", (page.first + 1).min(all), (page.first + room).min(all))
}
