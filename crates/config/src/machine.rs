//! What this machine, beside the configuration, opens to strangers or puts in the way of a node, and what its administrator's rules of
//! netfilter do not judge.

use std::path::Path;

use crate::openings::OPEN;
use crate::{Config, Finding, Level};

/// The first kernel that has tables of nftables with an owner. Before it the kernel itself intercepts IPv4 packets of RSVP.
const OWNED_TABLES: (u32, u32) = (5, 12);

impl Config {
    /// Warnings that are about this machine, and stand at no place of `file`, which the configuration was read from.
    #[must_use]
    pub fn machine_warnings(&self, file: &Path) -> Vec<Finding> {
        let ours = [("interfaces", self.unfiltered()), ("kernel.rule_preference", self.outranked())];
        let ours = ours.into_iter().filter_map(|(key, message)| Some((key, message?)));
        let unjudged =
            self.unjudged(signalbox_linux::kernel_version()).map(|message| ("node.protocols", message));
        ours.chain(unjudged)
            .map(|(key, message)| Finding {
                level: Level::Warning,
                file: file.to_owned(),
                line: 1,
                column: 1,
                key: key.to_owned(),
                message,
            })
            .collect()
    }

    /// Interfaces whose packets can have forged sources.
    fn unfiltered(&self) -> Option<String> {
        if !self.judges_others() {
            return None;
        }
        // The kernel compares the packets of a VRF as those of its device.
        let device = self.node.vrf.clone().map(|vrf| vec![vrf]);
        let names = device.map_or_else(|| signalbox_linux::interface_names().ok(), Some)?;
        let open = signalbox_linux::ingress::unfiltered(&names);
        (!open.is_empty()).then(|| {
            let open = open.join(", ");
            format!(
                "{OPEN}no filter of forged sources at {open}: write 1 to net.ipv4.conf.NAME.rp_filter, or 2 where the ways \
                 there and back differ; for IPv6 write a rule of netfilter (fib saddr . iif oif 0 drop)"
            )
        })
    }

    /// Policy rules of other programs on this machine that would stand before that of the interception.
    fn outranked(&self) -> Option<String> {
        let io = self.io(Vec::new());
        let before =
            signalbox_linux::rules_before(&io).ok().filter(|before| io.intercept && !before.is_empty())?;
        let before = before.join("; ");
        let what = if io.keep_rule_first {
            "the daemon puts its own above them (kernel.keep_rule_first)"
        } else {
            "write a lower kernel.rule_preference, or kernel.keep_rule_first = true"
        };
        Some(format!("rules of other programs can take intercepted packets: {before}: {what}"))
    }

    /// What passes this node, and the hook forward of the administrator's netfilter does not judge, on a kernel of this version.
    fn unjudged(&self, kernel: Option<(u32, u32)>) -> impl Iterator<Item = String> {
        let intercepts = self.kernel.intercepts();
        let older = self.io(Vec::new()).ipv4 && kernel.is_some_and(|kernel| kernel < OWNED_TABLES);
        self.running().filter(move |_| intercepts).filter_map(move |section| section.unjudged(older)).map(
            |(hooks, what, instead)| {
                format!("not judged by {hooks} of netfilter: {what}, which this node takes and sends on: {instead}")
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unjudged(text: &str, kernel: (u32, u32)) -> Vec<String> {
        let text = format!("version = 1\n{text}\n");
        let config = crate::parse(Path::new("node.toml"), &text).config.unwrap();
        config.unjudged(Some(kernel)).collect()
    }

    /// Each way of interception that the hook forward does not judge has one line, which says what to write instead.
    #[test]
    fn what_forward_does_not_judge_is_said_in_one_line() {
        let all = "node.protocols = [\"gist\", \"qos\", \"rsvp\", \"boomerang\", \"casp\"]\ncasp.clients = [\"qos\"]";
        let [gist, rsvp] = &unjudged(all, (6, 1))[..] else { panic!("{:?}", unjudged(all, (6, 1))) };
        for (line, what, instead) in [
            (gist, "applications (NSLPs) that do not run here", "udp dport 270 drop"),
            (rsvp, "PathErr", "meta l4proto 46 drop"),
        ] {
            assert!(line.starts_with("not judged by the hook forward of netfilter: "), "{line}");
            assert!(line.contains(what) && line.ends_with(instead) && !line.contains('\n'), "{line}");
            assert!(line.contains("at the hook input, write "), "{line}");
        }
        for (without, lines) in [
            ("node.protocols = [\"boomerang\"]", 0),
            ("node.protocols = [\"rsvp\"]\nrsvp.router_alert = false", 0),
            ("node.protocols = [\"gist\", \"rsvp\"]\nkernel.intercept = false", 0),
            ("node.protocols = [\"rsvp\"]", 1),
        ] {
            assert_eq!(unjudged(without, (6, 1)).len(), lines, "{without}");
        }
    }

    /// The kernel itself takes what RSVP intercepts, in front of the hook forward.
    #[test]
    fn on_an_older_kernel_neither_input_nor_forward_judges_rsvp() {
        let rsvp = |families: &str, kernel| {
            unjudged(&format!("node.protocols = [\"rsvp\"]\nnode.families = [{families}]"), kernel).remove(0)
        };
        let line = rsvp("\"ipv4\"", (5, 10));
        assert!(line.starts_with("not judged by the hooks input and forward of netfilter: "), "{line}");
        assert!(line.contains("at the hook prerouting, write meta l4proto 46 drop"), "{line}");
        for (families, kernel) in [("\"ipv4\"", (5, 12)), ("\"ipv6\"", (5, 10))] {
            assert!(rsvp(families, kernel).starts_with("not judged by the hook forward of "), "{families}");
        }
    }
}
