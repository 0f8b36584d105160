//! What daemons show, what queues their kernels have, and which packets pass, compared with what a scenario expects, until
//! a deadline.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::language::NamedCheck;
use crate::language::expectation::Expectation;
use crate::plan::Plan;
use crate::plan::subset::Names;
use crate::protocols;
use crate::run::evidence::Verdict;
use crate::run::simulation::{self, Simulation};
use crate::run::{command, packets, queues, wait};

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Between two looks at what has to hold for a time.
const HOLD_AGAIN: Duration = Duration::from_millis(400);

/// An expectation that was fulfilled and has to stay so.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    pub(crate) expectation: &'a Expectation,
    pub(crate) since: Instant,
    /// The place of its outcome.
    pub(crate) place: usize,
}

/// Looks until each of these has stayed so for its time; they share the waiting. Returns the places of those that did not
/// stay so, with what was seen.
pub(crate) fn keep(mut held: Vec<Held<'_>>, plan: &Plan, running: &[usize]) -> Result<Vec<(usize, String)>> {
    let mut lost = Vec::new();
    while !held.is_empty() {
        let left = |held: &Held<'_>| held.expectation.holds().saturating_sub(held.since.elapsed());
        wait::pass(held.iter().map(left).min().unwrap_or_default().min(HOLD_AGAIN))?;
        let mut on = Vec::new();
        for held in held {
            let time = held.since.elapsed();
            match held.expectation.now(plan, running)? {
                Err(seen) => lost.push((held.place, no_longer(time, &seen))),
                Ok(_) if time < held.expectation.holds() => on.push(held),
                Ok(_) => {}
            }
        }
        held = on;
    }
    Ok(lost)
}

/// Looks whether the checks of what daemons show hold now, and for as long as it has to stay so. Returns the verdicts with the
/// numbers of their checks.
pub(crate) fn observe(
    checks: &[NamedCheck],
    plan: &Plan,
    running: &[usize],
) -> Result<Vec<(usize, Verdict)>> {
    let (mut verdicts, mut held) = (Vec::new(), Vec::new());
    for (number, named) in checks.iter().enumerate() {
        let Some(expectation) = named.check.expectation() else { continue };
        let verdict = expectation.becomes(plan, running)?;
        if verdict.is_ok() && !expectation.holds().is_zero() {
            held.push(Held { expectation, since: Instant::now(), place: verdicts.len() });
        }
        verdicts.push((number, verdict));
    }
    for (place, seen) in keep(held, plan, running)? {
        verdicts[place].1 = Err(seen);
    }
    Ok(verdicts)
}

/// What looking again and again has found. Moments count from the first look.
#[derive(Debug, Default)]
struct Search {
    /// Since when it has been so.
    since: Option<Duration>,
}

impl Search {
    /// Takes what was found at a moment. Returns the verdict, or after what time to look again.
    fn step(
        &mut self,
        expectation: &Expectation,
        at: Duration,
        found: Verdict,
    ) -> ControlFlow<Verdict, Duration> {
        let within = expectation.within.0;
        let after = |at: Duration, seen| format!("after {} ms: {seen}", at.as_millis());
        match found {
            Ok(seen) => {
                let since = *self.since.get_or_insert(at);
                let left = expectation.settles().saturating_sub(at.saturating_sub(since));
                if !left.is_zero() {
                    return ControlFlow::Continue(left.min(HOLD_AGAIN));
                }
                ControlFlow::Break(Ok(if within.is_zero() { seen } else { after(since, seen) }))
            }
            Err(seen) => {
                let seen = match self.since.take() {
                    Some(since) => no_longer(at.saturating_sub(since), &seen),
                    None => seen,
                };
                if at >= within {
                    ControlFlow::Break(Err(after(at, seen)))
                } else {
                    ControlFlow::Continue(LOOK_AGAIN)
                }
            }
        }
    }
}

