//! `signalbox show requests`: the standing requests of the configuration.

use std::path::Path;

use anyhow::Result;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;

use super::NoArgs;
use crate::arguments::OutputArgs;
use crate::client;
use crate::commands::pinhole::endpoint;
use crate::exit::Exit;
use crate::print::path::failure_text;
use crate::print::{date_time, enum_text, flow, or_dash, rate, table};

pub(super) async fn show(_: &NoArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = NodeClient::new(client::channel(socket).await?);
    let request = v1::ListStandingRequestsRequest {};
    table::list(client.list_standing_requests(request).await, output, &COLUMNS, cells).await
}

const COLUMNS: [&str; 9] =
    ["name", "kind", "by", "flow", "wanted", "state", "since", "granted", "last refusal"];

fn cells(row: &v1::StandingRequest) -> Vec<[String; 9]> {
    let granted = row.granted_octets_per_s.map(rate).or(row.external.as_ref().map(endpoint));
    let refusal = row.last_refusal.as_ref().map(|failure| match row.last_refusal_unix_us {
        Some(at) => format!("{} {}", date_time(at), failure_text(failure)),
        None => failure_text(failure),
    });
    vec![[
        row.name.clone(),
        enum_text(row.kind().as_str_name(), "STANDING_KIND_"),
        enum_text(row.protocol().as_str_name(), "PROTOCOL_"),
        or_dash(row.flow.as_ref().map(flow)),
        or_dash(row.rate_octets_per_s.map(rate)),
        enum_text(row.state().as_str_name(), "STANDING_STATE_"),
        date_time(row.since_unix_us),
        or_dash(granted),
        or_dash(refusal),
    ]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_what_is_wanted_and_what_became_of_it() {
        let mut row = v1::StandingRequest {
            name: "video".into(),
            kind: v1::StandingKind::Reserve.into(),
            protocol: v1::Protocol::Qos.into(),
            rate_octets_per_s: Some(625_000),
            state: v1::StandingState::Waiting.into(),
            last_refusal: Some(v1::Failure { message: "full".into(), ..v1::Failure::default() }),
            ..v1::StandingRequest::default()
        };
        let shown = cells(&row).remove(0);
        assert_eq!(shown[..3], ["video", "reserve", "qos"]);
        assert_eq!((shown[4].as_str(), shown[5].as_str()), ("5mbit", "waiting"));
        assert_eq!((shown[7].as_str(), shown[8].as_str()), ("-", "full"));
        row.state = v1::StandingState::ChangeRefused.into();
        row.granted_octets_per_s = Some(125_000);
        let shown = cells(&row).remove(0);
        assert_eq!((shown[5].as_str(), shown[7].as_str()), ("change refused", "1mbit"));
    }
}
