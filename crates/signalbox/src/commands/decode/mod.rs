//! `signalbox decode`.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use signalbox_dissect::Options;

use super::Run;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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
    /// Hexadecimal lines, a message each, or a pcap; `-` is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Protocol {
    /// GIST, RFC 5971.
    Gist,
    /// RSVP, RFC 2205 and its family.
    Rsvp,
}

const EXAMPLES: &str = "\
Examples:
  signalbox decode capture.pcap
  echo 4e04bda5... | signalbox decode --protocol gist --json
  signalbox decode --reencode messages.hex

A line holds a UDP payload with the magic number, or the bare message of a stream; of RSVP a message from its common
header on. What follows a # is skipped. Of a capture, GIST's UDP datagrams and RSVP's IP packets are printed.

Exit status: 0 every message was understood, 1 one was not (its error names object, offset and the GIST error
that it raises), 2 wrong arguments or a file that cannot be read.";

impl Run for DecodeArgs {
    fn run(self, _: &Path) -> Result<ExitCode> {
        let protocol = match self.protocol {
            Protocol::Gist => signalbox_dissect::Protocol::Gist,
            Protocol::Rsvp => signalbox_dissect::Protocol::Rsvp,
        };
        let input: Box<dyn Read> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(&self.file).with_context(|| format!("cannot open {}", self.file.display()))?)
        };
        let options = Options { protocol, json: self.json, reencode: self.reencode };
        let mut out = BufWriter::new(io::stdout().lock());
        let summary = signalbox_dissect::decode(input, &mut out, &options)?;
        Ok(ExitCode::from(u8::from(summary.failed > 0)))
    }
}
