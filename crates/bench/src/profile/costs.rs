//! The instructions of functions, as callgrind writes them, and who calls whom.

use std::collections::HashMap;

use anyhow::{Context, Result};

use super::routine::Routine;

/// Rounds in which the cost of library functions goes to their callers; deeper chains are rare, and their rest is shown as
/// that of no routine.
const ROUNDS: usize = 64;

/// The cost of all functions of some runs.
#[derive(Debug, Default)]
pub(super) struct Costs {
    names: HashMap<String, usize>,
    functions: Vec<Function>,
}

#[derive(Debug, Default)]
struct Function {
    name: String,
    /// Its own instructions.
    own: u64,
    /// Of them, what belongs to a routine by the file it comes from, although the compiler has put it here.
    inlined: Vec<(Routine, u64)>,
    /// Instructions of it and of what it calls, for each caller.
    callers: HashMap<usize, u64>,
}

impl Costs {
    /// Adds a file of callgrind, which was written without compression of names.
    pub(super) fn read(&mut self, text: &str) -> Result<()> {
        let (mut function, mut callee, mut is_call) = (None, None, false);
        let mut inlined = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                (function, inlined) = (Some(self.number(name)), None);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = Some(self.number(name));
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if let Some(file) = line.strip_prefix("fi=").or_else(|| line.strip_prefix("fe=")) {
                inlined = module(file).and_then(|module| Routine::of(&module));
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
                let (Some(cost), Some(at)) = (cost, function) else { continue };
                if is_call {
                    is_call = false;
                    let callee = callee.context("a call without a function")?;
                    if let Some(callee) = self.functions.get_mut(callee) {
                        *callee.callers.entry(at).or_default() += cost;
                    }
                } else if let Some(function) = self.functions.get_mut(at) {
                    function.own += cost;
                    if let Some(routine) = inlined {
                        function.inlined.push((routine, cost));
                    }
                }
            }
        }
        Ok(())
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.functions.len();
        self.names.insert(name.to_owned(), number);
        self.functions.push(Function { name: name.to_owned(), ..Function::default() });
        number
    }

    /// Returns the functions with the most instructions of their own.
    pub(super) fn functions(&self, most: usize) -> Vec<(&str, f64)> {
        let mut all: Vec<_> = self.functions.iter().map(|one| (&*one.name, one.own as f64)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(most);
        all
    }

    /// Returns the instructions of each routine, in the order of [`Routine::ALL`].
    pub(super) fn routines(&self) -> [f64; Routine::ALL.len()] {
        let mut sums = [0.0; Routine::ALL.len()];
        let mut add = |routine: Routine, cost: f64| {
            if let Some(sum) =
                Routine::ALL.iter().position(|one| *one == routine).and_then(|at| sums.get_mut(at))
            {
                *sum += cost;
            }
        };
        let routines: Vec<_> = self.functions.iter().map(|one| Routine::of(&one.name)).collect();
        let mut waiting = vec![0.0; self.functions.len()];
        for ((function, routine), waiting) in self.functions.iter().zip(&routines).zip(&mut waiting) {
            let mut rest = function.own;
            for (routine, cost) in &function.inlined {
                add(*routine, *cost as f64);
                rest -= cost;
            }
            match routine {
                Some(routine) => add(*routine, rest as f64),
                None => *waiting = rest as f64,
            }
        }
        for _ in 0..ROUNDS {
            let mut next = vec![0.0; self.functions.len()];
            for (function, cost) in self.functions.iter().zip(&waiting).filter(|(_, cost)| **cost > 0.0) {
                let all: u64 = function.callers.values().sum();
                if all == 0 {
                    add(Routine::Other, *cost);
                }
                for (caller, share) in function.callers.iter().filter(|_| all > 0) {
                    let cost = cost * *share as f64 / all as f64;
                    match routines.get(*caller).copied().flatten() {
                        Some(routine) => add(routine, cost),
                        None => {
                            if let Some(next) = next.get_mut(*caller) {
                                *next += cost;
                            }
                        }
                    }
                }
            }
            waiting = next;
        }
        add(Routine::Other, waiting.iter().sum());
        sums
    }
}

/// Returns the module of a source file of ours, as it stands in names of functions.
fn module(file: &str) -> Option<String> {
    let (_, path) = file.rsplit_once("crates/")?;
    let (name, path) = path.split_once("/src/")?;
    let path = path.strip_suffix(".rs")?.trim_end_matches("/mod");
    Some(format!("signalbox_{name}::{}::", path.replace('/', "::")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
version: 1
events: Ir
fl=/home/a/crates/rsvp/src/engine/path.rs
fn=signalbox_rsvp::engine::path::Rsvp::path
10 100
fi=/home/a/crates/core/src/index.rs
20 30
fe=/home/a/crates/rsvp/src/engine/path.rs
11 5
cfn=core::slice::sort
calls=2 0
12 40
cfn=signalbox_rsvp::wire::message::parse
calls=1 0
13 60

fl=???
fn=core::slice::sort
0 50

fn=signalbox_rsvp::wire::message::parse
0 50
cfn=core::slice::sort
calls=1 0
0 10
";

    fn cost(costs: &Costs, routine: Routine) -> f64 {
        let at = Routine::ALL.iter().position(|one| *one == routine).unwrap();
        costs.routines()[at]
    }

    #[test]
    fn a_library_function_counts_for_its_callers_and_inlined_code_for_its_module() {
        let mut costs = Costs::default();
        costs.read(FILE).unwrap();
        // Four fifths of the sorting are the machine's.
        assert!((cost(&costs, Routine::Machine) - 145.0).abs() < 0.01, "{costs:?}");
        assert!((cost(&costs, Routine::Parse) - 60.0).abs() < 0.01);
        assert!((cost(&costs, Routine::Find) - 30.0).abs() < 0.01);
        assert!((costs.routines().iter().sum::<f64>() - 235.0).abs() < 0.01, "nothing is lost");
        assert_eq!(costs.functions(1), [("signalbox_rsvp::engine::path::Rsvp::path", 135.0)]);
    }
}
