//! Timers: a hierarchical timing wheel whose links are stored in the records that the timers belong to.
//!
//! Arming and cancelling take a constant number of steps and allocate nothing. A timer moves down a level at
//! most five times before it fires (once for a delay up to a minute at the default tick of 1 ms). Six levels
//! of 256 slots cover 2⁴⁸ ticks, so every deadline has a slot. A wheel takes 12 KiB, a timer the 16 octets of
//! its [`Link`].
//!
//! A timer never fires early: its deadline is rounded up to a tick. Timers fire in the order of their ticks;
//! timers of the same tick fire in the order in which they were armed.

use core::time::Duration;

use crate::slab::Slab;
use crate::time::Time;

/// Timers that an engine handles for one timer input. Who makes sessions chooses when they end, and may let thousands of them end at one
/// moment. The rest stays due, and the driver serves messages in between.
pub const AT_ONCE: u32 = 256;
/// The same for each other input, of which a driver gives hundreds between two timer inputs.
const BESIDE: u32 = 16;

/// Timers that an engine handles for one input. `timer`: it is the timer input.
#[must_use]
pub const fn portion(timer: bool) -> u32 {
    if timer { AT_ONCE } else { BESIDE }
}

const LEVELS: usize = 6;
const SLOTS: usize = 256;
/// Ticks that a [`Link`] can hold.
const LAST_TICK: u64 = (1 << 48) - 1;
/// Index that stands for no record: the end of a list.
const NONE: u32 = u32::MAX;
/// [`Link::slot`] of a timer that is not armed.
const IDLE: u16 = u16::MAX;

/// Position of a timer in the wheel, stored in the record that the timer belongs to. 16 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    prev: u32,
    next: u32,
    tick_low: u32,
    tick_high: u16,
    /// `level * SLOTS + slot`.
    slot: u16,
}

impl Default for Link {
    fn default() -> Self {
        Self { prev: NONE, next: NONE, tick_low: 0, tick_high: 0, slot: IDLE }
    }
}

impl Link {
    /// Whether the timer is armed.
    #[must_use]
    pub const fn is_armed(&self) -> bool {
        self.slot != IDLE
    }

    fn tick(&self) -> u64 {
        u64::from(self.tick_high) << 32 | u64::from(self.tick_low)
    }
}

/// The owner of the records: it gives the link of the record at `index`.
///
/// A record must not be removed while its timer is armed.
pub trait Links {
    /// The link of record `index`, which the wheel got from [`Wheel::arm`].
    fn link(&mut self, index: u32) -> &mut Link;
}

/// A record with one timer. A [`Slab`] of such records implements [`Links`].
pub trait Timed {
    /// The record's link.
    fn link(&mut self) -> &mut Link;
}

impl<T: Timed> Links for Slab<T> {
    fn link(&mut self, index: u32) -> &mut Link {
        // The trait requires that a record stays while its timer is armed.
        self.get_index_mut(index).expect("an armed timer's record exists").link()
    }
}

/// The timing wheel; the module describes it.
#[derive(Debug, Clone)]
pub struct Wheel {
    /// Length of a tick in microseconds.
    tick_us: u64,
    /// The tick of each armed timer is this one or later.
    now: u64,
    /// No later slot begins before this time, in microseconds. Most calls of [`Wheel::pop_due`] return after
    /// a comparison with it, without a division.
    quiet_until: u64,
    slots: Box<[Slot]>,
    /// Which slots of each level have timers.
    occupied: [[u64; SLOTS / 64]; LEVELS],
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    head: u32,
    tail: u32,
}

const EMPTY: Slot = Slot { head: NONE, tail: NONE };

impl Default for Wheel {
    fn default() -> Self {
        Self::new(Duration::from_millis(1))
    }
}

impl Wheel {
    /// A wheel with ticks of length `tick`, at least 1 µs. A coarse tick saves work, a fine tick reduces
    /// delay.
    #[must_use]
    pub fn new(tick: Duration) -> Self {
        Self {
            tick_us: u64::try_from(tick.as_micros()).unwrap_or(u64::MAX).max(1),
            now: 0,
            quiet_until: 0,
            slots: vec![EMPTY; LEVELS * SLOTS].into_boxed_slice(),
            occupied: [[0; SLOTS / 64]; LEVELS],
            len: 0,
        }
    }

    /// Number of armed timers.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether no timer is armed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Arms the timer of record `index`; an armed timer is armed again. A deadline in the past is due at
    /// once.
    pub fn arm(&mut self, links: &mut impl Links, index: u32, deadline: Time) {
        self.arm_at(links, index, self.tick_of(deadline));
    }

