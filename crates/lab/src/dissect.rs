//! RSVP as another dissector reads it: tshark, over the captures.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use crate::evidence::Dissected;
use crate::observe::capture::Captures;
use crate::plan::Plan;

/// Has tshark read what passed on each link, on all of them at once: it takes longest of all where there is much.
pub(crate) fn links(captures: &Captures, plan: &Plan) -> Result<Vec<Dissected>> {
    let directory = std::env::temp_dir().join(format!("signalbox-dissect-{}", std::process::id()));
    captures.write(plan, &directory)?;
    let read = thread::scope(|scope| {
        let readers: Vec<_> =
            plan.links.iter().map(|link| scope.spawn(|| dissect(&directory, &link.name))).collect();
        let read =
            readers.into_iter().map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?);
        read.collect()
    });
    std::fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    read
}

fn dissect(directory: &Path, link: &str) -> Result<Dissected> {
    let mut tshark = Command::new("tshark")
        .arg("-r")
        .arg(directory.join(format!("{link}.pcap")))
        .args(["-n", "-Q", "-Y", "rsvp", "-O", "rsvp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run tshark; apt-get install tshark")?;
    // Of many messages it has more to say than should be in memory at once.
    let said = tshark.stdout.take().context("tshark has no output")?;
    let dissected = read(link, BufReader::new(said))?;
    let ended = tshark.wait_with_output()?;
    if !ended.status.success() {
        bail!("tshark: {}", String::from_utf8_lossy(&ended.stderr).trim());
    }
    Ok(dissected)
}

/// Each message has a line with its checksum; what is wrong is said in words.
fn read(link: &str, text: impl BufRead) -> Result<Dissected> {
    let (mut messages, mut faults) = (0, Vec::new());
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        messages += usize::from(line.contains("Message Checksum:"));
        if line.contains("[incorrect") || line.contains("[Malformed") {
            faults.push(line.trim().to_owned());
        }
    }
    Ok(Dissected { link: link.to_owned(), messages, faults })
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
