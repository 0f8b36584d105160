//! The check `path`: the replies to Ping signals, and the nodes that they visited.

use serde::Deserialize;
use toml::Spanned;

use super::CheckKeys;
use crate::language::kinds::{Key, key};
use crate::language::together::alone;
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Path {
    pub(crate) path: Option<Vec<Spanned<String>>>,
    pub(crate) ping: Option<Spanned<String>>,
    pub(crate) after: Option<Spanned<String>>,
    pub(crate) before: Option<Spanned<String>>,
    pub(crate) during: Option<Spanned<String>>,
    pub(crate) sessions: Option<usize>,
    pub(crate) replies: Option<usize>,
    pub(crate) min_replies: Option<usize>,
    pub(crate) padding: Option<usize>,
}

impl CheckKeys for Path {
    const NAME: &'static str = "path";
    const MEANING: &'static str = "Every reply of the Ping signals visited exactly these nodes in this order, the sender first; so many sessions had a reply.";
    const KEYS: &'static [Key] = &[
        key("path", "list of nodes", "the nodes in their order; any path if it is not given").optional(),
        key("ping", "id", "only replies of this `ping` step").optional(),
        key("after", "id", "only probes sent after the moment of this step").optional(),
        key("before", "id", "only probes sent before this step began").optional(),
        key("during", "id", "only probes sent while this step lasted").optional(),
        key("sessions", "number", "exactly so many sessions had a reply; at least one if it is not given")
            .optional(),
        key("replies", "number", "exactly so many replies came").optional(),
        key(
            "min_replies",
            "number",
            "at least so many replies came: a busy machine loses datagrams of a flood, and others with them",
        )
        .optional(),
        key("padding", "octets", "each reply brought so many octets of padding back unchanged").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        if self.replies.is_some() {
            alone(0..0, "replies", &[("min_replies", self.min_replies.is_some())])?;
        }
        self.ping.iter().try_for_each(|ping| scope.id_of(&["ping"], ping))?;
        scope.ids(self.after.iter().chain(&self.before).chain(&self.during))?;
        scope.nodes(self.path.iter().flatten())
    }
}
