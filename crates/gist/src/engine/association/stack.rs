//! Proposal and choice of protocol stacks (RFC 5971 §5.7.1, RFC 6084 §4).

use core::time::Duration;

use super::{AssociationConfig, Associations};
use crate::engine::io::Transport;
use crate::engine::output::milliseconds;
use crate::wire::{List, MaOptions, MaProtocolId, Profile, StackConfiguration, StackProposal};

impl Transport {
    /// Its protocols from top to bottom, as in a profile (RFC 5971 A.3.4).
    const fn protocols(self) -> &'static [u8] {
        match self {
            Self::Tcp => &[MaProtocolId::FORWARDS_TCP.0],
            Self::TlsTcp => &[MaProtocolId::FORWARDS_TLS.0, MaProtocolId::FORWARDS_TCP.0],
            Self::Sctp => &[MaProtocolId::FORWARDS_SCTP.0],
        }
    }

    /// The protocol with the port.
    const fn base(self) -> MaProtocolId {
        match self {
            Self::Tcp | Self::TlsTcp => MaProtocolId::FORWARDS_TCP,
            Self::Sctp => MaProtocolId::FORWARDS_SCTP,
        }
    }

    /// Whether it protects messages and authenticates the peer.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::TlsTcp)
    }

    /// The transport of a profile, if this node has it.
    fn of(profile: &Profile<'_>) -> Option<Self> {
        [Self::Tcp, Self::TlsTcp, Self::Sctp].into_iter().find(|t| t.protocols() == profile.0)
    }
}

/// Number of stacks.
const MOST: usize = 3;

/// The stacks in a Stack-Proposal of this node.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Stacks {
    profiles: [Profile<'static>; MOST],
    transports: [Transport; MOST],
    ports: [[u8; 2]; MOST],
    count: usize,
}

impl Stacks {
    /// The stacks of a Response: all that peers can connect to. They do not depend on the Query (GIST-5.7.1-10), only on the
    /// configuration and the open ports (GIST-8.6-01).
    pub(in crate::engine) fn offered(associations: &Associations) -> Self {
        Self::suitable(&associations.config, |transport| associations.is_listening(transport))
    }

    /// The stacks of a Query: those that the messages can use. GIST-5.7.1-08.
    pub(in crate::engine) fn suitable(
        config: &AssociationConfig,
        wanted: impl Fn(Transport) -> bool,
    ) -> Self {
        let mut stacks = Self {
            profiles: [Profile(&[]); MOST],
            transports: [Transport::Tcp; MOST],
            ports: [[0; 2]; MOST],
            count: 0,
        };
        let places = stacks.profiles.iter_mut().zip(&mut stacks.transports).zip(&mut stacks.ports);
        let usable = config.usable().filter(|(transport, _)| wanted(*transport));
        for (((profile, place), port), (transport, number)) in places.zip(usable) {
            *profile = Profile(transport.protocols());
            *place = transport;
            *port = number.to_be_bytes();
            stacks.count += 1;
        }
        stacks
    }

    pub(in crate::engine) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether each stack protects messages, and there is one.
    pub(in crate::engine) fn are_secure(&self) -> bool {
        !self.is_empty() && self.transports().iter().all(|transport| transport.is_secure())
    }

    fn transports(&self) -> &[Transport] {
        self.transports.get(..self.count).unwrap_or_default()
    }

