//! Another interception beside that of the daemon: Echoes with the magic number are marked and routed to a TUN device, and a
//! forwarder writes each one back.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signalbox_linux::topology;

use super::site::Site;

const DEVICE: &str = "divert0";
const MARK: u32 = 71;
/// Echoes with the magic number of Boomerang that come from the source. What is written back comes in by the device.
const MATCHING: &str = "iifname \"middle0\" ip protocol icmp @th,64,32 0x47114711";
/// Packets that the device holds; the queue of the daemon has room for nearly as many.
const QUEUE: u32 = 10_000;
const PATIENCE_MS: u8 = 20;

/// Lays the rule and makes the device in the middle.
pub(super) fn divert(site: &Site) -> Result<File> {
    Ok(topology::divert_to_tun(&site.middle, DEVICE, MARK, MATCHING, QUEUE)?)
}

/// Writes each packet back until `stop`: the kernel then forwards it.
pub(super) fn forward(mut device: File, stop: &AtomicBool) -> Result<()> {
    let mut packet = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        match device.read(&mut packet) {
            Ok(length) => {
                let whole = packet.get(..length).unwrap_or_default();
                device.write_all(whole).context("the TUN device takes no packet")?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut wanted = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
                poll(&mut wanted, PollTimeout::from(PATIENCE_MS))
                    .context("cannot wait for the TUN device")?;
            }
            Err(error) => return Err(error).context("cannot read from the TUN device"),
        }
    }
    Ok(())
}
