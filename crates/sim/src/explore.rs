//! Exploration: all runs of a small network with a bounded number of faults, instead of random ones.
//!
//! A [`Model`] gives a network, what its users requested, and what must hold. [`explore`] then makes every choice that a
//! network can make: in which order messages of different senders arrive, which are lost, doubled, overtaken, or delayed
//! beyond a timer, and when a node restarts. All but the first are faults, and [`Bounds`] limits their number. The
//! signals of a TCP connection keep their order, and a lost one breaks the connection. After each run the network is fair again, and
//! [`Model::finally`] judges it.
//!
//! The engines are the real ones, and need not be copied: a run is repeated from its start with the choices made so
//! far, which gives the same state because all randomness follows from the seed. Two states are the same if every node
//! has received the same messages at the same times, and the same messages are on their way: an engine is a function
//! of its inputs. So runs that differ in the order of independent events only are explored once, and no run is left
//! out.

use core::fmt;
use core::time::Duration;
use std::any::Any;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use signalbox_core::Time;
use signalbox_core::node::NodeEngine;

use crate::config::NodeId;
use crate::packet::Packet;
use crate::sim::{Held, HeldId, Kind, Sim};

/// A network to explore, and its promises.
pub trait Model {
    /// The engine of its nodes.
    type Engine: NodeEngine;

    /// The network at the time from which on faults happen. It is the same at each call.
    fn network(&self) -> Sim<Self::Engine>;

    /// For how long faults happen.
    fn duration(&self) -> Duration;

    /// The users of a node register again after its restart.
    fn restarted(&self, sim: &mut Sim<Self::Engine>, node: NodeId);

    /// What does not hold in a state, although it must hold in each one.
    ///
    /// # Errors
    /// The broken promise.
    fn always(&self, sim: &Sim<Self::Engine>) -> Result<(), String>;

    /// Runs the network without faults, and judges it.
    ///
    /// # Errors
    /// The broken promise.
    fn finally(&self, sim: &mut Sim<Self::Engine>) -> Result<(), String>;

    /// The name of a packet in a report.
    fn name(&self, packet: &Packet) -> String {
        format!("protocol {} to {}, {} octets", packet.protocol, packet.dst, packet.payload.len())
    }
}

/// The number of faults in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Lost, doubled, overtaken and delayed messages, and restarts.
    pub faults: u32,
    /// How many of them may be restarts.
    pub restarts: u32,
}

/// The extent of an exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Choices made for the first time.
    pub transitions: u64,
    /// States at which the faults end, each with a fair run after it.
    pub ends: u64,
    /// Most choices of one run.
    pub depth: usize,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, transitions, ends, depth } = self;
        write!(f, "{states} states, {transitions} transitions, {ends} ends, {depth} choices at most")
    }
}

/// A run that breaks a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The promise.
    pub promise: String,
    /// The choices of the run, in words.
    pub run: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.promise)?;
        self.run.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The message at this place is not lost.
    Keep(usize),
    Lose(usize),
    Double(usize),
    Arrive(usize),
    /// Time passes until the next event of a node. What is on its way is delayed.
    Pass(Time),
    Restart(NodeId),
}

/// One run, up to the present choice.
struct Run<'a, M: Model> {
    model: &'a M,
    sim: Sim<M::Engine>,
    end: Time,
    left: Bounds,
    over: bool,
}

impl<'a, M: Model> Run<'a, M> {
    fn new(model: &'a M, bounds: Bounds) -> Self {
        let mut sim = model.network();
        sim.hold();
        let end = sim.now() + model.duration();
        Self { model, sim, end, left: bounds, over: false }
    }

    /// Number of messages that are late if time passes now.
    fn delayed(&self) -> u32 {
        let late = self.sim.messages().iter().filter(|held| !held.late).count();
        u32::try_from(late).unwrap_or(u32::MAX)
    }

    /// The choices in the present state; none at the end of the faults.
    fn choices(&self, choices: &mut Vec<Choice>) {
        choices.clear();
        if self.over {
            return;
        }
        let fresh = self.sim.messages().iter().position(|held| held.fresh);
        if let Some(at) = fresh.filter(|_| self.left.faults > 0) {
            choices.extend([Choice::Keep(at), Choice::Lose(at)]);
            let kind = self.sim.messages().get(at).and_then(Held::kind);
            choices.extend(matches!(kind, Some(Kind::Packet(_))).then_some(Choice::Double(at)));
            return;
        }
        let arrive = self.sim.deliverable().filter(|at| self.left.faults > 0 || !self.sim.overtakes(*at));
        choices.extend(arrive.map(Choice::Arrive));
        if self.delayed() <= self.left.faults {
            choices.push(Choice::Pass(self.sim.next_event(self.end).unwrap_or(self.end)));
        }
        if self.left.faults > 0 && self.left.restarts > 0 {
            let engines = self.sim.nodes().filter(|node| self.sim.engine(*node).is_some());
            choices.extend(engines.map(Choice::Restart));
        }
    }

