//! What a daemon of one VRF cannot do.

use crate::Config;
use crate::keys::Keys;
use crate::protocols::Openings;

impl Config {
    /// Refuses protocols that need what the kernel does not have for each VRF.
    pub(crate) fn check_vrf(&self, keys: &mut Keys<'_>) {
        if self.node.vrf.is_none() {
            return;
        }
        let running = self.protocols.each().filter(|(name, _)| self.node.runs(name));
        for (name, _) in running.filter(|(_, section)| section.opens() != Openings::Nothing) {
            keys.fault(
                &["node.vrf"],
                &format!(
                    "{name} cannot do its work in a VRF: the kernel keeps the connections of all VRFs in one table, so that a passage \
                     would be open for the same addresses of another one: remove the key, or what needs it"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn what_has_no_table_for_each_vrf_is_refused_with_the_reason() {
        const SIDES: &str =
            "[interfaces.eth0]\nnatfw.side = \"inside\"\n[interfaces.eth1]\nnatfw.side = \"outside\"\n";
        let faults = |text: &str| {
            let text = format!("version = 1\nnode.vrf = \"red\"\n{text}");
            let loaded = crate::parse(Path::new("node.toml"), &text);
            let faults = loaded.findings.into_iter().filter(|finding| finding.key == "node.vrf");
            faults.map(|finding| finding.message).collect::<Vec<_>>()
        };
        let with = |protocols: &str, more: &str| faults(&format!("node.protocols = [{protocols}]\n{more}"));
        for role in ["firewall", "nat"] {
            let [fault] = &with("\"gist\", \"natfw\"", &format!("natfw.role = \"{role}\"\n{SIDES}"))[..]
            else {
                panic!("{role}")
            };
            assert!(fault.starts_with("natfw cannot do its work in a VRF: "), "{fault}");
        }
        for works in ["\"gist\", \"natfw\"", "\"gist\", \"qos\", \"rsvp\"", "\"boomerang\""] {
            assert_eq!(with(works, ""), Vec::<String>::new(), "{works}");
        }
    }
}
