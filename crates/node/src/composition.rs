//! The protocols that one node runs: those of the suite, alone or with one of another crate beside them.

use core::fmt;

use signalbox_core::node::Output;

use crate::protocol::{Composed, Context, Next, Protocol, ProtocolLookups};
use crate::protocols::{Command, Event, ProtocolId, Suite};

/// The place of a protocol in a node. The suite has the first ones, in the order of [`ProtocolId`]; the one behind them is that of
/// the protocol of another crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(usize);

impl Place {
    /// The place of the protocol that GIST is.
    pub(crate) const GIST: Self = ProtocolId::Gist.place();
    /// The place of a protocol of another crate.
    pub(crate) const EXTENSION: Self = Self(ProtocolId::ALL.len());

    /// The place of this number.
    pub(crate) const fn nth(number: usize) -> Self {
        Self(number)
    }

    /// All places in order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..=Self::EXTENSION.0).map(Self)
    }

    /// The place of this number, if there is one.
    pub(crate) fn of(number: u64) -> Option<Self> {
        usize::try_from(number).ok().filter(|number| *number <= Self::EXTENSION.0).map(Self)
    }

    /// Its number.
    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// Only this crate says what a node is composed of.
pub trait Sealed {}

/// The protocols that one node runs: [`Suite`], or [`Extended`] with a protocol of another crate.
pub trait Composition: fmt::Debug + Sealed {
    /// What users ask.
    type Command;
    /// What is reported to users.
    type Event;

    /// The names of the protocols that can run, by place.
    fn names() -> impl Iterator<Item = &'static str>;

    /// The name of a protocol.
    fn name(place: Place) -> &'static str {
        Self::names().nth(place.index()).unwrap_or_default()
    }

    /// A protocol, if the node runs it.
    fn get(&self, place: Place) -> Option<&dyn Protocol>;

    /// The same, to be changed.
    fn get_mut(&mut self, place: Place) -> Option<&mut dyn Protocol>;

    /// A user asks a protocol for something. An event comes back at once if the node does not run it.
    fn command(&mut self, cx: &mut Context<'_>, command: Self::Command) -> Option<Self::Event>;

    /// The first protocol that has an output, and who takes it.
    fn next(&mut self, cx: &mut Context<'_>) -> Option<(Place, Next)>;

    /// The next output of a protocol, which is the driver's.
    fn poll(&mut self, place: Place, lookups: ProtocolLookups<'_>) -> Option<Output<'_, Self::Event>>;

    /// Gives the next output of one protocol to another, if the node runs both.
    fn pass(&mut self, cx: &mut Context<'_>, from: Place, to: Place);

    /// No protocol has an output: what was held back is queued. True if there was something.
    fn flush(&mut self) -> bool;

    /// The protocols that the node runs, by place.
    fn named(&self) -> impl Iterator<Item = (Place, &dyn Protocol)> {
        Place::all().filter_map(|place| Some((place, self.get(place)?)))
    }

    /// The same without their places.
    fn iter(&self) -> impl Iterator<Item = &dyn Protocol> {
        Place::all().filter_map(|place| self.get(place))
    }

    /// The place of the first protocol of which this is true.
    fn find(&self, is: impl Fn(&dyn Protocol) -> bool) -> Option<Place> {
        self.named().find(|(_, protocol)| is(*protocol)).map(|(place, _)| place)
    }

    /// Lets each protocol do something, by place.
    fn each(&mut self, mut act: impl FnMut(&mut dyn Protocol)) {
        for place in Place::all() {
            if let Some(protocol) = self.get_mut(place) {
                act(protocol);
            }
        }
    }
}

/// The protocols of the suite that have settings, and one of another crate beside them, the extension. The suite may be empty
/// ([`Config::empty`](crate::Config::empty)). Outputs of the suite are taken first. The views of the suite and the watch of changes are
/// those of a [`Node`](crate::Node) of the suite alone.
#[derive(Debug)]
pub struct Extended<P> {
    pub(crate) suite: Suite,
    pub(crate) extension: P,
}

/// What a user asks of a node with a protocol of another crate: `C` is the command of that protocol, `S` are its settings.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtendedCommand<C, S> {
    /// Asks the suite, or the node.
    Suite(Command),
    /// Asks the protocol of the other crate.
    Extension {
        /// The driver's identifier of what is asked for. It is given back with each event.
        id: u64,
        /// What is wanted.
        command: C,
    },
    /// Other settings of the protocol of the other crate ([`Composed::reload`]). Those that [`Composed::validate`] refuses are
    /// ignored, with a line in the log.
    Reload(S),
}

/// What is reported to a user of a node with a protocol of another crate: `E` is the event of that protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtendedEvent<E> {
    /// Comes from the suite.
    Suite(Event),
    /// Comes from the protocol of the other crate.
    Extension {
        /// The identifier that the command carried.
        id: u64,
        /// What happened.
        event: E,
    },
}

impl<P> Sealed for Extended<P> {}

impl<P: Composed> Composition for Extended<P> {
    type Command = ExtendedCommand<P::Command, P::Config>;
    type Event = ExtendedEvent<P::Event>;

    fn names() -> impl Iterator<Item = &'static str> {
        Suite::names().chain([P::NAME])
    }

    fn get(&self, place: Place) -> Option<&dyn Protocol> {
        if place == Place::EXTENSION { Some(&self.extension) } else { self.suite.get(place) }
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut dyn Protocol> {
        if place == Place::EXTENSION { Some(&mut self.extension) } else { self.suite.get_mut(place) }
    }

    fn command(&mut self, cx: &mut Context<'_>, command: Self::Command) -> Option<Self::Event> {
        match command {
            ExtendedCommand::Suite(command) => {
                return self
                    .suite
                    .command_with(cx, command, Some(&mut self.extension))
                    .map(ExtendedEvent::Suite);
            }
            ExtendedCommand::Extension { id, command } => self.extension.command(cx, id, command),
            ExtendedCommand::Reload(config) => match P::validate(&config) {
                Ok(()) => self.extension.reload(cx.now, config),
                Err(error) => tracing::warn!(%error, protocol = P::NAME, "settings ignored"),
            },
        }
        None
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Option<(Place, Next)> {
        let extension = &mut self.extension;
        self.suite.next(cx).or_else(|| extension.next(cx).map(|next| (Place::EXTENSION, next)))
    }

    fn poll(&mut self, place: Place, lookups: ProtocolLookups<'_>) -> Option<Output<'_, Self::Event>> {
        if place == Place::EXTENSION {
            return self.extension.poll(lookups, |id, event| ExtendedEvent::Extension { id, event });
        }
        self.suite.poll_as(place, lookups, ExtendedEvent::Suite)
    }

    fn pass(&mut self, cx: &mut Context<'_>, from: Place, to: Place) {
        let Self { suite, extension } = self;
        if from == Place::EXTENSION {
            match suite.get_mut(to) {
                Some(taker) => extension.pass(cx, taker),
                None => debug_assert!(false, "{} gives to a protocol that the node does not run", P::NAME),
            }
        } else if to == Place::EXTENSION {
            if let Some(giver) = suite.get_mut(from) {
                giver.pass(cx, extension);
            }
        } else {
            suite.pass(cx, from, to);
        }
    }

    fn flush(&mut self) -> bool {
        self.suite.flush() | self.extension.flush()
    }
}
