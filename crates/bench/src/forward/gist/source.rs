//! The source: sends recorded messages at a rate.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

/// Messages that one system call sends, as segments of one datagram, so that the source is not the limit.
const BURST: usize = 32;

/// Sends `messages`, all of one size, one after the other and again from the start, `rate` a second for `span`.
/// Returns how many were sent, and how long it took.
pub(super) fn send(
    socket: &UdpSocket,
    messages: &[Vec<u8>],
    rate: u64,
    span: Duration,
) -> Result<(u64, Duration)> {
    let size = messages.first().map(Vec::len).context("no message to send")?;
    ensure!(messages.iter().all(|message| message.len() == size), "messages of several sizes");
    setsockopt(&socket.as_fd(), UdpGsoSegment, &i32::try_from(size)?)
        .context("no UDP segmentation in this kernel")?;
    let mut queue = messages.iter().cycle();
    let bursts: Vec<Vec<u8>> = (0..messages.len().div_ceil(BURST))
        .map(|_| queue.by_ref().take(BURST).flatten().copied().collect())
        .collect();
    let gap = Duration::from_secs_f64(BURST as f64 / rate as f64);
    let start = Instant::now();
    let mut sent = 0;
    for (number, burst) in (0_u32..).zip(bursts.iter().cycle()) {
        let due = start + gap * number;
        if due - start >= span {
            break;
        }
        // A busy loop keeps the rate even; sleeping would make bursts.
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        if socket.send(burst).is_ok() {
            sent += BURST as u64;
        }
        if start.elapsed() >= span {
            break;
        }
    }
    Ok((sent, start.elapsed()))
}