    /// The first tick at or after a deadline.
    fn tick_of(&self, deadline: Time) -> u64 {
        deadline.as_micros().div_ceil(self.tick_us)
    }

    fn arm_at(&mut self, links: &mut impl Links, index: u32, tick: u64) {
        self.cancel(links, index);
        let tick = tick.clamp(self.now, LAST_TICK.max(self.now));
        self.len += 1;
        self.append(links, index, tick);
    }

    /// Makes sure that the timer of record `index` fires by `deadline`. A timer that fires earlier is not
    /// changed. It suits deadlines that often move to a later time: moving costs nothing, and a caller that
    /// is called too early arms the timer again.
    pub fn arm_by(&mut self, links: &mut impl Links, index: u32, deadline: Time) {
        let tick = self.tick_of(deadline);
        let link = links.link(index);
        if !link.is_armed() || link.tick() > tick {
            self.arm_at(links, index, tick);
        }
    }

    /// Disarms the timer of record `index`. Returns whether it was armed.
    pub fn cancel(&mut self, links: &mut impl Links, index: u32) -> bool {
        let link = links.link(index);
        if !link.is_armed() {
            return false;
        }
        let Link { prev, next, slot, .. } = core::mem::take(link);
        let place = usize::from(slot);
        match next {
            NONE => self.slots[place].tail = prev,
            next => links.link(next).prev = prev,
        }
        match prev {
            NONE => self.slots[place].head = next,
            prev => links.link(prev).next = next,
        }
        if self.slots[place].head == NONE {
            self.mark(place, false);
        }
        self.len -= 1;
        true
    }

    /// When a timer of this wheel fires; `None`: it is not armed.
    #[must_use]
    pub fn due(&self, link: &Link) -> Option<Time> {
        link.is_armed().then(|| Time::from_micros(link.tick().saturating_mul(self.tick_us)))
    }

    /// Removes the next timer that is due at `now` from the wheel; `None` if no timer is due.
    #[inline]
    pub fn pop_due(&mut self, links: &mut impl Links, now: Time) -> Option<u32> {
        if now.as_micros() < self.quiet_until { None } else { self.pop(links, now) }
    }

    fn pop(&mut self, links: &mut impl Links, now: Time) -> Option<u32> {
        let target = (now.as_micros() / self.tick_us).min(LAST_TICK);
        loop {
            let head = self.slots[digit(self.now, 0)].head;
            if head != NONE {
                // If `now` is before the last one, timers that were armed as due at the last one must not
                // fire.
                if self.now > target {
                    return None;
                }
                self.cancel(links, head);
                return Some(head);
            }
            match self.next_occupied() {
                Some((level, place, start)) if start <= target => {
                    self.now = start;
                    if level > 0 {
                        self.descend(links, place);
                    }
                }
                next => {
                    self.now = self.now.max(target);
                    self.quiet_until =
                        next.map_or(u64::MAX, |(_, _, start)| start.saturating_mul(self.tick_us));
                    return None;
                }
            }
        }
    }

    /// Lists timers that [`Wheel::pop_due`] returns next, as long as none is armed or cancelled: those of the tick of the last one
    /// that it returned, in order, as many as there is room. Returns their number.
    pub fn list_next(&self, links: &mut impl Links, room: &mut [u32]) -> usize {
        let mut next = self.slots[digit(self.now, 0)].head;
        let mut count = 0;
        for place in room {
            if next == NONE {
                break;
            }
            *place = next;
            count += 1;
            next = links.link(next).next;
        }
        count
    }

