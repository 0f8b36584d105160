//! What the steps and checks of a scenario can refer to: its nodes and links, and the names from earlier steps.

use std::collections::BTreeMap;
use std::ops::Range;

use signalbox_units::BitRate;
use toml::Spanned;

use super::load::Mistake;
use super::steps::Step;
use super::{Link, Node, Scenario, merge};
use crate::protocols::{self, Protocol};

/// The name of the moment before the first step.
pub(crate) const START: &str = "start";
/// The kernel shapes links between these rates.
const RATE_MIN: BitRate = BitRate(8_000);
const RATE_MAX: BitRate = BitRate(100_000_000_000);

/// The names that are known at one place of a scenario.
#[derive(Debug)]
pub(crate) struct Scope<'s> {
    pub(crate) scenario: &'s Scenario,
    /// The kind of each step with an `id`.
    ids: BTreeMap<&'s str, &'static str>,
}

impl<'s> Scope<'s> {
    /// Returns the scope of the first step.
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        Self { scenario, ids: BTreeMap::new() }
    }

    /// Adds the `id` of a step.
    pub(super) fn define(&mut self, id: &'s Spanned<String>, kind: &'static str) -> Result<(), Mistake> {
        let name = id.as_ref().as_str();
        if name.is_empty() || name == START {
            return Err(Mistake::new(id.span(), format!("`{name}` cannot be an id; use another text")));
        }
        match self.ids.insert(name, kind) {
            None => Ok(()),
            Some(_) => Err(Mistake::new(
                id.span(),
                format!("the id `{name}` stands here a second time; use another text"),
            )),
        }
    }

    /// Fails unless an earlier step has this `id`.
    pub(crate) fn id(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        if name.as_ref() == START { Ok(()) } else { self.id_of(&[], name) }
    }

    /// Fails unless earlier steps have these ids.
    pub(crate) fn ids<'n>(
        &self,
        names: impl IntoIterator<Item = &'n Spanned<String>>,
    ) -> Result<(), Mistake> {
        names.into_iter().try_for_each(|name| self.id(name))
    }

    /// Fails unless an earlier step of one of these kinds has this `id`; of any kind if there are none.
    pub(crate) fn id_of(&self, kinds: &[&str], name: &Spanned<String>) -> Result<(), Mistake> {
        let fits = |kind: &str| kinds.is_empty() || kinds.contains(&kind);
        if self.ids.get(name.as_ref().as_str()).is_some_and(|kind| fits(kind)) {
            return Ok(());
        }
        let known: Vec<_> = self.ids.iter().filter(|(_, kind)| fits(kind)).map(|(id, _)| *id).collect();
        let of = if kinds.is_empty() { String::new() } else { format!(" {}", kinds.join(" or ")) };
        let what = format!(
            "no earlier{of} step has the id `{}`, expected one of {}",
            name.as_ref(),
            known.join(", ")
        );
        Err(Mistake::new(name.span(), what))
    }

    /// Whether the step with this `id` is such a one.
    pub(crate) fn is_step(&self, name: &Spanned<String>, is: impl Fn(&Step) -> bool) -> bool {
        let mut named = self.scenario.workload.iter();
        named.any(|named| named.id.as_ref().is_some_and(|id| id.as_ref() == name.as_ref()) && is(&named.step))
    }

    /// Fails unless the scenario has this node.
    pub(crate) fn node(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        self.find(name).map(drop)
    }

    fn find(&self, name: &Spanned<String>) -> Result<&'s Node, Mistake> {
        let found = self.scenario.nodes.iter().find(|node| node.name.as_ref() == name.as_ref());
        found.ok_or_else(|| {
            let known: Vec<_> = self.scenario.nodes.iter().map(|node| node.name.as_ref().as_str()).collect();
            let what = format!("unknown node `{}`, expected one of {}", name.as_ref(), known.join(", "));
            Mistake::new(name.span(), what)
        })
    }

    /// Fails unless the scenario has these nodes.
    pub(crate) fn nodes<'n>(
        &self,
        names: impl IntoIterator<Item = &'n Spanned<String>>,
    ) -> Result<(), Mistake> {
        names.into_iter().try_for_each(|name| self.node(name))
    }

    /// Fails unless the node runs a daemon.
    pub(crate) fn daemon(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        if self.find(name)?.daemon {
            return Ok(());
        }
        let what = format!("node `{}` runs no daemon; name one that does", name.as_ref());
        Err(Mistake::new(name.span(), what))
    }

    /// Fails unless a program of the machine finds the routes of the node.
    pub(crate) fn routing(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        if self.find(name)?.routing.is_some() {
            return Ok(());
        }
        let what = format!("node `{}` has no `routing`; set it to \"bird\" or \"frr\"", name.as_ref());
        Err(Mistake::new(name.span(), what))
    }

    /// Fails unless the daemon of the node runs the protocol.
    pub(crate) fn runs(&self, protocol: &dyn Protocol, name: &Spanned<String>) -> Result<(), Mistake> {
        self.daemon(name)?;
        if self.find(name)?.protocols.contains(protocol.name()) {
            return Ok(());
        }
        let (title, key) = (protocol.title(), protocol.name());
        let what = format!("node `{}` does not run {title}; add \"{key}\" to its `protocols`", name.as_ref());
        Err(Mistake::new(name.span(), what))
    }

    /// Fails unless the node runs a protocol that makes reservations, which its kernel keeps.
    pub(crate) fn reserves(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        let mut refused = self.daemon(name).err();
        let mut config = self.scenario.config.clone();
        merge(&mut config, &self.find(name)?.config);
        for protocol in protocols::all().filter(|protocol| protocol.reserves_by(&config)) {
            match self.runs(protocol, name) {
                Ok(()) => return Ok(()),
                Err(mistake) => refused = refused.or(Some(mistake)),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Fails unless the second node is at the other end of a link of the first.
    pub(crate) fn neighbors(&self, of: &Spanned<String>, other: &Spanned<String>) -> Result<(), Mistake> {
        self.nodes([of, other])?;
        let joined = |link: &Link| {
            let ends = [link.ends[0].as_ref(), link.ends[1].as_ref()];
            of.as_ref() != other.as_ref() && ends.contains(&of.as_ref()) && ends.contains(&other.as_ref())
        };
        if self.scenario.links.iter().any(joined) {
            return Ok(());
        }
        let what = format!(
            "{} is no neighbor of {}; name one at the other end of a link",
            other.as_ref(),
            of.as_ref()
        );
        Err(Mistake::new(other.span(), what))
    }

    /// Fails unless each node is a neighbor of the next.
    pub(crate) fn chain(&self, hops: &[Spanned<String>]) -> Result<(), Mistake> {
        self.nodes(hops)?;
        hops.iter().zip(hops.iter().skip(1)).try_for_each(|(from, to)| self.neighbors(from, to))
    }

    /// Fails unless the scenario has this link.
    pub(crate) fn link(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        let names: Vec<_> = self.scenario.links.iter().map(Link::name).collect();
        if names.contains(name.as_ref()) {
            return Ok(());
        }
        let what = format!("unknown link `{}`, expected one of {}", name.as_ref(), names.join(", "));
        Err(Mistake::new(name.span(), what))
    }

    /// Fails unless the lab itself limits the rate of the link at one end at least. At a node that reserves, the daemon
    /// does so.
    pub(crate) fn shaped(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        let link = self.scenario.links.iter().find(|link| link.name() == *name.as_ref());
        if link.is_some_and(|link| link.rate.is_none()) {
            let what = format!("the link `{}` has no `rate` that could change; give it one", name.as_ref());
            return Err(Mistake::new(name.span(), what));
        }
        let ends = link.into_iter().flat_map(|link| &link.ends);
        if ends.clone().any(|end| self.reserves(end).is_err()) {
            return Ok(());
        }
        let what =
            "the daemons at both ends limit the rate; change `capacity` in their configurations instead";
        Err(Mistake::new(name.span(), what))
    }

    /// Fails unless a link can have the rate.
    pub(crate) fn rate(&self, rate: BitRate, at: Range<usize>) -> Result<(), Mistake> {
        if (RATE_MIN..=RATE_MAX).contains(&rate) {
            return Ok(());
        }
        Err(Mistake::new(
            at,
            format!("{rate} is out of range; a rate lies between {RATE_MIN} and {RATE_MAX}"),
        ))
    }

    /// Fails unless there are that many ports from the first one on.
    pub(crate) fn ports(&self, first: u16, flows: &Spanned<u32>) -> Result<(), Mistake> {
        let most = u32::from(u16::MAX - first) + 1;
        if (1..=most).contains(flows.as_ref()) {
            return Ok(());
        }
        Err(Mistake::new(flows.span(), format!("`flows` lies between 1 and {most}, the ports from {first}")))
    }
}
