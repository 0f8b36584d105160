//! `signalbox net path`: what nodes hold for a flow, hop by hop.
//!
//! A node knows its neighbor of a reservation by an address. The node that has this address at an interface is the one before it, or
//! with RSVP the one behind it, since there a reservation comes from the receiver.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::ask::{Answer, Asked, faults, object};
use crate::arguments::values::ip_protocol;
use crate::exit::Exit;
use crate::print::rate;
use crate::print::table;

#[derive(Debug, Args)]
pub(super) struct PathArgs {
    /// The destination of the flow.
    #[arg(value_name = "ADDRESS")]
    destination: IpAddr,
    /// Only flows from this address.
    #[arg(long, value_name = "ADDRESS")]
    src: Option<IpAddr>,
    /// Only this IP protocol: a number, or tcp, udp, icmp.
    #[arg(long, value_name = "IP-PROTOCOL", value_parser = ip_protocol)]
    proto: Option<u8>,
    /// Only this source port.
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Only this destination port.
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
struct Hop {
    node: String,
    row: Value,
}

const COLUMNS: [&str; 8] = ["hop", "node", "interface", "rate", "enforced", "neighbor", "packets", "policed"];

pub(super) async fn path(asked: &Asked, arguments: &PathArgs) -> Result<Exit> {
    let held = asked.show(&["reservations"], true).await?;
    let interfaces = asked.show(&["interfaces"], true).await?;
    let places = places(&interfaces);
    let flows = sorted(&held, arguments, &places);
    let mut out = std::io::stdout().lock();
    for ((protocol, flow, _), hops) in &flows {
        if asked.json {
            let rows: Vec<Value> =
                hops.iter().map(|hop| json!({"node": hop.node, "reservation": hop.row})).collect();
            let flow = &hops[0].row["flows"][0];
            object(&mut out, "net_path", json!({"protocol": protocol, "flow": flow, "hops": rows}))?;
            continue;
        }
        writeln!(out, "{protocol}  {flow}")?;
        let mut table = table::new(&COLUMNS);
        for (number, hop) in (1..).zip(hops) {
            table.add_row(cells(number, hop));
        }
        table::print(&mut out, &table)?;
        writeln!(out)?;
    }
    if flows.is_empty() && !asked.json {
        eprintln!("no node holds anything for such a flow");
    }
    drop(out);
    let lacking = asked.report(faults(&held))?;
    Ok(Exit::yes_if(!flows.is_empty() && !lacking))
}

fn cells(number: usize, Hop { node, row }: &Hop) -> [String; 8] {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let count = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string());
    [
        number.to_string(),
        node.clone(),
        text(&row["interface"]["name"]),
        row["traffic"]["rate_octets_per_s"].as_u64().map_or_else(|| "-".to_owned(), rate),
        if row["enforced"] == true { "yes" } else { "no" }.to_owned(),
        text(&row["neighbor"]),
        count(&row["statistics"]["packets"]),
        count(&row["statistics"]["policed_packets"]),
    ]
}

/// The node of each address.
fn places(interfaces: &[Answer]) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for answer in interfaces {
        for row in answer.rows() {
            for address in row["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                // Addresses that every node has name none of them.
                let named = address.parse().is_ok_and(|address: IpAddr| {
                    !address.is_loopback()
                        && !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
                });
                if named {
                    places.insert(address.to_owned(), answer.node.clone());
                }
            }
        }
    }
    places
}

/// What belongs together: the protocol, the flow, and the session where the protocol has one.
type Key = (String, String, String);

/// The hops of each flow that is wanted, in their order.
fn sorted(
    held: &[Answer],
    arguments: &PathArgs,
    places: &BTreeMap<String, String>,
) -> BTreeMap<Key, Vec<Hop>> {
    let mut flows: BTreeMap<Key, Vec<Hop>> = BTreeMap::new();
    for answer in held {
        for row in answer.rows().filter(|row| is_wanted(row, arguments)) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = (text(&row["protocol"]), flow_text(&row["flows"][0]), text(&row["session_id"]));
            flows.entry(key).or_default().push(Hop { node: answer.node.clone(), row });
        }
    }
    for ((protocol, ..), hops) in &mut flows {
        *hops = in_order(std::mem::take(hops), places);
        if protocol == "rsvp" {
            hops.reverse();
        }
    }
    flows
}

