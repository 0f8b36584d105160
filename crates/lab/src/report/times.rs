//! How long nodes kept messages, and how long exchanges took, seen on the links at both sides of each node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::protocols;
use crate::report::interval::Bootstrap;
use crate::run::evidence::Evidence;

/// A request and its answer, by the protocol and the types of both.
const ANSWERS: [(&str, &str, &str); 4] = [
    ("gist", "query", "response"),
    ("gist", "response", "confirm"),
    ("rsvp", "path", "resv"),
    ("boomerang", "request", "reply"),
];

/// What a node sends after something else that it sent, in the same session. In a stream, the acknowledgment of its octets has a time as well.
const FOLLOWERS: [(&str, &str, &str); 1] = [("gist", "query", "data")];

/// The field that messages of one session have in common.
const SESSIONS: [(&str, &str); 4] =
    [("gist", "session_id"), ("rsvp", "session"), ("boomerang", "transaction"), ("casp", "session")];

/// The lab's own datagrams, which nodes only forward.
const PROBES: &str = "datagrams";

/// The type of the datagram by which a program says that its measurement begins. What was there before only loads the nodes.
const BEGIN: &str = "begin";

/// A node passes a message on within this time. What it sends later is a message of its own, such as a refresh.
const PASSED_ON: Duration = Duration::from_secs(1);

/// An exchange lasts so long at most: no protocol sends a message again, for want of an answer, for longer. What a node sends later of the same
/// type begins another one.
const EXCHANGE: Duration = Duration::from_secs(64);

/// The draws of each interval, and the most samples that have one: what both take grows with their product.
const DRAWS: usize = 2_000;
const MOST_SAMPLES: usize = 1_000;

/// A message on a link.
#[derive(Debug, Clone)]
struct Passed {
    at: Duration,
    acknowledged: Option<Duration>,
    link: usize,
    from: usize,
    to: usize,
    kind: String,
    session: String,
}

