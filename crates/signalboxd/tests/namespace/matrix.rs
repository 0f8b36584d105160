//! The administrator's rules at each hook, against the messages of each protocol: to the node, through it and from it.
//!
//! Each message has a tag of its own, which is also in what the router sends because of it. It has to be seen on its far side
//! without a rule, and with a rule at a hook exactly if this hook does not judge it.

mod gateway;
pub(crate) mod messages;
mod sending;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::multicast::MulticastRouter;
use signalbox_linux::topology;

use crate::firewall::{Net, chain, families};
use crate::net::LONG;
use messages::{
    CASP_PORT, Composed, Form, GIST_PORT, Kind, NATFW, PING, QOS, Rsvp, STRANGE, group, is_fragment, query,
};

/// How long nothing has to arrive.
const QUIET: Duration = Duration::from_millis(400);
const SETTINGS: &str = "node.protocols = [\"gist\", \"ping\", \"qos\", \"natfw\", \"rsvp\", \"boomerang\", \"casp\"]\n\
     [policy]\ndefault = \"deny\"\n[casp]\npeers = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
     [gist.associations]\ntcp_port = 270\nsctp_port = 270\n[interfaces.right]\ncapacity = \"100mbit\"\n";
/// Drops every packet that the protocols use, and leaves neighbor discovery alone.
const DROP: &str =
    "meta l4proto { icmp, tcp, udp, 46, 132 } drop\n meta l4proto ipv6-icmp @th,64,32 0x47114711 drop";
const HOOKS: [Rule; 7] = [
    ("prerouting", "raw"),
    ("prerouting", "mangle"),
    ("input", "filter"),
    ("forward", "mangle"),
    ("forward", "filter"),
    ("output", "filter"),
    ("postrouting", "filter"),
];
/// The hooks of what this node takes, and answers or sends on.
const TAKEN: &[&str] = &["prerouting", "input", "output", "postrouting"];
/// The hooks of what crosses the node.
const CROSSING: &[&str] = &["prerouting", "forward", "postrouting"];

/// Hook and priority of a chain that drops.
type Rule = (&'static str, &'static str);

/// No rule, and one at each hook.
fn rules() -> impl Iterator<Item = Option<Rule>> {
    std::iter::once(None).chain(HOOKS.map(Some))
}

/// Gives the router a rule.
fn put(net: &Net, rule: Option<Rule>) {
    if let Some((hook, priority)) = rule {
        let chain = chain(hook, priority, DROP);
        topology::nft(net.router(), &format!("table inet operator {{\n{chain}}}\n")).unwrap();
    }
}

/// Takes it away.
fn remove(net: &Net, rule: Option<Rule>) {
    if rule.is_some() {
        topology::nft(net.router(), "delete table inet operator").unwrap();
    }
}

fn name(rule: Option<Rule>) -> String {
    rule.map_or("no rule".to_owned(), |(hook, priority)| format!("drop at {hook} {priority}"))
}

/// The end at which it is seen that a message passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The host that sent it gets the answer.
    Answer,
    /// The far host gets the message.
    Message,
    /// The far host gets the message, in fragments.
    Fragment,
}

/// Where a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Node,
    FarHost,
    Group,
}

struct Row {
    kind: Kind,
    to: To,
    alert: bool,
    fragments: bool,
    seen: Seen,
    judged: &'static [&'static str],
}

const fn row(kind: Kind, to: To, alert: bool, seen: Seen, judged: &'static [&'static str]) -> Row {
    Row { kind, to, alert, fragments: false, seen, judged }
}

/// The same in two fragments.
const fn cut(row: Row) -> Row {
    Row { fragments: true, ..row }
}

