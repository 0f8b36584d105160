//! GIST-aware NAT gateways (RFC 5971 section 7.2): how long one takes for a message, and how long handshakes through them take,
//! observed on the links.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::gist;
use crate::protocols::gist::message::Kind;
use crate::protocols::gist::seen::{Message, Session};
use crate::report::Section;
use crate::run::evidence::Evidence;

/// What the paper on NAT traversal for GIST measured (Bless and Roehricht, 2010, tables 6.1 and 6.2), in milliseconds.
const PUBLISHED_QUERY: f64 = 2.153;
const PUBLISHED_HANDSHAKE: [f64; 2] = [6.843, 5.744];

/// The section of the report.
pub(super) fn sections(evidence: &Evidence) -> Vec<Section> {
    Measured::of(evidence).section().into_iter().collect()
}

/// The same for programs.
pub(super) fn measure(evidence: &Evidence) -> Vec<(&'static str, Value)> {
    Measured::of(evidence).values()
}

/// Times of one kind, in milliseconds.
struct Times(Vec<f64>);

impl Times {
    fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        (!times.is_empty()).then_some(Self(times))
    }

    fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    /// The standard deviation.
    fn deviation(&self) -> f64 {
        let count = self.0.len() as f64;
        let mean = self.0.iter().sum::<f64>() / count;
        (self.0.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count).sqrt()
    }

    fn json(&self) -> Value {
        json!({ "count": self.0.len(), "median": self.median(), "deviation": self.deviation() })
    }
}

