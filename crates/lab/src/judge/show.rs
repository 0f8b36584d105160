//! The check `show`: what the daemons show after the last step. The run itself looks (`Expectation::becomes`).

use super::Judge;
use crate::language::checks::show::Show;
use crate::run::evidence::{Evidence, Verdict};

impl Judge for Show {
    fn reads_captures(&self) -> bool {
        false
    }

    fn simulated(&self) -> bool {
        true
    }

    fn judge(&self, _evidence: &Evidence) -> Verdict {
        Err("the daemons were not asked".to_owned())
    }
}
