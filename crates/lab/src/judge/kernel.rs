//! The check `kernel`: what the kernel of a node held at two moments.

use super::Judge;
use crate::language::checks::kernel::Kernel;
use crate::run::evidence::{Evidence, Verdict};

impl Judge for Kernel {
    fn reads_captures(&self) -> bool {
        false
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let node = self.node.as_ref();
        let at = |id: &str| -> Result<Vec<Vec<String>>, String> {
            let index = evidence.plan.node(node);
            let readings = index.and_then(|node| evidence.kernels.get(&(id.to_owned(), node)));
            // Routes change with links.
            let queues = |lines: &Vec<String>| -> Vec<String> {
                lines.iter().filter(|line| !line.starts_with("ip: ")).cloned().collect()
            };
            let readings: Vec<_> = readings.into_iter().flatten().map(queues).collect();
            if readings.iter().all(Vec::is_empty) {
                return Err(format!("the kernel of {node} was not read at {id:?}"));
            }
            Ok(readings)
        };
        let like = self.same_as.as_ref().or(self.differs_from.as_ref()).map_or("", |like| like.as_ref());
        let (readings, then) = (at(self.at.as_ref())?, at(like)?.swap_remove(0));
        let missing = |from: &[String], lines: &[String], sign: &str| -> Vec<String> {
            from.iter().filter(|line| !lines.contains(line)).map(|line| format!("{sign} {line}")).collect()
        };
        let mut seen = String::new();
        for (number, now) in readings.iter().enumerate() {
            let later = if number == 0 { "" } else { "it was so, and no longer at the end of `holds`: " };
            let changed = [missing(&then, now, "-"), missing(now, &then, "+")].concat();
            seen = match (changed.is_empty(), self.differs_from.is_some()) {
                (true, false) => format!("{} lines of {node}, all as at {like:?}", now.len()),
                (false, true) => changed.join("; "),
                (true, true) => {
                    return Err(format!("{later}nothing in the kernel of {node} differs from {like:?}"));
                }
                (false, false) => return Err(format!("{later}{}", changed.join("; "))),
            };
        }
        Ok(seen)
    }
}
