//! The check `messages`: messages of a protocol on the links, by their fields.

use std::collections::BTreeSet;

use toml::Spanned;

use super::Judge;
use super::select::{self, Span};
use crate::language::checks::messages::{Messages, Per};
use crate::language::fields;
use crate::plan::Leg;
use crate::run::evidence::{Evidence, Verdict};
use crate::run::observe::passed::Passed;

impl Judge for Messages {
    fn simulated(&self) -> bool {
        true
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let plan = &evidence.plan;
        let span = Span::of(evidence, [&self.after, &self.before, &self.during])?;
        let (legs, one_way) = self.legs(evidence)?;
        let min = self.min.unwrap_or(usize::from(self.max.is_none()));
        let max = self.max.unwrap_or(usize::MAX);
        let have = self.have.as_ref().map(fields::fields).unwrap_or_default();
        let mut groups: Vec<(String, Vec<Passed<'_>>)> = Vec::new();
        let mut of_type = 0;
        for leg in legs {
            let mut passed = select::on(evidence, self.protocol.as_ref(), leg);
            passed.retain(|passed| (!one_way || passed.leg == leg) && span.holds(passed.message.at()));
            of_type += passed.len();
            passed.retain(|passed| passed.has(plan, &self.fields));
            let name = &plan.links[leg.link].name;
            match self.per {
                Per::All if groups.is_empty() => groups.push((String::new(), passed)),
                Per::All => groups[0].1.extend(passed),
                Per::Link => groups.push((format!(" on {name}"), passed)),
                Per::Direction => {
                    let (forth, back) = passed.into_iter().partition(|passed| passed.leg == leg);
                    groups.push((format!(" along {name}"), forth));
                    groups.push((format!(" against {name}"), back));
                }
            }
        }
        let (mut good, mut seen) = (!groups.is_empty(), Vec::new());
        let mut first: Option<BTreeSet<Option<String>>> = None;
        for (name, passed) in &groups {
            let values = |field: &Spanned<String>| -> BTreeSet<Option<String>> {
                passed.iter().map(|passed| passed.text(field.as_ref())).collect()
            };
            let distinct = self.distinct.as_ref().map(values);
            let count = distinct.as_ref().map_or(passed.len(), BTreeSet::len);
            good &= (min..=max).contains(&count);
            seen.push(format!("{count}{name}"));
            if let (true, Some(distinct)) = (self.same, distinct)
                && *first.get_or_insert_with(|| distinct.clone()) != distinct
            {
                return Err(format!("the values{name} differ from those of the first link"));
            }
            let other = passed.iter().find_map(|one| Some((one, one.misfit(plan, &have)?)));
            if let Some((other, what)) = other {
                return Err(format!("{}: {what}", other.place(plan)));
            }
        }
        let all = groups.iter().flat_map(|(_, passed)| passed);
        let example = all.min_by_key(|passed| passed.message.at());
        let example =
            example.map_or_else(String::new, |passed| format!("; the first is {}", passed.place(plan)));
        let bound = match max {
            usize::MAX => format!("at least {min}"),
            max if max == min => format!("exactly {max}"),
            max => format!("{min} to {max}"),
        };
        let seen = format!(
            "{} of {of_type} messages of {} ({bound} expected{}){example}",
            seen.join(", "),
            self.protocol.as_ref(),
            match self.per {
                Per::All => "",
                Per::Link => " on each link",
                Per::Direction => " in each direction",
            }
        );
        if good { Ok(seen) } else { Err(seen) }
    }
}

impl Messages {
    /// Returns the links, and whether only messages along their legs count.
    fn legs(&self, evidence: &Evidence) -> Result<(Vec<Leg>, bool), String> {
        if let Some(links) = &self.links {
            return Ok((select::legs(evidence, links.as_ref())?, false));
        }
        let name = |node: &Option<Spanned<String>>| {
            node.as_ref().map_or("", |node| node.as_ref().as_str()).to_owned()
        };
        let (from, to) = evidence.nodes(&name(&self.from), &name(&self.to))?;
        let leg = evidence.plan.leg(from, to).ok_or("the two are no neighbors")?;
        Ok((vec![leg], true))
    }
}
