//! `signalbox show status`.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;

use super::NoArgs;
use crate::arguments::OutputArgs;
use crate::client::{self, answer};
use crate::exit::Exit;
use crate::print::style::{Tone, paint};
use crate::print::{duration, enum_text, json_row, now_unix_us, or_dash, table};

pub(super) async fn show(_: &NoArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = NodeClient::new(client::channel(socket).await?);
    let node = answer(client.get_node(v1::GetNodeRequest {}).await)?;
    let mut out = std::io::stdout().lock();
    if output.json {
        json_row(&mut out, &node)?;
    } else {
        text(&mut out, &node, now_unix_us())?;
    }
    out.flush()?;
    Ok(Exit::Yes)
}

fn text(out: &mut impl Write, node: &v1::GetNodeResponse, now_unix_us: u64) -> Result<()> {
    writeln!(out, "node           {}", node.name)?;
    if let Some(vrf) = &node.vrf {
        writeln!(out, "VRF            {vrf}")?;
    }
    writeln!(out, "version        {} (process {})", node.version, node.pid)?;
    writeln!(out, "uptime         {}", duration(now_unix_us.saturating_sub(node.start_unix_us)))?;
    let digest = node.config_digest.get(..16).unwrap_or(&node.config_digest);
    writeln!(out, "configuration  {digest}")?;
    for warning in &node.warnings {
        writeln!(out, "{}  {warning}", paint(Tone::Bad, "warning      "))?;
    }
    if let Some(interception) = &node.interception {
        let text = match (&interception.faults[..], &interception.untried[..]) {
            ([], []) => "works".to_owned(),
            ([], untried) => {
                format!("marked packets come to this node (no packet was tried: {})", untried.join("; "))
            }
            (faults, _) => faults.join("\n               "),
        };
        writeln!(out, "interception   {text}")?;
    }
    writeln!(out)?;
    let mut rows = table::new(&["protocol", "nslp", "sessions", "peers"]);
    for one in &node.protocols {
        rows.add_row([
            enum_text(one.protocol().as_str_name(), "PROTOCOL_"),
            or_dash(one.nslp_id),
            one.sessions.to_string(),
            or_dash(one.peers),
        ]);
    }
    for application in &node.applications {
        rows.add_row(["application".to_owned(), application.nslp_id.to_string(), "-".into(), "-".into()]);
    }
    table::print(out, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_the_interception_works_is_shown() {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let shown = |status: Option<(&[&str], &[&str])>| {
            let interception = status.map(|(faults, untried)| v1::InterceptionStatus {
                faults: owned(faults),
                untried: owned(untried),
            });
            let mut out = Vec::new();
            text(&mut out, &v1::GetNodeResponse { interception, ..Default::default() }, 1).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(shown(Some((&[], &[]))).contains("interception   works\n"));
        for untried in [&[][..], &["IPv4: a filter"]] {
            let shown = shown(Some((&["a rule", "a mark"], untried)));
            assert!(shown.contains("interception   a rule\n               a mark\n"));
        }
        let untried =
            "interception   marked packets come to this node (no packet was tried: IPv4: a filter)\n";
        assert!(shown(Some((&[], &["IPv4: a filter"]))).contains(untried));
        assert!(!shown(None).contains("interception"), "a host");
    }

    #[test]
    fn every_protocol_that_runs_is_shown() {
        let protocol_status = |protocol: v1::Protocol, peers| v1::ProtocolStatus {
            protocol: protocol.into(),
            peers,
            ..Default::default()
        };
        let node = v1::GetNodeResponse {
            protocols: vec![
                protocol_status(v1::Protocol::Gist, Some(2)),
                protocol_status(v1::Protocol::Rsvp, None),
            ],
            applications: vec![v1::ApplicationStatus { nslp_id: 32_720 }],
            start_unix_us: 1,
            warnings: vec!["the clock of this node is 24 h behind".to_owned()],
            vrf: Some("red".to_owned()),
            ..Default::default()
        };
        let mut out = Vec::new();
        text(&mut out, &node, 154_000_001).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let warning = "warning        the clock of this node is 24 h behind";
        for part in ["gist", "rsvp", "2m34s", "32720", warning, "VRF            red\n"] {
            assert!(shown.contains(part), "{shown}");
        }
    }
}
