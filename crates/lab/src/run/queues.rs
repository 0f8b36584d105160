//! The queues of a link as `tc` shows them, which is what the kernel keeps for reservations.
//!
//! docs/enforcement.md describes the classes.

use std::fmt;

use anyhow::{Context, Result, anyhow};

use crate::language::expectation::Queues;
use crate::plan::Plan;
use crate::run::evidence::Verdict;
use crate::run::kernel;

/// The number of the daemon's queueing discipline.
const MAJOR: &str = "5342:";

/// Classes that several reservations share.
const SHARED: [u16; 2] = [0x10, 0x11];

/// Classes of code points begin here, and own queues behind them.
const DSCP: u16 = 0x40;

const OWN: u16 = 0x100;

/// A class that is not in use has 1 kbit/s.
const IDLE: u64 = 1000;

/// What the queues at one end of a link hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    /// Queues of single reservations.
    own: usize,
    /// Code points that have a share.
    code_points: Vec<u8>,
    /// Bits a second of all that is reserved.
    reserved: u64,
    /// Packets that went through queues of reservations since the link was opened.
    packets: u64,
}

/// Looks whether all queues are as they should be.
pub(crate) fn look(plan: &Plan, queues: &[Queues]) -> Result<Verdict> {
    let (mut good, mut seen) = (true, Vec::new());
    for wanted in queues {
        let there = at(plan, wanted.node.as_ref(), wanted.towards.as_ref())?;
        let right = there.is(wanted);
        good &= right;
        let wrong = if right { "" } else { " (WRONG)" };
        seen.push(format!("{} to {}: {there}{wrong}", wanted.node.as_ref(), wanted.towards.as_ref()));
    }
    let seen = seen.join("; ");
    Ok(if good { Ok(seen) } else { Err(seen) })
}

fn at(plan: &Plan, node: &str, towards: &str) -> Result<Seen> {
    let index = plan.node(node).ok_or_else(|| anyhow!("no node {node}"))?;
    let namespace = kernel::namespace(&plan.nodes[index].namespace)?;
    let interface = format!("to-{towards}");
    let text = kernel::output(&namespace, "tc", &["-s", "class", "show", "dev", &interface])?;
    read(&text).with_context(|| format!("cannot read what tc prints of {interface} in {node}"))
}

impl Seen {
    fn is(&self, wanted: &Queues) -> bool {
        self.own == wanted.own
            && self.code_points == wanted.code_points
            && self.reserved == wanted.reserved.map_or(0, |rate| rate.0)
            && self.packets >= wanted.min_packets
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { own, code_points, reserved, packets } = self;
        write!(f, "{own} own queues, code points {code_points:?}, {} kbit/s, ", reserved / 1000)?;
        write!(f, "{packets} packets")
    }
}

/// Reads what `tc -s class show` prints; `None` if a class lacks what it should have.
fn read(text: &str) -> Option<Seen> {
    let mut seen = Seen::default();
    // Whether what follows belongs to a class of reservations that is or was in use.
    let mut counts = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("class") => {
                let minor = words.find_map(|word| word.strip_prefix(MAJOR))?;
                let minor = u16::from_str_radix(minor, 16).ok()?;
                counts = minor >= DSCP || SHARED.contains(&minor);
                let used = rate(words.skip_while(|word| *word != "rate").nth(1)?)?;
                if !counts || used <= IDLE {
                    continue;
                }
                seen.reserved += used;
                if minor >= OWN {
                    seen.own += 1;
                } else if minor >= DSCP {
                    seen.code_points.push(u8::try_from(minor - DSCP).ok()?);
                }
            }
            Some("Sent") if counts => seen.packets += words.nth(2)?.parse::<u64>().ok()?,
            _ => {}
        }
    }
    seen.code_points.sort_unstable();
    Some(seen)
}

/// Whether a line of `tc class show` is of an own queue that no reservation has. A daemon makes these when it has time, so that their
/// number says nothing.
pub(crate) fn is_idle(line: &str) -> bool {
    let Some(class) = line.strip_prefix("class htb ").and_then(|rest| rest.strip_prefix(MAJOR)) else {
        return false;
    };
    let mut words = class.split_whitespace();
    let minor = words.next().and_then(|minor| u16::from_str_radix(minor, 16).ok());
    let used = words.skip_while(|word| *word != "rate").nth(1).and_then(rate);
    minor.is_some_and(|minor| minor >= OWN) && used.is_some_and(|used| used <= IDLE)
}

/// Bits a second, as `tc` writes them.
fn rate(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let factor = match &text[number.len()..] {
        "bit" => 1,
        "Kbit" => 1_000,
        "Mbit" => 1_000_000,
        "Gbit" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: &str = "\
class htb 5342:100 parent 5342:1 prio 1 rate 2500Kbit ceil 10Mbit burst 1600b cburst 1600b
 Sent 4000 bytes 4 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0

class htb 5342:1 root rate 10Mbit ceil 10Mbit burst 1600b cburst 1600b
 Sent 9000 bytes 9 pkt (dropped 0, overlimits 0 requeues 0)
class htb 5342:2 parent 5342:1 leaf 5343: prio 7 rate 4Mbit ceil 10Mbit burst 1600b cburst 1600b
 Sent 5000 bytes 5 pkt (dropped 0, overlimits 0 requeues 0)
class htb 5342:101 parent 5342:1 prio 1 rate 1Kbit ceil 10Mbit burst 1600b cburst 1600b
 Sent 1000 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)
class htb 5342:4a parent 5342:1 prio 2 rate 3Mbit ceil 10Mbit burst 1600b cburst 1600b
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
class htb 5342:11 parent 5342:1 prio 2 rate 1Kbit ceil 10Mbit burst 1600b cburst 1600b
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
";

    #[test]
    fn what_is_reserved_is_read_from_the_classes() {
        let seen = read(CLASSES).expect("as tc writes it");
        assert_eq!(seen, Seen { own: 1, code_points: vec![10], reserved: 5_500_000, packets: 5 });
        assert_eq!(read(""), Some(Seen::default()));
        assert_eq!(read("class htb 5342:100 parent 5342:1 prio 1"), None);
    }

    #[test]
    fn own_queues_without_a_reservation_are_idle() {
        let idle: Vec<&str> = CLASSES.lines().filter(|line| is_idle(line)).collect();
        assert!(matches!(idle[..], [one] if one.starts_with("class htb 5342:101 ")), "{idle:?}");
        assert!(!is_idle("class htb 1:100 root rate 1Kbit"));
    }

    #[test]
    fn rates_have_units() {
        assert_eq!((rate("999999bit"), rate("80Gbit")), (Some(999_999), Some(80_000_000_000)));
        assert_eq!((rate("10"), rate("xMbit")), (None, None));
    }
}
