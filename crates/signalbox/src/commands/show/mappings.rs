//! `signalbox show mappings`: who has which port by PCP (RFC 6887) and NAT-PMP (RFC 6886).

use std::path::Path;

use anyhow::Result;
use signalbox_api::mapping::v1;
use signalbox_api::mapping::v1::mappings_client::MappingsClient;

use super::ListArgs;
use super::gist::endpoint;
use crate::arguments::OutputArgs;
use crate::client;
use crate::exit::Exit;
use crate::print::{duration, enum_text, identifier, or_dash, table};

pub(super) async fn show(list: &ListArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = MappingsClient::new(client::channel(socket).await?);
    let request =
        v1::ListMappingsRequest { address: list.address(), limit: list.limit, page_token: Vec::new() };
    table::list(client.list_mappings(request).await, output, &COLUMNS, cells).await
}

const COLUMNS: [&str; 8] = ["host", "proto", "outside", "state", "by", "expires", "description", "session"];

fn cells(row: &v1::Mapping) -> Vec<[String; 8]> {
    vec![[
        or_dash(row.inside.as_ref().map(endpoint)),
        match row.ip_protocol {
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            other => other.to_string(),
        },
        or_dash(row.outside.as_ref().map(endpoint)),
        enum_text(row.state().as_str_name(), "MAPPING_STATE_"),
        enum_text(row.asking().as_str_name(), "ASKING_"),
        or_dash(row.expires_in_us.map(duration)),
        // Text of a program that this host does not know.
        or_dash(row.description.as_ref().map(|text| text.escape_debug().to_string())),
        or_dash(row.session_id.as_deref().map(identifier)),
    ]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_shows_who_has_which_port() {
        let place =
            |address: &str, port| signalbox_api::v1::Endpoint { address: address.into(), port: Some(port) };
        let row = v1::Mapping {
            inside: Some(place("192.168.1.20", 22_000)),
            ip_protocol: 6,
            asking: v1::Asking::NatPmp.into(),
            state: v1::MappingState::Open.into(),
            outside: Some(place("203.0.113.1", 22_001)),
            expires_in_us: Some(60_000_000),
            description: Some("music\u{1b}[2J".into()),
            filters: 0,
            session_id: Some(vec![0xab; 16]),
        };
        let cells = cells(&row).remove(0);
        assert_eq!(cells[..4], ["192.168.1.20:22000", "tcp", "203.0.113.1:22001", "open"]);
        assert_eq!(cells[6..], ["music\\u{1b}[2J", "abababababababab"]);
        assert!(cells[4].starts_with("nat"), "{cells:?}");
    }
}
