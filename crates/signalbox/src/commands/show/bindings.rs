//! `signalbox show bindings`: what the GIST-aware NAT gateway (RFC 5971 §7.2) asks the kernel to translate.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use signalbox_api::gist::v1;
use signalbox_api::gist::v1::gist_client::GistClient;

use super::ListArgs;
use super::gist::endpoint;
use crate::arguments::OutputArgs;
use crate::client;
use crate::exit::Exit;
use crate::print::{duration, enum_text, flow, or_dash, table};

#[derive(Debug, Args)]
pub(crate) struct BindingsArgs {
    #[command(flatten)]
    list: ListArgs,
}

pub(super) async fn show(arguments: &BindingsArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = GistClient::new(client::channel(socket).await?);
    let request = v1::ListBindingsRequest {
        address: arguments.list.address(),
        limit: arguments.list.limit,
        page_token: Vec::new(),
    };
    table::list(client.list_bindings(request).await, output, &COLUMNS, cells).await
}

const COLUMNS: [&str; 7] = ["for", "packets", "source", "destination", "state", "packets seen", "expires"];

fn cells(binding: &v1::Binding) -> Vec<[String; 7]> {
    let rule = binding.rule.as_ref();
    let state = match (rule.is_some_and(|rule| rule.active), binding.confirmed) {
        (false, _) => "reserved",
        (true, false) => "not confirmed",
        (true, true) => "confirmed",
    };
    vec![[
        enum_text(binding.purpose().as_str_name(), "BINDING_PURPOSE_"),
        or_dash(rule.and_then(|rule| rule.packets.as_ref()).map(flow)),
        or_dash(rule.and_then(|rule| rule.source.as_ref()).map(endpoint)),
        or_dash(rule.and_then(|rule| rule.destination.as_ref()).map(endpoint)),
        state.to_owned(),
        or_dash(rule.and_then(|rule| rule.packet_count)),
        duration(binding.expires_in_us),
    ]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_shows_what_is_translated_to_what() {
        let source = signalbox_api::v1::Endpoint { address: "203.0.113.1".into(), port: Some(16_400) };
        let mut row = v1::Binding { purpose: v1::BindingPurpose::Flow.into(), ..Default::default() };
        assert_eq!(cells(&row)[0][..5], ["flow", "-", "-", "-", "reserved"]);
        let rule = signalbox_api::v1::PinholeRule {
            source: Some(source),
            active: true,
            packet_count: Some(3),
            ..Default::default()
        };
        (row.rule, row.confirmed) = (Some(rule), true);
        assert_eq!(cells(&row)[0][2..6], ["203.0.113.1:16400", "-", "confirmed", "3"]);
    }
}
