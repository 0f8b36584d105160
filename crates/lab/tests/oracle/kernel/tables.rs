//! Tables with their chains, rules and sets, as requests change them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::octets::{Attributes, Message, NLM_F_EXCL};
use super::rules::{Expression, Passing, Verdict};
use super::sets::{EEXIST, ENOENT, Set};

const NEWTABLE: u16 = 0;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const NEWRULE: u16 = 6;
const DELRULE: u16 = 8;
const NEWSET: u16 = 9;
const NEWSETELEM: u16 = 12;
const DELSETELEM: u16 = 14;
const DESTROYSETELEM: u16 = 30;
const APPEND: u16 = 0x800;

/// The hooks at which the kernel calls chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    Prerouting = 0,
    Postrouting = 4,
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, PartialEq)]
struct Base {
    hook: u32,
    priority: i32,
    /// It sees the first packet of a flow only.
    translates: bool,
}

#[derive(Debug, Clone, Default)]
struct Chain {
    base: Option<Base>,
    rules: Vec<Arc<Vec<Expression>>>,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    chains: BTreeMap<String, Chain>,
    pub(crate) sets: BTreeMap<String, Set>,
}

/// All tables, by their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables(BTreeMap<String, Table>);

impl Tables {
    pub(crate) fn get(&self, name: &str) -> Result<&Table, i32> {
        self.0.get(name).ok_or(ENOENT)
    }

    fn get_mut(&mut self, name: Option<String>) -> Result<&mut Table, i32> {
        self.0.get_mut(&name.unwrap()).ok_or(ENOENT)
    }

    /// Carries out one request of a transaction.
    pub(crate) fn change(&mut self, request: &Message<'_>) -> Result<(), i32> {
        assert_eq!((request.kind >> 8, request.body[0]), (10, 1), "requests to nftables, of the family inet");
        match request.kind & 0xff {
            NEWTABLE => {
                let name = request.attributes(&[1, 2]).text(1).unwrap();
                self.0.entry(name).or_default();
            }
            DELTABLE => {
                let name = request.attributes(&[1]).text(1).unwrap();
                self.0.remove(&name).map(drop).ok_or(ENOENT)?;
            }
            NEWCHAIN => self.new_chain(request.attributes(&[1, 3, 4, 7]))?,
            NEWRULE => {
                assert_ne!(request.flags & APPEND, 0, "rules are appended");
                let rule = request.attributes(&[1, 2, 4]);
                let list = rule.nested(4).unwrap().only(&[1]).each();
                let rules = list.into_iter().map(|(_, element)| Expression::parse(element)).collect();
                self.get_mut(rule.text(1))?.chain(rule)?.rules.push(Arc::new(rules));
            }
            DELRULE => {
                let rule = request.attributes(&[1, 2]);
                self.get_mut(rule.text(1))?.chain(rule)?.rules.clear();
            }
            NEWSET => {
                let attributes = request.attributes(&[1, 2, 3, 4, 5, 6, 7, 9, 10, 17]);
                let (name, set) = Set::parse(attributes);
                let old = self.get_mut(attributes.text(1))?.sets.entry(name).or_insert_with(|| set.clone());
                if !old.is_like(&set) {
                    return Err(EEXIST);
                }
            }
            kind @ (NEWSETELEM | DELSETELEM | DESTROYSETELEM) => {
                let list = request.attributes(&[1, 2, 3]);
                let sets = &mut self.get_mut(list.text(1))?.sets;
                let set = sets.get_mut(&list.text(2).unwrap()).ok_or(ENOENT)?;
                for (_, item) in list.nested(3).unwrap().only(&[1]).each() {
                    match (kind, Attributes(item)) {
                        (NEWSETELEM, item) => set.add(item, request.flags & NLM_F_EXCL == NLM_F_EXCL)?,
                        (DELSETELEM, item) => set.remove(item)?,
                        (_, item) => match set.remove(item) {
                            Ok(()) | Err(ENOENT) => {}
                            Err(error) => return Err(error),
                        },
                    }
                }
            }
            other => panic!("request {other}"),
        }
        Ok(())
    }

    fn new_chain(&mut self, chain: Attributes<'_>) -> Result<(), i32> {
        let base = chain.nested(4).map(|hook| Base {
            hook: hook.number(1).unwrap(),
            priority: i32::from_be_bytes(hook.only(&[1, 2]).find(2).unwrap().try_into().unwrap()),
            translates: match chain.text(7).as_deref() {
                Some("nat") => true,
                Some("filter") => false,
                other => panic!("a chain of the type {other:?}"),
            },
        });
        let new = Chain { base, rules: Vec::new() };
        let chains = &mut self.get_mut(chain.text(1))?.chains;
        let old = chains.entry(chain.text(3).unwrap()).or_insert_with(|| new.clone());
        if old.base == new.base { Ok(()) } else { Err(EEXIST) }
    }

    /// Whether a packet passes the chains of a hook whose priorities are in this range.
    pub(crate) fn pass(&self, hook: Hook, first: bool, passing: &mut Passing<'_>) -> bool {
        let of = |chain: &Chain| chain.base.as_ref().is_some_and(|base| base.hook == hook as u32);
        let called = self.0.values().flat_map(|table| {
            table.chains.values().filter(move |chain| of(chain)).map(move |chain| (table, chain))
        });
        let mut called: Vec<_> = called.collect();
        called.sort_by_key(|(_, chain)| chain.base.as_ref().map(|base| base.priority));
        called.into_iter().all(|(table, chain)| {
            let skipped = chain.base.as_ref().is_some_and(|base| base.translates && !first);
            skipped || table.verdict(chain, passing) == Verdict::Accept
        })
    }
}

impl Table {
    fn chain(&mut self, rule: Attributes<'_>) -> Result<&mut Chain, i32> {
        self.chains.get_mut(&rule.text(2).unwrap()).ok_or(ENOENT)
    }

    /// The verdict of a chain. Its end accepts, also that of a chain that it goes to.
    fn verdict(&self, chain: &Chain, passing: &mut Passing<'_>) -> Verdict {
        for rule in &chain.rules {
            let verdict = rule.iter().find_map(|expression| {
                passing.evaluate(expression, &self.sets).map_or(Some(None), |verdict| verdict.map(Some))
            });
            match verdict.flatten() {
                Some(Verdict::GoTo(chain)) => return self.verdict(&self.chains[&chain], passing),
                Some(verdict) => return verdict,
                None => {}
            }
        }
        Verdict::Accept
    }
}
