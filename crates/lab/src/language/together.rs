//! Keys that can never hold together, or that mean nothing beside others. What is given and not used would pass for what was judged.

use std::fmt::Display;
use std::ops::Range;

use super::Mistake;

/// Fails if the least value that is allowed lies above the greatest one.
pub(crate) fn in_order<T: PartialOrd + Display>(
    at: Range<usize>,
    [least, most]: [(&str, Option<T>); 2],
) -> Result<(), Mistake> {
    match (least, most) {
        ((low, Some(least)), (high, Some(most))) if least > most => {
            let what =
                format!("`{low}` ({least}) lies above `{high}` ({most}), so that nothing can hold both");
            Err(Mistake::new(at, what))
        }
        _ => Ok(()),
    }
}

/// Fails if one of these keys is given: they mean nothing beside `key`.
pub(crate) fn alone(at: Range<usize>, key: &str, others: &[(&str, bool)]) -> Result<(), Mistake> {
    match others.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((other, _)) => {
            Err(Mistake::new(at, format!("`{other}` means nothing beside `{key}`; take one of them out")))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::language::read;

    /// A scenario in which each step and each check means something.
    const SOUND: &str = r#"version = 2
name = "three"
description = "what can hold"
topology = { chain = ["h1", "r1", "h2"], all_nodes = { protocols = ["gist", "ping", "qos"] }, all_links = { rate = "10mbit" } }

[nodes.h2]
protocols = ["gist", "ping", "qos", "rsvp"]

[params]
rate = "2mbit"

[[steps]]
id = "signal"
ping = { from = "h1", to = "h2", count = 3 }

[[steps]]
id = "flow"
traffic = { from = "h1", to = "h2", port = 5004, rate = "${rate}" }

[[steps]]
id = "datagrams"
traffic = { from = "h1", to = "h2", count = 3 }

[[steps]]
id = "packets"
flood = { type = "udp", from = "h1", to = "h2", port = 9, rate = 1000 }

[[steps]]
id = "later"
wait = "2s"

[[steps]]
expect = "held"
show = "qos sessions"
nodes = ["h1"]
count = 1

[[checks]]
expect = "served"
traffic = { flow = "flow", during = "later", max_loss = "1%", min_goodput = "1mbit" }

[[checks]]
expect = "forwarded"
forwarding = { flow = "datagrams" }

[[checks]]
expect = "few"
messages = { protocol = "gist", links = "all", min = 1, max = 9 }

[[checks]]
expect = "paths"
path = ["h1", "r1", "h2"]
ping = "signal"

[[checks]]
expect = "counted"
counter = "signalbox_x"
nodes = ["r1"]
at = "later"

[[checks]]
expect = "cheap"
load = { of = "packets", base = "packets", max_times = 2.0 }
"#;

    #[test]
    fn keys_that_can_never_hold_together_are_refused_when_the_file_is_read() {
        assert!(read("three.toml", SOUND).is_ok(), "{:?}", read("three.toml", SOUND));
        for (from, to, right) in [
            ("min = 1, max = 9", "min = 9, max = 1", "`min` (9) lies above `max` (1)"),
            ("at = \"later\"", "at = \"later\"\nmin = 2\nmax = 1", "`min` (2) lies above `max` (1)"),
            ("count = 1\n", "count = 1\nmin = 1\n", "`min` means nothing beside `count`"),
            ("count = 1\n", "min = 2\nmax = 1\n", "`min` (2) lies above `max` (1)"),
            ("show = \"qos sessions\"\n", "queues = []\n", "`nodes` means nothing beside `queues`"),
            ("\"qos sessions\"\nnodes = [\"h1\"]", "\"casp sessions\"", "no node runs CASP"),
            ("\"qos sessions\"", "\"rsvp sessions\"", "node `h1` does not run RSVP"),
            ("max_loss = \"1%\"", "max_loss = \"1%\", min_loss = \"2%\"", "`min_loss` (2%) lies above"),
            (
                "min_goodput = \"1mbit\"",
                "min_goodput = \"1mbit\", max_goodput = \"1kbit\"",
                "lies above `max_goodput`",
            ),
            (
                "max_loss = \"1%\"",
                "after = \"later\", max_gap = \"1s\"",
                "`min_goodput` means nothing beside `max_gap`",
            ),
            ("flow = \"flow\", during", "flow = \"datagrams\", during", "`datagrams` has no `rate`"),
            ("flow = \"datagrams\" }", "flow = \"flow\" }", "`flow` has no `count`"),
            (
                "ping = \"signal\"",
                "ping = \"signal\"\nreplies = 3\nmin_replies = 2",
                "`min_replies` means nothing beside `replies`",
            ),
            (
                "count = 3 }\n\n[[steps]]\nid = \"packets\"",
                "count = 3, rate = \"1mbit\" }\n\n[[steps]]\nid = \"packets\"",
                "`rate` means nothing beside `count`",
            ),
            (
                "rate = 1000 }",
                "rate = 1000, background = true }",
                "`background` means nothing beside `type = \"udp\"`",
            ),
            (
                "base = \"packets\", max_times = 2.0",
                "max_memory_kib = 9",
                "`packets` has no `type = \"query\"`",
            ),
            (
                "max_times = 2.0",
                "max_times = 2.0, max_memory_kib = 9",
                "`max_memory_kib` means nothing beside `base`",
            ),
            (
                "count = 3 }\n\n[[steps]]\nid = \"flow\"",
                "count = 300, interval = \"1s\" }\n\n[[steps]]\nid = \"flow\"",
                "more than `within`",
            ),
            (
                "from = \"h1\", to = \"h2\", count = 3 }\n\n[[steps]]\nid = \"flow\"",
                "from = \"h1\", to = \"h2\", signaling = \"casp\" }\n\n[[steps]]\nid = \"flow\"",
                "node `h1` does not run CASP",
            ),
            ("[params]\n", "[params]\nother = 1\n", "the parameter `other` is named nowhere"),
        ] {
            assert!(SOUND.contains(from), "{from}");
            let text = SOUND.replacen(from, to, 1);
            let said = read("three.toml", &text).err().map(|mistakes| mistakes.to_string());
            assert!(said.as_ref().is_some_and(|said| said.contains(right)), "{to}: {said:?} lacks {right}");
        }
    }
}