    /// The Stack-Proposal.
    pub(in crate::engine) fn proposal(&self) -> StackProposal<'_> {
        StackProposal { profiles: List::of(self.profiles.get(..self.count).unwrap_or_default()) }
    }

    /// The proposal in the form that the Responder-Cookie is bound to.
    pub(in crate::engine) fn fingerprint(&self) -> [u8; MOST] {
        let mut octets = [0; MOST];
        for (octet, transport) in octets.iter_mut().zip(self.transports()) {
            *octet = 1 + *transport as u8;
        }
        octets
    }

    /// Whether `proposal` is this one, unchanged (RFC 5971 §5.7.1). GIST-5.7.1-14.
    pub(in crate::engine) fn equals(&self, proposal: &StackProposal<'_>) -> bool {
        *proposal == self.proposal()
    }

    /// Options of a Query, and their number: one for each transport protocol, without a port (GIST-5.7.2-03,
    /// GIST-5.7.3-12).
    pub(in crate::engine) fn query_options(&self) -> ([MaOptions<'static>; MOST], usize) {
        let mut options = [NO_OPTIONS; MOST];
        let bases = [MaProtocolId::FORWARDS_TCP, MaProtocolId::FORWARDS_SCTP];
        let used = bases.into_iter().filter(|base| self.transports().iter().any(|t| t.base() == *base));
        let mut count = 0;
        for (option, protocol) in options.iter_mut().zip(used) {
            option.protocol = protocol;
            count += 1;
        }
        (options, count)
    }

    /// Options of a Response, and their number: the port of each profile. GIST-5.7.2-02, GIST-5.7.2-04.
    pub(in crate::engine) fn response_options(&self) -> ([MaOptions<'_>; MOST], usize) {
        let mut options = [NO_OPTIONS; MOST];
        let places = options.iter_mut().zip(self.transports()).zip(&self.ports).zip(1..);
        for (((option, transport), port), number) in places {
            (option.protocol, option.profile, option.data) = (transport.base(), number, port);
        }
        (options, self.count)
    }
}

const NO_OPTIONS: MaOptions<'static> =
    MaOptions { protocol: MaProtocolId(0), profile: 0, disabled: false, data: &[] };

/// A Stack-Configuration-Data object with the hold time of this node.
pub(in crate::engine) fn configuration<'a>(
    hold_time: Duration,
    options: &'a [MaOptions<'a>],
) -> StackConfiguration<'a> {
    StackConfiguration { hold_time_ms: milliseconds(hold_time), options: List::of(options) }
}

/// The offer of a peer: its Stack-Proposal with its Stack-Configuration-Data.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Offer<'a> {
    pub(in crate::engine) proposal: StackProposal<'a>,
    pub(in crate::engine) configuration: StackConfiguration<'a>,
}

