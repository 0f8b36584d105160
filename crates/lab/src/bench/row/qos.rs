//! `bench engine qos`: a router with GIST and the QoS application.

use std::time::Duration;

use anyhow::{Context, Result};
use signalbox_node::qos::{self, Flow, QosRequest, ReserveRequest};
use signalbox_node::resources::Config as Resources;
use signalbox_node::{Command, Config, GistConfig};

use super::{Row, RowArgs, Sessions, WALL_CLOCK_US};

const FIRST_PORT: u32 = 10_000;
/// Octets a second.
const RATE: u64 = 10_000;

struct Qos;

pub(in super::super) fn run(args: &RowArgs) -> Result<()> {
    super::run::<Qos>(args)
}

impl Sessions for Qos {
    const NAME: &'static str = "qos-engine";
    const COMMAND: [&'static str; 2] = ["engine", "qos"];
    const PERIOD: Duration = Duration::from_secs(30);

    fn config(sessions: u32) -> Result<Config> {
        let mut gist = GistConfig::default();
        gist.engine.max_sessions = sessions.saturating_mul(2);
        gist.engine.dmode_rate = 0;
        gist.engine.intercept_rate = 0;
        gist.engine.query_rate_per_source = 0;
        gist.engine.max_sessions_per_source = 0;
        let mut resources = Resources::of_link("*", "40000gbit".parse()?);
        resources.max_reservations = sessions.saturating_mul(2);
        let qos = qos::Config { max_sessions: sessions.saturating_mul(2), ..qos::Config::default() };
        Ok(Config {
            wall_clock_us: WALL_CLOCK_US,
            gist: Some(gist),
            ping: None,
            qos: Some(qos),
            resources,
            ..Config::default()
        })
    }

    fn prepare() -> Option<Command> {
        None
    }

    fn open(row: &Row, number: u32) -> Result<Command> {
        let port = u16::try_from(FIRST_PORT + number).context("too many sessions for one port each")?;
        let flow = Flow { protocol: Some(17), dst_port: Some(port), ..Flow::to(row.address(2)?) };
        let request = ReserveRequest::new(flow, QosRequest::rate(RATE));
        Ok(Command::Qos { id: number.into(), command: qos::Command::Reserve(Box::new(request)) })
    }

    fn close(_: &Row, number: u32) -> Result<Command> {
        Ok(Command::Qos { id: number.into(), command: qos::Command::Release })
    }

    fn held(row: &Row) -> usize {
        row.sim.reservations(row.nodes[1]).count()
    }
}
