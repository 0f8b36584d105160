//! The network of a scenario: from `[topology]`, `[nodes.NAME]` and `[links.A-B]` to nodes and links.

use std::ops::Range;

use serde::Deserialize;
use signalbox_units::{BitRate, Percent, Span};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::load::{Mistake, decode, rest};
use super::source::merge;
use super::{Certificate, Link, Node, Prefix, Routing, validate};
use crate::protocols;

/// The protocols of a node that names none.
const PROTOCOLS: [&str; 2] = ["gist", "ping"];

/// The keys of `[topology]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Topology {
    #[serde(default)]
    chain: Vec<Spanned<String>>,
}

/// The keys of `[nodes.NAME]` and `[topology.all_nodes]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeKeys {
    protocols: Option<Vec<Spanned<String>>>,
    #[serde(default = "yes")]
    daemon: bool,
    forward: Option<bool>,
    certificate: Option<Certificate>,
    nftables: Option<String>,
    #[serde(default)]
    setup: Vec<String>,
    routing: Option<Routing>,
    #[serde(default)]
    config: toml::Table,
}

/// The keys of `[links.A-B]` and `[topology.all_links]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkKeys {
    rate: Option<BitRate>,
    reservable: Option<String>,
    #[serde(default = "few")]
    per_flow_queues: u16,
    delay: Option<Spanned<Span>>,
    #[serde(default)]
    loss: Percent,
    addresses: Option<Spanned<[Prefix; 2]>>,
}

const fn yes() -> bool {
    true
}

/// The own queues of a link. The time to make a queue grows with the number of queues on the machine. A lab with the daemon's
/// 1,000 queues at each end of each link would start slowly.
const fn few() -> u16 {
    64
}

type Table<'i> = Spanned<DeTable<'i>>;

