//! Turns of the event loop that take long: what they did, for the log.

use std::fmt::{self, Write as _};
use std::time::Duration;

use signalbox_core::{Entry, Time};

/// A turn that takes longer delays messages that wait, and is logged.
pub(super) const LONG: Duration = Duration::from_millis(100);
/// Shortest time between two lines of the log.
const PERIOD: Duration = Duration::from_secs(1);
/// Entries whose packets are counted one by one.
const ENTRIES: usize = 8;

/// A part of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Packets,
    Streams,
    Changes,
    Requests,
    Timers,
    Repair,
    Sweep,
    Report,
    Reservations,
    Pinholes,
    Sending,
    Watchers,
}

impl Part {
    const ALL: [(Self, &'static str); 12] = [
        (Self::Packets, "packets"),
        (Self::Streams, "events of streams"),
        (Self::Changes, "changes of interfaces and routes"),
        (Self::Requests, "requests of clients"),
        (Self::Timers, "timers"),
        (Self::Repair, "parts of the kernel's state that were missing"),
        (Self::Sweep, "reservations compared with routes"),
        (Self::Report, "report of counters"),
        (Self::Reservations, "reservations in the kernel"),
        (Self::Pinholes, "pinholes in the kernel"),
        (Self::Sending, "sending"),
        (Self::Watchers, "events for watching clients"),
    ];
}

/// What the present turn has done so far.
#[derive(Debug)]
pub(super) struct Turn {
    began: Time,
    /// When the part began that lasts.
    mark: Time,
    parts: [(u32, Duration); Part::ALL.len()],
    packets: Vec<(Entry, u32)>,
    /// Long turns that were not logged.
    silent: u64,
    /// When the next line is allowed.
    next: Time,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            began: Time::ZERO,
            mark: Time::ZERO,
            parts: Default::default(),
            packets: Vec::with_capacity(ENTRIES),
            silent: 0,
            next: Time::ZERO,
        }
    }
}

impl Turn {
    /// A turn begins.
    pub(super) fn begin(&mut self, now: Time) {
        self.began = now;
        self.mark = now;
        self.parts = Default::default();
        self.packets.clear();
    }

    /// A packet of this entry was processed.
    pub(super) fn packet(&mut self, entry: Entry) {
        let room = self.packets.len() < ENTRIES;
        match self.packets.iter_mut().find(|(of, _)| *of == entry) {
            Some((_, count)) => *count += 1,
            None if room => self.packets.push((entry, 1)),
            None => {}
        }
    }

    /// A part ends that processed so many inputs.
    pub(super) fn done(&mut self, part: Part, count: usize, now: Time) {
        let (total, took) = &mut self.parts[part as usize];
        *total = total.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        *took += now.since(self.mark);
        self.mark = now;
    }

    /// The turn ends. Returns how long it took, and the line of the log if there is one to write.
    pub(super) fn end(&mut self, now: Time) -> (Duration, Option<String>) {
        let took = now.since(self.began);
        if took <= LONG {
            return (took, None);
        }
        if now < self.next {
            self.silent += 1;
            return (took, None);
        }
        self.next = now + PERIOD;
        let line = self.to_string();
        self.silent = 0;
        (took, Some(line))
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut longest: Vec<_> = Part::ALL.iter().zip(self.parts).collect();
        longest.sort_by_key(|(_, (_, took))| std::cmp::Reverse(*took));
        let mut separator = "";
        for ((part, name), (count, took)) in longest.into_iter().take(3) {
            if took.is_zero() {
                continue;
            }
            write!(f, "{separator}{name}: {count} in {} ms", took.as_millis())?;
            separator = "; ";
            if *part == Part::Packets {
                for (entry, count) in &self.packets {
                    write!(f, ", {count} of {entry:?}")?;
                }
            }
        }
        if self.silent > 0 {
            write!(f, "; {} more long turns since the last line", self.silent)?;
        }
        f.write_char('.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    /// A turn of 60 packets that ends at this time and took so long.
    fn turn(turn: &mut Turn, end: u64, took: u64) -> Option<String> {
        turn.begin(ms(end - took));
        (0..60).for_each(|number| turn.packet(if number < 50 { Entry::Udp(270) } else { Entry::Ip(46) }));
        turn.done(Part::Packets, 60, ms(end - 10));
        turn.done(Part::Timers, 1, ms(end));
        let (measured, line) = turn.end(ms(end));
        assert_eq!(measured, Duration::from_millis(took));
        line
    }

    #[test]
    fn a_long_turn_is_logged_with_what_it_did() {
        let mut turns = Turn::default();
        assert_eq!(turn(&mut turns, 1000, 100), None);
        assert_eq!(
            turn(&mut turns, 2000, 140).unwrap(),
            "packets: 60 in 130 ms, 50 of Udp(270), 10 of Ip(46); timers: 1 in 10 ms."
        );
    }

    #[test]
    fn many_long_turns_are_one_line_a_second() {
        let mut turns = Turn::default();
        let lines: Vec<_> = (10..40).filter_map(|at| turn(&mut turns, at * 200, 150)).collect();
        assert_eq!(lines.len(), 6);
        assert!(lines[1].ends_with("; 4 more long turns since the last line."), "{}", lines[1]);
    }
}
