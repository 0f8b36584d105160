//! The ruleset of a node, and packets that are sent to see whether they pass.

use super::{assert_gone, signalbox, stdout};

/// A router whose ruleset lets one port pass, in one direction, beside a NAT that leads inside.
const SCENARIO: &str = r#"version = 2
name = "lab-packets"
description = "a firewall of an operator"
topology.chain = ["h1", "r1", "h2"]
topology.all_nodes.daemon = false

[nodes.r1]
nftables = """
table inet filter {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        iifname "to-h1" udp sport 4000 udp dport 5000 accept
        iifname "to-h1" tcp dport 5000 accept
        ct status dnat accept
    }
    chain dstnat {
        type nat hook prerouting priority dstnat; policy accept;
        ip daddr 10.0.2.1 udp dport 45000 dnat ip to 10.0.1.1:6000
    }
}
"""

[[steps]]
expect = "what the ruleset says"
packets = [
    { from = "h1", to = "h2", source_port = 4000, port = 5000, passes = true },
    { from = "h1", to = "h2", source_port = 4001, port = 5000, passes = false },
    { from = "h1", to = "h2", source_port = 4000, port = 5001, passes = false },
    { from = "h2", to = "h1", source_port = 4000, port = 5000, passes = false },
    { from = "h1", to = "h2", protocol = "tcp", port = 5000, passes = true },
    { from = "h1", to = "h2", protocol = "tcp", port = 5001, passes = false },
    { from = "h2", to = "h1", at = "10.0.2.1", port = 45000, arrives_at = 6000, passes = true },
]

[[steps]]
expect = "another thing than the ruleset says"
packets = [
    { from = "h1", to = "h2", source_port = 4002, port = 5000, passes = true },
    { from = "h1", to = "h2", protocol = "tcp", port = 5000, passes = false },
]
"#;

#[test]
fn packets_pass_as_the_ruleset_says() {
    let path = std::env::temp_dir().join(format!("signalbox-{}-packets.toml", std::process::id()));
    std::fs::write(&path, SCENARIO).expect("the directory is writable");
    let run = signalbox(&["lab", "run", path.to_str().expect("made of ASCII"), "--json"]);
    // A file that is left in the temporary directory does no harm.
    let _ = std::fs::remove_file(&path);
    let result: serde_json::Value = serde_json::from_str(&stdout(&run)).expect("JSON");
    let [good, bad] = [0, 1].map(|check| &result["checks"][check]);
    assert_eq!(good["ok"], true, "{good}");
    assert_eq!(bad["ok"], false, "{bad}");
    let detail = bad["detail"].as_str().expect("text");
    assert_eq!(detail.matches("(WRONG)").count(), 2, "{detail}");
    assert_gone("lab-packets");
}
