//! `signalbox show config` and `signalbox show policy`.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;

use super::NoArgs;
use crate::arguments::OutputArgs;
use crate::client::{self, answer};
use crate::exit::Exit;
use crate::print::json_row;

/// Sections of the configuration that decide about requests.
const POLICY: [&str; 2] = ["policy", "admission"];

pub(super) async fn show(_: &NoArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    print(&config(socket).await?, output)
}

pub(super) async fn show_policy(_: &NoArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut config = config(socket).await?;
    config.toml = policy(&config.toml)?;
    print(&config, output)
}

async fn config(socket: &Path) -> Result<v1::GetConfigResponse> {
    let mut client = NodeClient::new(client::channel(socket).await?);
    answer(client.get_config(v1::GetConfigRequest {}).await)
}

/// The sections about policy.
fn policy(toml: &str) -> Result<String> {
    let mut all: toml::Table = toml.parse().context("the daemon's configuration cannot be read")?;
    all.retain(|section, _| POLICY.contains(&section));
    Ok(all.to_string())
}

fn print(config: &v1::GetConfigResponse, output: OutputArgs) -> Result<Exit> {
    let mut out = std::io::stdout().lock();
    if output.json {
        json_row(&mut out, config)?;
    } else {
        write!(out, "{}", config.toml)?;
    }
    out.flush()?;
    Ok(Exit::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_a_part_of_the_configuration() {
        let all = "version = 1\n[node]\nname = \"r1\"\n[policy]\ndefault = \"deny\"\n[admission]\nx = 1\n";
        let shown = policy(all).unwrap();
        assert!(
            shown.contains("[policy]") && shown.contains("[admission]") && !shown.contains("r1"),
            "{shown}"
        );
    }
}
