//! Captures at the first end of each link, by a thread each.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use signalbox_linux::capture::{Capture, CaptureConfig};

use super::trace::{LinkTrace, Trace};
use crate::plan::Plan;
use crate::protocols::frame::Frame;
use crate::run::kernel;

/// The octets of frames that are kept for each link: what a flood of 1,000 connections a second with half a message each takes
/// in half a minute.
const KEPT: usize = 192 << 20;
/// A reader checks this often whether it should end.
const LOOK: Duration = Duration::from_millis(20);

/// Running captures of all links of a plan.
#[derive(Debug)]
pub(crate) struct Captures {
    links: Vec<Reader>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Reader {
    first: usize,
    kept: Arc<Mutex<Kept>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Kept {
    frames: Vec<Frame>,
    octets: usize,
    missed: u64,
}

impl Captures {
    /// Starts to capture; all frames from now on are kept.
    pub(crate) fn start(plan: &Plan) -> Result<Self> {
        let links = plan.links.iter().map(|link| Reader { first: link.ends[0].0, ..Reader::default() });
        let mut captures = Self { links: links.collect(), stop: Arc::default() };
        captures.resume(plan)?;
        Ok(captures)
    }

    /// Does something without captures, which cost each packet time, and a processor.
    pub(crate) fn resting<T>(&mut self, plan: &Plan, what: impl FnOnce() -> Result<T>) -> Result<T> {
        self.stop()?;
        let result = what();
        self.resume(plan)?;
        result
    }

    fn resume(&mut self, plan: &Plan) -> Result<()> {
        self.stop = Arc::default();
        for (reader, link) in self.links.iter_mut().zip(&plan.links) {
            let (first, interface) = &link.ends[0];
            let namespace = kernel::namespace(&plan.nodes[*first].namespace)?;
            let capture = Capture::open(&namespace, interface, CaptureConfig::default())
                .with_context(|| format!("cannot capture on {}", link.name))?;
            let (kept, stop) = (Arc::clone(&reader.kept), Arc::clone(&self.stop));
            reader.thread = Some(thread::spawn(move || read(capture, &kept, &stop)));
        }
        Ok(())
    }

    /// Returns what passed so far.
    pub(crate) fn trace(&self) -> Trace {
        let read = |reader: &Reader| {
            // A reader that panicked has kept whole frames only.
            let kept = reader.kept.lock().unwrap_or_else(PoisonError::into_inner);
            LinkTrace::read(reader.first, &kept.frames, kept.missed)
        };
        Trace { links: self.links.iter().map(read).collect() }
    }

    /// Returns the last frame that passed a link in this direction and fulfils a condition.
    pub(crate) fn last(
        &self,
        link: usize,
        outgoing: bool,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let kept = self.links.get(link)?.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut frames = kept.frames.iter().rev().filter(|frame| frame.outgoing == outgoing);
        frames.find(|frame| wanted(&frame.octets)).map(|frame| frame.octets.clone())
    }

    /// Reads what the kernel still holds, and ends.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for reader in &mut self.links {
            if let Some(thread) = reader.thread.take() {
                thread.join().map_err(|_| anyhow!("a capture panicked"))?.context("a capture failed")?;
            }
        }
        Ok(())
    }

    /// Writes one file for each link into a directory, named for the link.
    pub(crate) fn write(&self, plan: &Plan, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        for (reader, link) in self.links.iter().zip(&plan.links) {
            let path = directory.join(format!("{}.pcap", link.name));
            let kept = reader.kept.lock().unwrap_or_else(PoisonError::into_inner);
            write(&path, &kept.frames).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn read(mut capture: Capture, kept: &Mutex<Kept>, stop: &AtomicBool) -> std::io::Result<()> {
    loop {
        // Checked before the read, so that the frames that are there at the end are still read.
        let last = stop.load(Ordering::Relaxed);
        let patience = if last { Duration::ZERO } else { LOOK };
        let result = capture.read(patience, |frame| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.octets + frame.octets.len() > KEPT {
                kept.missed += 1;
                return;
            }
            kept.octets += frame.octets.len();
            let octets = frame.octets.to_vec();
            let number = kept.frames.len() + 1;
            kept.frames.push(Frame { number, at: frame.timestamp, outgoing: frame.outgoing, octets });
        });
        match result {
            // Reported once when the link goes down; it may come up again.
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {}
            result => {
                result?;
            }
        }
        if last {
            return Ok(());
        }
    }
}

/// Writes frames as a capture file.
pub(crate) fn write(path: &Path, frames: &[Frame]) -> Result<()> {
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::MicroSecond,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(BufWriter::new(File::create(path)?), header)?;
    for frame in frames {
        let length = u32::try_from(frame.octets.len())?;
        writer.write_packet(&PcapPacket::new(frame.at, length, &frame.octets))?;
    }
    // Dropping the buffer would swallow the error of its last write.
    writer.into_writer().into_inner().map_err(|error| error.into_error())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use pcap_file::pcap::PcapReader;

    use super::*;

    #[test]
    fn a_written_capture_is_read_back() {
        let path = std::env::temp_dir().join(format!("signalbox-lab-{}.pcap", std::process::id()));
        let frame = Frame {
            number: 1,
            at: Duration::from_micros(1_700_000_000_000_123),
            outgoing: true,
            octets: vec![1, 2, 3],
        };
        write(&path, std::slice::from_ref(&frame)).expect("the directory is writable");
        let mut reader = PcapReader::new(File::open(&path).expect("written")).expect("a capture");
        let packet = reader.next_packet().expect("there is one").expect("sound");
        assert_eq!((packet.timestamp, packet.data.as_ref()), (frame.at, &frame.octets[..]));
        std::fs::remove_file(&path).expect("ours");
    }
}
