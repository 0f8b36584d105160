//! RSVP as another dissector reads it: tshark, over the captures.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::evidence::Dissected;
use crate::observe::capture::Captures;
use crate::plan::Plan;

/// Has tshark read what passed on each link.
pub(crate) fn links(captures: &Captures, plan: &Plan) -> Result<Vec<Dissected>> {
    let directory = std::env::temp_dir().join(format!("signalbox-dissect-{}", std::process::id()));
    captures.write(plan, &directory)?;
    let read = plan.links.iter().map(|link| {
        let file = directory.join(format!("{}.pcap", link.name));
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&file)
            .args(["-n", "-Y", "rsvp", "-O", "rsvp"])
            .output()
            .context("cannot run tshark; apt-get install tshark")?;
        if !output.status.success() {
            bail!("tshark: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(read(&link.name, &text))
    });
    let read = read.collect();
    std::fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    read
}

/// Each message has a line with its checksum; what is wrong is said in words.
fn read(link: &str, text: &str) -> Dissected {
    let messages = text.lines().filter(|line| line.contains("Message Checksum:")).count();
    let wrong = |line: &&str| line.contains("[incorrect") || line.contains("[Malformed");
    let faults = text.lines().filter(wrong).map(|line| line.trim().to_owned()).collect();
    Dissected { link: link.to_owned(), messages, faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tshark_complains_of_is_a_fault() {
        let text = "Resource ReserVation Protocol (RSVP): HELLO Message.\n        Message Checksum: 0xd8c9 [correct]\n\
                    Resource ReserVation Protocol (RSVP): HELLO Message.\n        Message Checksum: 0x1234 [incorrect, \
                    should be 0xd8c9]\n        Message Checksum: 0x0000\n[Malformed Packet: RSVP]\n";
        let read = read("a-b", text);
        assert_eq!((read.messages, read.faults.len()), (3, 2));
        assert_eq!(read.faults[1], "[Malformed Packet: RSVP]");
    }
}
