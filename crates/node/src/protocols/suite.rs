//! The protocols of the suite in one node.

use signalbox_core::Time;
use signalbox_core::node::Output;

#[cfg(feature = "test-protocol")]
use super::beacon;
use super::{
    Command, Config, Event, ProtocolId as Id, boomerang, casp, gist, gist_nat, mapping, natfw, ping, qos,
    rsvp,
};
use crate::composition::{Composition, Place, Sealed};
use crate::config::ConfigError;
use crate::protocol::{Composed, Context, Input, Next, Protocol, ProtocolLookups, Setup};

/// A protocol; `None`: the node does not run it.
type Slot<P> = Option<Box<P>>;

/// The protocols of the suite that a node runs, each by its settings in [`Config`].
#[derive(Debug)]
pub struct Suite {
    pub(crate) gist: Slot<gist::Instance>,
    pub(crate) ping: Slot<ping::Instance>,
    pub(crate) qos: Slot<qos::Instance>,
    pub(crate) rsvp: Slot<rsvp::Instance>,
    pub(crate) boomerang: Slot<boomerang::Instance>,
    pub(crate) natfw: Slot<natfw::Instance>,
    pub(crate) gist_nat: Slot<gist_nat::Instance>,
    pub(crate) casp: Slot<casp::Instance>,
    pub(crate) mapping: Slot<mapping::Instance>,
    #[cfg(feature = "test-protocol")]
    beacon: Slot<beacon::Instance>,
}

fn made<P: Composed>(config: Option<P::Config>, setup: &mut Setup) -> Result<Slot<P>, ConfigError> {
    config.map(|config| P::new(config, setup).map(Box::new)).transpose()
}

fn shown<P: Protocol>(slot: &Slot<P>) -> Option<&dyn Protocol> {
    slot.as_deref().map(|protocol| -> &dyn Protocol { protocol })
}

fn changed<P: Protocol>(slot: &mut Slot<P>) -> Option<&mut dyn Protocol> {
    slot.as_deref_mut().map(|protocol| -> &mut dyn Protocol { protocol })
}

/// Gives a command to a protocol. An event comes back at once if the node does not run it.
fn give_command<P: Composed>(
    slot: &mut Slot<P>,
    cx: &mut Context<'_>,
    (id, command): (u64, P::Command),
    event: impl FnOnce(u64, P::Event) -> Event,
) -> Option<Event> {
    match slot {
        Some(protocol) => {
            protocol.command(cx, id, command);
            None
        }
        None => P::not_running(&command).map(|refused| event(id, refused)),
    }
}

fn reloaded<P: Composed>(slot: &mut Slot<P>, now: Time, config: Option<P::Config>) {
    if let (Some(protocol), Some(config)) = (slot, config) {
        protocol.reload(now, config);
    }
}

#[inline]
fn next<P: Protocol>(id: Id, slot: &mut Slot<P>, cx: &mut Context<'_>) -> Option<(Place, Next)> {
    slot.as_mut()?.next(cx).map(|next| (id.place(), next))
}

#[inline]
fn flush<P: Protocol>(slot: &mut Slot<P>) -> bool {
    slot.as_mut().is_some_and(|protocol| protocol.flush())
}

