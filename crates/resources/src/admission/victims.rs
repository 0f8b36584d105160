//! Selection of the reservations to preempt: the weakest first, as few as possible, and always the same ones for the
//! same state.

use core::cmp::Reverse;
use core::ops::RangeInclusive;
use std::collections::BTreeSet;

use signalbox_core::traffic::ServiceClass;
use signalbox_core::{Key, Slab, Time, invariant};

use super::group::Group;
use super::link::{Entry, Freed, Link, Rank};
use crate::refusal::LinkWhy;
use crate::request::During;

/// The reservations that may be preempted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Only reservations with a defending priority below this one.
    pub(super) setup: u16,
    /// This reservation is not preempted.
    pub(super) spare: Option<Key>,
    /// The largest number of reservations to preempt.
    pub(super) most: usize,
}

/// The reservations to preempt so that `entry` fits after `freed` is freed. `None`: those within the bounds are not enough.
pub(super) fn choose(
    link: &Link,
    groups: &Slab<Group>,
    entry: &Entry,
    freed: Freed,
    bounds: Bounds,
    now: Time,
) -> Option<Vec<Key>> {
    let Bounds { setup, spare, most } = bounds;
    let mut freed = freed;
    // One that counts at other times only would free nothing.
    let useful = |key: Key| groups.get(key).is_some_and(|group| meet(group.parameters.during, entry.during));
    let mut chosen = BTreeSet::new();
    let mut order = Vec::new();
    chosen.extend(spare);
    while let Err(why) = link.check(entry, &freed, now) {
        let (only, missing) = match why {
            LinkWhy::Service { service, used, asked, limit } => {
                (Some(service), used.saturating_add(asked).saturating_sub(limit))
            }
            LinkWhy::Share { used, asked, limit } => (None, used.saturating_add(asked).saturating_sub(limit)),
            LinkWhy::Buffer { .. } => (None, u64::MAX),
            LinkWhy::Count { .. } => (None, 0),
            _ => return None,
        };
        if order.len() >= most {
            return None;
        }
        let free = |rank: &&Rank| !chosen.contains(&rank.group) && useful(rank.group);
        let rank = next(link, only, missing, setup, &free)?;
        chosen.insert(rank.group);
        freed.add(
            rank.group,
            &invariant!(groups.get(rank.group), "a rank is of a reservation")?.entry(),
            entry.service,
        );
        order.push(rank);
    }
    // A victim that was chosen early may not be needed any more: the strongest are removed first.
    order.sort_unstable_by_key(|rank| Reverse(*rank));
    order.retain(|rank| {
        let Some(group) = invariant!(groups.get(rank.group), "a chosen rank is of a reservation") else {
            return false;
        };
        let mut without = freed.clone();
        without.subtract(rank.group, &group.entry(), entry.service);
        let needed = link.check(entry, &without, now).is_err();
        if !needed {
            freed = without;
        }
        needed
    });
    Some(order.into_iter().rev().map(|rank| rank.group).collect())
}

/// Whether two reservations count at one moment.
fn meet(a: Option<During>, b: Option<During>) -> bool {
    a.zip(b).is_none_or(|(a, b)| a.meets(&b))
}

/// The next victim at the weakest level: the smallest that is sufficient alone, else the largest; of equals the
/// youngest.
fn next(
    link: &Link,
    only: Option<ServiceClass>,
    missing: u64,
    setup: u16,
    free: &dyn Fn(&&Rank) -> bool,
) -> Option<Rank> {
    let services = || {
        let wanted =
            link.services.iter().filter(move |(service, _)| only.is_none_or(|only| only == **service));
        wanted.map(|(_, used)| &used.ranks)
    };
    let level = services().filter_map(|ranks| ranks.iter().find(free)).map(|rank| rank.defending).min()?;
    if level >= setup {
        return None;
    }
    let enough =
        services().filter_map(|ranks| ranks.range(between(level, missing, u64::MAX)).find(free)).min();
    if let Some(rank) = enough {
        return Some(*rank);
    }
    let largest = services()
        .filter_map(|ranks| ranks.range(between(level, 0, u64::MAX)).rev().find(free))
        .max_by_key(|rank| rank.rate)?
        .rate;
    services().filter_map(|ranks| ranks.range(between(level, largest, largest)).find(free)).min().copied()
}

/// All ranks of one level with rates in this range.
fn between(defending: u16, from: u64, to: u64) -> RangeInclusive<Rank> {
    let lowest = Rank { defending, rate: from, age: Reverse(u64::MAX), group: Key::default() };
    let highest = Rank { defending, rate: to, age: Reverse(0), group: Key::from_u64(u64::MAX) };
    lowest..=highest
}
