//! The check `dissected`: messages as another dissector reads them, which is tshark over the captures.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::observe::capture::Captures;
use crate::plan::Plan;
use crate::run::Progress;
use crate::scenario::{Mistake, Scope};
use crate::scratch::Scratch;

/// What tshark found in the captures.
#[derive(Debug)]
struct Report(Result<Vec<LinkReport>>);

/// The RSVP messages on a link, as tshark read them.
#[derive(Debug, Clone)]
struct LinkReport {
    link: String,
    messages: usize,
    /// Lines that report a fault.
    faults: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dissected {
    dissected: Spanned<String>,
}

/// The protocols that tshark reads.
const PROTOCOLS: [&str; 1] = ["rsvp"];

impl Check for Dissected {
    const NAME: &'static str = "dissected";
    const MEANING: &'static str =
        "tshark read every RSVP message captured and found neither a malformed field nor a wrong checksum.";
    const KEYS: &'static [Key] = &[key("dissected", "protocol", "the protocol: rsvp")];

    fn validate(&self, _scope: &Scope<'_>) -> Result<(), Mistake> {
        if PROTOCOLS.contains(&self.dissected.as_ref().as_str()) {
            return Ok(());
        }
        let what = format!(
            "tshark reads no `{}`, expected one of {}",
            self.dissected.as_ref(),
            PROTOCOLS.join(", ")
        );
        Err(Mistake::new(self.dissected.span(), what))
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let report = evidence.all::<Report>().next().ok_or("tshark was not run")?;
        let links = report.0.as_ref().map_err(|error| format!("{error:#}"))?;
        if let Some(link) = links.iter().find(|link| !link.faults.is_empty()) {
            let faults = link.faults.len();
            return Err(format!("{faults} faults on {}, first {:?}", link.link, link.faults[0]));
        }
        let messages: usize = links.iter().map(|link| link.messages).sum();
        if messages == 0 {
            return Err("no RSVP message on any link".to_owned());
        }
        let each: Vec<_> = links.iter().map(|link| format!("{} on {}", link.messages, link.link)).collect();
        Ok(format!(
            "{messages} RSVP messages without a malformed field or a wrong checksum: {}",
            each.join(", ")
        ))
    }

    fn collect(&self, captures: &Captures, evidence: &mut Evidence, progress: &Progress<'_>) {
        if evidence.all::<Report>().next().is_none() {
            progress("reading the captures with tshark");
            let report = Report(links(captures, &evidence.plan));
            evidence.record(report);
        }
    }
}

/// Runs tshark over the captures of all links at once, since it takes long where there are many packets.
fn links(captures: &Captures, plan: &Plan) -> Result<Vec<LinkReport>> {
    let scratch = Scratch::new("dissect")?;
    let directory = scratch.path();
    captures.write(plan, directory)?;
    thread::scope(|scope| {
        let readers: Vec<_> =
            plan.links.iter().map(|link| scope.spawn(|| dissect(directory, &link.name))).collect();
        let read =
            readers.into_iter().map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?);
        read.collect()
    })
}

fn dissect(directory: &Path, link: &str) -> Result<LinkReport> {
    let mut tshark = Command::new("tshark")
        .arg("-r")
        .arg(directory.join(format!("{link}.pcap")))
        .args(["-n", "-Q", "-Y", "rsvp", "-O", "rsvp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run tshark; apt-get install tshark")?;
    // The output can be too large for the memory.
    let output = tshark.stdout.take().context("tshark has no output")?;
    let dissected = read(link, BufReader::new(output))?;
    let ended = tshark.wait_with_output()?;
    if !ended.status.success() {
        bail!("tshark: {}", String::from_utf8_lossy(&ended.stderr).trim());
    }
    Ok(dissected)
}

/// Reads the output: each message has a line with its checksum, and each fault a line in brackets.
fn read(link: &str, text: impl BufRead) -> Result<LinkReport> {
    let (mut messages, mut faults) = (0, Vec::new());
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        messages += usize::from(line.contains("Message Checksum:"));
        if line.contains("[incorrect") || line.contains("[Malformed") {
            faults.push(line.trim().to_owned());
        }
    }
    Ok(LinkReport { link: link.to_owned(), messages, faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tshark_complains_of_is_a_fault() {
        let text = "Resource ReserVation Protocol (RSVP): HELLO Message.\n        Message Checksum: 0xd8c9 [correct]\n\
                    Resource ReserVation Protocol (RSVP): HELLO Message.\n        Message Checksum: 0x1234 [incorrect, \
                    should be 0xd8c9]\n        Message Checksum: 0x0000\n[Malformed Packet: RSVP]\n";
        let read = read("a-b", text.as_bytes()).unwrap();
        assert_eq!((read.messages, read.faults.len()), (3, 2));
        assert_eq!(read.faults[1], "[Malformed Packet: RSVP]");
    }
}
