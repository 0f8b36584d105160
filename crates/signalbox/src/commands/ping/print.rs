//! The output for probes and their replies, as text.

use std::io::{self, Write};

use signalbox_api::ping::v1;
use signalbox_api::ping::v1::ping_response::Event;

use super::Tally;
use crate::print::style::{Tone, paint};
use crate::print::{duration, enum_text, flow};

/// The time from `earlier` to `later`; negative where two clocks disagree.
fn between(earlier: u64, later: u64) -> String {
    if later >= earlier { duration(later - earlier) } else { format!("-{}", duration(earlier - later)) }
}

/// Prints an event.
pub(super) fn event(out: &mut impl Write, event: &Event, tally: &Tally) -> io::Result<()> {
    match event {
        Event::Started(started) => {
            let flow = started.flow.as_ref().map(flow).unwrap_or_default();
            writeln!(out, "ping {} along {flow}, session {}", tally.destination, tally.session)
        }
        Event::Reply(one) => reply(out, one),
        Event::Lost(lost) => {
            let reason = match lost.message.as_str() {
                "" => enum_text(lost.reason().as_str_name(), "LOST_REASON_"),
                message => message.to_owned(),
            };
            writeln!(out, "seq {}: {}: {reason}", lost.sequence, paint(Tone::Bad, "lost"))
        }
        Event::Done(_) => summary(out, tally),
    }
}

fn reply(out: &mut impl Write, reply: &v1::PingReply) -> io::Result<()> {
    let remark = match (reply.reached_end, reply.truncated) {
        (true, false) => "",
        (true, true) => ", some nodes not recorded",
        (false, false) => ", sent back before the end of the flow",
        (false, true) => ", sent back before the end of the flow, some nodes not recorded",
    };
    let size = match reply.padding_octets {
        0 => String::new(),
        padding => format!(", {padding} octets of padding unchanged"),
    };
    writeln!(out, "seq {}: {}{size}{remark}", reply.sequence, duration(reply.rtt_us))?;
    let width = reply.hops.iter().chain(&reply.reverse_hops).map(|hop| hop.address.len()).max().unwrap_or(0);
    if reply.hops.iter().any(|hop| hop.round_trip_us.is_some()) {
        return round_trips(out, reply, width);
    }
    let mut left_us = reply.sent_unix_us;
    for (number, hop) in (1..).zip(&reply.hops) {
        let bypassed = match hop.ip_hops {
            None | Some(0 | 1) => String::new(),
            Some(hops) => format!("  {hops} IP hops away"),
        };
        let time = between(left_us, hop.received_unix_us);
        writeln!(out, "  {number:>2}  {:<width$}  {time:>9}{bypassed}", hop.address)?;
        left_us = hop.sent_unix_us;
    }
    for hop in &reply.reverse_hops {
        let time = between(left_us, hop.received_unix_us);
        writeln!(out, "  <-  {:<width$}  {time:>9}", hop.address)?;
        left_us = hop.sent_unix_us;
    }
    let time = between(left_us, reply.sent_unix_us.saturating_add(reply.rtt_us));
    writeln!(out, "  <-  {:<width$}  {time:>9}", "here")
}

/// Prints the nodes of a reply in the format of the NSIS Ping tool: the round trip from each node to the end, and the part
/// of it between the node before and this one (draft-juchem-nsis-ping-tool-02 §2). Times of different clocks are not
/// compared.
fn round_trips(out: &mut impl Write, reply: &v1::PingReply, width: usize) -> io::Result<()> {
    let mut before = Some(reply.rtt_us);
    for (number, hop) in (1..).zip(&reply.hops) {
        let text = |time: Option<u64>| time.map_or_else(|| "?".to_owned(), duration);
        let link = before.zip(hop.round_trip_us).map(|(before, own)| before.saturating_sub(own));
        let (link, own) = (text(link), text(hop.round_trip_us));
        writeln!(
            out,
            "  {number:>2}  {:<width$}  {link:>9} from the node before, {own:>9} to the end",
            hop.address
        )?;
        before = hop.round_trip_us;
    }
    Ok(())
}

fn summary(out: &mut impl Write, tally: &Tally) -> io::Result<()> {
    writeln!(out, "--- {} ---", tally.destination)?;
    write!(out, "{} sent, {} received, {:.0}% lost", tally.sent, tally.received, tally.loss() * 100.0)?;
    if let Some([min, mean, max]) = tally.rtt_us().map(|times| times.map(duration)) {
        write!(out, ", round trip min/avg/max {min}/{mean}/{max}")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(address: &str, received_unix_us: u64, sent_unix_us: u64, ip_hops: u32) -> v1::Hop {
        v1::Hop {
            address: address.into(),
            received_unix_us,
            sent_unix_us,
            ip_hops: Some(ip_hops),
            ..v1::Hop::default()
        }
    }

    fn sample() -> Event {
        Event::Reply(v1::PingReply {
            rtt_us: 1_000,
            hops: vec![hop("10.0.1.2", 1_100, 1_150, 1), hop("10.0.2.2", 1_400, 1_450, 2)],
            reverse_hops: vec![hop("10.0.1.2", 1_700, 1_750, 1)],
            reached_end: true,
            sent_unix_us: 1_000,
            ..v1::PingReply::default()
        })
    }

    #[test]
    fn a_reply_shows_the_time_from_node_to_node_in_both_directions() {
        let mut out = Vec::new();
        event(&mut out, &sample(), &Tally::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "seq 0: 1.000ms",
                "   1  10.0.1.2      100us",
                "   2  10.0.2.2      250us  2 IP hops away",
                "  <-  10.0.1.2      250us",
                "  <-  here          250us",
            ]
        );
    }

    /// The worked example of the draft: 1600, 900 and 700 µs (NSISPING-2-08). The clock of the node in the middle is an hour
    /// ahead, which changes nothing (NSISPING-2-09).
    #[test]
    fn the_nsis_format_compares_times_of_one_clock_only() {
        let hop =
            |address: &str, at: u64, round_trip_us| v1::Hop { round_trip_us, ..hop(address, at, at, 0) };
        let hour = 3_600_000_000;
        let sample = Event::Reply(v1::PingReply {
            rtt_us: 1_600,
            hops: vec![hop("192.0.2.2", hour + 400, Some(900)), hop("192.0.2.3", 900, Some(0))],
            reverse_hops: vec![hop("192.0.2.2", hour + 1_300, None)],
            reached_end: true,
            sent_unix_us: 100,
            ..v1::PingReply::default()
        });
        let mut out = Vec::new();
        event(&mut out, &sample, &Tally::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "seq 0: 1.600ms",
                "   1  192.0.2.2      700us from the node before,     900us to the end",
                "   2  192.0.2.3      900us from the node before,       0us to the end",
            ]
        );
    }

    #[test]
    fn a_loss_gives_its_reason() {
        let lost = v1::PingLost { sequence: 3, reason: v1::LostReason::NoRoute.into(), ..Default::default() };
        let mut out = Vec::new();
        event(&mut out, &Event::Lost(lost), &Tally::default()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "seq 3: lost: no route\n");
    }
}
