//! Answers to what clients ask.

use signalbox_api::v1;
use signalbox_core::NslpId;
use signalbox_core::node::{Input, RouteQuery};
use signalbox_linux::clock::Clock;
use signalbox_linux::traffic::Capabilities;
use signalbox_node::gist::SessionView;
use signalbox_node::ping;
use signalbox_node::resources::GrantId;
use signalbox_node::{ApplicationCommand, Command};
use signalbox_node::{qos, rsvp};

use super::Driver;
use super::engine::Engine;
use crate::config::Config;
use crate::control::{Ask, PORTION, SessionFilter};
use crate::convert;
use crate::protocols;
use crate::protocols::applications::service::Joining;

/// What does not change while the daemon runs.
#[derive(Debug)]
pub(super) struct Identity {
    name: String,
    nslps: Vec<NslpId>,
    started: Clock,
}

impl Identity {
    pub(super) fn new(config: &Config, started: Clock) -> Self {
        let ping = config.ping().map(|ping| NslpId(ping.nslp_id));
        let nslps = ping.into_iter().chain(config.qos().map(|qos| NslpId(qos.nslp_id))).collect();
        Self { name: config.node.name.clone(), nslps, started }
    }
}

impl Driver {
    /// Answers a question; whoever asked may be gone by now, and then nobody hears the answer.
    pub(super) fn answer(&mut self, question: Ask) {
        match question {
            Ask::Status(answer) => {
                self.counters.questions += 1;
                let _ = answer.send(self.status());
            }
            Ask::Sessions(portion) => {
                self.counters.questions += 1;
                let sessions = self.engine.node.sessions();
                let wanted = |row: &SessionView<'_>| fits(&portion.filter, row);
                let _ = portion.answer.send(rows(
                    sessions,
                    portion.from,
                    wanted,
                    protocols::gist::convert::session,
                ));
            }
            Ask::Peers(portion) => {
                self.counters.questions += 1;
                let peers = self.engine.node.peers();
                let _ =
                    portion.answer.send(rows(peers, portion.from, |_| true, protocols::gist::convert::peer));
            }
            Ask::Associations(portion) => {
                self.counters.questions += 1;
                let associations = self.engine.node.associations();
                let _ = portion.answer.send(rows(
                    associations,
                    portion.from,
                    |_| true,
                    protocols::gist::convert::association,
                ));
            }
            Ask::Counters(answer) => {
                self.counters.questions += 1;
                let counters = self.engine.counted(self.counted()).with(&self.engine.node);
                let _ = answer.send(counters.map(convert::counter).collect());
            }
            Ask::PingStart { request, events, id } => {
                self.counters.pings_started += 1;
                let ping = self.clients.add(events);
                tracing::debug!(ping, ?request, "ping starts");
                let _ = id.send(ping);
                self.input(Input::Command(Command::Ping {
                    id: ping,
                    command: ping::Command::Start(request),
                }));
            }
            Ask::QosStart { command, events, id } => {
                self.counters.reservations_started += 1;
                let name = self.clients.add_reservation(events);
                tracing::debug!(reservation = name, ?command, "a client reserves or asks");
                if id.send(name).is_ok() {
                    self.qos(name, command);
                } else {
                    self.clients.remove_reservation(name);
                }
            }
            Ask::QosRelease(id, answer) => {
                let there = self.clients.has_reservation(id);
                let _ = answer.send(there);
                if there {
                    self.qos(id, qos::Command::Release);
                }
            }
            Ask::QosStop(id) => {
                if self.clients.remove_reservation(id) {
                    tracing::debug!(reservation = id, "its client is gone");
                    self.qos(id, qos::Command::Release);
                }
            }
            Ask::Reservations(portion) => {
                self.counters.questions += 1;
                let sessions = self.engine.node.qos_sessions();
                let (sessions, next) = rows(sessions, portion.from, |_| true, Clone::clone);
                let rows = sessions.iter().map(|session| self.reservation(session)).collect();
                let _ = portion.answer.send((rows, next));
            }
            Ask::Interfaces(answer) => {
                self.counters.questions += 1;
                let kernel: Vec<Capabilities> =
                    self.engine.enforcer.iter().flat_map(|enforcer| enforcer.capabilities()).collect();
                let links = self.engine.node.resources().links().map(|link| {
                    crate::resources::convert::interface(
                        &link,
                        kernel.iter().find(|kernel| kernel.name == link.name),
                    )
                });
                let _ = answer.send(links.collect());
            }
            Ask::RsvpOpen { session, events, answer } => {
                let name = self.clients.add_session(events);
                tracing::debug!(session = name, %session, "an application registers an RSVP session");
                self.rsvp(name, rsvp::Command::Session(session));
                if answer.send(name).is_err() {
                    self.close_rsvp(name);
                }
            }
            Ask::Rsvp(id, command) => {
                tracing::debug!(session = id, ?command, "an application asks RSVP");
                self.rsvp(id, command);
            }
            Ask::RsvpClose(id) => self.close_rsvp(id),
            Ask::RsvpSessions(portion) => {
                self.counters.questions += 1;
                let (sessions, next) =
                    rows(self.engine.node.rsvp_sessions(), portion.from, |_| true, Clone::clone);
                let rows = sessions.iter().map(|session| self.rsvp_session(session)).collect();
                let _ = portion.answer.send((rows, next));
            }
            Ask::RsvpNeighbours(portion) => {
                self.counters.questions += 1;
                let (now, interfaces) = (self.clock.now(), self.engine.io.interfaces());
                let neighbours = self.engine.node.rsvp_neighbours(now);
                let _ = portion.answer.send(rows(
                    neighbours.iter(),
                    portion.from,
                    |_| true,
                    |view| {
                        let known = interfaces.iter().find(|interface| interface.ifindex == view.ifindex);
                        let name = known.map(|interface| interface.name.clone());
                        protocols::rsvp::convert::neighbour(view, now, name.unwrap_or_default())
                    },
                ));
            }
            Ask::SourceTowards(dst, answer) => {
                self.counters.questions += 1;
                let route = self.engine.io.route(&RouteQuery::to(dst)).ok();
                let _ = answer.send(route.map(|route| if route.local { dst } else { route.src }));
            }
            Ask::ApplicationJoin(Joining { nslp, registration, line, answer }) => {
                let id = self.clients.applications.add(line, answer);
                tracing::info!(
                    application = id,
                    nslp = nslp.0,
                    "an application of another process asks for its place"
                );
                self.application(id, ApplicationCommand::Register { nslp, registration });
            }
            Ask::Application(id, command) => {
                if command == ApplicationCommand::Leave && self.clients.applications.remove(id) {
                    tracing::info!(application = id, "an application of another process is gone");
                }
                self.application(id, command);
            }
            Ask::ApplicationReady(id) => {
                if self.clients.applications.ready(id) {
                    self.application(id, ApplicationCommand::Blocked(false));
                }
            }
            // Seen by the loop before it comes here.
            Ask::Stop(_) => {}
            Ask::PingStop(id) => {
                self.clients.remove(id);
                tracing::debug!(ping = id, "ping stops");
                self.input(Input::Command(Command::Ping { id, command: ping::Command::Stop }));
            }
        }
    }

