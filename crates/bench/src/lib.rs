//! Benchmarks: what a session and a message cost, in memory and on the wire.
//!
//! Every benchmark prints its goals beside what it measured, reached or not, and exits 0 if it could measure. A measurement that other
//! programs disturbed reaches no goal, and one with an impossible figure ends with an error.

mod boomerang;
mod casp;
mod figures;
mod forward;
mod gateway;
mod gist;
mod growth;
mod instructions;
mod judged;
mod list;
mod machine;
mod natfw;
mod profile;
mod qos;
mod rsvp;
mod runs;
mod switches;

use casp::qos as casp_qos;
use forward::gist::load as ping_forward;
use forward::{
    boomerang as boomerang_forward, casp as casp_forward, gateway as gateway_forward, gist as gist_forward,
    natfw as natfw_forward, qos as qos_forward, rsvp as rsvp_forward,
};
use rsvp::refresh as rsvp_refresh;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;

pub use boomerang::BoomerangArgs;
pub use casp::CaspArgs;
pub use casp::qos::CaspQosArgs;
pub use forward::boomerang::BoomerangForwardArgs;
pub use forward::casp::CaspForwardArgs;
pub use forward::gateway::GatewayForwardArgs;
pub use forward::gist::ForwardArgs;
pub use forward::gist::load::PingForwardArgs;
pub use forward::natfw::NatfwForwardArgs;
pub use forward::qos::QosForwardArgs;
pub use forward::rsvp::RsvpForwardArgs;
pub use forward::set_ups::SetUpArgs;
pub use gateway::GatewayArgs;
pub use gist::GistArgs;
pub use growth::GrowthArgs;
pub use instructions::InstructionsArgs;
pub use list::ListArgs;
pub use natfw::NatfwArgs;
pub use profile::ProfileArgs;
pub use qos::QosArgs;
pub use rsvp::RsvpArgs;
pub use rsvp::refresh::RsvpRefreshArgs;
pub use runs::Repeats;
pub use switches::SwitchesArgs;

/// Declares the table of benchmarks: a group for each thing that is measured, and a line for each protocol, with its
/// module and its options. What is not about one protocol stands alone.
macro_rules! benchmarks {
    (
        $( $(#[doc = $what:literal])+ $group:ident as $set:ident {
            $( $(#[doc = $about:literal])+ $name:ident => $module:ident::$options:ident, )*
        } )*
        alone {
            $( $(#[doc = $text:literal])+ $alone:ident => $place:ident::$settings:ident, )*
        }
    ) => {
        /// What can be measured.
        #[derive(Debug, Clone, Subcommand)]
        pub enum BenchCommand {
            $( $(#[doc = $what])+ #[command(subcommand)] $group($set), )*
            $( $(#[doc = $text])+ $alone($settings), )*
        }

        $(
            $(#[doc = $what])+
            #[derive(Debug, Clone, Subcommand)]
            pub enum $set {
                $( $(#[doc = $about])+ $name($options), )*
            }
        )*

        /// Runs one benchmark and prints its result.
        ///
        /// # Errors
        /// What kept it from measuring; a goal that is not reached is no error.
        pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
            match command {
                $( $( BenchCommand::$group($set::$name(options)) => $module::run(&options)?, )* )*
                $( BenchCommand::$alone(options) => return $place::run(&options), )*
            }
            Ok(ExitCode::SUCCESS)
        }
    };
}

benchmarks! {
    /// An engine in memory, without a kernel.
    Engine as EngineCommand {
        /// A GIST node: time per message and handshake, memory per session.
        Gist => gist::GistArgs,
        /// An RSVP router: time per new, refreshed and torn Path and Resv, memory per session.
        Rsvp => rsvp::RsvpArgs,
        /// The same router with refresh reduction: time per state that a MESSAGE_ID refreshes.
        RsvpRefresh => rsvp_refresh::RsvpRefreshArgs,
        /// A Boomerang router: time per new, refreshed, changed and released reservation, memory of each.
        Boomerang => boomerang::BoomerangArgs,
        /// A NAT that runs the NATFW application: time per CREATE, RESPONSE and refresh, memory per session.
        Natfw => natfw::NatfwArgs,
        /// A GIST-aware NAT gateway: time per Query and Response, memory per flow.
        Gateway => gateway::GatewayArgs,
        /// A router with the QoS application: time per RESERVE, RESPONSE, refresh and tear, memory per session.
        Qos => qos::QosArgs,
        /// A router with CASP: time per set-up, message, refresh and tear-down, memory per session.
        Casp => casp::CaspArgs,
        /// A router with the QoS client of CASP: time per Reserve, Commit, refresh and Release, memory per reservation.
        CaspQos => casp_qos::CaspQosArgs,
    }
    /// A node on real sockets between two namespaces.
    Forward as ForwardCommand {
        /// GIST messages per second in datagrams and over associations, handshakes and their latency, beside bare programs.
        Gist => gist_forward::ForwardArgs,
        /// The processor time, memory and round trips of a node under many sessions that Ping every 30 s, beside a bare echo.
        Ping => ping_forward::PingForwardArgs,
        /// Reservations of the QoS NSLP per second, with and without enforcement, and memory of each.
        Qos => qos_forward::QosForwardArgs,
        /// RSVP set-ups per second, their latency, memory and refreshes, and the same packets through a bare forwarder.
        Rsvp => rsvp_forward::RsvpForwardArgs,
        /// Passages of the NATFW NSLP per second through a firewall and its kernel, and through a router.
        Natfw => natfw_forward::NatfwForwardArgs,
        /// The time of a Query and a Response through a GIST-aware NAT gateway, beside bare programs in its place.
        Gateway => gateway_forward::GatewayForwardArgs,
        /// CASP messages per second over TCP, beside GIST's and a bare relay.
        Casp => casp_forward::CaspForwardArgs,
        /// Boomerang refreshes per second, and the same Echoes through a bare forwarder in its place.
        Boomerang => boomerang_forward::BoomerangForwardArgs,
    }
    alone {
        /// How the time of a message and the memory of a session grow with the number of sessions, with plots.
        Growth => growth::GrowthArgs,
        /// The instructions of fixed workloads, which repeat where times do not; compared with a record on demand.
        Instructions => instructions::InstructionsArgs,
        /// The share of each routine in the instructions of a message, for each engine.
        Profile => profile::ProfileArgs,
        /// The time in which the kernel switches from one thread to another.
        Switches => switches::SwitchesArgs,
        /// The benchmarks, with a line about each.
        List => list::ListArgs,
    }
}

/// A goal for a measured value.
struct Goal {
    name: &'static str,
    /// In words, with its unit.
    wanted: &'static str,
    measured: f64,
    reached: bool,
}

impl Goal {
    fn at_most(name: &'static str, wanted: &'static str, limit: f64, measured: f64) -> Self {
        Self { name, wanted, measured, reached: measured <= limit }
    }

    fn at_least(name: &'static str, wanted: &'static str, limit: f64, measured: f64) -> Self {
        Self { name, wanted, measured, reached: measured >= limit }
    }
}

/// Rounds to three digits after the point; no measurement here is more exact.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Returns the middle one of the values, in order.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Prints a text. A reader that went away is no error.
fn print(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}
