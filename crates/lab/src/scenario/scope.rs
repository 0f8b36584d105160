//! What the steps and checks of a scenario can refer to: its nodes and links, and the names from earlier steps.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;

use super::load::Mistake;
use super::{Link, Node, Scenario};
use crate::protocols::{self, Protocol};

/// When daemons were asked, or links watched.
pub(crate) const LABEL: &str = "label";
/// When something was done to a link, a daemon or a program.
pub(crate) const MOMENT: &str = "moment";
/// What runs in the background.
pub(crate) const BACKGROUND: &str = "background";

/// The names that are known at one place of a scenario.
#[derive(Debug)]
pub(crate) struct Scope<'s> {
    pub(crate) scenario: &'s Scenario,
    /// By what they name, like [`LABEL`].
    names: BTreeMap<&'static str, BTreeSet<&'s str>>,
}

impl<'s> Scope<'s> {
    /// Returns the scope of the first step.
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        Self { scenario, names: BTreeMap::new() }
    }

    /// Adds a name of a kind, like [`LABEL`].
    pub(crate) fn define(&mut self, of: &'static str, name: &'s str) {
        self.names.entry(of).or_default().insert(name);
    }

    /// Fails unless an earlier step defined this name.
    pub(crate) fn defined(&self, of: &'static str, name: &Spanned<String>) -> Result<(), Mistake> {
        let known = self.names.get(of);
        if known.is_some_and(|known| known.contains(name.as_ref().as_str())) {
            return Ok(());
        }
        let known = known.into_iter().flatten().copied().collect::<Vec<_>>().join(", ");
        let what = format!("no step has the {of} `{}`, expected one of {known}", name.as_ref());
        Err(Mistake::new(name.span(), what))
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

    /// Fails unless the daemon of the node runs the protocol.
    pub(crate) fn runs(&self, protocol: &dyn Protocol, name: &Spanned<String>) -> Result<(), Mistake> {
        self.daemon(name)?;
        if self.find(name)?.protocols.contains(protocol.name()) {
            return Ok(());
        }
        let (title, key) = (protocol.title(), protocol.name());
        let what = format!("node `{}` does not run {title}; give it `{key} = true`", name.as_ref());
        Err(Mistake::new(name.span(), what))
    }

    /// Fails unless the node runs a protocol that makes reservations, which its kernel keeps.
    pub(crate) fn reserves(&self, name: &Spanned<String>) -> Result<(), Mistake> {
        let mut refused = self.daemon(name).err();
        for protocol in protocols::all().filter(|protocol| protocol.reserves()) {
            match self.runs(protocol, name) {
                Ok(()) => return Ok(()),
                Err(mistake) => refused = refused.or(Some(mistake)),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Fails unless the second node is at the other end of a link of the first.
    pub(crate) fn neighbours(&self, of: &Spanned<String>, other: &Spanned<String>) -> Result<(), Mistake> {
        self.nodes([of, other])?;
        let joined = |link: &Link| {
            let ends = [link.ends[0].as_ref(), link.ends[1].as_ref()];
            of.as_ref() != other.as_ref() && ends.contains(&of.as_ref()) && ends.contains(&other.as_ref())
        };
        if self.scenario.links.iter().any(joined) {
            return Ok(());
        }
        let what = format!(
            "{} is no neighbour of {}; name one at the other end of a link",
            other.as_ref(),
            of.as_ref()
        );
        Err(Mistake::new(other.span(), what))
    }

    /// Fails unless each node is a neighbour of the next.
    pub(crate) fn chain(&self, hops: &[Spanned<String>]) -> Result<(), Mistake> {
        self.nodes(hops)?;
        hops.iter().zip(hops.iter().skip(1)).try_for_each(|(from, to)| self.neighbours(from, to))
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

    /// Fails unless there are that many ports from the first one on.
    pub(crate) fn ports(&self, first: u16, flows: &Spanned<u32>) -> Result<(), Mistake> {
        let most = u32::from(u16::MAX - first) + 1;
        if (1..=most).contains(flows.as_ref()) {
            return Ok(());
        }
        Err(Mistake::new(flows.span(), format!("`flows` lies between 1 and {most}, the ports from {first}")))
    }
}