fn no_longer(held: Duration, seen: &str) -> String {
    format!("it was so, and no longer {} ms later: {seen}", held.as_millis())
}

impl Expectation {
    /// Returns the indexes of the nodes, if the file names them.
    fn named(&self, plan: &Plan) -> Option<Vec<usize>> {
        let all = self.nodes.as_ref()?.as_ref().as_array()?;
        Some(all.iter().filter_map(|name| plan.node(name.as_str()?)).collect())
    }

    /// Looks once.
    fn now(&self, plan: &Plan, running: &[usize]) -> Result<Verdict> {
        match (&self.queues, &self.packets) {
            (Some(queues), _) => queues::look(plan, queues),
            (None, Some(packets)) => packets::look(plan, packets),
            (None, None) => {
                let table = |node: usize, words: &str| command::table(&plan.name, &plan.nodes[node], words);
                self.look(plan, running, table)
            }
        }
    }

    /// Looks until it is so, or until the time is over. `running` are the nodes whose daemon runs.
    pub(crate) fn becomes(&self, plan: &Plan, running: &[usize]) -> Result<Verdict> {
        let begin = Instant::now();
        let mut search = Search::default();
        loop {
            wait::check()?;
            let found = self.now(plan, running)?;
            match search.step(self, begin.elapsed(), found) {
                ControlFlow::Break(verdict) => return Ok(verdict),
                ControlFlow::Continue(again) => wait::pass(again)?,
            }
        }
    }

    /// Returns why the simulator cannot look; `None` if it can.
    pub(crate) fn unsimulated(&self) -> Option<String> {
        if self.queues.is_some() || self.packets.is_some() {
            return Some("queues and packets are those of a kernel".to_owned());
        }
        let words = self.show.as_ref().map_or("", |show| show.as_ref().as_str());
        (!simulation::is_table(words)).then(|| format!("a simulated node shows no {words}"))
    }

    /// Does the same in the simulator, where looking takes no time.
    pub(crate) fn simulated_verdict(&self, run: &mut Simulation<'_>) -> Verdict {
        if let Some(why) = self.unsimulated() {
            return Err(why);
        }
        let verdict = self.simulated_becomes(run)?;
        let (begin, holds) = (run.now(), self.holds());
        while run.now().saturating_sub(begin) < holds {
            run.advance(simulation::LOOK_AGAIN.min(holds));
            let held = run.now().saturating_sub(begin);
            self.simulated_now(run).map_err(|seen| no_longer(held, &seen))?;
        }
        Ok(verdict)
    }

    fn simulated_now(&self, run: &Simulation<'_>) -> Verdict {
        let table = |node: usize, words: &str| run.table(node, words);
        self.look(&run.evidence.plan, &run.running(), table).map_err(|error| error.to_string())?
    }

    fn simulated_becomes(&self, run: &mut Simulation<'_>) -> Verdict {
        let begin = run.now();
        let mut search = Search::default();
        loop {
            let found = self.simulated_now(run);
            match search.step(self, run.now().saturating_sub(begin), found) {
                ControlFlow::Break(verdict) => return verdict,
                ControlFlow::Continue(_) => run.advance(simulation::LOOK_AGAIN),
            }
        }
    }

