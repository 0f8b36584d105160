//! `signalbox replay`: a recorded node repeats what it did.

mod events;
mod print;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use signalbox_node::rsvp::Secret;
use signalbox_node::{Command, Config, Node};
use signalbox_record::{ReadError, Reader};

use print::Printer;

/// Exit status of a recording that is sound only up to some line.
const BROKEN: u8 = 1;

/// Arguments of `signalbox replay`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ReplayArgs {
    /// The recording, as the daemon writes it (`record.file` in its configuration); `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print one JSON object a line: one for each output, and a summary at the end.
    #[arg(long)]
    pub json: bool,
    /// A key file of the recorded node ([[rsvp.key]] in its configuration); may be given several times.
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
}

const HELP: &str = "\
EXIT STATUS:
  0  the whole recording was replayed
  1  it breaks off, or is wrong from some line on; what is before it was replayed
  2  the command line is wrong
  3  no recording that a node can be made from

EXAMPLES:
  signalbox replay /var/lib/signalbox/inputs.jsonl
  signalbox replay inputs.jsonl --json | grep '\"type\":\"transmit\"'

The node is made from the configuration and the seed in the recording's first line and given every input at
the time it had then. What it does is printed, nothing is sent: the same lines every time, unless the engine
has been changed since. That makes a recording a test.

Keys by which messages of RSVP and Boomerang are signed are not in a recording. To replay that of a node that has some, give the files
in which they are with --key.

With --json, \"type\" names the kind of a line; t is in microseconds on the node's clock:
  transmit      t, entry, src, dst, ifindex, ttl, tos, dont_fragment, options, payload (hexadecimal), message
  route-lookup  t, id, query
  stream-listen, stream-open, stream-write, stream-read, stream-close
                t, and what the driver is to do with byte streams
  event         t, id, event: of a ping: started, refused, reply, lost or done, and what belongs to it
  application   t, id, event: what an application in another process receives
  qos-event, rsvp-event
                t, id, event: what a reservation reports to its user
  reserve, release
                t, id, reservation: what is reserved in the kernel
  summary       t, inputs, outputs, transmits, route_lookups, streams, events, sessions, peers, pings, counters (those
                that are not 0), reached_limit, fault";

/// Replays a recording and prints what the node does.
///
/// # Errors
/// A file that cannot be read, a header that no node can be made from, or output that cannot be written.
pub fn run(arguments: &ReplayArgs) -> Result<ExitCode> {
    let name = arguments.file.display();
    let source: Box<dyn BufRead> = if arguments.file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&arguments.file).with_context(|| format!("cannot open {name}"))?;
        Box::new(BufReader::new(file))
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let keys = arguments.keys.iter().map(|file| secret(file)).collect::<Result<Vec<_>>>()?;
    let fault = replay(source, &keys, arguments.json, &mut out).with_context(|| name.to_string())?;
    out.flush()?;
    let Some(fault) = fault else { return Ok(ExitCode::SUCCESS) };
    // If it cannot be printed, the exit status still shows it.
    let _ = writeln!(io::stderr(), "signalbox: {name}: {:#}", anyhow::Error::from(fault));
    Ok(ExitCode::from(BROKEN))
}

/// Replays; what is wrong with the recording after the inputs that were replayed.
fn replay(
    source: impl BufRead,
    keys: &[Secret],
    json: bool,
    out: &mut impl Write,
) -> Result<Option<ReadError>> {
    let mut recording = Reader::<_, Command>::new(source)?;
    let mut node = node(&recording, keys)?;
    let mut printer = Printer::new(out, json);
    let done = signalbox_record::replay(&mut recording, &mut node, |t, output| printer.output(t, &output))?;
    printer.summary(&node, &done, recording.reached_limit())?;
    Ok(done.fault)
}

/// The node as it was when the recording began.
fn node<R: BufRead>(recording: &Reader<R, Command>, keys: &[Secret]) -> Result<Node> {
    let mut config: Config = serde_json::from_value(recording.config().clone())
        .context("line 1: config: no node of this version can be made from it")?;
    for key in config.rsvp.iter_mut().flat_map(|rsvp| &mut rsvp.keys) {
        if !keys.iter().any(|secret| key.secret.reveal(secret)) {
            bail!(
                "line 1: config: the node had the RSVP key {}{}, which a recording does not hold; give its file with \
                 --key FILE",
                key.id,
                key.interface.as_ref().map(|name| format!(" at {name}")).unwrap_or_default(),
            );
        }
    }
    for key in config.boomerang.iter_mut().flat_map(|boomerang| &mut boomerang.integrity.keys) {
        if !keys.iter().any(|secret| key.secret.reveal(secret)) {
            bail!(
                "line 1: config: the node had the Boomerang key {}, which a recording does not hold; give its file with \
                 --key FILE",
                key.id,
            );
        }
    }
    Node::new(config, recording.seed()).context("line 1: config")
}

fn secret(file: &Path) -> Result<Secret> {
    let content = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Secret::from_file(&content))
}

#[cfg(test)]
mod tests;