/// The times of one node and protocol, by what was measured and by the types of messages, in milliseconds.
type Times = BTreeMap<(&'static str, String), Vec<f64>>;

/// Returns the times of each node and protocol; nothing if no node passed a message on or answered one. `seed` is that of the intervals.
pub(super) fn measure(evidence: &Evidence, seed: u64) -> Option<Value> {
    let mut bootstrap = Bootstrap::with(seed, DRAWS);
    let mut nodes = Map::new();
    for (protocol, messages) in all(evidence) {
        for (number, node) in evidence.plan.nodes.iter().enumerate() {
            let times = times(protocol, &messages, number);
            if times.is_empty() {
                continue;
            }
            let of_node = nodes.entry(&node.name).or_insert_with(|| Map::new().into());
            for ((what, kind), times) in times {
                of_node[protocol][what][kind] = spread(times, &mut bootstrap);
            }
        }
    }
    (!nodes.is_empty()).then(|| nodes.into())
}

/// Returns the messages of each protocol on all links, in the order of time.
fn all(evidence: &Evidence) -> Vec<(&'static str, Vec<Passed>)> {
    let mut all: Vec<(&'static str, Vec<Passed>)> = Vec::new();
    for protocol in protocols::all().map(protocols::Protocol::name) {
        let Some((_, session)) = SESSIONS.iter().find(|(name, _)| *name == protocol) else { continue };
        let mut messages = Vec::new();
        for (link, (trace, planned)) in evidence.trace.links.iter().zip(&evidence.plan.links).enumerate() {
            let ends = planned.ends.each_ref().map(|(node, _)| *node);
            for message in trace.messages(protocol) {
                let [Some(kind), Some(session)] = ["type", *session].map(|name| message.field(name)) else {
                    continue;
                };
                let kind = kind.as_str().unwrap_or_default().to_owned();
                let from = trace.sender(message.outgoing(), ends);
                let (at, acknowledged, session) = (message.at(), message.acknowledged(), session.to_string());
                let to = ends[0] + ends[1] - from;
                messages.push(Passed { at, acknowledged, link, from, to, kind, session });
            }
        }
        all.push((protocol, messages));
    }
    let probes = probes(evidence);
    let begin = probes.iter().filter(|probe| probe.kind == BEGIN).map(|probe| probe.at).max();
    all.push((PROBES, probes));
    for (_, messages) in &mut all {
        messages.sort_by_key(|message| message.at);
        if let Some(begin) = begin {
            leave_out(messages, begin);
        }
    }
    all
}

/// Leaves out what passed until `begin`, and later messages of the sessions that were there.
fn leave_out(messages: &mut Vec<Passed>, begin: Duration) {
    let before = messages.iter().filter(|message| message.at <= begin);
    let before: BTreeSet<String> = before.map(|message| message.session.clone()).collect();
    messages.retain(|message| message.at > begin && !before.contains(&message.session));
}

/// Returns the lab's own datagrams. The first word of a name is their type, if it is a word.
fn probes(evidence: &Evidence) -> Vec<Passed> {
    let mut messages = Vec::new();
    for (link, (trace, planned)) in evidence.trace.links.iter().zip(&evidence.plan.links).enumerate() {
        let ends = planned.ends.each_ref().map(|(node, _)| *node);
        for probe in &trace.probes {
            let session = String::from_utf8_lossy(&probe.name).into_owned();
            let word = session.split(' ').next().filter(|word| !word.is_empty());
            let is_word = |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase());
            let kind = word.filter(is_word).unwrap_or("any").to_owned();
            let from = trace.sender(probe.outgoing, ends);
            let to = ends[0] + ends[1] - from;
            messages.push(Passed { at: probe.at, acknowledged: None, link, from, to, kind, session });
        }
    }
    messages
}

/// When messages of one type and session came or left, by link.
#[derive(Debug, Default)]
struct Moments<'a>(BTreeMap<(&'a str, &'a str), Vec<(usize, Duration)>>);

impl<'a> Moments<'a> {
    /// Notes a message in place of the last one on its link.
    fn note(&mut self, message: &'a Passed) {
        let seen = self.0.entry((&message.kind, &message.session)).or_default();
        seen.retain(|(link, _)| *link != message.link);
        seen.push((message.link, message.at));
    }

    /// Notes a message, unless it repeats one on its link that still waits for what ends the exchange.
    fn begin(&mut self, message: &'a Passed) {
        let seen = self.0.entry((&message.kind, &message.session)).or_default();
        let begun = |(link, at): &(usize, Duration)| {
            *link == message.link && message.at.saturating_sub(*at) <= EXCHANGE
        };
        if !seen.iter().any(begun) {
            self.note(message);
        }
    }

    /// Takes the last message of this type in the session of `message` on a link of which `on` says so. Returns the time since.
    fn take(&mut self, kind: &'a str, message: &'a Passed, on: impl Fn(usize) -> bool) -> Option<Duration> {
        let seen = self.0.get_mut(&(kind, &*message.session))?;
        let place = seen.iter().rposition(|(link, _)| on(*link))?;
        message.at.checked_sub(seen.swap_remove(place).1)
    }
}

/// Measures one node.
fn times(protocol: &str, messages: &[Passed], node: usize) -> Times {
    let mut times = Times::new();
    let mut add = |what, kind: String, time: Option<Duration>| {
        if let Some(time) = time {
            times.entry((what, kind)).or_default().push(time.as_secs_f64() * 1e3);
        }
    };
    let pairs = |of: &'static [(&str, &'static str, &'static str)], second: &str| {
        let second = second.to_owned();
        of.iter()
            .filter(move |(name, _, kind)| *name == protocol && *kind == second)
            .map(|(_, first, _)| *first)
    };
    let (mut to_pass, mut to_answer) = (Moments::default(), Moments::default());
    let (mut asked, mut begun) = (Moments::default(), Moments::default());
    for message in messages {
        let same = |link: usize| link == message.link;
        if message.from == node {
            let passed = to_pass.take(&message.kind, message, |link| !same(link));
            add("through", message.kind.clone(), passed.filter(|time| *time <= PASSED_ON));
            for first in pairs(&ANSWERS, &message.kind) {
                add("answered", format!("{first}_{}", message.kind), to_answer.take(first, message, same));
            }
            for first in pairs(&FOLLOWERS, &message.kind) {
                let followed = begun.take(first, message, same);
                let after = message.acknowledged.and_then(|at| at.checked_sub(message.at));
                let acknowledged = followed.zip(after).map(|(followed, after)| followed + after);
                add("followed", format!("{first}_{}", message.kind), followed);
                add("followed", format!("{first}_{}_acknowledged", message.kind), acknowledged);
            }
            asked.begin(message);
            begun.begin(message);
        } else if message.to == node {
            for first in pairs(&ANSWERS, &message.kind) {
                add("waited", format!("{first}_{}", message.kind), asked.take(first, message, same));
            }
            to_pass.note(message);
            to_answer.begin(message);
        }
    }
    times
}