    /// When to call [`Wheel::pop_due`] next; `None` if no timer is armed.
    ///
    /// The time is exact for timers within the current 256 ticks. For later ones it may be earlier than the
    /// first deadline, by the span of a slot of a higher level, but never later. After [`Wheel::pop_due`]
    /// returned `None`, it is later than the `now` of that call, so that a driver always makes progress.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.is_empty() {
            return None;
        }
        let start = if self.slots[digit(self.now, 0)].head != NONE {
            self.now
        } else {
            let (_, _, start) = self.next_occupied()?;
            start
        };
        Some(Time::from_micros(start.saturating_mul(self.tick_us)))
    }

    /// The first occupied slot after the current tick: its level, position and first tick.
    fn next_occupied(&self) -> Option<(usize, usize, u64)> {
        if self.is_empty() {
            return None;
        }
        for (level, occupied) in self.occupied.iter().enumerate() {
            // All later slots of a level come before all later slots of the levels above it.
            if let Some(slot) = first_after(occupied, digit(self.now, level)) {
                let shift = 8 * level;
                let block = self.now >> shift >> 8 << 8 | slot as u64;
                return Some((level, level * SLOTS + slot, block << shift));
            }
        }
        None
    }

    /// Moves the timers of a slot, whose first tick is now, to the levels below.
    fn descend(&mut self, links: &mut impl Links, place: usize) {
        let mut index = core::mem::replace(&mut self.slots[place], EMPTY).head;
        self.mark(place, false);
        while index != NONE {
            let link = links.link(index);
            let (tick, next) = (link.tick(), link.next);
            self.append(links, index, tick);
            index = next;
        }
    }

    /// Files a timer by the highest digit in which its tick differs from now. A slot is moved down before
    /// time enters its span. Only then can timers of that span be filed below, so the order is kept.
    fn append(&mut self, links: &mut impl Links, index: u32, tick: u64) {
        let differing = (tick ^ self.now) | 1;
        let level = (63 - differing.leading_zeros() as usize) / 8;
        let place = level * SLOTS + digit(tick, level);
        let start = tick >> (8 * level) << (8 * level);
        self.quiet_until = self.quiet_until.min(start.saturating_mul(self.tick_us));
        let tail = core::mem::replace(&mut self.slots[place].tail, index);
        #[expect(clippy::cast_possible_truncation, reason = "48 bits in two parts; 1536 places")]
        let link = Link {
            prev: tail,
            next: NONE,
            tick_low: tick as u32,
            tick_high: (tick >> 32) as u16,
            slot: place as u16,
        };
        *links.link(index) = link;
        match tail {
            NONE => {
                self.slots[place].head = index;
                self.mark(place, true);
            }
            tail => links.link(tail).next = index,
        }
    }

    fn mark(&mut self, place: usize, occupied: bool) {
        let (level, slot) = (place / SLOTS, place % SLOTS);
        let bit = 1 << (slot % 64);
        if occupied {
            self.occupied[level][slot / 64] |= bit;
        } else {
            self.occupied[level][slot / 64] &= !bit;
        }
    }
}

/// The slot of `tick` on `level`: the octet of the tick with that rank.
const fn digit(tick: u64, level: usize) -> usize {
    tick.to_le_bytes()[level] as usize
}

