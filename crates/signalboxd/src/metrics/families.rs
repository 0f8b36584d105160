//! Metric families, as the API has them.

use std::collections::BTreeMap;

use signalbox_api::v1::sample::Value;
use signalbox_api::v1::{Bucket, Histogram, Label, MetricFamily, MetricKind, Sample};
use signalbox_core::Counter;
use signalbox_core::metrics::{Family, Kind, PREFIX};

use super::{Measured, Snapshot};

const START_TIME: Family =
    Family::gauge("start_time_seconds", &[], "When the daemon started, in seconds since 1970.")
        .of_unit("seconds");

/// Makes families of a snapshot, by name. Each has all of its samples.
pub(crate) fn families(snapshot: Snapshot) -> Vec<MetricFamily> {
    let mut families = BTreeMap::new();
    let mut add = |family: MetricFamily, sample: Sample| {
        families.entry(family.name.clone()).or_insert(family).samples.push(sample);
    };
    for counter in &snapshot.counters {
        let labels = counter.labels().map(|(name, value)| label(name, value)).collect();
        add(family_of(counter), Sample { labels, value: Some(Value::Count(counter.count.value)) });
    }
    for gauge in snapshot.gauges {
        let labels = gauge.labels.iter().map(|(name, value)| label(name, value)).collect();
        add(family(gauge.family), Sample { labels, value: Some(Value::Gauge(float(gauge.value))) });
    }
    for Measured { family: of, labels, histogram } in snapshot.histograms {
        let labels = of.labels.iter().zip(labels).map(|(name, value)| label(name, value)).collect();
        let buckets = histogram.buckets().map(|(upper_bound, count)| Bucket { upper_bound, count });
        let value = Histogram { buckets: buckets.collect(), sum: histogram.sum(), count: histogram.count() };
        add(family(of), Sample { labels, value: Some(Value::Histogram(value)) });
    }
    let start = float(snapshot.start_unix_us) / 1e6;
    add(family(&START_TIME), Sample { labels: Vec::new(), value: Some(Value::Gauge(start)) });
    let build = MetricFamily {
        name: format!("{PREFIX}build"),
        help: "Version of the daemon.".into(),
        kind: MetricKind::Info.into(),
        ..MetricFamily::default()
    };
    let labels = vec![label("version", env!("CARGO_PKG_VERSION"))];
    add(build, Sample { labels, value: Some(Value::Gauge(1.0)) });
    families.into_values().collect()
}

fn label(name: &str, value: &str) -> Label {
    Label { name: name.to_owned(), value: value.to_owned() }
}

/// Numbers above 2^53 lose their last digits, as in every monitoring system.
#[allow(clippy::cast_precision_loss, reason = "values of gauges are floating point numbers")]
const fn float(value: u64) -> f64 {
    value as f64
}

fn family(of: &Family) -> MetricFamily {
    MetricFamily {
        name: format!("{PREFIX}{}", of.name),
        help: of.help.to_owned(),
        unit: of.unit.unwrap_or_default().to_owned(),
        kind: match of.kind {
            Kind::Counter => MetricKind::Counter,
            Kind::Gauge => MetricKind::Gauge,
            Kind::Histogram => MetricKind::Histogram,
        }
        .into(),
        samples: Vec::new(),
    }
}

/// The family of a counter: the one it shares, or its own, with its own help text.
fn family_of(counter: &Counter) -> MetricFamily {
    match counter.count.family {
        Some(shared) => family(shared),
        None => MetricFamily {
            name: format!("{PREFIX}{}", counter.family_name()),
            ..family(&Family::counter("", &[], counter.count.help))
        },
    }
}