    fn take(&mut self, choice: Choice) {
        match choice {
            Choice::Keep(at) => self.sim.keep(at),
            Choice::Lose(at) => {
                self.left.faults -= 1;
                self.sim.lose(at);
            }
            Choice::Double(at) => {
                self.left.faults -= 1;
                self.sim.double(at);
            }
            Choice::Arrive(at) => {
                self.left.faults -= u32::from(self.sim.overtakes(at));
                self.sim.arrives(at);
            }
            Choice::Pass(at) => {
                self.left.faults -= self.delayed();
                self.over = self.sim.next_event(self.end).is_none();
                self.sim.passes(at);
            }
            Choice::Restart(node) => {
                self.left.faults -= 1;
                self.left.restarts -= 1;
                self.sim.restarts(node);
                self.model.restarted(&mut self.sim, node);
            }
        }
    }

    /// The identity of the present state.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.sim.hash_state(&mut hasher);
        (self.left.faults, self.left.restarts, self.over).hash(&mut hasher);
        hasher.finish()
    }

    /// The fair run after the faults.
    fn finish(&mut self) -> Result<(), String> {
        self.sim.unhold();
        self.model.finally(&mut self.sim)
    }

    fn words(&self, choice: Choice) -> String {
        let now = self.sim.now();
        let message = |at: usize| {
            let Some(held) = self.sim.messages().get(at) else { return String::new() };
            let name = match held.kind() {
                Some(Kind::Packet(packet)) => self.model.name(packet),
                Some(Kind::Stream(name, octets)) => format!("TCP {name} ({octets})"),
                None => String::new(),
            };
            let HeldId { from, number, copy } = held.id;
            let [late, copy] =
                [(held.late, ", late"), (copy > 0, ", copy")].map(|(is, word)| if is { word } else { "" });
            format!(
                "message {number} of {} to {}{late}{copy}: {name}",
                self.sim.name(from),
                self.sim.name(held.to)
            )
        };
        let what = match choice {
            Choice::Keep(_) => return String::new(),
            Choice::Lose(at) => format!("LOST {}", message(at)),
            Choice::Double(at) => format!("DOUBLED {}", message(at)),
            Choice::Arrive(at) if self.sim.overtakes(at) => format!("OVERTAKEN by {}", message(at)),
            Choice::Arrive(at) => message(at),
            Choice::Pass(at) if self.delayed() > 0 => {
                format!("DELAYED {} messages until {at}", self.delayed())
            }
            Choice::Pass(at) => format!("time {at}"),
            Choice::Restart(node) => format!("RESTART of {}", self.sim.name(node)),
        };
        format!("{now} {what}")
    }
}

/// A choice of the present run, and the number of choices there.
#[derive(Debug, Clone, Copy)]
struct Taken {
    choice: usize,
    of: usize,
}

/// Explores all runs of a model within the bounds.
///
/// # Errors
/// A run that breaks a promise. The search goes depth first, so it need not be the shortest one.
pub fn explore<M: Model>(model: &M, bounds: Bounds) -> Result<Explored, Broken> {
    let mut explored = Explored::default();
    let mut visited = HashSet::new();
    let mut path: Vec<Taken> = Vec::new();
    loop {
        let explored_run =
            catch_unwind(AssertUnwindSafe(|| extend(model, bounds, &mut path, &mut visited, &mut explored)));
        if let Err(promise) = explored_run.unwrap_or_else(|panic| Err(panic_text(&*panic))) {
            return Err(Broken { promise, run: replay(model, bounds, &path) });
        }
        explored.depth = explored.depth.max(path.len());
        // The next run differs in the last choice that has another one.
        while path.pop_if(|last| last.choice + 1 >= last.of).is_some() {}
        let Some(last) = path.last_mut() else { return Ok(explored) };
        last.choice += 1;
        explored.transitions += 1;
    }
}

/// Repeats the run of `path`, and extends it by first choices until a state that was visited before, or the end.
fn extend<M: Model>(
    model: &M,
    bounds: Bounds,
    path: &mut Vec<Taken>,
    visited: &mut HashSet<u64>,
    explored: &mut Explored,
) -> Result<(), String> {
    let mut run = Run::new(model, bounds);
    let mut choices = Vec::new();
    for at in 0.. {
        run.choices(&mut choices);
        if path.len() <= at {
            if !visited.insert(run.key()) {
                return Ok(());
            }
            explored.states += 1;
            model.always(&run.sim)?;
            if choices.is_empty() {
                explored.ends += 1;
                return run.finish();
            }
            explored.transitions += 1;
            path.push(Taken { choice: 0, of: choices.len() });
        }
        let taken = path.get(at).and_then(|taken| Some((taken.of, *choices.get(taken.choice)?)));
        let Some((of, choice)) = taken else { return Err("a repeated run has other choices".to_owned()) };
        if of != choices.len() {
            return Err("a repeated run has other choices".to_owned());
        }
        run.take(choice);
    }
    Ok(())
}

/// The choices of a run, in words.
fn replay<M: Model>(model: &M, bounds: Bounds, path: &[Taken]) -> Vec<String> {
    let mut lines = Vec::new();
    // If the run ends with a panic, this one does too.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run::new(model, bounds);
        let mut choices = Vec::new();
        for taken in path {
            run.choices(&mut choices);
            let Some(choice) = choices.get(taken.choice) else { return };
            lines.push(run.words(*choice));
            run.take(*choice);
        }
    }));
    lines.retain(|line| !line.is_empty());
    lines
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