impl Suite {
    /// Makes the protocols that have settings.
    pub(crate) fn new(config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Self {
            gist: made(config.gist, setup)?,
            ping: made(config.ping, setup)?,
            qos: made(config.qos, setup)?,
            rsvp: made(config.rsvp, setup)?,
            boomerang: made(config.boomerang, setup)?,
            natfw: made(config.natfw, setup)?,
            gist_nat: made(config.gist_nat, setup)?,
            casp: made(config.casp, setup)?,
            mapping: made(config.mapping, setup)?,
            #[cfg(feature = "test-protocol")]
            beacon: made(config.beacon, setup)?,
        })
    }

    /// Gives an input to each protocol, and to the one beside the suite.
    fn give_all<'a>(
        &mut self,
        extension: Option<&mut dyn Protocol>,
        cx: &mut Context<'_>,
        input: impl Fn() -> Input<'a>,
    ) {
        self.each(|protocol| protocol.handle(cx, input()));
        if let Some(protocol) = extension {
            protocol.handle(cx, input());
        }
    }

    /// A user asks for something. `extension` is the protocol of another crate that gets what concerns each protocol.
    pub(crate) fn command_with(
        &mut self,
        cx: &mut Context<'_>,
        command: Command,
        extension: Option<&mut dyn Protocol>,
    ) -> Option<Event> {
        match command {
            Command::Gist { id, command } => {
                return give_command(&mut self.gist, cx, (id, command), |id, event| Event::Gist {
                    id,
                    event,
                });
            }
            Command::Ping { id, command } => {
                return give_command(&mut self.ping, cx, (id, command), |id, event| Event::Ping {
                    id,
                    event,
                });
            }
            Command::Qos { id, command } => {
                return give_command(&mut self.qos, cx, (id, command), |id, event| Event::Qos { id, event });
            }
            Command::Rsvp { id, command } => {
                return give_command(&mut self.rsvp, cx, (id, command), |id, event| Event::Rsvp {
                    id,
                    event,
                });
            }
            Command::Boomerang { id, command } => {
                return give_command(&mut self.boomerang, cx, (id, command), |id, event| Event::Boomerang {
                    id,
                    event,
                });
            }
            Command::Natfw { id, command } => {
                return give_command(&mut self.natfw, cx, (id, command), |id, event| Event::Natfw {
                    id,
                    event,
                });
            }
            Command::GistNat { id, command } => {
                return give_command(&mut self.gist_nat, cx, (id, command), |id, event| Event::GistNat {
                    id,
                    event,
                });
            }
            Command::Casp { id, command } => {
                return give_command(&mut self.casp, cx, (id, command), |id, event| Event::Casp {
                    id,
                    event,
                });
            }
            Command::Mapping { id, command } => {
                return give_command(&mut self.mapping, cx, (id, command), |id, event| Event::Mapping {
                    id,
                    event,
                });
            }
            #[cfg(feature = "test-protocol")]
            Command::Beacon { id, command } => {
                return give_command(&mut self.beacon, cx, (id, command), |id, event| Event::Beacon {
                    id,
                    event,
                });
            }
            Command::DeleteReservation { grant } => cx.resources.delete(grant),
            Command::Reload(config) => {
                let mut config = *config;
                if let Err(error) = cx.resources.reload(cx.now, core::mem::take(&mut config.resources)) {
                    tracing::warn!(%error, "settings of admission control ignored");
                }
                self.give_all(extension, cx, || Input::Rules);
                self.reload(cx.now, config);
            }
            Command::WallClock(wall_clock_us) => {
                cx.resources.set_wall_clock(wall_clock_us);
                self.give_all(extension, cx, || Input::WallClock(wall_clock_us));
            }
            Command::LinkSpeeds(speeds) => self.give_all(extension, cx, || Input::LinkSpeeds(&speeds)),
            Command::Stop { handed_over } => self.give_all(extension, cx, || Input::Stop { handed_over }),
        }
        None
    }

    fn reload(&mut self, now: Time, config: Config) {
        let Config {
            wall_clock_us: _,
            resources: _,
            gist,
            ping,
            qos,
            rsvp,
            boomerang,
            natfw,
            gist_nat,
            casp,
            mapping,
            #[cfg(feature = "test-protocol")]
            beacon,
        } = config;
        reloaded(&mut self.gist, now, gist);
        reloaded(&mut self.ping, now, ping);
        reloaded(&mut self.qos, now, qos);
        reloaded(&mut self.rsvp, now, rsvp);
        reloaded(&mut self.boomerang, now, boomerang);
        reloaded(&mut self.natfw, now, natfw);
        reloaded(&mut self.gist_nat, now, gist_nat);
        reloaded(&mut self.casp, now, casp);
        reloaded(&mut self.mapping, now, mapping);
        #[cfg(feature = "test-protocol")]
        reloaded(&mut self.beacon, now, beacon);
    }

    /// Gives the next output of one protocol to another, if the node runs both.
    #[inline]
    fn give<P: Protocol>(
        &mut self,
        slot: impl Fn(&mut Self) -> &mut Slot<P>,
        cx: &mut Context<'_>,
        to: Place,
    ) {
        // Out of its place, so that the other one can be borrowed too. It never gives to itself.
        let Some(mut giver) = slot(self).take() else { return };
        if let Some(taker) = self.get_mut(to) {
            giver.pass(cx, taker);
        }
        *slot(self) = Some(giver);
    }

    /// The next output of a protocol, which is the driver's, with events of the type that `of` makes.
    #[inline]
    pub(crate) fn poll_as<E>(
        &mut self,
        place: Place,
        lookups: ProtocolLookups<'_>,
        of: impl FnOnce(Event) -> E,
    ) -> Option<Output<'_, E>> {
        match Id::at(place)? {
            Id::Gist => self.gist.as_mut()?.poll(lookups, |id, event| of(Event::Gist { id, event })),
            Id::Ping => self.ping.as_mut()?.poll(lookups, |id, event| of(Event::Ping { id, event })),
            Id::Qos => self.qos.as_mut()?.poll(lookups, |id, event| of(Event::Qos { id, event })),
            Id::Rsvp => self.rsvp.as_mut()?.poll(lookups, |id, event| of(Event::Rsvp { id, event })),
            Id::Boomerang => {
                self.boomerang.as_mut()?.poll(lookups, |id, event| of(Event::Boomerang { id, event }))
            }
            Id::Natfw => self.natfw.as_mut()?.poll(lookups, |id, event| of(Event::Natfw { id, event })),
            Id::GistNat => {
                self.gist_nat.as_mut()?.poll(lookups, |id, event| of(Event::GistNat { id, event }))
            }
            Id::Casp => self.casp.as_mut()?.poll(lookups, |id, event| of(Event::Casp { id, event })),
            Id::Mapping => self.mapping.as_mut()?.poll(lookups, |id, event| of(Event::Mapping { id, event })),
            #[cfg(feature = "test-protocol")]
            Id::Beacon => self.beacon.as_mut()?.poll(lookups, |id, event| of(Event::Beacon { id, event })),
        }
    }
}