/// The first set bit behind position `after`.
fn first_after(bits: &[u64; SLOTS / 64], after: usize) -> Option<usize> {
    let from = after + 1;
    let (first, shift) = (from / 64, from % 64);
    (first..bits.len()).find_map(|word| {
        let mask = if word == first { u64::MAX << shift } else { u64::MAX };
        let rest = bits[word] & mask;
        (rest != 0).then(|| word * 64 + rest.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Records(Vec<Link>);

    impl Links for Records {
        fn link(&mut self, index: u32) -> &mut Link {
            &mut self.0[index as usize]
        }
    }

    fn fixture(records: usize) -> (Wheel, Records) {
        (Wheel::default(), Records(vec![Link::default(); records]))
    }

    #[test]
    fn a_link_takes_16_octets() {
        assert_eq!(size_of::<Link>(), 16);
    }

    #[test]
    fn a_timer_never_fires_early_and_only_once() {
        let (mut wheel, mut links) = fixture(1);
        wheel.arm(&mut links, 0, Time::from_micros(1_500));
        assert_eq!(wheel.pop_due(&mut links, Time::from_micros(1_999)), None);
        assert_eq!(wheel.next_deadline(), Some(Time::from_millis(2)));
        assert_eq!(wheel.pop_due(&mut links, Time::from_millis(2)), Some(0));
        assert_eq!(wheel.pop_due(&mut links, Time::from_secs(9)), None);
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn arming_by_a_deadline_moves_a_timer_only_forwards() {
        let (mut wheel, mut links) = fixture(1);
        wheel.arm_by(&mut links, 0, Time::from_secs(5));
        wheel.arm_by(&mut links, 0, Time::from_secs(9));
        assert_eq!(
            wheel.pop_due(&mut links, Time::from_secs(5)),
            Some(0),
            "the later deadline changed nothing"
        );
        wheel.arm_by(&mut links, 0, Time::from_secs(9));
        wheel.arm_by(&mut links, 0, Time::from_secs(7));
        assert_eq!(wheel.pop_due(&mut links, Time::from_secs(6)), None);
        assert_eq!(wheel.pop_due(&mut links, Time::from_secs(7)), Some(0));
        assert!(wheel.is_empty());
    }

    #[test]
    fn a_deadline_in_the_past_is_due_at_once() {
        let (mut wheel, mut links) = fixture(1);
        assert_eq!(wheel.pop_due(&mut links, Time::from_secs(5)), None);
        wheel.arm(&mut links, 0, Time::from_secs(1));
        assert_eq!(wheel.pop_due(&mut links, Time::from_secs(5)), Some(0));
    }

    #[test]
    fn deadlines_of_days_and_of_forever_have_a_place() {
        let (mut wheel, mut links) = fixture(2);
        let days = Time::from_secs(100 * 86_400);
        wheel.arm(&mut links, 0, days);
        wheel.arm(&mut links, 1, Time::from_micros(u64::MAX));
        let mut wakes = 0;
        let fired = loop {
            let at = wheel.next_deadline().unwrap();
            wakes += 1;
            if let Some(index) = wheel.pop_due(&mut links, at) {
                break (index, at);
            }
        };
        assert_eq!((fired, wheel.len()), ((0, days), 1));
        assert!(wakes <= LEVELS, "{wakes}");
    }

    #[test]
    fn timers_of_one_tick_fire_in_the_order_they_were_armed() {
        let (mut wheel, mut links) = fixture(4);
        let at = Time::from_millis(70_000);
        wheel.arm(&mut links, 2, at);
        wheel.arm(&mut links, 0, at);
        // The delay is long enough that the timers above have moved down and these are filed below at once.
        assert_eq!(wheel.pop_due(&mut links, Time::from_millis(69_990)), None);
        wheel.arm(&mut links, 3, at);
        wheel.arm(&mut links, 1, at);
        assert_eq!(wheel.pop_due(&mut links, at), Some(2));
        let mut next = [0; 2];
        assert_eq!((wheel.list_next(&mut links, &mut next), next), (2, [0, 3]));
        let order: Vec<_> = core::iter::from_fn(|| wheel.pop_due(&mut links, at)).collect();
        assert_eq!(order, [0, 3, 1]);
        assert_eq!(wheel.list_next(&mut links, &mut next), 0);
    }

    proptest! {
        /// Compares the wheel with a list that is sorted at each check.
        #[test]
        fn behaves_like_a_sorted_list(
            tick_us in prop_oneof![Just(1u64), Just(1000), Just(7)],
            steps in prop::collection::vec((0u8..8, 0u32..40, 0u32..44, any::<u64>()), 1..300),
        ) {
            let mut wheel = Wheel::new(Duration::from_micros(tick_us));
            let mut links = Records(vec![Link::default(); 40]);
            // (tick, order of arming, record)
            let mut model: Vec<(u64, usize, u32)> = Vec::new();
            let mut now = 0u64;
            for (order, (kind, index, bits, random)) in steps.into_iter().enumerate() {
                let span = random >> (63 - bits);
                match kind {
                    0..4 => {
                        wheel.arm(&mut links, index, Time::from_micros(now + span));
                        model.retain(|m| m.2 != index);
                        model.push(((now + span).div_ceil(tick_us), order, index));
                    }
                    4 => {
                        let had = model.len();
                        model.retain(|m| m.2 != index);
                        prop_assert_eq!(wheel.cancel(&mut links, index), model.len() < had);
                    }
                    _ => {
                        // Half of the time the step goes to the time that the wheel gives, otherwise to a
                        // random one.
                        now = match wheel.next_deadline() {
                            Some(at) if random & 1 == 0 => at.as_micros().max(now),
                            _ => now + span,
                        };
                        model.sort_unstable();
                        let due = model.partition_point(|m| m.0 * tick_us <= now);
                        let expected: Vec<u32> = model.drain(..due).map(|m| m.2).collect();
                        let at = Time::from_micros(now);
                        let mut fired = Vec::new();
                        while let Some(index) = wheel.pop_due(&mut links, at) {
                            fired.push(index);
                            let mut next = [0; 3];
                            let count = wheel.list_next(&mut links, &mut next);
                            let left = expected.get(fired.len()..).unwrap_or_default();
                            prop_assert!(left.starts_with(&next[..count]), "{left:?} {next:?}");
                        }
                        prop_assert_eq!(fired, expected);
                        let first = model.first().map(|m| m.0 * tick_us);
                        let next = wheel.next_deadline().map(Time::as_micros);
                        prop_assert_eq!(first.is_some(), next.is_some());
                        prop_assert!(next.is_none_or(|n| n > now && Some(n) <= first), "{next:?} {first:?}");
                    }
                }
                prop_assert_eq!(wheel.len() as usize, model.len());
            }
        }
    }
}
