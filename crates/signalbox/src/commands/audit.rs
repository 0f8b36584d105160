//! `signalbox audit`: the decisions in an audit file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::Run;
use crate::arguments::OutputArgs;
use crate::exit::{Exit, exit_status, usage};
use crate::print::{date_time, decision, flows, flows_of, moment, now_unix_us};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct AuditArgs {
    /// The file that audit.file of the daemon names, or one that logrotate has moved; - is standard input.
    #[arg(long, value_name = "PATH", default_value = "/var/log/signalbox/audit.jsonl")]
    file: PathBuf,
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const HELP: &str = concat!(
    exit_status!("read"),
    "EXAMPLES:\n",
    "  signalbox audit --since 14:00 --refused\n",
    "  signalbox audit --flow 192.0.2.9 --signaling rsvp\n",
    "  signalbox audit --since 2026-11-28T14:00 --until 2026-11-28T14:10 --json | jq .rule\n",
    "  zcat /var/log/signalbox/audit.jsonl.2.gz | signalbox audit --file - --from 192.0.2.1\n\n",
    "Times are UTC, like those of the daemon's log. Without [audit] in the daemon's configuration there is no file;\n",
    "`signalbox show decisions` has the last 1,000 in any case.",
);

/// Which decisions to show.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WantedArgs {
    /// From this time on: 14:00, 2026-11-28T14:00, or 2h for two hours ago.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Until this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only flows with this text, such as an address or '192.0.2.1 > 192.0.2.9'.
    #[arg(long, value_name = "TEXT")]
    flow: Option<String>,
    /// Only requests by this neighbor, or for which a neighbor named this party, whether the claim counted or not.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// Only this reservation, this session, or what the call with this --request-id asked for.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Only this protocol: qos, rsvp, boomerang, natfw or casp.
    #[arg(long, value_name = "PROTOCOL")]
    signaling: Option<String>,
    /// Only what was refused.
    #[arg(long, conflicts_with = "outcome")]
    refused: bool,
    /// Only what became of it in this way.
    #[arg(long, value_enum)]
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Outcome {
    Granted,
    Changed,
    Refused,
    Preempted,
    Lost,
    Restored,
    Ended,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Changed => "changed",
            Self::Refused => "refused",
            Self::Preempted => "preempted",
            Self::Lost => "lost",
            Self::Restored => "restored",
            Self::Ended => "ended",
        }
    }
}

/// Which decisions to show, with their times read.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    since: u64,
    until: Option<u64>,
    arguments: WantedArgs,
}

impl WantedArgs {
    /// Reads the times.
    pub(crate) fn read(&self) -> Result<Wanted> {
        let read = |text: Option<&String>| -> Result<Option<u64>> {
            match text.map(|text| moment(text, now_unix_us())).transpose() {
                Ok(moment) => Ok(moment),
                Err(error) => usage!("{error}"),
            }
        };
        Ok(Wanted {
            since: read(self.since.as_ref())?.unwrap_or(0),
            until: read(self.until.as_ref())?,
            arguments: self.clone(),
        })
    }
}

impl Wanted {
    /// Whether a decision is wanted.
    pub(crate) fn wants(&self, row: &Value) -> bool {
        let WantedArgs { flow, from, id, signaling, refused, outcome, .. } = &self.arguments;
        let text = |key: &str| row.get(key).and_then(Value::as_str);
        let at = row.get("time_unix_us").and_then(Value::as_u64).unwrap_or(0);
        let outcome = if *refused { Some(Outcome::Refused) } else { *outcome };
        let party = |from: &IpAddr| {
            let has = |key| text(key).is_some_and(|text| text.split(' ').any(|one| one.parse() == Ok(*from)));
            has("claimed") || has("neighbor")
        };
        let named = |id: &String| {
            text("id") == Some(id)
                || ["session_id", "request_id"]
                    .iter()
                    .any(|key| text(key).is_some_and(|long| long.starts_with(id.as_str())))
        };
        at >= self.since
            && self.until.is_none_or(|until| at < until)
            && outcome.is_none_or(|outcome| text("outcome") == Some(outcome.name()))
            && signaling.as_deref().is_none_or(|signaling| text("protocol") == Some(signaling))
            && flow.as_ref().is_none_or(|flow| has_flow(row, flow))
            && from.as_ref().is_none_or(party)
            && id.as_ref().is_none_or(named)
    }
}