const ROWS: &[Row] = &[
    // GIST
    row(query(PING), To::Node, true, Seen::Answer, TAKEN),
    row(query(PING), To::FarHost, true, Seen::Answer, TAKEN),
    row(query(QOS), To::FarHost, true, Seen::Answer, TAKEN),
    row(query(NATFW), To::FarHost, true, Seen::Answer, TAKEN),
    row(query(STRANGE), To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::NoGist, To::FarHost, true, Seen::Message, CROSSING),
    row(query(PING), To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Data, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Data, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Connect { port: GIST_PORT }, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Connect { port: GIST_PORT }, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Init, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Init, To::FarHost, false, Seen::Message, CROSSING),
    // RSVP
    row(Kind::Rsvp(Rsvp::UnknownPath), To::Node, true, Seen::Answer, TAKEN),
    row(Kind::Rsvp(Rsvp::Path), To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::Rsvp(Rsvp::PathError), To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::Rsvp(Rsvp::PathError), To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Rsvp(Rsvp::UnknownPath), To::Group, true, Seen::Answer, TAKEN),
    row(Kind::Rsvp(Rsvp::Path), To::Group, true, Seen::Message, TAKEN),
    // CASP
    row(Kind::Connect { port: CASP_PORT }, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Connect { port: CASP_PORT }, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Casp, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Casp, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Scout { kind: 2 }, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Scout { kind: 2 }, To::FarHost, true, Seen::Answer, TAKEN),
    row(Kind::Scout { kind: 1 }, To::FarHost, true, Seen::Message, CROSSING),
    // Boomerang
    row(Kind::Echo, To::Node, false, Seen::Answer, TAKEN),
    row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING),
    // In fragments; the kernel puts together what is for this node.
    cut(row(query(PING), To::Node, true, Seen::Answer, TAKEN)),
    cut(row(Kind::Data, To::Node, false, Seen::Answer, TAKEN)),
    cut(row(Kind::Casp, To::Node, false, Seen::Answer, TAKEN)),
    cut(row(Kind::Echo, To::Node, false, Seen::Answer, TAKEN)),
    cut(row(query(PING), To::FarHost, true, Seen::Answer, TAKEN)),
    cut(row(query(PING), To::FarHost, false, Seen::Message, CROSSING)),
    cut(row(Kind::Scout { kind: 2 }, To::FarHost, true, Seen::Answer, TAKEN)),
    cut(row(Kind::Rsvp(Rsvp::Path), To::FarHost, true, Seen::Message, TAKEN)),
    cut(row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING)),
    // What the node sends on is longer than the link takes; no other protocol sends that.
    cut(row(Kind::Rsvp(Rsvp::LongPath), To::FarHost, true, Seen::Fragment, TAKEN)),
];

/// What was sent, and what shows it on its far side.
struct Sent {
    name: String,
    seen: Seen,
    judged: &'static [&'static str],
    tag: Vec<u8>,
    /// Whether it was seen there.
    arrived: bool,
}

impl Sent {
    fn is_judged(&self, rule: Option<Rule>) -> bool {
        rule.is_some_and(|(hook, _)| self.judged.contains(&hook))
    }
}

struct Matrix {
    net: Net,
    sent: u16,
    /// Its routes lead to `b` from `a`.
    _groups: MulticastRouter,
}

impl Matrix {
    async fn new(test: &str, settings: &str) -> Self {
        let net = Net::new(test, settings).await;
        let mut groups = MulticastRouter::default();
        for [source, ..] in families() {
            groups.set_route(net.router(), group(source), source, "left", &["right".to_owned()]).unwrap();
        }
        Self { net, sent: 0, _groups: groups }
    }

    /// Sends a message of this kind to the router or through it.
    fn send(&mut self, row: &Row, [a, r, b]: [IpAddr; 3]) -> Sent {
        self.sent += 1;
        let number = self.sent;
        let ends = [
            a,
            match row.to {
                To::Node => r,
                To::FarHost => b,
                To::Group => group(a),
            },
        ];
        let Composed { protocol, octets, tag } =
            messages::compose(ends, row.kind, number, row.seen == Seen::Answer);
        let form = Form { alert: row.alert.then(|| messages::alert(row.kind)), fragments: row.fragments };
        for packet in messages::packets(ends, protocol, form, &octets, number) {
            self.net.put(&packet);
        }
        let pieces = if row.fragments { " in fragments" } else { "" };
        let alert = if row.alert { " with Router Alert" } else { "" };
        let name = format!("{:?}{alert}{pieces} to {:?}, {a}", row.kind, row.to);
        Sent { name, seen: row.seen, judged: row.judged, tag, arrived: false }
    }

    /// Sends all rows, those of one family after those of the other.
    fn send_all(&mut self, tables: [&[Row]; 2]) -> Vec<Sent> {
        let families = families().into_iter().zip(tables);
        families
            .flat_map(|(family, rows)| rows.iter().map(move |row| (row, family)))
            .map(|(row, family)| self.send(row, family))
            .collect()
    }

    /// What passes at both hosts from now on.
    fn captures(&self) -> Captures {
        let open = |space| Capture::open(space, "veth", CaptureConfig::default()).unwrap();
        Captures { at_a: open(self.net.a()), at_b: open(self.net.b()) }
    }
}

struct Captures {
    at_a: Capture,
    at_b: Capture,
}