/// Takes the network out of a file.
pub(super) fn read(file: &mut DeTable<'_>, mistakes: &mut Vec<Mistake>) -> (Vec<Node>, Vec<Link>) {
    let mut topology = table(file, "topology", mistakes);
    let all_nodes = topology.as_mut().and_then(|it| table(it.get_mut(), "all_nodes", mistakes));
    let all_links = topology.as_mut().and_then(|it| table(it.get_mut(), "all_links", mistakes));
    let chain = match topology.map(rest::<Topology>).transpose() {
        Ok(topology) => topology.map(|topology| topology.chain).unwrap_or_default(),
        Err(mistake) => {
            mistakes.push(mistake);
            Vec::new()
        }
    };
    let mut named = named(file, "nodes", mistakes);
    let mut joined = self::named(file, "links", mistakes);
    let mut names = chain.clone();
    names.extend(
        named
            .iter()
            .filter(|(name, _)| !chain.iter().any(|c| c.as_ref() == name.as_ref()))
            .map(|(name, _)| name.clone()),
    );
    let links = links(&chain, &mut joined, all_links.as_ref(), mistakes);
    let ends =
        |name: &String| links.iter().filter(|link| link.ends.iter().any(|end| end.as_ref() == name)).count();
    let mut nodes = Vec::new();
    for name in names {
        let own =
            named.iter().position(|(known, _)| known.as_ref() == name.as_ref()).map(|at| named.remove(at).1);
        match node(name, own, all_nodes.as_ref(), ends) {
            Ok(node) => nodes.push(node),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    (nodes, links)
}

fn node(
    name: Spanned<String>,
    own: Option<Table<'_>>,
    all: Option<&Table<'_>>,
    links: impl Fn(&String) -> usize,
) -> Result<Node, Mistake> {
    let at = own.as_ref().map_or(name.span(), Spanned::span);
    let keys: NodeKeys = over(all, own, at)?;
    let mut protocols = protocols::Set::new();
    let given =
        keys.protocols.unwrap_or_else(|| PROTOCOLS.map(|name| Spanned::new(0..0, name.to_owned())).to_vec());
    for wanted in given {
        let known = protocols::all().find(|protocol| protocol.name() == wanted.as_ref());
        let known = known.ok_or_else(|| {
            let known: Vec<_> = protocols::all().map(|protocol| protocol.name()).collect();
            let what =
                format!("unknown protocol `{}`, expected one of {}", wanted.as_ref(), known.join(", "));
            Mistake::new(wanted.span(), what)
        })?;
        protocols.insert(known.name());
    }
    let forward = keys.forward.unwrap_or_else(|| links(name.as_ref()) > 1);
    let protocols = if keys.daemon { protocols } else { protocols::Set::new() };
    let NodeKeys { daemon, certificate, nftables, setup, routing, config, .. } = keys;
    Ok(Node { name, daemon, protocols, forward, certificate, nftables, setup, routing, config })
}

/// Returns the links: those of the chain first, then the others in the file's order.
fn links(
    chain: &[Spanned<String>],
    joined: &mut Vec<(Spanned<String>, Table<'_>)>,
    all: Option<&Table<'_>>,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Link> {
    let mut links = Vec::new();
    let mut add = |ends: [Spanned<String>; 2], own: Option<Table<'_>>, at: Range<usize>| match over::<LinkKeys>(
        all, own, at,
    ) {
        Ok(LinkKeys { rate, reservable, per_flow_queues, delay, loss, addresses }) => {
            links.push(Link { ends, rate, reservable, per_flow_queues, delay, loss, addresses });
        }
        Err(mistake) => mistakes.push(mistake),
    };
    for pair in chain.windows(2) {
        let name = format!("{}-{}", pair[0].as_ref(), pair[1].as_ref());
        let own = joined.iter().position(|(known, _)| *known.as_ref() == name).map(|at| joined.remove(at).1);
        add([pair[0].clone(), pair[1].clone()], own, pair[1].span());
    }
    let mut wrong = Vec::new();
    for (name, own) in joined.drain(..) {
        let at = name.span();
        match name.as_ref().split_once('-') {
            Some((a, b)) => {
                let ends = [a, b].map(|end| Spanned::new(at.clone(), end.to_owned()));
                add(ends, Some(own), at);
            }
            None => wrong.push(Mistake::new(
                at,
                format!("`{}` names no link; write its two ends, like [links.h1-r1]", name.as_ref()),
            )),
        }
    }
    mistakes.extend(wrong);
    links
}

/// Reads a table that lies over the defaults of its kind.
fn over<T: serde::de::DeserializeOwned>(
    all: Option<&Table<'_>>,
    own: Option<Table<'_>>,
    at: Range<usize>,
) -> Result<T, Mistake> {
    let all = all.map(|all| all.get_ref().clone()).unwrap_or_default();
    let mut table = Spanned::new(at.clone(), DeValue::Table(all));
    if let Some(own) = own {
        merge(&mut table, Spanned::new(own.span(), DeValue::Table(own.into_inner())));
    }
    decode(table).map_err(|mistake| if mistake.at.is_empty() { Mistake { at, ..mistake } } else { mistake })
}

/// Takes a table out of another one.
pub(super) fn table<'i>(file: &mut DeTable<'i>, key: &str, mistakes: &mut Vec<Mistake>) -> Option<Table<'i>> {
    let value = file.remove(key)?;
    let at = value.span();
    match value.into_inner() {
        DeValue::Table(table) => Some(Spanned::new(at, table)),
        _ => {
            mistakes.push(Mistake::new(at, format!("`{key}` has to be a table, written as [{key}]")));
            None
        }
    }
}

/// Takes tables with names out of the file, in the file's order.
fn named<'i>(
    file: &mut DeTable<'i>,
    key: &str,
    mistakes: &mut Vec<Mistake>,
) -> Vec<(Spanned<String>, Table<'i>)> {
    let mut found = Vec::new();
    for (name, value) in table(file, key, mistakes).map(Spanned::into_inner).into_iter().flatten() {
        let (at, place) = (name.span(), value.span());
        let name = Spanned::new(at.clone(), name.into_inner().into_owned());
        match value.into_inner() {
            DeValue::Table(table) => found.push((name, Spanned::new(place, table))),
            _ => mistakes.push(Mistake::new(
                at,
                format!("`{}` has to be a table, like [{key}.{}]", name.as_ref(), name.as_ref()),
            )),
        }
    }
    for (name, _) in &found {
        if let (true, Err(mistake)) = (key == "nodes", validate::name(name, "a node")) {
            mistakes.push(mistake);
        }
    }
    found.sort_by_key(|(name, _)| name.span().start);
    found
}
