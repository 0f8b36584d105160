//! `bench engine casp`: a router with CASP, whose sessions are those of a client in another process.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signalbox_core::SessionId;
use signalbox_node::casp::{self, Command as CaspCommand, FlowId, RequestOf, SendRequestOf};
use signalbox_node::{Command, Config, Node};

use super::{Row, RowArgs, Sessions, WALL_CLOCK_US};

/// The number of the client.
const CLIENT: u8 = 200;
/// The user of the first node.
const USER: u64 = 1;
const FIRST_PORT: u32 = 10_000;
const DATA: &[u8] = b"a message of a client";

struct Casp;

pub(in super::super) fn run(args: &RowArgs) -> Result<()> {
    super::run::<Casp>(args)
}

fn session(number: u32) -> SessionId {
    let mut id = [7; 16];
    for (to, from) in id.iter_mut().zip(number.to_be_bytes()) {
        *to = from;
    }
    SessionId(id)
}

fn flow(row: &Row, number: u32) -> Result<FlowId> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (row.address(0)?, row.address(2)?) else {
        bail!("an address of IPv4 is missing")
    };
    let src_port = u16::try_from(FIRST_PORT + number).context("too many sessions for one port each")?;
    Ok(FlowId::V4Ports { src, dst, src_port, dst_port: 5004, protocol: 17 })
}

fn request(request: casp::OwnedRequest) -> Command {
    Command::Casp { id: USER, command: CaspCommand::Request(request) }
}

impl Sessions for Casp {
    const NAME: &'static str = "casp-engine";
    const COMMAND: [&'static str; 2] = ["engine", "casp"];
    const PERIOD: Duration = Duration::from_secs(30);

    fn config(sessions: u32) -> Result<Config> {
        let mut casp = casp::Config::default();
        casp.engine.max_sessions = sessions.saturating_mul(2);
        casp.engine.rate = 0;
        Ok(Config { wall_clock_us: WALL_CLOCK_US, casp: Some(casp), ..Config::empty() })
    }

    fn prepare() -> Option<Command> {
        Some(Command::Casp { id: USER, command: CaspCommand::Register { client: CLIENT } })
    }

    fn open(row: &Row, number: u32) -> Result<Command> {
        let send = SendRequestOf::new(Some(session(number)), flow(row, number)?, DATA.into());
        Ok(request(RequestOf::Send(SendRequestOf { hold: true, ..send })))
    }

    fn close(row: &Row, number: u32) -> Result<Command> {
        let send = SendRequestOf::new(Some(session(number)), flow(row, number)?, DATA.into());
        Ok(request(RequestOf::Send(SendRequestOf { tear_down: true, data: None, ..send })))
    }

    fn held(row: &Row) -> usize {
        row.router().and_then(Node::casp).map_or(0, |casp| casp.sessions().count())
    }
}