impl<'a> Offer<'a> {
    /// The profiles that this node has and that are not disabled, each with its options. GIST-5.7.1-01: the D-flag of any
    /// protocol of a stack disables the stack.
    fn usable(&self) -> impl Iterator<Item = (Transport, Option<MaOptions<'a>>)> + '_ {
        self.proposal.profiles.iter().zip(1_u8..).filter_map(|(profile, number)| {
            let transport = Transport::of(&profile)?;
            let applies = |o: &MaOptions<'_>| o.profile == 0 || o.profile == number;
            let ours = || self.configuration.options.iter().filter(move |o| applies(o));
            if ours().any(|o| o.disabled && profile.contains(o.protocol)) {
                return None;
            }
            let of_base = |o: &MaOptions<'_>| o.protocol == transport.base();
            // Options for this profile have priority over options for all profiles.
            let options = ours().filter(of_base).max_by_key(|o| o.profile);
            Some((transport, options))
        })
    }

    /// Whether an association over `transport` satisfies the offer (RFC 5971 §5.7.1): it has an offered stack, or the offer
    /// has a stack without security. All stacks are reliable and keep the order. GIST-5.7.1-13.
    pub(in crate::engine) fn satisfied_by(&self, transport: Transport) -> bool {
        self.usable().any(|(offered, _)| offered == transport || !offered.is_secure())
    }

    /// The stacks in the order of this node, and the peer's port for each (RFC 5971 Appendix D). GIST-D-03.
    pub(in crate::engine) fn choices(
        &self,
        config: &AssociationConfig,
        secure: bool,
    ) -> impl Iterator<Item = (Transport, u16)> {
        config.usable().filter(move |(ours, _)| ours.is_secure() || !secure).filter_map(|(ours, _)| {
            let (_, options) = self.usable().find(|(theirs, _)| *theirs == ours)?;
            Some((ours, options?.port().filter(|port| *port != 0)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AssociationConfig {
        AssociationConfig {
            tcp_port: Some(4),
            tls_port: Some(5),
            sctp_port: Some(6),
            ..AssociationConfig::default()
        }
    }

    const fn option(protocol: u8, profile: u8, data: &[u8]) -> MaOptions<'_> {
        MaOptions { protocol: MaProtocolId(protocol), profile, disabled: false, data }
    }

    fn offer<'a>(profiles: &'a [Profile<'a>], options: &'a [MaOptions<'a>]) -> Offer<'a> {
        Offer {
            proposal: StackProposal { profiles: List::of(profiles) },
            configuration: configuration(Duration::from_secs(30), options),
        }
    }

    /// GIST-D-03: the example of appendix D, where TLS over TCP has another port than TCP.
    #[test]
    fn the_port_is_that_of_the_chosen_profile() {
        let profiles = [Profile(&[1]), Profile(&[3]), Profile(&[2, 1])];
        let options = [option(1, 3, &[0x17, 0xeb]), option(1, 1, &[0x15, 0x3e]), option(3, 0, &[0x0d, 5])];
        let peer = offer(&profiles, &options);
        assert_eq!(peer.choices(&config(), false).next(), Some((Transport::TlsTcp, 6123)));
        assert_eq!(peer.choices(&config(), true).next(), Some((Transport::TlsTcp, 6123)));
        let no_tls = AssociationConfig { tls_port: None, ..config() };
        assert_eq!(peer.choices(&no_tls, false).next(), Some((Transport::Sctp, 3333)));
        let tcp = AssociationConfig { sctp_port: None, ..no_tls };
        assert_eq!(peer.choices(&tcp, false).next(), Some((Transport::Tcp, 5438)));
        assert_eq!(peer.choices(&tcp, true).next(), None);
    }

    /// GIST-5.7.1-01: D rules out every stack with that protocol, or one profile.
    #[test]
    fn what_is_disabled_is_not_used() {
        let profiles = [Profile(&[2, 1]), Profile(&[1])];
        let mut options = [option(1, 1, &[0, 7]), option(1, 2, &[0, 8])];
        options[0].disabled = true;
        assert_eq!(offer(&profiles, &options).choices(&config(), false).next(), Some((Transport::Tcp, 8)));
        options[1] = MaOptions { disabled: true, ..option(1, 0, &[0, 8]) };
        assert_eq!(offer(&profiles, &options).choices(&config(), false).next(), None);
        let tls = [option(1, 0, &[0, 7]), MaOptions { disabled: true, ..option(2, 0, &[]) }];
        assert_eq!(offer(&profiles, &tls).choices(&config(), false).next(), Some((Transport::Tcp, 7)));
    }

    /// GIST-5.7.1-13
    #[test]
    fn an_association_satisfies_what_is_not_better() {
        let tls = [Profile(&[2, 1])];
        let options = [option(1, 0, &[])];
        assert!(offer(&tls, &options).satisfied_by(Transport::TlsTcp));
        assert!(!offer(&tls, &options).satisfied_by(Transport::Tcp));
        let tcp = [Profile(&[1])];
        for transport in [Transport::Tcp, Transport::TlsTcp, Transport::Sctp] {
            assert!(offer(&tcp, &options).satisfied_by(transport));
        }
        let strange = [Profile(&[120, 1])];
        assert!(!offer(&strange, &options).satisfied_by(Transport::Tcp));
    }

    /// GIST-5.7.2-03, GIST-5.7.2-04, GIST-5.7.3-12: options without data in a Query; with the port, for each
    /// profile, in a Response; none for TLS.
    #[test]
    fn options_are_those_of_the_transport() {
        let stacks = Stacks::suitable(&config(), |_| true);
        let (asking, count) = stacks.query_options();
        let asking: Vec<_> = asking[..count].iter().map(|o| (o.protocol.0, o.profile, o.data)).collect();
        assert_eq!(asking, [(1, 0, &[][..]), (3, 0, &[])]);
        let (accepting, count) = stacks.response_options();
        let accepting: Vec<_> =
            accepting[..count].iter().map(|o| (o.protocol.0, o.profile, o.data)).collect();
        assert_eq!(accepting, [(1, 1, &[0, 5][..]), (3, 2, &[0, 6]), (1, 3, &[0, 4])]);
        assert_eq!(Stacks::suitable(&config(), Transport::is_secure).transports(), [Transport::TlsTcp]);
    }
}
