//! Fields of messages, and the links on which messages pass, as steps and checks name them.

use toml::Spanned;

use super::{Mistake, Scope};
use crate::protocols;

/// Fields of messages with the values that they have to have.
pub(crate) type Fields = Vec<(Spanned<String>, toml::Value)>;

/// Fails unless `links` names links of the scenario.
pub(crate) fn validate_links(scope: &Scope<'_>, links: &Spanned<toml::Value>) -> Result<(), Mistake> {
    let name = |text: &str| Spanned::new(links.span(), text.to_owned());
    match links.as_ref() {
        toml::Value::String(text) if text == "all" => Ok(()),
        toml::Value::String(text) => match text.split(' ').collect::<Vec<_>>()[..] {
            ["path", from, to] => scope.nodes([&name(from), &name(to)]),
            _ => scope.link(&name(text)),
        },
        toml::Value::Array(all) if all.iter().all(toml::Value::is_str) => {
            let all: Vec<_> = all.iter().filter_map(toml::Value::as_str).map(name).collect();
            if all.iter().any(|name| name.as_ref().contains('-')) {
                return all.iter().try_for_each(|name| scope.link(name));
            }
            scope.chain(&all)
        }
        _ => Err(Mistake::new(
            links.span(),
            "`links` is \"all\", \"path h1 h2\", a link like \"h1-r1\", a list of links, or a list of nodes",
        )),
    }
}

/// Fails unless the lab reads messages of the protocol, and these have the fields.
pub(crate) fn validate_fields(protocol: &Spanned<String>, fields: &Fields) -> Result<(), Mistake> {
    let readers = || protocols::all().filter(|protocol| !protocol.fields().is_empty());
    let Some(reader) = readers().find(|known| known.name() == protocol.as_ref()) else {
        let known: Vec<_> = readers().map(|protocol| protocol.name()).collect();
        let what = format!(
            "the lab reads no messages of `{}`, expected one of {}",
            protocol.as_ref(),
            known.join(", ")
        );
        return Err(Mistake::new(protocol.span(), what));
    };
    let known: Vec<_> = reader.fields().into_iter().map(|(name, _)| name).collect();
    match fields.iter().find(|(name, _)| !known.contains(&name.as_ref().as_str())) {
        None => Ok(()),
        Some((name, _)) => {
            let what = format!(
                "messages of {} have no field `{}`, expected one of {}",
                protocol.as_ref(),
                name.as_ref(),
                known.join(", ")
            );
            Err(Mistake::new(name.span(), what))
        }
    }
}

/// Turns a table into fields; it has one place for all of them.
pub(crate) fn fields(table: &Spanned<toml::Table>) -> Fields {
    let field =
        |(name, value): (&String, &toml::Value)| (Spanned::new(table.span(), name.clone()), value.clone());
    table.as_ref().iter().map(field).collect()
}