impl Captures {
    /// Notes what arrives, until all has that the rule does not judge, or for some time.
    fn watch(mut self, sent: &mut [Sent], rule: Option<Rule>) {
        let begin = Instant::now();
        loop {
            for (capture, answers) in [(&mut self.at_a, true), (&mut self.at_b, false)] {
                let read = capture.read(Duration::from_millis(20), |frame| {
                    let here = |sent: &&mut Sent| (sent.seen == Seen::Answer) == answers && !frame.outgoing;
                    for sent in sent.iter_mut().filter(here) {
                        let tag = &sent.tag;
                        let form = sent.seen != Seen::Fragment || is_fragment(frame.octets);
                        sent.arrived |= form && frame.octets.windows(tag.len()).any(|part| part == tag);
                    }
                });
                read.unwrap();
            }
            let missing = sent.iter().any(|sent| !sent.is_judged(rule) && !sent.arrived);
            let time = begin.elapsed();
            if time > LONG || !missing && time > QUIET {
                return;
            }
        }
    }
}

/// What passed although the rule judges it, or did not although nothing judges it.
fn faults(sent: &[Sent], rule: Option<Rule>) -> impl Iterator<Item = String> {
    let wrong = sent.iter().filter(move |sent| sent.arrived == sent.is_judged(rule));
    wrong.map(move |sent| {
        let what = if sent.arrived { "is seen" } else { "is not seen" };
        format!("{}: {} {what}", name(rule), sent.name)
    })
}

/// What the administrator's netfilter drops at a hook is neither answered nor sent on, whichever protocol it is of, if the hook
/// judges it (the table of docs/security.md).
#[tokio::test]
async fn rules_of_the_administrator_judge_every_protocol() {
    let mut matrix = Matrix::new("matrix", SETTINGS).await;
    let mut wrong = Vec::new();
    for rule in rules() {
        put(&matrix.net, rule);
        let captures = matrix.captures();
        let mut sent = matrix.send_all([ROWS, ROWS]);
        captures.watch(&mut sent, rule);
        remove(&matrix.net, rule);
        wrong.extend(faults(&sent, rule));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The rows of messages that make state and whose source nothing proves.
const UNPROVED: [Row; 2] = [
    row(Kind::Rsvp(Rsvp::Path), To::FarHost, true, Seen::Message, TAKEN),
    row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING),
];

/// (T31) A message with the source of a host behind another interface is not taken: a Path is dropped, and an Echo is forwarded as on a
/// router without the daemon, which gets nothing of it. `kernel.reverse_path = "off"` and `kernel.asymmetric` let them in; messages
/// from where their source is come in always.
#[tokio::test]
async fn messages_from_elsewhere_than_their_source_are_not_taken() {
    for (setting, strict) in [
        ("", true),
        ("[kernel]\nreverse_path = \"off\"\n", false),
        ("[kernel]\nasymmetric = [\"left\"]\n", false),
        ("[kernel]\nasymmetric = [\"right\"]\n", true),
    ] {
        let mut matrix = Matrix::new("reverse", &format!("{SETTINGS}{setting}")).await;
        // An administrator can list the rules.
        topology::nft(matrix.net.router(), "list ruleset").unwrap();
        for [a, r, b] in families() {
            // A host on the link of `b` that does not answer.
            let forged = match b {
                IpAddr::V4(_) => "10.78.0.9",
                IpAddr::V6(_) => "fd78::9",
            };
            for (source, honest) in [(a, true), (forged.parse().unwrap(), false)] {
                let [path, echo] = &UNPROVED;
                let judged = matrix.net.counted().await;
                let mut at_b = Capture::open(matrix.net.b(), "veth", CaptureConfig::default()).unwrap();
                let path = matrix.send(path, [source, r, b]);
                let echo = matrix.send(echo, [source, r, b]);
                let name = format!("{setting:?}, from {source}");
                let begin = Instant::now();
                let (mut path_seen, mut echo_seen) = (false, false);
                let taken = honest || !strict;
                while begin.elapsed() < LONG && (path_seen != taken || !echo_seen || begin.elapsed() < QUIET)
                {
                    let seen = at_b.read(Duration::from_millis(20), |frame| {
                        let has = |tag: &[u8]| frame.octets.windows(tag.len()).any(|part| part == tag);
                        path_seen |= !frame.outgoing && has(&path.tag);
                        echo_seen |= !frame.outgoing && has(&echo.tag);
                    });
                    seen.unwrap();
                }
                assert_eq!((path_seen, echo_seen), (taken, true), "{name}");
                let judged = matrix.net.counted().await - judged;
                assert_eq!(judged > 0, taken, "{name}: {judged} messages of Boomerang");
            }
        }
    }
}
