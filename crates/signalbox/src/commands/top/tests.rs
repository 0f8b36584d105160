//! Whole screens as text, and what keys and answers do to them.

use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use signalbox_api::{gist, v1};

use super::entry::Entry;
use super::model::{Key, Listed};
use super::*;

/// 2026-12-01 17:03:07 UTC.
const NOW: u64 = 1_796_144_587_000_000;

fn model() -> Model {
    Model::new(Duration::from_secs(2))
}

/// The screen at this size, without blanks at the ends of lines.
fn screen(model: &mut Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(model, frame.buffer_mut(), true)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn protocol(protocol: v1::Protocol, sessions: u64, peers: Option<u64>) -> v1::ProtocolStatus {
    v1::ProtocolStatus { protocol: protocol.into(), sessions, peers, ..Default::default() }
}

fn node() -> v1::GetNodeResponse {
    v1::GetNodeResponse {
        name: "r1".into(),
        version: "0.2.0".into(),
        start_unix_us: NOW - 154_000_000,
        pid: 7,
        protocols: vec![
            protocol(v1::Protocol::Gist, 2, Some(2)),
            protocol(v1::Protocol::Qos, 2, None),
            protocol(v1::Protocol::Rsvp, 0, Some(1)),
        ],
        ..Default::default()
    }
}

fn at(name: &str, index: u32) -> Option<v1::InterfaceRef> {
    Some(v1::InterfaceRef { name: name.into(), index })
}

fn interface(name: &str, index: u32, reserved: u64, sent: u64) -> v1::Interface {
    v1::Interface {
        interface: at(name, index),
        up: true,
        capacity_octets_per_s: Some(12_500_000),
        reservable_octets_per_s: 10_000_000,
        reserved_octets_per_s: reserved,
        reservations: 2,
        sent_octets: Some(sent),
        ..Default::default()
    }
}

fn flow(number: usize) -> v1::FlowSpec {
    v1::FlowSpec {
        source: Some("10.0.1.1".into()),
        destination: Some(format!("10.0.{}.{}", 9 + number / 250, 1 + number % 250)),
        ip_protocol: Some(17),
        destination_port: Some(5004),
        ..Default::default()
    }
}

fn reservation(number: usize, octets: u64) -> Entry {
    Entry::Reservation(v1::Reservation {
        id: format!("{number:x}"),
        protocol: v1::Protocol::Qos.into(),
        flows: vec![flow(number)],
        interface: at("eth1", 3),
        traffic: Some(v1::TokenBucket { rate_octets_per_s: 125_000, ..Default::default() }),
        neighbor: Some("10.0.1.1".into()),
        enforced: true,
        statistics: Some(v1::TrafficStatistics { packets: 1, octets, ..Default::default() }),
        ..Default::default()
    })
}

fn messages(received: u64) -> Vec<v1::MetricFamily> {
    let label = |name: &str, value: &str| v1::Label { name: name.into(), value: value.into() };
    let sample = |kind: &str, count| v1::Sample {
        labels: vec![label("protocol", "gist"), label("type", kind)],
        value: Some(v1::sample::Value::Count(count)),
    };
    let samples = vec![sample("query", received), sample("data", 2 * received)];
    vec![v1::MetricFamily { name: "signalbox_messages_received".into(), samples, ..Default::default() }]
}

/// Answers after so many seconds, with these entries.
fn answers(seconds: u64, tab: Tab, entries: Vec<Entry>) -> Answers {
    Answers {
        at: Duration::from_secs(seconds),
        now_unix_us: NOW + seconds * 1_000_000,
        node: node(),
        links: vec![interface("eth0", 2, 0, 0), interface("eth1", 3, 6_250_000, seconds * 2_500_000)],
        messages: messages(seconds * 10),
        list: Listed { tab: Some(tab), entries, more: false },
    }
}

/// Two answers with two reservations each, the first of which is used.
fn few() -> Model {
    let mut model = model();
    for seconds in [2, 4] {
        let entries = vec![reservation(0, seconds * 100_000), reservation(1, 0)];
        model.answered(answers(seconds, Tab::Reservations, entries));
    }
    model
}

#[test]
fn an_empty_node_has_a_screen() {
    let mut model = model();
    let node = v1::GetNodeResponse { protocols: Vec::new(), ..node() };
    let (links, messages) = (Vec::new(), Vec::new());
    model.answered(Answers { node, links, messages, ..answers(0, Tab::Reservations, Vec::new()) });
    let expected = "\
signalbox top  r1  0.2.0  up 2m34s                        17:03:07 UTC, every 2s

 1 links  2 reservations  3 passages  4 sessions  5 neighbors  6 decisions
PROTOCOL  FLOW  LINK  RATE  USED  FROM  ID  RULE
none




q quit  / filter  Enter look  s sort  ? help                              0 of 0";
    assert_eq!(screen(&mut model, 80, 10), expected);
}

#[test]
fn links_protocols_and_reservations_are_on_one_screen() {
    let expected = "\
signalbox top  r1  0.2.0  up 2m38s                        17:03:11 UTC, every 2s

LINK  CAPACITY  RESERVED                 USED                     RESERVATIONS
eth0  100mbit   [........]   0%    0bit  [........]   0%    0bit  2
eth1  100mbit   [####....]  50%  50mbit  [#.......]  20%  20mbit  2

PROTOCOL  SESSIONS  PEERS  RECEIVED/S  SENT/S
gist      2         2      30.0        -
qos       2         -      -           -
rsvp      0         1      -           -

 1 links  2 reservations  3 passages  4 sessions  5 neighbors  6 decisions
PROTOCOL  FLOW                                LINK  RATE   USED     FROM      ID
qos       10.0.1.1 > 10.0.9.1 port 5004 pro~  eth1  1mbit  800kbit  10.0.1.1  0
qos       10.0.1.1 > 10.0.9.2 port 5004 pro~  eth1  1mbit  0bit     10.0.1.1  1








q quit  / filter  Enter look  s sort  ? help                              1 of 2";
    assert_eq!(screen(&mut few(), 80, 24), expected);
}

#[test]
fn a_narrow_screen_leaves_out_the_last_columns_and_cuts_flows() {
    let expected = "\
signalbox top  r1  0.~17:03:11 UTC, every 2s

LINK  CAPACITY  RESERVED
eth0  100mbit   [........]   0%    0bit
eth1  100mbit   [####....]  50%  50mbit

 1 links  2 reservations  3 passages  4 ses~
PROTOCOL  FLOW
qos       10.0.1.1 > 10.0.9.1 port 5004 pro~
qos       10.0.1.1 > 10.0.9.2 port 5004 pro~



q quit  / filter  Enter look  s sort ~1 of 2";
    assert_eq!(screen(&mut few(), 44, 14), expected);
    assert_eq!(screen(&mut few(), 20, 5).lines().next(), Some("needs 30 x 8"));
}

#[test]
fn other_lists_have_their_columns() {
    let mut model = few();
    assert_eq!(model.pressed(Key::Char('6')), Wish::Ask);
    let decision = |seconds: u64, outcome: v1::Outcome, reason: Option<&str>| {
        Entry::Decision(v1::Decision {
            time_unix_us: NOW + seconds * 1_000_000,
            outcome: outcome.into(),
            protocol: v1::Protocol::Rsvp.into(),
            flows: vec![flow(0)],
            reason: reason.map(str::to_owned),
            rate_octets_per_s: Some(1_000_000),
            neighbor: Some("10.0.1.1".into()),
            ..Default::default()
        })
    };
    let refused = decision(1, v1::Outcome::Refused, Some("rule 2 'guests': denied"));
    let entries = vec![refused, decision(0, v1::Outcome::Granted, None)];
    // What answers a question about the former list does not get into this one.
    model.answered(answers(5, Tab::Reservations, vec![reservation(0, 1)]));
    assert!(screen(&mut model, 100, 24).contains("none"));
    model.answered(answers(6, Tab::Decisions, entries));
    let shown = screen(&mut model, 110, 24);
    let line = shown.lines().find(|line| line.contains("refused")).unwrap();
    assert_eq!(
        line,
        "17:03:08  refused  rsvp      10.0.1.1 > 10.0.9.1 port 5004 proto 17  rule 2 'guests': denied  8mbit  10.0.1.1"
    );
    assert_eq!(model.pressed(Key::Char('1')), Wish::Ask);
    model.answered(answers(8, Tab::Links, Vec::new()));
    let shown = screen(&mut model, 110, 24);
    assert_eq!(shown.lines().filter(|line| line.starts_with("eth")).count(), 2, "{shown}");
    model.pressed(Key::Tab);
    assert_eq!(model.tab, Tab::Reservations);
    model.pressed(Key::BackTab);
    model.pressed(Key::Left);
    assert_eq!(model.tab, Tab::Decisions);
    model.pressed(Key::Char('5'));
    let peer = gist::v1::Peer {
        peer_identity: vec![7; 16],
        peer: Some(v1::Endpoint { address: "10.0.1.2".into(), port: Some(270) }),
        interface: at("eth0", 2),
        routing_states: 3,
        unreached_by: vec!["tcp".into()],
    };
    model.answered(answers(10, Tab::Neighbors, vec![Entry::GistPeer(peer)]));
    let shown = screen(&mut model, 80, 24);
    assert!(shown.contains("gist      10.0.1.2  eth0  3         not reached by tcp"), "{shown}");
}

#[test]
fn a_filter_takes_entries_that_have_all_words() {
    let mut model = model();
    model.answered(answers(2, Tab::Reservations, (0..300).map(|number| reservation(number, 0)).collect()));
    "/10.0.9.25 QOS".chars().for_each(|letter| assert_eq!(model.pressed(Key::Char(letter)), Wish::Nothing));
    let shown = screen(&mut model, 80, 24);
    let end = "filter: 10.0.9.25 qos_  Enter keep  Esc remove                     1 of 2 of 300";
    assert!(shown.ends_with(end), "{shown}");
    model.pressed(Key::Backspace);
    model.pressed(Key::Enter);
    // Letters are commands again, and the filter holds for new answers.
    model.answered(answers(4, Tab::Reservations, vec![reservation(1, 0), reservation(24, 0)]));
    let shown = screen(&mut model, 100, 24);
    assert!(shown.contains("10.0.9.25 port") && !shown.contains("10.0.9.2 port"), "{shown}");
    model.pressed(Key::Escape);
    assert!(screen(&mut model, 80, 24).contains("10.0.9.2 port"));
    assert_eq!(model.pressed(Key::Char('q')), Wish::Quit);
    assert_eq!(model.pressed(Key::Interrupt), Wish::Quit);
    assert_eq!(model.pressed(Key::Suspend), Wish::Suspend);
}

/// The selected entry stays selected when others come and go, and the screen follows it.
#[test]
fn the_selection_follows_its_entry() {
    let mut model = model();
    model.answered(answers(2, Tab::Reservations, (0..300).map(|number| reservation(number, 0)).collect()));
    let selected = |model: &Model| match model.list.selected() {
        Some(Entry::Reservation(row)) => row.id.clone(),
        other => panic!("{other:?}"),
    };
    screen(&mut model, 80, 24);
    model.pressed(Key::PageDown);
    model.pressed(Key::PageDown);
    model.pressed(Key::Up);
    let chosen = selected(&model);
    assert_ne!(chosen, "0");
    let shown = screen(&mut model, 80, 24);
    assert!(!shown.contains("10.0.9.1 port"), "{shown}");
    model.answered(answers(4, Tab::Reservations, (5..200).map(|number| reservation(number, 0)).collect()));
    assert_eq!(selected(&model), chosen);
    model.pressed(Key::End);
    assert_eq!(selected(&model), format!("{:x}", 199));
    model.answered(answers(6, Tab::Reservations, vec![reservation(7, 0)]));
    assert_eq!(selected(&model), "7", "the one that was selected is gone");
    model.answered(answers(8, Tab::Reservations, Vec::new()));
    assert!(model.list.selected().is_none());
    model.pressed(Key::Enter);
    model.pressed(Key::Down);
    assert!(screen(&mut model, 80, 24).contains("none"));
}

#[test]
fn the_largest_come_first_if_the_user_wants_it() {
    let mut model = model();
    for seconds in [2, 4] {
        let entries =
            (0..3).map(|number| reservation(number, seconds * 1000 * (1 + number as u64))).collect();
        model.answered(answers(seconds, Tab::Reservations, entries));
    }
    model.pressed(Key::Char('s'));
    let shown = screen(&mut model, 120, 24);
    let place = |number: usize| shown.find(&format!("10.0.9.{} port", number + 1)).unwrap();
    assert!(place(2) < place(1) && place(1) < place(0), "{shown}");
    assert!(shown.ends_with("of 3, largest first"), "{shown}");
}

#[test]
fn enter_looks_into_an_entry_which_is_followed_until_it_is_gone() {
    let mut model = few();
    model.pressed(Key::Down);
    model.pressed(Key::Enter);
    let expected = "\
signalbox top  r1  0.2.0  up 2m38s                        17:03:11 UTC, every 2s

reservation 1
enforced                           yes
flows[0].destination               10.0.9.2
flows[0].destination_port          5004
flows[0].ip_protocol               17
flows[0].source                    10.0.1.1
id                                 1
interface.index                    3
interface.name                     eth1
neighbor                           10.0.1.1
protocol                           qos
statistics.octets                  0
statistics.packets                 1
statistics.policed_packets         0
traffic.rate_octets_per_s          125000 (1mbit)






Esc back  up, down move  q quit                                    1 to 14 of 14";
    assert_eq!(screen(&mut model, 80, 24), expected);
    let entries = vec![reservation(1, 77)];
    model.answered(answers(6, Tab::Reservations, entries));
    let shown = screen(&mut model, 80, 24);
    assert!(shown.contains("statistics.octets                  77"), "{shown}");
    model.answered(answers(8, Tab::Reservations, Vec::new()));
    model.answered(answers(10, Tab::Reservations, Vec::new()));
    let shown = screen(&mut model, 80, 24);
    assert_eq!(shown.lines().nth(2), Some("reservation 1 (not in the list any more)"), "{shown}");
    // A page that is longer than the screen can be moved, and not beyond its end.
    screen(&mut model, 80, 10);
    model.pressed(Key::End);
    let end = screen(&mut model, 80, 10);
    assert!(end.contains("traffic.rate_octets_per_s"), "{end}");
    model.pressed(Key::PageDown);
    assert_eq!(screen(&mut model, 80, 10), end);
    assert_eq!(model.pressed(Key::Escape), Wish::Nothing);
    assert!(model.page.is_none());
    model.pressed(Key::Char('?'));
    assert!(screen(&mut model, 110, 30).contains("Ctrl-Z                     stop; `fg` continues"));
}

#[test]
fn a_daemon_that_is_away_or_has_restarted_is_said_to_be() {
    let mut model = few();
    let reason = "cannot reach the daemon at /run/signalbox/signalboxd.sock: Connection refused".to_owned();
    model.lost(NOW + 5_000_000, reason.clone(), 1, Duration::from_millis(250));
    model.lost(NOW + 6_000_000, reason, 2, Duration::from_millis(500));
    let shown = screen(&mut model, 80, 24);
    assert_eq!(
        shown.lines().take(2).collect::<Vec<_>>(),
        [
            "signalbox top  r1  0.2.0  up 2m40s                   OLD  17:03:13 UTC, every 2s",
            "no answer since 17:03:12, attempt 2 in 500ms: cannot reach the daemon at /run/s~",
        ]
    );
    assert!(shown.contains("10.0.9.1 port"), "what was known stays: {shown}");
    let restarted = v1::GetNodeResponse { pid: 8, ..node() };
    let back =
        |seconds| Answers { node: restarted.clone(), ..answers(seconds, Tab::Reservations, Vec::new()) };
    model.answered(back(9));
    let line = |model: &mut Model| screen(model, 80, 24).lines().nth(1).unwrap().to_owned();
    assert_eq!(line(&mut model), "connected again to the daemon, after 4.0s; it has restarted");
    assert_eq!(model.received.rate("gist"), None, "counters of the former process");
    model.answered(back(40));
    assert_eq!(line(&mut model), "");
    let warned = v1::GetNodeResponse { warnings: vec!["the clock is wrong".into()], ..restarted.clone() };
    model.answered(Answers { node: warned, ..back(42) });
    assert_eq!(line(&mut model), "the clock is wrong");
}

/// What a frame costs does not depend on how much the daemon has, and answers replace each other.
#[test]
fn a_frame_with_ten_thousand_entries_costs_as_much_as_one_with_a_hundred() {
    let cost = |entries: usize| {
        let mut model = model();
        for (seconds, from) in [(1, 1000), (2, 2000), (3, 3000)] {
            let entries = (from..from + entries).map(|number| reservation(number, seconds * 100)).collect();
            model.answered(answers(seconds, Tab::Reservations, entries));
        }
        assert_eq!((model.list.counts().0, model.used().len()), (entries, entries), "nothing piles up");
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw::draw(&mut model, frame.buffer_mut(), true)).unwrap();
        model.pressed(Key::End);
        let mut frame = || {
            allocation_counter::measure(|| {
                terminal.draw(|frame| draw::draw(&mut model, frame.buffer_mut(), true)).unwrap();
            })
        };
        frame();
        let cost = frame();
        (cost.count_total, cost.count_current)
    };
    let (few, many) = (cost(100), cost(10_000));
    assert!(many.0 <= few.0 + few.0 / 10, "{many:?} allocations instead of {few:?}");
    assert_eq!((few.1, many.1), (0, 0), "a frame keeps nothing");
}

/// Texts come from other nodes and users: no control character reaches the terminal, and no length or size breaks the screen.
#[test]
fn hostile_texts_and_every_size_have_a_screen() {
    let mut model = few();
    model.pressed(Key::Char('6'));
    let reasons =
        ["\x1b[2J\x07\r\nred", &"long".repeat(100_000), &"\u{5bbd}\u{300}".repeat(200), "\u{202e}\u{200b}x"];
    let row = |reason: &str| {
        Entry::Decision(v1::Decision {
            reason: Some(reason.to_owned()),
            flows: vec![flow(1); 100],
            ..Default::default()
        })
    };
    model.answered(answers(6, Tab::Decisions, reasons.iter().map(|reason| row(reason)).collect()));
    for page in [false, true] {
        for width in (0..130).step_by(7).chain([200]) {
            for height in (0..40).step_by(3) {
                let shown = screen(&mut model, width, height);
                assert!(
                    !shown.chars().any(|one| one.is_control() && one != '\n'),
                    "{width} x {height}: {shown:?}"
                );
            }
        }
        if !page {
            model.pressed(Key::Enter);
        }
    }
}

/// Links that have no place beside a list are counted; the fullest are shown.
#[test]
fn many_links_leave_room_for_the_list() {
    let mut model = model();
    let links =
        (1..=40).map(|number| interface(&format!("vlan{number}"), number, u64::from(number) * 100_000, 0));
    // A loopback interface can carry no reservation.
    let lo = v1::Interface { capacity_octets_per_s: None, ..interface("lo", 99, 0, 0) };
    let links: Vec<_> = links.chain([lo]).collect();
    model.answered(Answers { links, ..answers(2, Tab::Reservations, vec![reservation(0, 0)]) });
    let shown = screen(&mut model, 80, 24);
    for part in ["vlan40", "and 35 more: key 1 lists all links", "10.0.9.1 port 5004", "gist"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("vlan1 ") && !shown.contains("lo "), "{shown}");
}

/// Colors are words of the terminal only if they are wanted. The letters are the same.
#[test]
fn without_colors_only_letters_and_inverse_lines_are_left() {
    let cells = |colors| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw::draw(&mut few(), frame.buffer_mut(), colors)).unwrap();
        terminal.backend().buffer().content().to_vec()
    };
    let colored = |cells: &[ratatui_core::buffer::Cell]| {
        cells.iter().filter(|cell| cell.fg != ratatui_core::style::Color::Reset).count()
    };
    let (with, without) = (cells(true), cells(false));
    assert!(colored(&with) > 0);
    assert_eq!(colored(&without), 0);
    assert!(with.iter().zip(&without).all(|(one, other)| one.symbol() == other.symbol()));
}

#[test]
fn without_a_terminal_the_command_for_programs_is_named() {
    let arguments = |json| TopArgs {
        interval: Duration::from_secs(2),
        json,
        node: NodeArgs { socket: "/none/such".into() },
    };
    let refused = arguments(true).run().unwrap_err().to_string();
    assert!(refused.contains("`signalbox show VIEW --watch --json`"), "{refused}");
}
