//! The check `forwarding`: packets that a router, or all routers of a path, pass on.

use serde::Deserialize;
use toml::Spanned;

use super::CheckKeys;
use crate::language::fields::Fields;
use crate::language::kinds::{ANY, Key, key};
use crate::language::steps::Step;
use crate::language::{Element, Mistake, Scope, fields, kinds};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forwarding {
    pub(crate) flow: Option<Spanned<String>>,
    pub(crate) node: Option<Spanned<String>>,
    pub(crate) path: Option<[Spanned<String>; 2]>,
    pub(crate) protocol: Option<Spanned<String>>,
    #[serde(default = "session")]
    pub(crate) per: String,
    #[serde(default)]
    pub(crate) less: toml::Table,
    #[serde(skip)]
    pub(crate) fields: Fields,
}

fn session() -> String {
    "session_id".to_owned()
}

impl CheckKeys for Forwarding {
    const NAME: &'static str = "forwarding";
    const MEANING: &'static str = "The datagrams of a `traffic` step with `count` crossed each link of the path, one TTL less behind each router, and arrived; or messages of a protocol leave a node as they came, except for the fields in `less`.";
    const KEYS: &'static [Key] = &[
        key("flow", "id", "a `traffic` step with `count`").optional(),
        key("node", "node", "the node that messages pass").optional(),
        key("path", "two nodes", "the ends of their path").optional(),
        key("protocol", "protocol", "the protocol of the messages").optional(),
        key("per", "field", "what a message has in common with itself on the next link").or("\"session_id\""),
        key("less", "table of numbers", "fields that are less by so much behind the node, like `{ ip_ttl = 1 }`; all other fields stay as they are").or("{}"),
        key(ANY, "value", "any field of the protocol's messages: only messages with this value"),
    ];

    fn parse(element: Element<'_>) -> Result<Self, Mistake> {
        let (element, fields) = kinds::split(element, Self::KEYS)?;
        Ok(Self { fields, ..kinds::parse(element)? })
    }

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        match (&self.flow, &self.node, &self.path, &self.protocol) {
            (Some(flow), None, None, None) => {
                scope.id_of(&["traffic"], flow)?;
                if scope.is_step(flow, |step| matches!(step, Step::Traffic(keys) if keys.count.is_some())) {
                    return Ok(());
                }
                let what = format!("`{}` has no `count` of datagrams", flow.as_ref());
                Err(Mistake::new(flow.span(), what))
            }
            (None, Some(node), Some(path), Some(protocol)) => {
                scope.nodes(path.iter().chain([node]))?;
                fields::validate_fields(protocol, &self.fields)
            }
            _ => Err(Mistake::new(0..0, "`forwarding` needs `flow`; or `node`, `path` and `protocol`")),
        }
    }
}