/// Describes the distribution of times, with the intervals that contain median and mean in 95 of 100 cases.
fn spread(mut times: Vec<f64>, bootstrap: &mut Bootstrap) -> Value {
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count;
    let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    let scv = (mean > 0.0).then(|| variance / mean.powi(2));
    let estimates = bootstrap.averages(&times).filter(|_| times.len() <= MOST_SAMPLES);
    let interval = |place: usize| {
        let [low, high] =
            estimates.and_then(|all| all.get(place).map(|one| [one.low, one.high])).unwrap_or_default();
        json!({"low": low, "high": high})
    };
    json!({
        "mean_interval": interval(1), "median_interval": interval(0),
        "count": times.len(), "mean": mean, "median": at(50), "deviation": variance.sqrt(), "scv": scv,
        "min": times.first(), "p90": at(90), "p99": at(99), "max": times.last(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// h1 is node 0, r1 is node 1, h2 is node 2; link 0 is between h1 and r1, link 1 between r1 and h2.
    fn passed(us: u64, from: usize, to: usize, kind: &str, session: &str) -> Passed {
        let link = from.min(to);
        let (at, kind, session) = (Duration::from_micros(us), kind.to_owned(), session.to_owned());
        Passed { at, acknowledged: None, link, from, to, kind, session }
    }

    fn found(messages: &[Passed], node: usize) -> Vec<(String, Vec<f64>)> {
        found_of("rsvp", messages, node)
    }

    fn found_of(protocol: &str, messages: &[Passed], node: usize) -> Vec<(String, Vec<f64>)> {
        let all = times(protocol, messages, node);
        let rounded = |times: Vec<f64>| times.into_iter().map(|ms| (ms * 1e3).round()).collect();
        all.into_iter().map(|((what, kind), times)| (format!("{what} {kind}"), rounded(times))).collect()
    }

    #[test]
    fn a_message_is_kept_from_one_link_to_the_other() {
        let messages = [
            passed(0, 0, 1, "path", "a"),
            passed(10, 0, 1, "path", "b"),
            passed(30, 1, 2, "path", "a"),
            passed(35, 2, 1, "resv", "a"),
            passed(60, 1, 2, "path", "b"),
            passed(80, 1, 0, "resv", "a"),
        ];
        assert_eq!(
            found(&messages, 1),
            [
                ("answered path_resv".to_owned(), vec![80.0]),
                ("through path".to_owned(), vec![30.0, 50.0]),
                ("through resv".to_owned(), vec![45.0]),
                ("waited path_resv".to_owned(), vec![5.0]),
            ]
        );
        assert_eq!(found(&messages, 0), [("waited path_resv".to_owned(), vec![80.0])]);
        assert_eq!(found(&messages, 2), [("answered path_resv".to_owned(), vec![5.0])]);
    }

    /// A refresh is not passed on: what the router sends later is a refresh of its own.
    #[test]
    fn an_own_refresh_is_no_message_that_was_passed_on() {
        let messages = [
            passed(0, 0, 1, "path", "a"),
            passed(30, 1, 2, "path", "a"),
            passed(40, 1, 2, "path", "a"),
            passed(1_000_000, 0, 1, "path", "a"),
            passed(2_000_001, 1, 2, "path", "a"),
        ];
        assert_eq!(found(&messages, 1), [("through path".to_owned(), vec![30.0])]);
    }

    /// The first Query is lost: the exchange lasts from then, and the router keeps the second one.
    #[test]
    fn a_message_that_is_sent_again_does_not_shorten_its_exchange() {
        let messages = [
            passed(0, 0, 1, "query", "a"),
            passed(500, 0, 1, "query", "a"),
            passed(530, 1, 2, "query", "a"),
            passed(540, 2, 1, "response", "a"),
            passed(545, 1, 0, "response", "a"),
            passed(550, 0, 1, "confirm", "a"),
            passed(600, 0, 1, "data", "a"),
            passed(70_000_000, 0, 1, "query", "a"),
            passed(140_000_000, 0, 1, "query", "a"),
            passed(140_000_010, 1, 0, "response", "a"),
        ];
        let wanted = [("followed query_data", vec![600.0]), ("waited query_response", vec![545.0, 10.0])];
        assert_eq!(
            found_of("gist", &messages, 0)
                .into_iter()
                .filter(|(name, _)| !name.starts_with("answered"))
                .collect::<Vec<_>>(),
            wanted.map(|(name, times)| (name.to_owned(), times))
        );
        let router = found_of("gist", &messages, 1);
        assert!(router.contains(&("through query".to_owned(), vec![30.0])), "{router:?}");
    }

    #[test]
    fn an_exchange_over_tcp_ends_with_the_acknowledgment_too() {
        let mut data = passed(600, 0, 1, "data", "a");
        data.acknowledged = Some(Duration::from_micros(640));
        let found = found_of("gist", &[passed(0, 0, 1, "query", "a"), data], 0);
        let wanted = [("followed query_data", 600.0), ("followed query_data_acknowledged", 640.0)];
        assert_eq!(found, wanted.map(|(name, time)| (name.to_owned(), vec![time])));
    }

    #[test]
    fn sessions_of_before_the_measurement_are_left_out() {
        let mut messages = vec![
            passed(0, 0, 1, "path", "a"),
            passed(30, 1, 2, "path", "a"),
            passed(50, 0, 1, "path", "a"),
            passed(60, 1, 2, "path", "a"),
            passed(70, 0, 1, "path", "b"),
            passed(75, 1, 2, "path", "b"),
        ];
        leave_out(&mut messages, Duration::from_micros(40));
        assert_eq!(found(&messages, 1), [("through path".to_owned(), vec![5.0])]);
    }

    #[test]
    fn the_distribution_has_the_squared_coefficient_of_variation() {
        let mut bootstrap = Bootstrap::with(1, DRAWS);
        let value = spread(vec![3.0, 1.0], &mut bootstrap);
        assert_eq!(
            [&value["mean"], &value["scv"], &value["median"]],
            [&json!(2.0), &json!(0.25), &json!(1.0)]
        );
        assert_eq!(value["mean_interval"]["low"], Value::Null, "too few");
        assert_eq!(spread(vec![0.0], &mut bootstrap)["scv"], Value::Null);
        let value = spread((0..30).map(f64::from).collect(), &mut bootstrap);
        let [low, high] = ["low", "high"].map(|end| value["mean_interval"][end].as_f64().expect("a number"));
        // Student's interval of these numbers is 14.5 -+ 3.29.
        assert!((10.9..=11.7).contains(&low) && (17.3..=18.1).contains(&high), "{low} {high}");
    }
}