    /// Looks once. `table` gives the rows that a node shows.
    fn look(
        &self,
        plan: &Plan,
        running: &[usize],
        table: impl Fn(usize, &str) -> Result<Vec<Value>>,
    ) -> Result<Verdict> {
        let words = self.show.as_ref().map_or("", |show| show.as_ref().as_str());
        let first = words.split(' ').next().unwrap_or_default();
        let protocol = protocols::all().find(|protocol| protocol.name() == first);
        let has = |node: &usize| match protocol {
            Some(protocol) => plan.nodes[*node].runs(protocol),
            None => words != "reservations" || plan.nodes[*node].reserves(),
        };
        let named = self.named(plan);
        let min = self.count.or(self.min).unwrap_or(usize::from(self.max.is_none()));
        let max = self.count.or(self.max).unwrap_or(usize::MAX);
        let wanted = toml::Value::Table(self.wanted.clone());
        let have = toml::Value::Table(self.have.clone());
        let names = Names { plan, ends: None };
        let (mut good, mut seen, mut misfit) = (true, Vec::new(), None);
        if let Some(missing) = named.iter().flatten().find(|node| !running.contains(node)) {
            return Ok(Err(format!("the daemon of {} does not run", plan.nodes[*missing].name)));
        }
        for node in running.iter().copied().filter(has) {
            let chosen = named.as_ref().is_none_or(|named| named.contains(&node));
            if !chosen && self.others.is_none() {
                continue;
            }
            let rows = table(node, words)?;
            let elements: Vec<&Value> = match &self.of {
                None => rows.iter().collect(),
                Some(of) => rows.iter().flat_map(|row| row[of].as_array().into_iter().flatten()).collect(),
            };
            let fits = |row: &&&Value| names.fits("", &wanted, Some(row));
            let count = elements.iter().filter(fits).count();
            let mut right = if chosen { (min..=max).contains(&count) } else { Some(count) == self.others };
            if !right && misfit.is_none() {
                misfit = elements.iter().find_map(|row| names.misfit("", &wanted, Some(row)));
            }
            let other = elements.iter().filter(fits).find_map(|row| names.misfit("", &have, Some(row)));
            if other.is_some() {
                right = false;
                misfit = misfit.or(other);
            }
            good &= right;
            let all = if count == elements.len() { String::new() } else { format!(" of {}", elements.len()) };
            seen.push(format!("{} {count}{all}", plan.nodes[node].name));
        }
        let what = self.of.as_deref().unwrap_or("rows");
        let bound = match (min, max) {
            (min, max) if min == max => format!("{min}"),
            (min, usize::MAX) => format!("at least {min}"),
            (min, max) => format!("{min} to {max}"),
        };
        let mut text = format!("{words}, {what} that match: {} ({bound} expected at each)", seen.join(", "));
        if let Some(misfit) = misfit {
            text += &format!("; in another {misfit}");
        }
        Ok(if good && !seen.is_empty() { Ok(text) } else { Err(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives what was found at moments of milliseconds until there is a verdict.
    fn verdict(text: &str, found: &[(u64, bool)]) -> Option<Verdict> {
        let expectation: Expectation = toml::from_str(text).unwrap();
        let mut search = Search::default();
        found.iter().find_map(|(at, so)| {
            let found = if *so { Ok("so".to_owned()) } else { Err("not so".to_owned()) };
            search.step(&expectation, Duration::from_millis(*at), found).break_value()
        })
    }

    #[test]
    fn what_comes_may_go_again_as_long_as_there_is_time() {
        let held = "show = 'gist sessions'\nwithin = '10s'\nholds = '2s'";
        let so = |at: u64| (at, true);
        let not = |at: u64| (at, false);
        assert_eq!(verdict(held, &[so(0), so(1000)]), None);
        assert_eq!(verdict(held, &[so(0), so(2000)]), Some(Ok("after 0 ms: so".to_owned())));
        assert_eq!(
            verdict(held, &[so(0), not(1000), so(3000), so(5000)]),
            Some(Ok("after 3000 ms: so".to_owned()))
        );
        let late = "after 11000 ms: it was so, and no longer 2000 ms later: not so";
        assert_eq!(verdict(held, &[not(0), so(9000), not(11_000)]), Some(Err(late.to_owned())));
        assert_eq!(verdict(held, &[not(0), so(9000), so(11_000)]), Some(Ok("after 9000 ms: so".to_owned())));
        // What is gone counts at once, and the steps after it keep it.
        let gone = "show = 'gist sessions'\ncount = 0\nwithin = '10s'\nholds = '2s'";
        assert_eq!(verdict(gone, &[not(0), so(500)]), Some(Ok("after 500 ms: so".to_owned())));
    }
}
