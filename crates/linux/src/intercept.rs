//! Interception of UDP datagrams that pass by: this node receives them, and they are not forwarded.
//!
//! An nftables table of our own redirects them (tproxy) to the UDP socket; addresses, TTL and options stay unchanged.
//! The kernel compares everything that the rule of an entry names, so that the rule matches only packets of that entry.
//! The redirection precedes the mark: without a listening socket the rule ends there, and the packet is forwarded as if
//! there were no rule. A dead daemon therefore stops no packet.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use capctl::{Cap, CapState, ambient};

use crate::error::OpenError;
use crate::io::{IoConfig, udp};
use crate::netlink::rules;
use crate::sys;

/// Name of the tables, in families `ip` and `ip6`.
const TABLE: &str = "signalbox";

/// The installed rules and routes; they are removed when the value is dropped.
pub(crate) struct Interception {
    config: IoConfig,
    laid: bool,
}

/// Installs the rules, and replaces those that a dead predecessor may have left.
pub(crate) fn lay(config: &IoConfig) -> Result<Interception, OpenError> {
    // From here on, a failure removes what is installed.
    let interception = Interception { config: config.clone(), laid: true };
    // The policy rule and the route are added first and removed last. The kernel drops a redirected packet that has no
    // route to this node; it does not forward the packet, because the packet already belongs to a socket.
    for ipv6 in families(config) {
        rules::add(ipv6, config.mark, config.table).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::net_admin("the routing rule for intercepted packets", &error),
            Some(libc::ENETDOWN) => OpenError::new(
                "loopback-down",
                format!("the loopback interface is down ({error})"),
                "ip link set lo up",
            ),
            Some(libc::EEXIST) => OpenError::new(
                "table-in-use",
                format!("routing table {} holds a route that is not ours", config.table),
                "choose another table number in the configuration",
            ),
            _ => OpenError::system("the routing rule for intercepted packets", &error),
        })?;
    }
    lay_rules(&ruleset(config), false)?;
    Ok(interception)
}

/// Removes what a dead predecessor may have left, where this process must not intercept. The predecessor's policy rule
/// and route show whether there is anything to remove, so that a host without nft does not need the tool.
pub(crate) fn clear(config: &IoConfig) -> Result<(), OpenError> {
    let mut found = false;
    for ipv6 in families(config) {
        found |= rules::remove(ipv6, config.mark, config.table)
            .map_err(|error| OpenError::system("removing an old routing rule", &error))?;
    }
    if found { lay_rules(&removal(config), false) } else { Ok(()) }
}

/// Makes the kernel check the rules without installing them.
pub(crate) fn check(config: &IoConfig) -> Result<(), OpenError> {
    lay_rules(&ruleset(config), true)
}

impl Interception {
    /// Removes the rules.
    pub(crate) fn remove(mut self) -> Result<(), OpenError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), OpenError> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        let mut result = lay_rules(&removal(&self.config), false);
        for ipv6 in families(&self.config) {
            let removed = rules::remove(ipv6, self.config.mark, self.config.table)
                .map_err(|error| OpenError::system("removing the routing rule", &error));
            result = result.and(removed.map(drop));
        }
        result
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, "interception rules stay behind");
        }
    }
}

fn families(config: &IoConfig) -> impl Iterator<Item = bool> {
    [(config.ipv4, false), (config.ipv6, true)].into_iter().filter_map(|(on, ipv6)| on.then_some(ipv6))
}

fn family_name(ipv6: bool) -> &'static str {
    if ipv6 { "ip6" } else { "ip" }
}

/// The script that deletes the tables. It adds each table first, so that the deletion of a missing table is no error.
fn removal(config: &IoConfig) -> String {
    families(config)
        .map(family_name)
        .map(|family| format!("table {family} {TABLE}\ndelete table {family} {TABLE}\n"))
        .collect()
}

fn ruleset(config: &IoConfig) -> String {
    let mut text = removal(config);
    for ipv6 in families(config) {
        let (family, mark) = (family_name(ipv6), config.mark);
        text.push_str(&format!(
            "table {family} {TABLE} {{\n  chain prerouting {{\n    \
             type filter hook prerouting priority mangle; policy accept;\n"
        ));
        for rule in config.entries.iter().filter_map(|request| udp::rule(request, ipv6)) {
            text.push_str(&format!("    {rule} meta mark set {mark:#x} accept\n"));
        }
        text.push_str("  }\n}\n");
    }
    text
}

