//! Messages as another dissector reads them: tshark over the captures, for the check `dissected`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use super::capture::Captures;
use crate::plan::Plan;
use crate::run::scratch::Scratch;

/// What tshark found in the captures.
#[derive(Debug)]
pub(crate) struct Report(pub(crate) Result<Vec<LinkReport>>);

/// The RSVP messages on a link, as tshark read them.
#[derive(Debug, Clone)]
pub(crate) struct LinkReport {
    pub(crate) link: String,
    pub(crate) messages: usize,
    /// Lines that report a fault.
    pub(crate) faults: Vec<String>,
}

/// Reads the captures with tshark.
pub(crate) fn read_all(captures: &Captures, plan: &Plan) -> Report {
    Report(links(captures, plan))
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