/// Whether the text of a flow has these words one after the other. An address is not a part of a longer one.
fn has_flow(row: &Value, wanted: &str) -> bool {
    let all = flows(&flows_of(row));
    let words: Vec<&str> = all.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let wanted: Vec<&str> = wanted.split_whitespace().collect();
    !wanted.is_empty() && words.windows(wanted.len()).any(|some| some == wanted)
}

impl Run for AuditArgs {
    fn run(self) -> Result<Exit> {
        let wanted = self.wanted.read()?;
        let path = self.file.display();
        let input: Box<dyn BufRead> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(&self.file).with_context(|| {
                format!("cannot read {path}: set audit.file of the daemon, or give the file with --file")
            })?;
            Box::new(BufReader::new(file))
        };
        let unread = print(input, &wanted, self.output, &mut io::stdout().lock())?;
        if unread > 0 {
            // A full disk leaves a line that is not whole.
            writeln!(io::stderr(), "signalbox: {unread} lines of {path} are no decisions")?;
        }
        Ok(Exit::Yes)
    }
}

/// Prints what is wanted. Returns the number of lines that are no decisions.
fn print(input: impl BufRead, wanted: &Wanted, output: OutputArgs, out: &mut impl Write) -> Result<u64> {
    let mut unread = 0;
    for line in input.split(b'\n') {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        let row: Option<Value> = serde_json::from_slice(&line).ok();
        let Some(row) = row.filter(|row| row.get("type").and_then(Value::as_str) == Some("decision")) else {
            unread += 1;
            continue;
        };
        if !wanted.wants(&row) {
            continue;
        }
        if output.json {
            writeln!(out, "{}", String::from_utf8_lossy(&line))?;
        } else {
            let at = row.get("time_unix_us").and_then(Value::as_u64).unwrap_or(0);
            writeln!(out, "{} {}", date_time(at), decision(&row))?;
        }
    }
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use signalbox_api::v1;

    use super::*;

    fn line(at: u64, outcome: v1::Outcome, destination: &str) -> String {
        signalbox_json::row(&v1::Decision {
            time_unix_us: at,
            outcome: outcome.into(),
            protocol: v1::Protocol::Qos.into(),
            id: Some("1f".into()),
            neighbor: Some("10.0.1.1".into()),
            flows: vec![v1::FlowSpec {
                source: Some("10.0.0.1".into()),
                destination: Some(destination.into()),
                ..v1::FlowSpec::default()
            }],
            ..v1::Decision::default()
        })
        .unwrap()
    }

    fn shown(file: &str, arguments: &WantedArgs) -> (usize, u64) {
        let mut out = Vec::new();
        let unread =
            print(file.as_bytes(), &arguments.read().unwrap(), OutputArgs { json: true }, &mut out).unwrap();
        (String::from_utf8(out).unwrap().lines().count(), unread)
    }

    #[test]
    fn what_is_not_wanted_and_torn_lines_are_left_out() {
        let (granted, refused) = (v1::Outcome::Granted, v1::Outcome::Refused);
        let whole = line(7, refused, "10.0.9.10");
        let torn = &whole[..40];
        let file =
            [&line(5, granted, "10.0.9.1"), torn, &line(6, refused, "10.0.9.1"), &whole, "{}"].join("\n");
        let all = WantedArgs::default();
        assert_eq!(shown(&file, &all), (3, 2));
        assert_eq!(shown(&file, &WantedArgs { refused: true, ..all.clone() }).0, 2);
        let flow = |flow: &str| WantedArgs { flow: Some(flow.into()), ..all.clone() };
        assert_eq!(
            [flow("10.0.9.1"), flow("10.0.0.1 > 10.0.9.10"), flow("10.0.9")].map(|one| shown(&file, &one).0),
            [2, 1, 0]
        );
        let from = |from: &str| WantedArgs { from: Some(from.parse().unwrap()), ..all.clone() };
        assert_eq!([from("10.0.1.1"), from("10.0.0.1")].map(|one| shown(&file, &one).0), [3, 0]);
        let since = WantedArgs { since: Some("1970-01-02T00:00".into()), ..all.clone() };
        assert_eq!(shown(&file, &since).0, 0);
        let other = WantedArgs { signaling: Some("rsvp".into()), ..all.clone() };
        assert_eq!(
            (shown(&file, &other).0, shown(&file, &WantedArgs { id: Some("1f".into()), ..all }).0),
            (0, 3)
        );
    }
}