/// Whether there are rules to install.
pub(crate) fn is_wanted(config: &IoConfig) -> bool {
    config.intercept && config.entries.iter().any(|request| udp::rule(request, false).is_some())
}

fn lay_rules(script: &str, check_only: bool) -> Result<(), OpenError> {
    nft(
        script,
        check_only,
        "tproxy-unsupported",
        "the kernel needs nf_tables with tproxy (modules nft_tproxy, nf_tproxy_ipv4, nf_tproxy_ipv6), or \
         switch interception off in the configuration",
    )
}

/// Passes `script` to the nft tool. `id` and `remedy` are those of the error if the kernel refuses.
pub(crate) fn nft(
    script: &str,
    check_only: bool,
    id: &'static str,
    remedy: &'static str,
) -> Result<(), OpenError> {
    let missing = |error: io::Error| {
        OpenError::new("missing-nft", format!("cannot run nft ({error})"), "apt-get install nftables")
    };
    let program = sys::find_program("nft").ok_or_else(|| missing(io::ErrorKind::NotFound.into()))?;
    let mut command = Command::new(program);
    if check_only {
        command.arg("--check");
    }
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = {
        let _guard = Ambient::raise();
        command.spawn().map_err(missing)?
    };
    if let Some(mut input) = child.stdin.take() {
        // If nft ends early, its own message gives the reason.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| OpenError::system("waiting for nft", &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("nft failed without a word").trim().to_owned();
    if said.contains("Operation not permitted") {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        return Err(OpenError::net_admin("laying the nftables rules", &error));
    }
    Err(OpenError::new(id, said, remedy))
}

/// A guard: while it lives, programs that this thread starts inherit CAP_NET_ADMIN, if the thread has it. File
/// capabilities alone are not inherited by other programs.
struct Ambient {
    lower: bool,
}

impl Ambient {
    fn raise() -> Self {
        let raised = !nix::unistd::geteuid().is_root()
            && ambient::is_set(Cap::NET_ADMIN) == Some(false)
            && CapState::get_current().is_ok_and(|mut state| {
                state.inheritable.add(Cap::NET_ADMIN);
                state.set_current().is_ok() && ambient::raise(Cap::NET_ADMIN).is_ok()
            });
        Self { lower: raised }
    }
}

impl Drop for Ambient {
    fn drop(&mut self) {
        if self.lower {
            // The kernel cannot refuse to lower what was raised a moment ago.
            let _ = ambient::lower(Cap::NET_ADMIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signalbox_core::metrics::Subsystem;
    use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept, Match};

    #[test]
    fn the_redirection_stands_before_the_mark() {
        let gist = Intercept { alert: AlertRule::Any, matches: vec![Match::word(0, 0x4e04_bda5)] };
        let flag = Match { offset: 8, mask: 0x8000, value: 0x8000 };
        let gist = EntryRequest::local(Entry::Udp(270), Subsystem::protocol("gist")).with_intercept(gist);
        let config = IoConfig { entries: vec![gist.clone()], ..IoConfig::default() };
        let text = ruleset(&config);
        for line in text.lines().filter(|line| line.contains("mark set")) {
            assert!(line.find("tproxy").unwrap() < line.find("meta mark").unwrap(), "{line}");
            assert!(line.contains("@th,64,32 0x4e04bda5"), "{line}");
        }
        assert_eq!(text.matches("tproxy to :270").count(), 2);
        let v4 = IoConfig { ipv6: false, ..config };
        assert!(!ruleset(&v4).contains("ip6"));
        let without_alert = Intercept { alert: AlertRule::NotRequired, matches: vec![flag] };
        let rule = udp::rule(&gist.with_intercept(without_alert), false);
        assert_eq!(rule.unwrap(), "udp dport 270 @th,128,32 & 0x8000 0x8000 tproxy to :270");
        let rsvp = EntryRequest::local(Entry::Ip(46), Subsystem::protocol("rsvp"));
        assert!(!is_wanted(&IoConfig { entries: vec![rsvp], ..IoConfig::default() }));
    }
}
