//! What on this machine, beside the configuration, is in the way of a node.

use crate::Config;

impl Config {
    /// The warning about policy rules of other programs on this machine that would stand before that of the interception.
    #[must_use]
    pub fn outranked(&self) -> Option<String> {
        let io = self.io(Vec::new());
        let before =
            signalbox_linux::rules_before(&io).ok().filter(|before| io.intercept && !before.is_empty())?;
        let before = before.join("; ");
        let what = if io.keep_rule_first {
            "the daemon puts its own above them (kernel.keep_rule_first)"
        } else {
            "write a lower kernel.rule_preference, or kernel.keep_rule_first = true"
        };
        Some(format!("rules of other programs can take intercepted packets: {before}: {what}"))
    }
}
