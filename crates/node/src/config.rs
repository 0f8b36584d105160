//! Which settings make a node.

use signalbox_core::{Entry, EntryRequest, NslpId};

use crate::composition::Place;
use crate::protocol::{Composed, Needs};
use crate::protocols::{Config, GistConfig, ProtocolId};

impl Default for Config {
    /// GIST and Ping with their defaults, started in 1970.
    fn default() -> Self {
        Self { gist: Some(GistConfig::default()), ping: Some(Default::default()), ..Self::empty() }
    }
}

/// A node cannot be made of these settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A signaling application without GIST below it.
    #[error("{0} is a signaling application of GIST: configure gist, or leave {0} out")]
    NeedsGist(&'static str),
    /// Two signaling applications with one number.
    #[error("NSLPID {} is that of {first} and of {second}: take another for one of them", .nslp.0)]
    NslpInUse {
        /// The number.
        nslp: NslpId,
        /// Whose it is.
        first: &'static str,
        /// Who claims it too.
        second: &'static str,
    },
    /// Two protocols with one port of entry.
    #[error("{first} and {second} both receive packets by {entry:?}: leave one of them out")]
    EntryInUse {
        /// The port of entry.
        entry: Entry,
        /// The protocol that has it.
        first: &'static str,
        /// The protocol that needs it too.
        second: &'static str,
    },
    /// Two protocols with one port for streams.
    #[error("{first} and {second} both listen at port {port}: take another for one of them")]
    PortInUse {
        /// The port.
        port: u16,
        /// The protocol that has it.
        first: &'static str,
        /// The protocol that needs it too.
        second: &'static str,
    },
    /// GIST's settings.
    #[error(transparent)]
    Gist(#[from] signalbox_gist::engine::ConfigError),
    /// A number of Ping is another application's, or both are the same.
    #[error("ping.nslp: {0} belongs to another application or format; 32704 to 32767 are for private use")]
    PingNslp(NslpId),
    /// QoS's number is another application's.
    #[error("qos.nslp: {0} is another application's; {qos} is registered for QoS", qos = NslpId::QOS)]
    QosNslp(NslpId),
    /// The number of the NATFW application is another application's.
    #[error("natfw.nslp: {0} is another application's; {natfw} is registered for NATFW", natfw = NslpId::NATFW)]
    NatfwNslp(NslpId),
    /// Settings of the NATFW application.
    #[error("natfw.{0}")]
    Natfw(#[from] signalbox_natfw::engine::ConfigError),
    /// RSVP's settings.
    #[error("rsvp.{0}")]
    Rsvp(#[from] signalbox_rsvp::engine::ConfigError),
    /// Boomerang's settings.
    #[error("boomerang.{0}")]
    Boomerang(#[from] signalbox_boomerang::engine::ConfigError),
    /// Settings of the GIST-aware NAT gateway.
    #[error("gist_nat.{0}")]
    GistNat(#[from] signalbox_gist::gateway::ConfigError),
    /// CASP's settings.
    #[error("casp.{0}")]
    Casp(#[from] signalbox_casp::engine::ConfigError),
    /// Settings of the front end for PCP and NAT-PMP.
    #[error("mapping.{0}")]
    Mapping(#[from] signalbox_mapping::engine::ConfigError),
    /// The front end without NATFW, which opens for it.
    #[error("mapping asks natfw for what it opens: configure natfw, or leave mapping out")]
    NeedsNatfw,
    /// Links and rules.
    #[error("resources.{0}")]
    Resources(#[from] signalbox_resources::ConfigError),
    /// TLS without keys.
    #[error("gist.associations.tls_port: needs channels.tls, the keys and certificates")]
    NoCredentials,
    /// Keys and certificates that cannot be used.
    #[error("channels.tls: {0}")]
    Credentials(#[from] signalbox_transport::stream::TlsConfigError),
    /// A limit of channels is out of its range.
    #[error("channels.{0}: at least {1}")]
    Channels(&'static str, &'static str),
    /// Settings of a protocol of another crate, in its words.
    #[error("{0}")]
    Other(String),
}

/// A protocol that runs, with what it needs.
#[derive(Debug)]
pub(crate) struct Member {
    place: Place,
    name: &'static str,
    needs: Needs,
    /// What is wrong with its settings.
    wrong: Option<ConfigError>,
}

impl Member {
    /// A protocol with these settings.
    pub(crate) fn new<P: Composed>(place: Place, config: &P::Config) -> Self {
        Self { place, name: P::NAME, needs: P::needs(config), wrong: P::validate(config).err() }
    }
}

/// The protocols that a node runs.
#[derive(Debug)]
pub(crate) struct Members(Vec<Member>);

impl FromIterator<Member> for Members {
    fn from_iter<I: IntoIterator<Item = Member>>(members: I) -> Self {
        Self(members.into_iter().collect())
    }
}

impl Members {
    /// Adds the last one, if there is one.
    pub(crate) fn extend(&mut self, last: Option<Member>) {
        self.0.extend(last);
    }

    /// Their places.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.0.iter().map(|one| one.place)
    }

    fn requests(&self) -> impl Iterator<Item = (&Member, &EntryRequest)> {
        self.0.iter().flat_map(|one| one.needs.entries.iter().map(move |request| (one, request)))
    }

    /// The ports of entry that a driver opens for them.
    pub(crate) fn entries(&self) -> Vec<EntryRequest> {
        let mut entries: Vec<EntryRequest> = Vec::new();
        for (_, request) in self.requests() {
            match entries.iter_mut().find(|one| one.entry == request.entry) {
                Some(one) => one.join(request.clone()),
                None => entries.push(request.clone()),
            }
        }
        entries
    }

    /// The ports of entry with the protocols that need them. Protocols that share an entry come before the one that they
    /// share it with.
    pub(crate) fn owners(&self) -> Vec<(Entry, Place)> {
        let (shared, whole): (Vec<_>, Vec<_>) = self.requests().partition(|(_, request)| request.shared);
        shared.into_iter().chain(whole).map(|(one, request)| (request.entry, one.place)).collect()
    }

    /// The numbers of signaling applications that they claim.
    pub(crate) fn applications(&self) -> Vec<(Place, NslpId)> {
        let applications_of =
            |one: &Member| one.needs.applications.iter().map(|nslp| (one.place, *nslp)).collect::<Vec<_>>();
        self.0.iter().flat_map(applications_of).collect()
    }

    /// The ports at which they listen, for datagrams and streams.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.0.iter().flat_map(|one| one.needs.ports.iter().copied()).collect();
        ports.extend(self.entries().iter().filter_map(|request| match request.entry {
            Entry::Udp(port) if request.receive => Some(port),
            _ => None,
        }));
        ports
    }

    /// Checks the settings of each, and of admission control, that no two of them need the same, and that signaling applications have
    /// GIST below them.
    pub(crate) fn validated(&self, resources: &signalbox_resources::Config) -> Result<(), ConfigError> {
        if let Some(wrong) = self.0.iter().find_map(|one| one.wrong.clone()) {
            return Err(wrong);
        }
        resources.validated()?;
        let requests: Vec<_> = self.requests().collect();
        for (at, (second, request)) in requests.iter().enumerate() {
            let entry = request.entry;
            let taken = |taken: &EntryRequest| taken.entry == entry && taken.shared == request.shared;
            if let Some((first, _)) = requests.iter().take(at).find(|(_, other)| taken(other)) {
                return Err(ConfigError::EntryInUse { entry, first: first.name, second: second.name });
            }
        }
        for (at, second) in self.0.iter().enumerate() {
            for first in self.0.iter().take(at) {
                if let Some(port) = second.needs.ports.iter().find(|port| first.needs.ports.contains(port)) {
                    return Err(ConfigError::PortInUse {
                        port: *port,
                        first: first.name,
                        second: second.name,
                    });
                }
            }
        }
        let runs = |id: ProtocolId| self.places().any(|place| place == id.place());
        if runs(ProtocolId::Mapping) && !runs(ProtocolId::Natfw) {
            return Err(ConfigError::NeedsNatfw);
        }
        let has_gist = self.places().any(|place| place == Place::GIST);
        let mut claimed: Vec<(&'static str, NslpId)> = Vec::new();
        for second in &self.0 {
            for nslp in &second.needs.applications {
                if !has_gist {
                    return Err(ConfigError::NeedsGist(second.name));
                }
                if let Some((first, _)) = claimed.iter().find(|(_, taken)| taken == nslp) {
                    return Err(ConfigError::NslpInUse { nslp: *nslp, first, second: second.name });
                }
                claimed.push((second.name, *nslp));
            }
        }
        Ok(())
    }
}

impl Config {
    /// The ports of entry that a driver opens for a node with these settings.
    #[must_use]
    pub fn entries(&self) -> Vec<EntryRequest> {
        self.members().entries()
    }

    /// Checks every range; keys and certificates are read by [`Node::new`](crate::Node::new).
    ///
    /// # Errors
    /// The first setting that is out of its range, and the range.
    pub fn validated(&self) -> Result<(), ConfigError> {
        self.members().validated(&self.resources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.validated().unwrap_err().to_string()
    }

    fn gist(config: &mut Config) -> &mut GistConfig {
        config.gist.as_mut().unwrap()
    }

    #[test]
    fn the_number_of_another_application_is_refused() {
        assert_eq!(Config::default().validated(), Ok(()));
        let ping = |nslp| signalbox_ping::engine::Config { nslp, ..Default::default() };
        let text = error(|config| config.ping = Some(ping(NslpId::QOS)));
        assert!(text.starts_with("ping.nslp: "), "{text}");
        let text = error(|config| {
            let qos = signalbox_qos::engine::Config { nslp: NslpId::PING, ..Default::default() };
            config.qos = Some(qos);
        });
        assert_eq!(text, "NSLPID 32704 is that of ping and of qos: take another for one of them");
    }

    #[test]
    fn an_application_without_gist_is_refused() {
        let text = error(|config| config.gist = None);
        assert_eq!(text, "ping is a signaling application of GIST: configure gist, or leave ping out");
        assert_eq!(Config::empty().validated(), Ok(()));
        assert_eq!(Config { rsvp: Some(Default::default()), ..Config::empty() }.validated(), Ok(()));
    }

    /// The NAT gateway shares GIST's port, and asks for the same alone.
    #[test]
    fn the_nat_gateway_shares_the_port_of_gist() {
        let gist_nat = Some(signalbox_gist::gateway::Config {
            inside: vec!["eth0".to_owned()],
            outside: vec!["eth1".to_owned()],
            ..Default::default()
        });
        let both = Config { gist_nat: gist_nat.clone(), ..Config::default() };
        assert_eq!(both.validated(), Ok(()));
        let [joined] = &both.entries()[..] else { panic!("one entry") };
        let alone = Config { gist_nat, ..Config::empty() }.entries();
        assert_eq!(joined.intercept.len(), 1 + alone[0].intercept.len());
        assert_eq!((joined.untracked.as_slice(), joined.shared), (&alone[0].untracked[..], false));
        let first = both.members().owners().first().map(|(_, place)| *place);
        assert_eq!(first, Some(ProtocolId::GistNat.place()), "it is asked first");
    }

    /// GIST and CASP share the raw socket of SCTP, but no port.
    #[test]
    fn two_protocols_share_sctp_by_their_ports() {
        let with = |port| {
            let mut config = Config::default();
            gist(&mut config).engine.associations.sctp_port = Some(port);
            config.casp = Some(crate::casp::Config { sctp: true, ..crate::casp::Config::default() });
            config
        };
        let both = with(270);
        assert_eq!(both.validated(), Ok(()));
        let raw = both.entries().iter().filter(|one| one.entry == Entry::Ip(132)).count();
        assert_eq!(raw, 1, "one socket");
        let text = with(50003).validated().unwrap_err().to_string();
        assert_eq!(text, "gist and casp both listen at port 50003: take another for one of them");
    }

    #[test]
    fn channels_that_cannot_be_made_are_refused() {
        let text = error(|config| gist(config).engine.associations.tls_port = Some(271));
        assert_eq!(text, ConfigError::NoCredentials.to_string());
        let text = error(|config| gist(config).channels.max_handshakes = 0);
        assert_eq!(text, "channels.max_handshakes: at least 1");
    }

    #[test]
    fn what_gist_refuses_is_refused() {
        assert_eq!(error(|config| gist(config).engine.hops = 0), "gist.hops: 1 to 255");
    }
}