/// Hops from the first one on, whose neighbor is none of them.
fn in_order(mut rest: Vec<Hop>, places: &BTreeMap<String, String>) -> Vec<Hop> {
    let before = |hop: &Hop| hop.row["neighbor"].as_str().and_then(|address| places.get(address)).cloned();
    let mut ordered: Vec<Hop> = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let next = rest
            .iter()
            .position(|hop| ordered.last().is_some_and(|last| before(hop).as_ref() == Some(&last.node)))
            .or_else(|| {
                rest.iter().position(|hop| {
                    before(hop).is_none_or(|node| rest.iter().all(|other| other.node != node || other == hop))
                })
            })
            // Nodes that name each other in a circle have no first one.
            .unwrap_or(0);
        ordered.push(rest.remove(next));
    }
    ordered
}

fn is_wanted(row: &Value, arguments: &PathArgs) -> bool {
    let flows = row["flows"].as_array().map_or(&[][..], Vec::as_slice);
    flows.iter().any(|flow| {
        let address = |name: &str| flow[name].as_str().and_then(|text| text.parse::<IpAddr>().ok());
        let number = |name: &str| flow[name].as_u64();
        address("destination") == Some(arguments.destination)
            && arguments.src.is_none_or(|src| address("source") == Some(src))
            && arguments.proto.is_none_or(|proto| number("ip_protocol") == Some(proto.into()))
            && arguments.sport.is_none_or(|port| number("source_port") == Some(port.into()))
            && arguments.dport.is_none_or(|port| number("destination_port") == Some(port.into()))
    })
}

fn flow_text(flow: &Value) -> String {
    let end = |address: &str, port: &str| {
        let address = flow[address].as_str().unwrap_or("any");
        flow[port].as_u64().map_or_else(|| address.to_owned(), |port| format!("{address} port {port}"))
    };
    let proto = flow["ip_protocol"].as_u64().map(|proto| format!(" proto {proto}")).unwrap_or_default();
    format!("{} > {}{proto}", end("source", "source_port"), end("destination", "destination_port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str, rows: &[Value]) -> Answer {
        let text = rows.iter().map(|row| format!("{row}\n")).collect();
        Answer { node: node.into(), text: Ok(text), between: (0, 0) }
    }

    fn row(protocol: &str, neighbor: Option<&str>, port: u16) -> Value {
        let flow = json!({"source": "10.0.1.1", "destination": "10.0.9.9", "ip_protocol": 17, "destination_port": port});
        json!({"protocol": protocol, "session_id": "5e", "neighbor": neighbor, "flows": [flow]})
    }

    fn nodes(flows: &BTreeMap<Key, Vec<Hop>>) -> Vec<Vec<&str>> {
        flows.values().map(|hops| hops.iter().map(|hop| hop.node.as_str()).collect()).collect()
    }

    #[test]
    fn hops_follow_their_neighbors() {
        let addresses = [("c", "10.0.3.1"), ("a", "10.0.1.1"), ("b", "10.0.2.1")];
        let interfaces: Vec<Answer> = addresses
            .iter()
            .map(|(node, of)| answer(node, &[json!({"addresses": [of, "::1", "fe80::1"]})]))
            .collect();
        let places = places(&interfaces);
        assert_eq!(places.len(), 3);
        let held = [
            answer("a", &[row("qos", None, 5)]),
            answer("c", &[row("qos", Some("10.0.2.1"), 5), row("rsvp", None, 7), row("qos", None, 99)]),
            answer("b", &[row("qos", Some("10.0.1.1"), 5), row("rsvp", Some("10.0.3.1"), 7)]),
        ];
        let mut arguments = PathArgs {
            destination: "10.0.9.9".parse().unwrap(),
            src: None,
            proto: Some(17),
            sport: None,
            dport: Some(5),
        };
        assert_eq!(nodes(&sorted(&held, &arguments, &places)), [["a", "b", "c"]]);
        arguments.dport = Some(7);
        assert_eq!(nodes(&sorted(&held, &arguments, &places)), [["b", "c"]], "the receiver is the last one");
        arguments.src = Some("10.0.1.2".parse().unwrap());
        assert!(sorted(&held, &arguments, &places).is_empty());
    }

    /// Nodes of another version, or with a fault, may give anything.
    #[test]
    fn a_circle_of_neighbors_ends() {
        let places = BTreeMap::from([("1".to_owned(), "a".to_owned()), ("2".to_owned(), "b".to_owned())]);
        let hop = |node: &str, neighbor: &str| Hop { node: node.into(), row: json!({"neighbor": neighbor}) };
        assert_eq!(in_order(vec![hop("a", "2"), hop("b", "1"), hop("b", "1")], &places).len(), 3);
    }
}
