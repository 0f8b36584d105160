//! Metrics as text: OpenMetrics 1.0, and the older format of Prometheus for clients that ask for nothing better.
//!
//! The daemon writes this text over HTTP, and the command after it has asked for the families over gRPC. The crates
//! that write OpenMetrics keep the numbers themselves and know one of the two formats only.

use std::fmt::{self, Write};

use crate::v1::sample::Value;
use crate::v1::{Label, MetricFamily, MetricKind, Sample};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Prometheus,
}

impl Format {
    /// The value of `Content-Type` for the format.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Writes families as text.
#[must_use]
pub fn text(families: &[MetricFamily], format: Format) -> String {
    let mut text = String::new();
    for family in families {
        // A String takes everything that is written to it.
        let _ = write_family(&mut text, family, format);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// The name of the samples of a family. Those of a histogram have further suffixes.
#[must_use]
pub fn sample_name(family: &MetricFamily) -> String {
    format!("{}{}", family.name, suffix(family.kind()))
}

/// The name of a sample with its labels, as it stands in the text.
#[must_use]
pub fn metric(family: &MetricFamily, sample: &Sample) -> String {
    let mut text = sample_name(family);
    let _ = write_labels(&mut text, &sample.labels, None);
    text
}

const fn suffix(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "_total",
        MetricKind::Info => "_info",
        MetricKind::Gauge | MetricKind::Histogram | MetricKind::Unspecified => "",
    }
}

fn write_family(to: &mut String, family: &MetricFamily, format: Format) -> fmt::Result {
    let open = format == Format::OpenMetrics;
    let kind = match family.kind() {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
        MetricKind::Info if open => "info",
        MetricKind::Info => "gauge",
        MetricKind::Unspecified if open => "unknown",
        MetricKind::Unspecified => "untyped",
    };
    let samples = sample_name(family);
    // Prometheus's own format names the samples, OpenMetrics the family.
    let name = if open { &family.name } else { &samples };
    writeln!(to, "# TYPE {name} {kind}")?;
    if open && !family.unit.is_empty() {
        writeln!(to, "# UNIT {name} {}", family.unit)?;
    }
    // The older format has no escape for quotes in help texts.
    let help = if open { escaped(&family.help) } else { escaped(&family.help).replace("\\\"", "\"") };
    writeln!(to, "# HELP {name} {help}")?;
    for Sample { labels, value } in &family.samples {
        match value {
            Some(Value::Count(count)) => {
                to.push_str(&samples);
                write_labels(to, labels, None)?;
                writeln!(to, " {count}")?;
            }
            Some(Value::Gauge(value)) => {
                to.push_str(&samples);
                write_labels(to, labels, None)?;
                writeln!(to, " {}", number(*value))?;
            }
            Some(Value::Histogram(histogram)) => {
                for bucket in &histogram.buckets {
                    let bound = bucket.upper_bound.unwrap_or(f64::INFINITY);
                    write!(to, "{samples}_bucket")?;
                    write_labels(to, labels, Some(&number(bound)))?;
                    writeln!(to, " {}", bucket.count)?;
                }
                for (suffix, value) in
                    [("count", histogram.count.to_string()), ("sum", number(histogram.sum))]
                {
                    write!(to, "{samples}_{suffix}")?;
                    write_labels(to, labels, None)?;
                    writeln!(to, " {value}")?;
                }
            }
            None => {}
        }
    }
    Ok(())
}

/// Writes labels, and the label `le` of a bucket.
fn write_labels(to: &mut String, labels: &[Label], le: Option<&str>) -> fmt::Result {
    let bound = le.map(|bound| ("le", bound));
    let labels = labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).chain(bound);
    let mut any = false;
    for (name, value) in labels {
        write!(to, "{}{name}=\"{}\"", if any { ',' } else { '{' }, escaped(value))?;
        any = true;
    }
    if any {
        to.push('}');
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number with a decimal point, the form of bounds in OpenMetrics.
fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".into() } else { format!("{value:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Bucket, Histogram};

    fn label(name: &str, value: &str) -> Label {
        Label { name: name.into(), value: value.into() }
    }

    fn family(name: &str, kind: MetricKind, unit: &str, labels: Vec<Label>, value: Value) -> MetricFamily {
        MetricFamily {
            name: name.into(),
            help: "Help with \"quotes\" and \\.".into(),
            unit: unit.into(),
            kind: kind.into(),
            samples: vec![Sample { labels, value: Some(value) }],
        }
    }

    fn all() -> Vec<MetricFamily> {
        let buckets = vec![
            Bucket { upper_bound: Some(0.001), count: 2 },
            Bucket { upper_bound: Some(1.0), count: 3 },
            Bucket { upper_bound: None, count: 4 },
        ];
        let histogram = Histogram { buckets, sum: 12.5, count: 4 };
        vec![
            family("sent", MetricKind::Counter, "", vec![label("type", "query")], Value::Count(7)),
            family(
                "size_bytes",
                MetricKind::Gauge,
                "bytes",
                vec![label("if", "a\"b\\c\nd")],
                Value::Gauge(0.5),
            ),
            family("took_seconds", MetricKind::Histogram, "seconds", vec![], Value::Histogram(histogram)),
            family("build", MetricKind::Info, "", vec![label("version", "1")], Value::Gauge(1.0)),
        ]
    }

    #[test]
    fn openmetrics_names_families_and_ends() {
        assert_eq!(
            text(&all(), Format::OpenMetrics),
            r#"# TYPE sent counter
# HELP sent Help with \"quotes\" and \\.
sent_total{type="query"} 7
# TYPE size_bytes gauge
# UNIT size_bytes bytes
# HELP size_bytes Help with \"quotes\" and \\.
size_bytes{if="a\"b\\c\nd"} 0.5
# TYPE took_seconds histogram
# UNIT took_seconds seconds
# HELP took_seconds Help with \"quotes\" and \\.
took_seconds_bucket{le="0.001"} 2
took_seconds_bucket{le="1.0"} 3
took_seconds_bucket{le="+Inf"} 4
took_seconds_count 4
took_seconds_sum 12.5
# TYPE build info
# HELP build Help with \"quotes\" and \\.
build_info{version="1"} 1.0
# EOF
"#
        );
    }

    #[test]
    fn prometheus_names_samples() {
        let text = text(&all(), Format::Prometheus);
        assert!(text.starts_with(
            "# TYPE sent_total counter\n# HELP sent_total Help with \"quotes\" and \\\\.\nsent_total{type=\"query\"} 7\n"
        ));
        assert!(text.contains("# TYPE build_info gauge\n"));
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    }

    #[test]
    fn a_metric_is_named_as_in_the_text() {
        let all = all();
        assert_eq!(metric(&all[0], &all[0].samples[0]), r#"sent_total{type="query"}"#);
        assert_eq!(metric(&all[2], &all[2].samples[0]), "took_seconds");
    }
}
