//! `signalbox show counters`.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use signalbox_api::openmetrics::{self, Format};
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_api::v1::sample::Value;
use tonic::Streaming;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, refusal};
use crate::exit::Exit;
use crate::print::table;

#[derive(Debug, Args)]
pub(crate) struct CountersArgs {
    /// Only metrics whose names begin with this; may be repeated.
    #[arg(long = "name", value_name = "PREFIX")]
    names: Vec<String>,
    /// Leave out values that are zero.
    #[arg(long)]
    nonzero: bool,
    /// Print the text format of OpenMetrics 1.0, for a program that collects metrics from files.
    #[arg(long, conflicts_with_all = ["json", "nonzero"])]
    openmetrics: bool,
}

pub(super) async fn show(arguments: &CountersArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = NodeClient::new(client::channel(socket).await?);
    let request = v1::ListMetricsRequest { name_prefixes: arguments.names.clone() };
    let families = client.list_metrics(request).await;
    if arguments.openmetrics {
        return print_openmetrics(answer(families)?).await;
    }
    table::list(families, output, &["metric", "value", "meaning"], |family| cells(family, arguments.nonzero))
        .await
}

/// Prints all families as one text, which ends with `# EOF`.
async fn print_openmetrics(mut pages: Streaming<v1::ListMetricsResponse>) -> Result<Exit> {
    let mut families = Vec::new();
    while let Some(page) = pages.message().await.map_err(refusal)? {
        families.extend(page.families);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(openmetrics::text(&families, Format::OpenMetrics).as_bytes())?;
    out.flush()?;
    Ok(Exit::Yes)
}

/// A row for each sample.
fn cells(family: &v1::MetricFamily, nonzero: bool) -> Vec<[String; 3]> {
    let shown = family.samples.iter().filter(|sample| !nonzero || !is_zero(sample));
    shown
        .enumerate()
        .map(|(number, sample)| {
            let help = if number == 0 { family.help.clone() } else { String::new() };
            [openmetrics::metric(family, sample), value(sample), help]
        })
        .collect()
}

fn value(sample: &v1::Sample) -> String {
    match &sample.value {
        None => "-".to_owned(),
        Some(Value::Count(count)) => count.to_string(),
        Some(Value::Gauge(gauge)) => gauge.to_string(),
        Some(Value::Histogram(histogram)) => format!("{} of {}", histogram.count, histogram.sum),
    }
}

fn is_zero(sample: &v1::Sample) -> bool {
    match &sample.value {
        None => true,
        Some(Value::Count(count)) => *count == 0,
        Some(Value::Gauge(gauge)) => *gauge == 0.0,
        Some(Value::Histogram(histogram)) => histogram.count == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_a_row_with_its_labels() {
        let sample = |kind: &str, count| v1::Sample {
            labels: vec![v1::Label { name: "type".into(), value: kind.into() }],
            value: Some(Value::Count(count)),
        };
        let family = v1::MetricFamily {
            name: "signalbox_messages_sent_total".into(),
            samples: vec![sample("query", 3), sample("response", 0)],
            ..Default::default()
        };
        assert_eq!(cells(&family, false).len(), 2);
        let shown = cells(&family, true);
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0][..2], [r#"signalbox_messages_sent_total{type="query"}"#, "3"]);
    }
}
