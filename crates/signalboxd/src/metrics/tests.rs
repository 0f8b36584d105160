//! The names of all metrics, and docs/metrics.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use signalbox_api::openmetrics;
use signalbox_api::v1::{MetricFamily, MetricKind};
use signalbox_core::metrics::Family;

use super::*;
use crate::driver::tests::{every_counter, whole_node};

/// What a daemon with all protocols and one interface shows.
fn everything() -> Snapshot {
    let mut measurements = Measurements::default();
    measurements.set_up("qos", Duration::from_millis(3));
    measurements.set_up("rsvp", Duration::from_millis(3));
    let node = whole_node();
    Snapshot {
        counters: every_counter(&node),
        gauges: node.gauges(),
        histograms: measurements.all(),
        start_unix_us: 1_790_000_000_500_000,
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.ends_with('_')
}

/// Suffixes that OpenMetrics gives a meaning, or that Prometheus reserves.
const RESERVED: [&str; 7] = ["_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount"];

#[test]
fn every_name_follows_openmetrics() {
    let families = families(everything());
    assert!(families.len() > 50);
    for MetricFamily { name, help, unit, samples, .. } in &families {
        assert!(is_name(name) && name.starts_with("signalbox_"), "{name}");
        assert!(!RESERVED.iter().any(|suffix| name.ends_with(suffix)), "{name} has a reserved suffix");
        assert!(help.ends_with('.') && help.len() > 10, "{name}: {help:?}");
        assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name} does not end with {unit}");
        assert!(
            !name.contains("octets") && !name.contains("_ms"),
            "{name}: base units are bytes and seconds"
        );
        for label in samples.iter().flat_map(|sample| &sample.labels) {
            assert!(is_name(&label.name) && label.name != "le", "{name}: label {}", label.name);
            assert!(!label.value.is_empty(), "{name}: {} has no value", label.name);
            let forbidden = ["session", "address", "peer", "neighbor"];
            assert!(!forbidden.contains(&label.name.as_str()), "{name}: label {}", label.name);
        }
    }
}

/// A name belongs to one family only: also as the name of its samples, where a counter's suffix is cut off.
#[test]
fn every_metric_has_one_name() {
    let families = families(everything());
    let mut seen = BTreeSet::new();
    for family in &families {
        for sample in &family.samples {
            let metric = openmetrics::metric(family, sample);
            assert!(seen.insert(metric.clone()), "{metric} is there twice");
        }
    }
}

#[test]
fn counters_of_a_family_agree_on_it() {
    let mut shared: BTreeMap<&str, &Family> = BTreeMap::new();
    for counter in everything().counters {
        let path = counter.path();
        let Some(family) = counter.count.family else {
            assert!(counter.count.labels.is_empty(), "{path} has labels and no family");
            continue;
        };
        let labels: Vec<&str> = counter.labels().map(|(name, _)| name).collect();
        assert_eq!(labels, family.labels, "{path}");
        assert_eq!(*shared.entry(family.name).or_insert(family), family, "{path}");
    }
    let unshared = everything().counters.into_iter().filter(|one| one.count.family.is_none());
    for counter in unshared {
        assert!(!shared.contains_key(counter.family_name().as_str()), "{}", counter.path());
    }
}

/// The lines of docs/metrics.md that follow from the code.
fn tables() -> String {
    let snapshot = everything();
    let help: BTreeMap<String, &str> =
        snapshot.counters.iter().map(|counter| (counter.to_string(), counter.count.help)).collect();
    let families = families(snapshot.clone());
    let mut text = String::new();
    for (kind, title) in [
        (MetricKind::Gauge, "Gauges"),
        (MetricKind::Info, "Information"),
        (MetricKind::Histogram, "Histograms"),
        (MetricKind::Counter, "Counters"),
    ] {
        writeln!(text, "## {title}\n\n| metric | labels | unit | meaning |\n|---|---|---|---|").unwrap();
        for family in families.iter().filter(|family| family.kind() == kind) {
            let labels = family.samples.first().map_or(&[][..], |sample| &sample.labels);
            let labels: Vec<String> = labels.iter().map(|label| format!("`{}`", label.name)).collect();
            let (name, unit) = (openmetrics::sample_name(family), &family.unit);
            writeln!(text, "| `{name}` | {} | {unit} | {} |", labels.join(", "), family.help).unwrap();
        }
        text.push('\n');
    }
    text.push_str("## Values of the labels\n\nEvery counter that shares its family with others:\n\n");
    text.push_str("| counter | counts |\n|---|---|\n");
    for family in families.iter().filter(|family| family.kind() == MetricKind::Counter) {
        for sample in family.samples.iter().filter(|sample| !sample.labels.is_empty()) {
            let metric = openmetrics::metric(family, sample);
            let help = help[&metric];
            writeln!(text, "| `{}` | {help} |", metric.trim_start_matches("signalbox_")).unwrap();
        }
    }
    text
}

/// `UPDATE_DOCS=1 cargo test -p signalboxd metrics` writes the page.
#[test]
fn every_metric_is_documented() {
    const BEGIN: &str = "<!-- From here on the page follows from the code: see `crates/signalboxd/src/metrics/tests.rs`. -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (prose, written) = page.split_once(BEGIN).expect("the line after which the tables follow");
    let tables = format!("\n{}", tables());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{prose}{BEGIN}{tables}")).unwrap();
    } else {
        assert!(
            written == tables,
            "docs/metrics.md is not up to date: UPDATE_DOCS=1 cargo test -p signalboxd metrics"
        );
    }
}

#[test]
fn an_interface_with_capacity_has_gauges() {
    let node = whole_node();
    let gauge = |name: &str, labels: &[&str]| {
        let is =
            |one: &&Gauge| one.family.name == name && one.labels.iter().map(|(_, value)| value).eq(labels);
        node.gauges().iter().find(is).map(|one| one.value)
    };
    assert_eq!(gauge("interface_capacity_bytes_per_second", &["eth7"]), Some(1_000_000));
    assert_eq!(gauge("interface_reservable_bytes_per_second", &["eth7"]), Some(500_000));
    assert_eq!(gauge("interface_reserved_bytes_per_second", &["eth7"]), Some(0));
    assert_eq!(gauge("reservations", &["rsvp", "eth7"]), Some(0));
    assert_eq!(gauge("protocol_running", &["qos"]), Some(1));
    assert_eq!(gauge("sessions", &["gist"]), Some(0));
}

#[test]
fn a_protocol_that_does_not_run_shows_only_that() {
    let node = signalbox_node::Node::new(signalbox_node::Config::empty(), [1; 32]).unwrap();
    assert!(node.gauges().iter().all(|gauge| gauge.family.name == "protocol_running" && gauge.value == 0));
}
