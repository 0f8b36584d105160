//! `signalbox decode`.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use signalbox_dissect::Options;

use super::Run;
use crate::exit::{Exit, exit_status};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct DecodeArgs {
    /// Protocol of the messages in hexadecimal lines. In a capture, the packets' headers decide.
    #[arg(long, value_enum, default_value = "gist")]
    protocol: Protocol,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Print the octets that our encoder makes of the decoded message.
    #[arg(long)]
    reencode: bool,
    /// Hexadecimal lines, a message each, or a capture (pcap, pcapng); `-` is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Protocol {
    /// GIST, RFC 5971.
    Gist,
    /// RSVP, RFC 2205 and its family.
    Rsvp,
    /// Boomerang, draft-bergkvist-boomerang-spec-00.
    Boomerang,
    /// CASP, draft-schulzrinne-nsis-casp-01.
    Casp,
    /// Bare messages of the NATFW NSLP, RFC 5973.
    Natfw,
    /// Bare messages of the QoS NSLP, RFC 5974.
    Qos,
    /// Bare QSPECs, RFC 5975.
    Qspec,
    /// PCP, RFC 6887, and NAT-PMP, RFC 6886.
    Pcp,
}

const HELP: &str = concat!(
    exit_status!(
        "every message was understood",
        "one was not: its error names object, offset, and the GIST error that it raises"
    ),
    "EXAMPLES:\n",
    "  signalbox decode capture.pcap\n",
    "  echo 4e04bda5... | signalbox decode --protocol gist --json\n",
    "  signalbox decode --reencode messages.hex\n",
    "  echo 03000000... | signalbox decode --protocol natfw\n\n",
    "A line holds a UDP payload with the magic number, or the bare message of a stream; of RSVP a message from its common\n",
    "header on, of Boomerang an ICMP message, of CASP a message with or without Length Header, of natfw, qos and qspec what\n",
    "GIST carries, of PCP and NAT-PMP a UDP payload. What follows a # is skipped.\n",
    "Of a capture, UDP datagrams of GIST, CASP, PCP and NAT-PMP, RSVP's IP packets and Boomerang's ICMP Echos are printed.",
);

impl Run for DecodeArgs {
    fn run(self) -> Result<Exit> {
        let protocol = match self.protocol {
            Protocol::Gist => signalbox_dissect::Protocol::Gist,
            Protocol::Rsvp => signalbox_dissect::Protocol::Rsvp,
            Protocol::Boomerang => signalbox_dissect::Protocol::Boomerang,
            Protocol::Casp => signalbox_dissect::Protocol::Casp,
            Protocol::Natfw => signalbox_dissect::Protocol::Natfw,
            Protocol::Qos => signalbox_dissect::Protocol::Qos,
            Protocol::Qspec => signalbox_dissect::Protocol::Qspec,
            Protocol::Pcp => signalbox_dissect::Protocol::Pcp,
        };
        let input: Box<dyn Read> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(&self.file).with_context(|| format!("cannot open {}", self.file.display()))?)
        };
        let options = Options { protocol, json: self.json, reencode: self.reencode };
        let mut out = BufWriter::new(io::stdout().lock());
        let summary = signalbox_dissect::decode(input, &mut out, &options)?;
        if summary.messages == 0 && summary.failed == 0 {
            eprintln!("signalbox: no message was found; in a capture, look at its ports and protocols");
        }
        Ok(Exit::yes_if(summary.failed == 0))
    }
}
