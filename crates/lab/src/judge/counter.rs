//! The check `counter`: a counter of the daemons.

use toml::Spanned;

use super::Judge;
use crate::language::checks::counter::Counter;
use crate::run::evidence::{Evidence, Verdict};

impl Judge for Counter {
    fn reads_captures(&self) -> bool {
        false
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let min = self.min.unwrap_or(if self.max.is_some() { 0.0 } else { 1.0 });
        let max = self.max.unwrap_or(f64::INFINITY);
        let (mut good, mut seen) = (!self.nodes.is_empty(), Vec::new());
        for node in &self.nodes {
            let name = node.as_ref();
            let at = |id: &Spanned<String>| -> Result<Vec<f64>, String> {
                let index = evidence.plan.node(name).unwrap_or(usize::MAX);
                let texts = evidence.counters.get(&(id.as_ref().clone(), index));
                let texts = texts.ok_or_else(|| format!("{name} was not asked at {:?}", id.as_ref()))?;
                Ok(texts.iter().map(|text| value(text, self.counter.as_ref(), &self.labels)).collect())
            };
            let before = self.since.as_ref().map(at).transpose()?;
            let before = before.and_then(|before| before.first().copied()).unwrap_or(0.0);
            for count in at(&self.at)?.into_iter().map(|count| count - before) {
                good &= (min..=max).contains(&count);
                seen.push(format!("{name} {count}"));
            }
        }
        let seen = format!("{}: {}; {min} to {max} was expected", self.counter.as_ref(), seen.join(", "));
        if good { Ok(seen) } else { Err(seen) }
    }
}

/// Adds the values of a metric with these labels in a text of OpenMetrics.
fn value(text: &str, name: &str, labels: &toml::Table) -> f64 {
    let of_line = |line: &str| -> Option<f64> {
        let rest = line.strip_prefix(name)?;
        let (given, number) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let has = |(key, value): (&String, &toml::Value)| {
            let label = format!("{key}=\"{}\"", value.as_str().unwrap_or_default());
            given.split(',').any(|given| given == label)
        };
        labels.iter().all(has).then(|| number.split(' ').next()?.parse().ok()).flatten()
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_the_labels_are_added() {
        let text = "# TYPE a_total counter\na_total{k=\"x\",m=\"1\"} 2\na_total{k=\"x\",m=\"2\"} 3\na_total{k=\"y\"} 5\nab_total 7\nb_total 4\n";
        let labels = |text: &str| text.parse::<toml::Table>().expect("sound");
        let of = |name: &str, given: &str| value(text, name, &labels(given));
        assert_eq!([of("a_total", "k = 'x'"), of("a_total", ""), of("a_total", "k = 'z'")], [5.0, 10.0, 0.0]);
        assert_eq!([of("b_total", ""), of("c_total", "")], [4.0, 0.0]);
    }
}
