//! Faults of a run: links that are cut or lose everything, and daemons that crash, each for some time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use signalbox_core::Random;
use signalbox_units::Span;

use super::in_micros;
use crate::plan::Plan;

/// Drawn faults last between these times.
const SHORTEST_MS: u64 = 20;
const LONGEST_MS: u64 = 3_000;

/// What fails.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// A link goes down, and both ends notice it.
    Cut(String),
    /// A link loses each packet, without notice.
    Lose(String),
    /// The daemon of a node ends without notice, and another one starts.
    Crash(String),
}

/// A fault, written `cut:r1-r2@3.2s+500ms`: what fails, when, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    kind: Kind,
    /// Virtual time.
    at: Duration,
    lasts: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, name) = match &self.kind {
            Kind::Cut(link) => ("cut", link),
            Kind::Lose(link) => ("lose", link),
            Kind::Crash(node) => ("crash", node),
        };
        write!(f, "{word}:{name}@{}+{}", Span(self.at), Span(self.lasts))
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no fault; write cut:LINK@TIME+TIME, lose:LINK@TIME+TIME or crash:NODE@TIME+TIME, like cut:r1-r2@3.2s+500ms"
            )
        };
        let (word, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (name, times) = rest.split_once('@').ok_or_else(wrong)?;
        let (at, lasts) = times.split_once('+').ok_or_else(wrong)?;
        let [at, lasts] = [at, lasts].map(|time| time.parse::<Span>().map(|span| span.0));
        let (at, lasts) = (in_micros(at.map_err(|_| wrong())?), in_micros(lasts.map_err(|_| wrong())?));
        let name = name.to_owned();
        let kind = match word {
            "cut" => Kind::Cut(name),
            "lose" => Kind::Lose(name),
            "crash" => Kind::Crash(name),
            _ => return Err(wrong()),
        };
        Ok(Self { kind, at, lasts })
    }
}

/// A change that a fault makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Link { link: usize, cut: bool },
    Loss { link: usize, all: bool },
    Crash(usize),
    Restart(usize),
}

/// Returns what faults do, in the order of time.
///
/// # Errors
/// A fault names a link or a daemon that the scenario does not have.
pub(crate) fn acts(plan: &Plan, faults: &[Fault]) -> Result<Vec<(Duration, Act)>> {
    let mut acts = Vec::new();
    for fault in faults {
        let end = fault.at + fault.lasts;
        let link = |name: &str| plan.link(name).ok_or_else(|| anyhow!("{fault}: there is no link {name}"));
        match &fault.kind {
            Kind::Cut(name) => {
                let link = link(name)?;
                acts.push((fault.at, Act::Link { link, cut: true }));
                acts.push((end, Act::Link { link, cut: false }));
            }
            Kind::Lose(name) => {
                let link = link(name)?;
                acts.push((fault.at, Act::Loss { link, all: true }));
                acts.push((end, Act::Loss { link, all: false }));
            }
            Kind::Crash(name) => {
                let node = plan.node(name).filter(|node| plan.nodes[*node].daemon);
                let Some(node) = node else { bail!("{fault}: {name} is no node with a daemon") };
                acts.push((fault.at, Act::Crash(node)));
                acts.push((end, Act::Restart(node)));
            }
        }
    }
    acts.sort_by_key(|(at, _)| *at);
    Ok(acts)
}

/// Draws faults from a seed, within a virtual time.
pub(crate) fn draw(plan: &Plan, seed: u64, count: usize, within: Duration) -> Vec<Fault> {
    let mut random = Random::from_number(seed);
    let links: Vec<&String> = plan.links.iter().map(|link| &link.name).collect();
    let nodes: Vec<&String> = plan.nodes.iter().filter(|node| node.daemon).map(|node| &node.name).collect();
    let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut one = |_| {
        let mut choose = |from: &[&String]| {
            let at = usize::try_from(random.range(0..(from.len() as u64).max(1))).unwrap_or(0);
            from.get(at).map(|name| (*name).clone())
        };
        let (link, node) = (choose(&links), choose(&nodes));
        let kind = match (random.range(0..3), link, node) {
            (0, Some(link), _) => Kind::Cut(link),
            (1, Some(link), _) => Kind::Lose(link),
            (_, _, Some(node)) => Kind::Crash(node),
            _ => return None,
        };
        let at = Duration::from_millis(random.range(0..within));
        let lasts = Duration::from_millis(random.range(SHORTEST_MS..LONGEST_MS));
        Some(Fault { kind, at, lasts })
    };
    let mut faults: Vec<Fault> = (0..count).filter_map(&mut one).collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_back_as_it_is_written() {
        for text in ["cut:r1-r2@3200ms+500ms", "lose:h1-r1@0s+1s", "crash:r1@90s+20ms"] {
            assert_eq!(text.parse::<Fault>().expect("sound").to_string(), text);
        }
        for text in ["cut:r1-r2", "cut:r1-r2@3s", "halt:r1@1s+1s", "cut:r1-r2@3+1s"] {
            assert!(text.parse::<Fault>().expect_err(text).contains("like cut:"), "{text}");
        }
    }

    #[test]
    fn faults_follow_from_the_seed_and_name_what_is_there() {
        let plan = crate::plan::line();
        let draw = |seed| draw(&plan, seed, 20, Duration::from_secs(10));
        assert_eq!((draw(1).len(), draw(1) == draw(1), draw(1) == draw(2)), (20, true, false));
        assert_eq!(acts(&plan, &draw(1)).expect("all names exist").len(), 40);
        let unknown: Fault = "cut:no-where@1s+1s".parse().expect("sound");
        assert!(acts(&plan, &[unknown]).is_err());
    }
}
