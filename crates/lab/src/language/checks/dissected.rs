//! The check `dissected`: messages as another dissector reads them.

use serde::Deserialize;
use toml::Spanned;

use super::CheckKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dissected {
    pub(crate) dissected: Spanned<String>,
}

/// The protocols that tshark reads.
const PROTOCOLS: [&str; 1] = ["rsvp"];

impl CheckKeys for Dissected {
    const NAME: &'static str = "dissected";
    const MEANING: &'static str =
        "tshark read every RSVP message captured and found neither a malformed field nor a wrong checksum.";
    const KEYS: &'static [Key] = &[key("dissected", "protocol", "the protocol: rsvp")];

    fn validate(&self, _scope: &Scope<'_>) -> Result<(), Mistake> {
        if PROTOCOLS.contains(&self.dissected.as_ref().as_str()) {
            return Ok(());
        }
        let what = format!(
            "tshark reads no `{}`, expected one of {}",
            self.dissected.as_ref(),
            PROTOCOLS.join(", ")
        );
        Err(Mistake::new(self.dissected.span(), what))
    }
}
