//! The step `reserve`: a reservation that the real `signalbox reserve` makes and holds.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::Value;
use signalbox_api::v1;
use signalbox_api::v1::reserve_response::Event;
use signalbox_node::qos::{self, Flow, Priority, QosEvent, QosRequest, ReserveRequest};
use signalbox_node::{Command, Event as NodeEvent};
use signalbox_show as show;
use signalbox_units::Size;

use super::Act;
use super::program::{END, Process, ProgramRun};
use crate::language::steps::reserve::{QOS, Reserve};
use crate::run::evidence::Evidence;
use crate::run::simulation::Simulation;
use crate::run::simulation::client::Client;
use crate::run::{Run, command, now};

/// The IP protocol of the flows.
const UDP: u8 = 17;

/// The time that a command has in addition to tear down each of its flows.
const END_EACH: Duration = Duration::from_millis(10);

/// The types of the events that answer a request.
pub(crate) const ANSWERS: [&str; 3] = ["granted", "failed", "refused"];

impl Act for Reserve {
    fn unsimulated(&self) -> Option<String> {
        if self.signaling.as_ref() != QOS {
            return Some(format!("the simulator reserves by qos, not by {}", self.signaling.as_ref()));
        }
        if *self.flows.as_ref() > 1 {
            return Some("the simulator has no `flows`".to_owned());
        }
        self.request(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).err()
    }

    fn simulate(&self, run: &mut Simulation<'_>, id: &str) -> Result<()> {
        let (from, _, destination) = run.ends(self.from.as_ref(), self.to.as_ref())?;
        let request = self.request(destination).map_err(|why| anyhow!("{why}"))?;
        let started = run.now();
        let program = ProgramRun {
            id: Some(id.to_owned()),
            node: from,
            started,
            reserves: true,
            ..ProgramRun::default()
        };
        let client = Simulated { program, request: request.clone(), granted: false };
        let command = |id| Command::Qos { id, command: qos::Command::Reserve(Box::new(request)) };
        run.begin(id, from, self.within.0, command, Box::new(client));
        run.wait(self.within.0, |run| run.answered(id) || run.all_ended(id));
        run.pass_lines(id);
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()> {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        run.progress(&format!("{id}: reserving from {from} to {to}"));
        let (from, _, destination) = run.ends(from, to)?;
        let plan = &run.lab.plan;
        let mut command = command::signalbox(&plan.name, &plan.nodes[from])?;
        let [port, rate] = [self.port.to_string(), format!("{}bit", self.rate.0)];
        command.args([
            "reserve",
            &destination.to_string(),
            "--proto",
            "udp",
            "--dport",
            &port,
            "--rate",
            &rate,
        ]);
        if self.signaling.as_ref() != QOS {
            command.args(["--signaling", self.signaling.as_ref()]);
        }
        command.args(&self.options);
        let flows = *self.flows.as_ref();
        if flows > 1 {
            command.args(["--flows", &flows.to_string()]);
        }
        command.arg("--json");
        let record = ProgramRun {
            id: Some(id.to_owned()),
            node: from,
            started: now()?,
            reserves: true,
            ..ProgramRun::default()
        };
        let mut program = Process::start(&plan.nodes[from].namespace, command, record, self.within.0)?;
        program.end = END + END_EACH * flows;
        program.wait(&run.evidence, |_, line| {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            event["type"].as_str().is_some_and(|kind| ANSWERS.contains(&kind))
        })?;
        run.programs.push(program);
        Ok(())
    }
}

impl Reserve {
    /// Returns what the command would ask for; an error names an option that the simulator does not have.
    fn request(&self, destination: IpAddr) -> Result<ReserveRequest, String> {
        let flow = Flow { protocol: Some(UDP), dst_port: Some(self.port), ..Flow::to(destination) };
        let request = ReserveRequest::new(flow, QosRequest::rate(self.rate.octets()));
        let mut request = ReserveRequest { confirm_release: true, ..request };
        let mut words = self.options.iter();
        while let Some(option) = words.next() {
            let mut value = || words.next().map(String::as_str).unwrap_or_default();
            let read = match option.as_str() {
                "--receiver-initiated" => {
                    request.receiver_initiated = true;
                    Some(())
                }
                "--bidirectional" => {
                    request.bidirectional = true;
                    Some(())
                }
                // A simulated command never asks again.
                "--once" => Some(()),
                "--sport" => value().parse().ok().map(|port| request.flow.src_port = Some(port)),
                "--burst" => {
                    let size = value().parse::<Size>().ok().and_then(|size| u32::try_from(size.0).ok());
                    size.map(|size| request.qos.burst = Some(size))
                }
                "--priority" => value().parse().ok().map(|preemption| {
                    request.priority = Some(Priority { preemption, defending: preemption });
                }),
                _ => None,
            };
            read.ok_or_else(|| format!("the simulator has no `{option}` like this one"))?;
        }
        Ok(request)
    }
}

/// The command in the simulator: what its node reports becomes the lines that the command prints.
#[derive(Debug)]
struct Simulated {
    program: ProgramRun,
    request: ReserveRequest,
    granted: bool,
}

impl Simulated {
    fn ends(&mut self, code: i32) {
        self.program.status = Some(format!("exit status: {code}"));
        self.program.code = Some(code);
    }
}

impl Client for Simulated {
    fn event(&mut self, at: Duration, event: NodeEvent) {
        let NodeEvent::Qos { id, event } = event else { return };
        let event = match *event {
            QosEvent::Started { session, mri } => Event::Started(v1::ReserveStarted {
                id: id.to_string(),
                session_id: Some(show::types::session_id(session)),
                flow: Some(show::types::flow(&mri)),
                taken_over: false,
            }),
            QosEvent::Granted(granted) => {
                self.granted = true;
                Event::Granted(show::qos::path_grant(&granted, &self.request, false))
            }
            QosEvent::Rerouted(granted) => {
                Event::Granted(show::qos::path_grant(&granted, &self.request, true))
            }
            QosEvent::Failed(failure) => {
                self.ends(1);
                Event::Failed(show::qos::failure(failure))
            }
            QosEvent::Lost(failure) => {
                self.ends(1);
                Event::Lost(show::qos::failure(failure))
            }
            QosEvent::Released => {
                self.ends(i32::from(!self.granted));
                Event::Released(v1::ReserveReleased { confirmed: true })
            }
            QosEvent::Refused(refusal) => {
                self.program.complaint = refusal.to_string();
                return self.ends(3);
            }
            QosEvent::Answer(_) => return,
        };
        let time_unix_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let response = v1::ReserveResponse { time_unix_us, event: Some(event) };
        // A message that the API has always has a line.
        if let Ok(Some(line)) = signalbox_json::event(&response) {
            self.program.lines.push(line);
            self.program.times.push(at);
        }
    }

    fn node_ended(&mut self, _at: Duration) {
        self.program.complaint = "the daemon ended".to_owned();
        self.ends(3);
    }

    fn answered(&self) -> bool {
        self.granted || self.ended()
    }

    fn ended(&self) -> bool {
        self.program.code.is_some()
    }

    fn stop(&mut self, id: u64) -> Option<Command> {
        self.close(id)
    }

    fn close(&self, id: u64) -> Option<Command> {
        Some(Command::Qos { id, command: qos::Command::Release })
    }

    fn lines(&self) -> &[String] {
        &self.program.lines
    }

    fn record(self: Box<Self>, evidence: &mut Evidence) {
        evidence.record(self.program);
    }
}
