//! The table of protocols: what follows from one line for each of them.

/// Makes, of one line for each protocol, its identifier, its part of [`Config`](crate::Config), its variants of
/// [`Command`](crate::Command) and [`Event`](crate::Event), and its place in a node.
///
/// A line is `module: Variant, "in words";`. The module has the types `Config`, `Command` and `Event`, which users of
/// the node see, and `Instance`, which implements [`Composed`](crate::protocol::Composed) with these three.
macro_rules! protocols {
    ($( $(#[$meta:meta])* $module:ident: $variant:ident, $words:literal; )*) => {
        use signalbox_core::node::Output;

        use $crate::protocol::{Composed, Context, Next, Protocol, Setup};
        use $crate::routes::LookupsOf;

        /// A protocol that a node can run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
        pub enum ProtocolId {
            $(
                $(#[$meta])*
                #[doc = concat!("Identifies ", $words, ".")]
                $variant,
            )*
        }

        impl ProtocolId {
            /// All protocols, in the order of the table.
            pub const ALL: &'static [Self] = &[ $( $(#[$meta])* Self::$variant, )* ];

            /// The name in configurations, counters and log lines.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( $(#[$meta])* Self::$variant => stringify!($module), )*
                }
            }
        }

        /// What a user asks of a node.
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum Command {
            $(
                $(#[$meta])*
                #[doc = concat!("Asks ", $words, ".")]
                $variant {
                    /// The driver's identifier of what is asked for. It is given back with each event.
                    id: u64,
                    /// What is wanted.
                    command: $module::Command,
                },
            )*
            /// Ends a reservation for an administrator. Its protocol informs the others.
            DeleteReservation {
                /// What admission control holds.
                grant: signalbox_resources::GrantId,
            },
            /// Other settings for admission control and the protocols. Each takes what it can while it runs.
            Reload(
                /// The settings of [`Config::changed_from`].
                Box<Config>,
            ),
            /// Corrects the wall clock.
            WallClock(
                /// Microseconds since 1970 at [`Time::ZERO`](signalbox_core::Time::ZERO).
                u64,
            ),
            /// The speeds of links, as the kernel knows them, in octets a second. Those of other links are not known.
            LinkSpeeds(
                /// By interface.
                Vec<(signalbox_core::IfIndex, u64)>,
            ),
            /// The node stops, after [`Node::hand_over`](crate::Node::hand_over): neighbors are told of what ends with it.
            Stop {
                /// The next node gets what was written.
                handed_over: bool,
            },
        }

        /// What a protocol reports to a user.
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum Event {
            $(
                $(#[$meta])*
                #[doc = concat!("Comes from ", $words, ".")]
                $variant {
                    /// The identifier that the command carried.
                    id: u64,
                    /// What happened.
                    event: $module::Event,
                },
            )*
        }

        impl Command {
            /// The driver's identifier of what is asked for; `None`: no protocol is asked.
            #[must_use]
            pub const fn id(&self) -> Option<u64> {
                match self {
                    $( $(#[$meta])* Self::$variant { id, .. } => Some(*id), )*
                    Self::DeleteReservation { .. }
                    | Self::Reload(_)
                    | Self::WallClock(_)
                    | Self::LinkSpeeds(_)
                    | Self::Stop { .. } => None,
                }
            }

            /// The protocol that is asked.
            #[must_use]
            pub const fn protocol(&self) -> Option<ProtocolId> {
                match self {
                    $( $(#[$meta])* Self::$variant { .. } => Some(ProtocolId::$variant), )*
                    Self::DeleteReservation { .. }
                    | Self::Reload(_)
                    | Self::WallClock(_)
                    | Self::LinkSpeeds(_)
                    | Self::Stop { .. } => None,
                }
            }
        }

        impl Event {
            /// The identifier that the command carried.
            #[must_use]
            pub const fn id(&self) -> u64 {
                match self {
                    $( $(#[$meta])* Self::$variant { id, .. } => *id, )*
                }
            }
        }

        /// Settings of a node. A protocol without settings does not run.
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
        pub struct Config {
            /// Microseconds since 1970 at [`Time::ZERO`](signalbox_core::Time::ZERO), the driver's start.
            pub wall_clock_us: u64,
            $(
                $(#[$meta])*
                #[doc = concat!("Settings of ", $words, "; `None`: the node does not run it.")]
                pub $module: Option<$module::Config>,
            )*
            /// The shares of links that can be reserved here, and the policy.
            pub resources: signalbox_resources::Config,
        }

        impl Config {
            /// A node that runs no protocol, started in 1970.
            #[must_use]
            pub fn empty() -> Self {
                Self {
                    wall_clock_us: 0,
                    $( $(#[$meta])* $module: None, )*
                    resources: signalbox_resources::Config::default(),
                }
            }

            /// The settings that a node with the settings `old` takes when these come into force: protocols whose settings stay
            /// are left out. `None`: all settings stay.
            #[must_use]
            pub fn changed_from(self, old: &Self) -> Option<Self> {
                let changes = self != *old;
                changes.then(|| Self {
                    $( $(#[$meta])* $module: self.$module.filter(|new| old.$module.as_ref() != Some(new)), )*
                    ..self
                })
            }

            /// The protocols that a node with these settings runs.
            #[must_use]
            pub fn protocols(&self) -> Vec<ProtocolId> {
                let mut protocols = Vec::new();
                $(
                    $(#[$meta])*
                    protocols.extend(self.$module.is_some().then_some(ProtocolId::$variant));
                )*
                protocols
            }

            /// Checks the settings of each protocol.
            pub(crate) fn validate_each(&self) -> Result<(), crate::ConfigError> {
                $(
                    $(#[$meta])*
                    self.$module.as_ref().map_or(Ok(()), <$module::Instance as Composed>::validate)?;
                )*
                Ok(())
            }

            /// The ports at which each protocol listens for streams.
            pub(crate) fn ports_of_each(&self) -> Vec<(ProtocolId, u16)> {
                let mut ports = Vec::new();
                $(
                    $(#[$meta])*
                    ports.extend(
                        self.$module
                            .iter()
                            .flat_map(<$module::Instance as Composed>::ports)
                            .map(|port| (ProtocolId::$variant, port)),
                    );
                )*
                ports
            }

            /// The ports at which a node with these settings listens, for datagrams and streams.
            fn ports(&self) -> Vec<u16> {
                let mut ports: Vec<u16> = self.ports_of_each().into_iter().map(|(_, port)| port).collect();
                ports.extend(self.entries().iter().filter_map(|request| match request.entry {
                    signalbox_core::Entry::Udp(port) if request.receive => Some(port),
                    _ => None,
                }));
                ports
            }

            /// The ports of entry that each protocol needs.
            pub(crate) fn entries_of_each(&self) -> Vec<(ProtocolId, signalbox_core::EntryRequest)> {
                let mut entries = Vec::new();
                $(
                    $(#[$meta])*
                    entries.extend(
                        self.$module
                            .iter()
                            .flat_map(<$module::Instance as Composed>::entries)
                            .map(|request| (ProtocolId::$variant, request)),
                    );
                )*
                entries
            }

            /// The numbers of signaling applications that each protocol claims.
            pub(crate) fn claims(&self) -> Vec<(ProtocolId, signalbox_core::NslpId)> {
                let mut claims = Vec::new();
                $(
                    $(#[$meta])*
                    claims.extend(
                        self.$module
                            .iter()
                            .flat_map(<$module::Instance as Composed>::claims)
                            .map(|nslp| (ProtocolId::$variant, nslp)),
                    );
                )*
                claims
            }
        }

        /// The protocols of a node; `None`: the node does not run it.
        #[derive(Debug)]
        pub(crate) struct Instances {
            $( $(#[$meta])* $module: Option<Box<$module::Instance>>, )*
        }

        impl Instances {
            /// Makes the protocols that have settings. The settings of admission control remain.
            pub(crate) fn new(
                config: Config,
                rng: signalbox_core::rng::Random,
            ) -> Result<(Self, signalbox_resources::Config, signalbox_core::rng::Random), crate::ConfigError> {
                let applications = config.claims().into_iter().map(|(_, nslp)| nslp).collect();
                let ports = config.ports();
                let slowest_link = config.resources.slowest_link().unwrap_or(0);
                let mut setup = Setup {
                    id: ProtocolId::Gist,
                    wall_clock_us: config.wall_clock_us,
                    slowest_link,
                    applications,
                    ports,
                    rng,
                };
                let instances = Self { $(
                    $(#[$meta])*
                    $module: match config.$module {
                        Some(config) => {
                            setup.id = ProtocolId::$variant;
                            Some(Box::new(Composed::new(config, &mut setup)?))
                        }
                        None => None,
                    },
                )* };
                Ok((instances, config.resources, setup.rng))
            }

            /// A user asks a protocol for something. An event comes back at once if the node does not run it.
            pub(crate) fn command(&mut self, cx: &mut Context<'_>, command: Command) -> Option<Event> {
                match command {
                    $(
                        $(#[$meta])*
                        Command::$variant { id, command } => match &mut self.$module {
                            Some(instance) => {
                                instance.command(cx, id, command);
                                None
                            }
                            None => {
                                let event = <$module::Instance as Composed>::not_running(&command)?;
                                Some(Event::$variant { id, event })
                            }
                        },
                    )*
                    Command::DeleteReservation { grant } => {
                        cx.resources.delete(grant);
                        None
                    }
                    Command::Reload(config) => {
                        let Config { wall_clock_us: _, resources, $( $(#[$meta])* $module, )* } = *config;
                        if let Err(error) = cx.resources.reload(cx.now, resources) {
                            tracing::warn!(%error, "settings of admission control ignored");
                        }
                        self.iter_mut().for_each(|protocol| protocol.rules(cx));
                        $(
                            $(#[$meta])*
                            if let (Some(instance), Some(config)) = (&mut self.$module, $module) {
                                instance.reload(cx.now, config);
                            }
                        )*
                        None
                    }
                    Command::WallClock(wall_clock_us) => {
                        cx.resources.set_wall_clock(wall_clock_us);
                        self.iter_mut().for_each(|protocol| protocol.set_wall_clock(wall_clock_us));
                        None
                    }
                    Command::LinkSpeeds(speeds) => {
                        self.iter_mut().for_each(|protocol| protocol.link_speeds(cx, &speeds));
                        None
                    }
                    Command::Stop { handed_over } => {
                        self.iter_mut().for_each(|protocol| protocol.stop(cx, handed_over));
                        None
                    }
                }
            }

            /// All places of the table in order; `None`: the node does not run the protocol.
            pub(super) fn slots(&self) -> [Option<&dyn Protocol>; ProtocolId::ALL.len()] {
                [ $( $(#[$meta])* self.$module.as_deref().map(|instance| -> &dyn Protocol { instance }), )* ]
            }

            /// The same, to be changed.
            pub(super) fn slots_mut(&mut self) -> [Option<&mut dyn Protocol>; ProtocolId::ALL.len()] {
                [ $(
                    $(#[$meta])*
                    self.$module.as_deref_mut().map(|instance| -> &mut dyn Protocol { instance }),
                )* ]
            }

            /// A protocol, if the node runs it.
            pub(crate) fn get_mut(&mut self, id: ProtocolId) -> Option<&mut dyn Protocol> {
                match id {
                    $( $(#[$meta])* ProtocolId::$variant => Some(&mut **self.$module.as_mut()?), )*
                }
            }

            // The node calls what follows several times for each message: these calls are static.

            /// The first protocol that has an output, and who takes it.
            #[inline]
            pub(crate) fn next(&mut self, cx: &mut Context<'_>) -> Option<(ProtocolId, Next)> {
                $(
                    $(#[$meta])*
                    if let Some(instance) = &mut self.$module
                        && let Some(next) = instance.next(cx)
                    {
                        return Some((ProtocolId::$variant, next));
                    }
                )*
                None
            }

            /// Gives the next output of one protocol to another, if the node runs both.
            #[inline]
            pub(crate) fn pass(&mut self, cx: &mut Context<'_>, from: ProtocolId, to: ProtocolId) {
                match from {
                    $(
                        $(#[$meta])*
                        ProtocolId::$variant => {
                            // Out of its place, so that the other one can be borrowed too. It never gives to itself.
                            let Some(mut giver) = self.$module.take() else { return };
                            if let Some(taker) = self.get_mut(to) {
                                giver.pass(cx, taker);
                            }
                            self.$module = Some(giver);
                        }
                    )*
                }
            }

            /// The next output of a protocol, which is the driver's.
            #[inline]
            pub(crate) fn poll(
                &mut self,
                id: ProtocolId,
                lookups: LookupsOf<'_>,
            ) -> Option<Output<'_, Event>> {
                match id {
                    $( $(#[$meta])* ProtocolId::$variant => self.$module.as_mut()?.poll(lookups), )*
                }
            }

            /// No protocol has an output: what was held back is queued. True if there was something.
            #[inline]
            pub(crate) fn flush(&mut self) -> bool {
                let mut any = false;
                $( $(#[$meta])* { any |= self.$module.as_mut().is_some_and(|instance| instance.flush()); } )*
                any
            }

            $(
                $(#[$meta])*
                #[doc = concat!("The instance of ", $words, ", if the node runs it.")]
                #[allow(dead_code, reason = "not every protocol has views")]
                pub(crate) fn $module(&self) -> Option<&$module::Instance> {
                    self.$module.as_deref()
                }
            )*
        }
    };
}
