//! The queues that a stop leaves in force, as a part of the file.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use signalbox_core::handover::{Entries, parts, write_part};
use signalbox_core::{IfIndex, Reservation};
use signalbox_linux::traffic::{Kept, KeptLink, LinkConfig};

/// The name of the part. No protocol has it.
const NAME: &str = "queues";

/// An entry: a link, or a reservation at the link before it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Entry {
    Link {
        until: Duration,
        ifindex: IfIndex,
        name: String,
        rate: u64,
        reservable: u64,
        signaling: u64,
        classes: u16,
        max_reservations: u32,
    },
    Reservation {
        queue: u16,
        reservation: Reservation,
    },
}

/// Appends the part.
pub(crate) fn write(to: &mut Vec<u8>, kept: &Kept) {
    let mut entries = Entries::default();
    let mut push = |entry: &Entry| serde_json::to_vec(entry).is_ok_and(|octets| entries.push(&octets));
    for KeptLink { ifindex, config, reservations } in &kept.links {
        let LinkConfig { name, rate, reservable, signaling, classes, max_reservations } = config.clone();
        let (until, ifindex) = (kept.until, *ifindex);
        push(&Entry::Link { until, ifindex, name, rate, reservable, signaling, classes, max_reservations });
        for (queue, reservation) in reservations {
            push(&Entry::Reservation { queue: *queue, reservation: reservation.clone() });
        }
    }
    write_part(to, NAME, &entries);
}

/// Reads the part, if it is there. What cannot be read is left out.
pub(crate) fn read(octets: &[u8]) -> Option<Kept> {
    let (_, mut entries) = parts(octets).find(|(name, _)| *name == NAME)?;
    let mut kept = Kept::default();
    while let Some(entry) = entries.take() {
        match serde_json::from_slice(entry) {
            Ok(Entry::Link {
                until,
                ifindex,
                name,
                rate,
                reservable,
                signaling,
                classes,
                max_reservations,
            }) => {
                kept.until = until;
                let config = LinkConfig { name, rate, reservable, signaling, classes, max_reservations };
                kept.links.push(KeptLink { ifindex, config, reservations: Vec::new() });
            }
            Ok(Entry::Reservation { queue, reservation }) => {
                if let Some(link) = kept.links.last_mut() {
                    link.reservations.push((queue, reservation));
                }
            }
            Err(error) => tracing::debug!(%error, "an entry about kept queues cannot be read"),
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use signalbox_core::node::Prefix;
    use signalbox_core::traffic::{Excess, FlowFilter, TrafficSpec, Treatment};

    use super::*;

    #[test]
    fn what_is_kept_comes_back_as_it_was() {
        let prefix = |text: &str| Prefix::host(text.parse().unwrap());
        let reservation = Reservation {
            ifindex: IfIndex(3),
            filters: vec![FlowFilter {
                dst_port: Some(5004),
                ..FlowFilter::between(prefix("10.0.0.1"), prefix("10.0.0.2"))
            }],
            traffic: TrafficSpec { rate: 1000, burst: 5, peak: Some(7), min_policed: 64, max_packet: 1500 },
            served: Some(2000),
            treatment: Treatment::OwnQueue,
            mark_dscp: Some(46),
            excess: Excess::Drop,
        };
        let link = |ifindex, reservations| KeptLink {
            ifindex: IfIndex(ifindex),
            config: LinkConfig { classes: 7, ..LinkConfig::new(format!("eth{ifindex}"), 1_250_000) },
            reservations,
        };
        let kept = Kept {
            until: Duration::from_nanos(12_345_678_901),
            links: vec![
                link(3, vec![(0x101, reservation.clone()), (0x11, reservation)]),
                link(4, Vec::new()),
            ],
        };
        let mut octets = Vec::new();
        write_part(&mut octets, "gist", &Entries::default());
        write(&mut octets, &kept);
        assert_eq!(read(&octets), Some(kept));
        assert_eq!(read(b""), None);
    }
}