    fn application(&mut self, id: u64, command: ApplicationCommand) {
        self.input(Input::Command(Command::Gist { id, command }));
    }

    pub(super) fn rsvp(&mut self, id: u64, command: rsvp::Command) {
        self.input(Input::Command(Command::Rsvp { id, command }));
    }

    fn close_rsvp(&mut self, id: u64) {
        if self.clients.remove_session(id) {
            tracing::debug!(session = id, "an application is gone");
            self.rsvp(id, rsvp::Command::Close);
        }
    }

    /// An RSVP session, and whether the kernel keeps what is reserved.
    fn rsvp_session(&self, session: &rsvp::SessionView) -> v1::RsvpSession {
        let Engine { node, enforcer, io, .. } = &self.engine;
        let enforced = |grant: Option<GrantId>| {
            let view = grant.and_then(|grant| node.resources().reservation(grant));
            view.is_some_and(|view| {
                enforcer.as_ref().is_some_and(|enforcer| enforcer.is_enforced(view.reservation))
            })
        };
        protocols::rsvp::convert::listed(session, self.clock.now(), io.interfaces(), enforced)
    }

    pub(super) fn qos(&mut self, id: u64, command: qos::Command) {
        self.input(Input::Command(Command::Qos { id, command }));
    }

    /// A session of the QoS application with what is held for it and what the kernel has seen of it.
    fn reservation(&mut self, session: &qos::SessionView) -> v1::Reservation {
        let Engine { node, enforcer, .. } = &mut self.engine;
        let view = session.grant.and_then(|grant| node.resources().reservation(grant));
        let held = view.map(|view| {
            let enforced = enforcer.as_ref().is_some_and(|enforcer| enforcer.is_enforced(view.reservation));
            let statistics = enforcer.as_mut().and_then(|enforcer| {
                let read = enforcer.statistics(view.reservation);
                read.inspect_err(|error| tracing::debug!(%error, "statistics")).ok().flatten()
            });
            crate::resources::convert::held(&view, enforced, statistics)
        });
        protocols::qos::convert::reservation(session, held)
    }

    fn status(&self) -> v1::GetStatusResponse {
        let outside = self.engine.node.applications().map(|application| application.nslp);
        v1::GetStatusResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.identity.name.clone(),
            uptime_ms: self.identity.started.now().as_micros() / 1000,
            pid: std::process::id(),
            nslp_ids: self.identity.nslps.iter().copied().chain(outside).map(|nslp| nslp.0.into()).collect(),
            sessions: self.engine.node.sessions().count() as u64,
            peers: self.engine.node.peers().count() as u64,
        }
    }
}

/// One portion of a table: looks at [`PORTION`] rows from `from` on, and gives those that fit.
fn rows<R, T>(
    table: impl Iterator<Item = R>,
    from: usize,
    wanted: impl Fn(&R) -> bool,
    convert: impl Fn(&R) -> T,
) -> (Vec<T>, Option<usize>) {
    let mut looked = 0;
    let rows = table
        .skip(from)
        .take(PORTION)
        .inspect(|_| looked += 1)
        .filter(wanted)
        .map(|row| convert(&row))
        .collect();
    (rows, (looked == PORTION).then_some(from + looked))
}

fn fits(filter: &SessionFilter, row: &SessionView<'_>) -> bool {
    filter.nslp.is_none_or(|nslp| row.nslp.0 == nslp)
        && filter.address.is_none_or(|address| row.mri.src() == address || row.mri.dst() == address)
        && (filter.prefix.is_empty() || row.session.to_string().starts_with(&filter.prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_cover_a_table_once() {
        for length in [0, 1, PORTION - 1, PORTION, 3 * PORTION + 1] {
            let (mut all, mut from) = (Vec::new(), Some(0));
            while let Some(start) = from {
                let (portion, next) = rows(0..length, start, |row| row % 2 == 0, |row| *row);
                all.extend(portion);
                from = next;
            }
            assert_eq!(all, (0..length).step_by(2).collect::<Vec<_>>());
        }
    }
}