impl Sealed for Suite {}

impl Composition for Suite {
    type Command = Command;
    type Event = Event;

    fn names() -> impl Iterator<Item = &'static str> {
        Id::ALL.iter().map(|id| id.name())
    }

    #[inline]
    fn get(&self, place: Place) -> Option<&dyn Protocol> {
        match Id::at(place)? {
            Id::Gist => shown(&self.gist),
            Id::Ping => shown(&self.ping),
            Id::Qos => shown(&self.qos),
            Id::Rsvp => shown(&self.rsvp),
            Id::Boomerang => shown(&self.boomerang),
            Id::Natfw => shown(&self.natfw),
            Id::GistNat => shown(&self.gist_nat),
            Id::Casp => shown(&self.casp),
            Id::Mapping => shown(&self.mapping),
            #[cfg(feature = "test-protocol")]
            Id::Beacon => shown(&self.beacon),
        }
    }

    #[inline]
    fn get_mut(&mut self, place: Place) -> Option<&mut dyn Protocol> {
        match Id::at(place)? {
            Id::Gist => changed(&mut self.gist),
            Id::Ping => changed(&mut self.ping),
            Id::Qos => changed(&mut self.qos),
            Id::Rsvp => changed(&mut self.rsvp),
            Id::Boomerang => changed(&mut self.boomerang),
            Id::Natfw => changed(&mut self.natfw),
            Id::GistNat => changed(&mut self.gist_nat),
            Id::Casp => changed(&mut self.casp),
            Id::Mapping => changed(&mut self.mapping),
            #[cfg(feature = "test-protocol")]
            Id::Beacon => changed(&mut self.beacon),
        }
    }

    fn command(&mut self, cx: &mut Context<'_>, command: Command) -> Option<Event> {
        self.command_with(cx, command, None)
    }

    // The node calls what follows several times for each message: these calls are static.

    #[inline]
    fn next(&mut self, cx: &mut Context<'_>) -> Option<(Place, Next)> {
        let Self {
            gist,
            ping,
            qos,
            rsvp,
            boomerang,
            natfw,
            gist_nat,
            casp,
            mapping,
            #[cfg(feature = "test-protocol")]
            beacon,
        } = self;
        let found = next(Id::Gist, gist, cx)
            .or_else(|| next(Id::Ping, ping, cx))
            .or_else(|| next(Id::Qos, qos, cx))
            .or_else(|| next(Id::Rsvp, rsvp, cx))
            .or_else(|| next(Id::Boomerang, boomerang, cx))
            .or_else(|| next(Id::Natfw, natfw, cx))
            .or_else(|| next(Id::GistNat, gist_nat, cx))
            .or_else(|| next(Id::Casp, casp, cx))
            .or_else(|| next(Id::Mapping, mapping, cx));
        #[cfg(feature = "test-protocol")]
        let found = found.or_else(|| next(Id::Beacon, beacon, cx));
        found
    }

    #[inline]
    fn poll(&mut self, place: Place, lookups: ProtocolLookups<'_>) -> Option<Output<'_, Event>> {
        self.poll_as(place, lookups, |event| event)
    }

    #[inline]
    fn pass(&mut self, cx: &mut Context<'_>, from: Place, to: Place) {
        match Id::at(from) {
            Some(Id::Gist) => self.give(|all| &mut all.gist, cx, to),
            Some(Id::Ping) => self.give(|all| &mut all.ping, cx, to),
            Some(Id::Qos) => self.give(|all| &mut all.qos, cx, to),
            Some(Id::Rsvp) => self.give(|all| &mut all.rsvp, cx, to),
            Some(Id::Boomerang) => self.give(|all| &mut all.boomerang, cx, to),
            Some(Id::Natfw) => self.give(|all| &mut all.natfw, cx, to),
            Some(Id::GistNat) => self.give(|all| &mut all.gist_nat, cx, to),
            Some(Id::Casp) => self.give(|all| &mut all.casp, cx, to),
            Some(Id::Mapping) => self.give(|all| &mut all.mapping, cx, to),
            #[cfg(feature = "test-protocol")]
            Some(Id::Beacon) => self.give(|all| &mut all.beacon, cx, to),
            None => {}
        }
    }

    #[inline]
    fn flush(&mut self) -> bool {
        let Self {
            gist,
            ping,
            qos,
            rsvp,
            boomerang,
            natfw,
            gist_nat,
            casp,
            mapping,
            #[cfg(feature = "test-protocol")]
            beacon,
        } = self;
        let mut any = flush(gist);
        any |= flush(ping);
        any |= flush(qos);
        any |= flush(rsvp);
        any |= flush(boomerang);
        any |= flush(natfw);
        any |= flush(gist_nat);
        any |= flush(casp);
        any |= flush(mapping);
        #[cfg(feature = "test-protocol")]
        {
            any |= flush(beacon);
        }
        any
    }
}