/// What is measured, with its name for programs and in words.
struct Measured(Vec<(&'static str, String, Times)>);

impl Measured {
    fn of(evidence: &Evidence) -> Self {
        Self::of_sessions(sessions(evidence).into_values())
    }

    /// The times of the sessions that passed a NAT, of which each has its messages in order; empty if none did.
    fn of_sessions<'a>(sessions: impl Iterator<Item = Vec<&'a Message>>) -> Self {
        let (mut queries, mut responses, mut handshakes, mut exchanges) =
            <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
        for messages in sessions {
            if !messages.iter().any(|one| one.kind == Kind::Query && one.nats().is_some()) {
                continue;
            }
            queries.extend(transits(&messages, Kind::Query));
            responses.extend(transits(&messages, Kind::Response));
            let Some(query) = messages.iter().find(|one| one.kind == Kind::Query) else { continue };
            // What the initiator itself sends and receives has not passed a NAT yet, or has passed all.
            let first = |kind, towards| {
                let own = |one: &&&Message| one.kind == kind && ends(one) == towards;
                let at = messages.iter().find(own)?.at.checked_sub(query.at)?;
                Some(at.as_secs_f64() * 1e3)
            };
            let (own, peer) = ends(query);
            handshakes.extend(first(Kind::Confirm, (own, peer)));
            exchanges.extend(first(Kind::Data, (peer, own)));
        }
        let [with, without] = PUBLISHED_HANDSHAKE;
        let rows = [
            ("nat_query_ms", format!("Queries through a NAT (paper: {PUBLISHED_QUERY} ms)"), queries),
            ("nat_response_ms", "Responses through a NAT".to_owned(), responses),
            (
                "nat_handshake_ms",
                format!("handshakes through all NATs (paper, with one Data: {with} and {without} ms)"),
                handshakes,
            ),
            ("nat_exchange_ms", "handshakes with one Data and its answer".to_owned(), exchanges),
        ];
        let some = |(name, words, times)| Some((name, words, Times::of(times)?));
        Self(rows.into_iter().filter_map(some).collect())
    }

    /// The section of the report.
    fn section(&self) -> Option<Section> {
        let line = |(_, words, times): &(_, String, Times)| {
            let (median, deviation) = (times.median(), times.deviation());
            format!("{} {words}: median {median:.3} ms, deviation {deviation:.3} ms", times.0.len())
        };
        (!self.0.is_empty()).then(|| Section::lines("GIST-aware NATs", self.0.iter().map(line)))
    }

    /// The same for programs.
    fn values(&self) -> Vec<(&'static str, Value)> {
        let value = |(name, _, times): &(&'static str, String, Times)| {
            let mut value = times.json();
            let published: &[f64] = match *name {
                "nat_query_ms" => &[PUBLISHED_QUERY],
                "nat_handshake_ms" => &PUBLISHED_HANDSHAKE,
                _ => &[],
            };
            if !published.is_empty() {
                value["published"] = published.into();
            }
            (*name, value)
        };
        self.0.iter().map(value).collect()
    }
}

/// IP source and destination.
const fn ends(message: &Message) -> (std::net::IpAddr, std::net::IpAddr) {
    (message.src, message.dst)
}

/// The messages of each session on all links, in the order of their times.
fn sessions(evidence: &Evidence) -> BTreeMap<Session, Vec<&Message>> {
    let mut sessions: BTreeMap<Session, Vec<&Message>> = BTreeMap::new();
    for message in gist::all(evidence).flat_map(|(link, _)| &link.messages) {
        if let Some(session) = message.session {
            sessions.entry(session).or_default().push(message);
        }
    }
    sessions.values_mut().for_each(|messages| messages.sort_by_key(|message| message.at));
    sessions
}

/// Times of the first message of a kind from each link to the next one, in milliseconds.
fn transits(messages: &[&Message], kind: Kind) -> Vec<f64> {
    let mut last: Option<(u8, Duration)> = None;
    let mut times = Vec::new();
    for message in messages.iter().filter(|message| message.kind == kind) {
        let nats = message.nats().unwrap_or(0);
        if let Some((before, at)) = last {
            // Each NAT adds an entry to a Query and removes one of a Response.
            if before.abs_diff(nats) != 1 {
                break;
            }
            times.extend(message.at.checked_sub(at).map(|time| time.as_secs_f64() * 1e3));
        }
        last = Some((nats, message.at));
    }
    times
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::protocols::gist::seen::Carrier;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 1, 2));
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 2));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));

    /// A message on a link. `nats` is the number of NATs in its NAT-Traversal object; `None`: it has no such object.
    fn message(us: u64, kind: Kind, (src, dst): (IpAddr, IpAddr), nats: Option<u8>) -> Message {
        let mut octets = vec![0; 16];
        if let (Some(nats), [.., first, kind, _, _, _, _, count, _]) = (nats, &mut octets[..]) {
            (*first, *kind, *count) = (0, 7, nats);
        }
        Message {
            carrier: Carrier::Datagram,
            acknowledged: None,
            at: Duration::from_micros(us),
            outgoing: true,
            frame: 1,
            src,
            dst,
            ttl: 64,
            router_alert: None,
            dst_port: 270,
            kind,
            hops: 64,
            c_flag: kind == Kind::Query,
            s_flag: true,
            session: Some([7; 16]),
            negotiates: false,
            error: None,
            octets,
            packet: Vec::new(),
            payload_at: 0,
        }
    }

    /// GISTNAT-P6-01: the time of each type of message in a NAT, and that of a handshake through two NATs, with median and deviation.
    #[test]
    fn the_times_of_a_handshake_through_two_nats() {
        let there = (HOST, PEER);
        let messages = [
            message(1000, Kind::Query, there, None),
            message(1100, Kind::Query, (OTHER, PEER), Some(1)),
            message(1250, Kind::Query, (OTHER, HOST), Some(2)),
            message(1300, Kind::Response, (HOST, OTHER), Some(2)),
            message(1380, Kind::Response, (PEER, OTHER), Some(1)),
            message(1450, Kind::Response, (PEER, HOST), Some(0)),
            message(1500, Kind::Confirm, there, None),
            message(1520, Kind::Confirm, (OTHER, PEER), None),
            message(1530, Kind::Data, there, None),
            message(1700, Kind::Data, (PEER, HOST), None),
        ];
        let measured = Measured::of_sessions([messages.iter().collect()].into_iter());
        let found: Vec<_> = measured
            .values()
            .into_iter()
            .map(|(name, value)| {
                let ms = |field: &str| format!("{:.3}", value[field].as_f64().unwrap());
                (name, format!("{} of {} ({})", value["count"], ms("median"), ms("deviation")))
            })
            .collect();
        assert_eq!(
            found,
            [
                ("nat_query_ms", "2 of 0.150 (0.025)"),
                ("nat_response_ms", "2 of 0.080 (0.005)"),
                ("nat_handshake_ms", "1 of 0.500 (0.000)"),
                ("nat_exchange_ms", "1 of 0.700 (0.000)"),
            ]
            .map(|(name, text)| (name, text.to_owned()))
        );
        let (_, query) = measured.values().swap_remove(0);
        assert_eq!(query["published"], json!([PUBLISHED_QUERY]), "as in the text");
        // A session without a NAT says nothing about NATs.
        let plain = [message(0, Kind::Query, there, None), message(9, Kind::Confirm, there, None)];
        assert!(Measured::of_sessions([plain.iter().collect()].into_iter()).values().is_empty());
    }
}
