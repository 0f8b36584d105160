//! The cost of one message against full tables, in instructions.
//!
//! A router has few sessions, then many. One more session lives its whole life there, and packets of strangers arrive.
//! An input that costs more with many sessions walks over what a peer can make long.

#![expect(clippy::print_stdout, reason = "the counts are for the reader of the test's output")]

pub(crate) mod meter;
mod others;
mod qos;
mod rsvp;

use meter::{Costs, measured};

/// The sessions of the two runs.
const FEW: u16 = 80;
const MANY: u16 = 2560;
/// The many of work that is done in parts.
const PARTS: u16 = 1000;

/// The numbers of the lives that are counted.
const LIVES: core::ops::RangeInclusive<u16> = 1..=3;

/// Deeper trees and longer chains of a hash table may cost this part more, and so many instructions.
const GROWTH: u64 = 5;
const SLACK: u64 = 2_000;

/// The largest cost of an input that causes work at many sessions. In the profile of tests, these are about three
/// milliseconds.
const TURN: u64 = 10_000_000;

/// Runs the test `name` with few and with many sessions. Fails if an input costs more with many.
fn compare(name: &str) {
    let (Some(few), Some(many)) = (measured(name, FEW), measured(name, MANY)) else { return skipped() };
    print(name, MANY, &few, &many);
    let grown: Vec<_> = many.iter().filter(|(kind, most)| grows(&few, kind, **most)).collect();
    assert!(grown.is_empty(), "the cost of these inputs grows with the number of sessions: {grown:?}");
}

/// Runs the test `name` with few and with many sessions. Fails if an input costs more than a turn may last.
fn bounded(name: &str) {
    let (Some(few), Some(many)) = (measured(name, FEW), measured(name, PARTS)) else { return skipped() };
    print(name, PARTS, &few, &many);
    let long: Vec<_> = many.iter().filter(|(_, most)| **most > TURN).collect();
    assert!(long.is_empty(), "these inputs cost more than {TURN} instructions: {long:?}");
}

fn skipped() {
    println!("skipped: valgrind is not installed");
}

fn print(name: &str, sessions: u16, few: &Costs, many: &Costs) {
    println!("{:48} {:>12} {:>12}   {name}", "instructions, sessions:", FEW, sessions);
    for (kind, most) in many {
        println!("{kind:48} {:>12} {most:>12}", few.get(kind).map_or("-".to_owned(), u64::to_string));
    }
}

fn grows(few: &Costs, kind: &str, most: u64) -> bool {
    // A rare timer may occur in one of the runs only: then the slack is its limit.
    let few = few.get(kind).copied().unwrap_or(0);
    most > few + few / GROWTH + SLACK
}
