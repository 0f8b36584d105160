//! The check `clean`: what daemons leave behind.

use std::time::Duration;

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::CheckKeys;
use crate::language::expectation::ABSENT;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clean {
    pub(crate) clean: Spanned<bool>,
    #[serde(default = "absent")]
    pub(crate) holds: Span,
}

const fn absent() -> Span {
    ABSENT
}

impl CheckKeys for Clean {
    const NAME: &'static str = "clean";
    const MEANING: &'static str = "Every daemon that was asked to end did so with status 0 and left queues, nftables rules, IP rules and routes as it found them. After the last daemon they stay so.";
    const KEYS: &'static [Key] = &[
        key("clean", "boolean", "`true`"),
        key("holds", "time", "how long they have to stay so after the last daemon has ended").or("\"2s\""),
    ];

    fn validate(&self, _scope: &Scope<'_>) -> Result<(), Mistake> {
        if *self.clean.as_ref() {
            return Ok(());
        }
        Err(Mistake::new(self.clean.span(), "`clean` is `true`; without the check nothing is compared"))
    }

    fn rests(&self) -> Duration {
        self.holds.0
    }
}
