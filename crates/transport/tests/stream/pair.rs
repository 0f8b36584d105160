//! Two ends of a channel in memory, and the certificates for them.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use signalbox_core::Time;
use signalbox_transport::Channel;
use signalbox_transport::stream::{
    ChannelError, Credentials, Event, Limits, Revocation, TlsConfig, TlsConfigError, TlsSettings, Versions,
};

/// The wall-clock time of the tests: 2027-01-15.
pub(crate) const WALL_CLOCK_US: u64 = 1_800_000_000_000_000;
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

pub(crate) struct Ca {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

pub(crate) struct Leaf {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        Self::named("test anchor")
    }

    pub(crate) fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn issue(&self, names: &[&str]) -> Leaf {
        self.issue_with(names, |_| ())
    }

    pub(crate) fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Leaf { chain, key: key.serialize_pem() }
    }
}

/// A list of certificates, by their serial numbers, that an authority revoked. It holds for a day of the tests.
pub(crate) fn revocations(ca: &Ca, serials: &[u64]) -> String {
    let revoked = |serial: &u64| rcgen::RevokedCertParams {
        serial_number: (*serial).into(),
        revocation_time: date_time_ymd(2027, 1, 14),
        reason_code: None,
        invalidity_date: None,
    };
    let params = rcgen::CertificateRevocationListParams {
        this_update: date_time_ymd(2027, 1, 14),
        next_update: date_time_ymd(2027, 1, 16),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    params.signed_by(&ca.issuer).unwrap().pem().unwrap()
}

pub(crate) fn settings<'a>(leaf: &'a Leaf, anchors: &'a Ca) -> TlsSettings<'a> {
    let credentials = Credentials::Certificates {
        chain: leaf.chain.as_bytes(),
        key: leaf.key.as_bytes(),
        anchors: anchors.pem.as_bytes(),
    };
    TlsSettings {
        credentials,
        require_client: true,
        versions: Versions::Both,
        revocation: Revocation::default(),
        wall_clock_us: WALL_CLOCK_US,
    }
}

pub(crate) fn config(leaf: &Leaf, anchors: &Ca) -> TlsConfig {
    TlsConfig::new(&settings(leaf, anchors)).unwrap()
}

/// A configuration with a raw key that trusts the holders of `peers`.
pub(crate) fn raw_config(own: &KeyPair, peers: &[&KeyPair]) -> Result<TlsConfig, TlsConfigError> {
    let (key, peers) = (own.serialize_pem(), peers.iter().map(|k| k.public_key_pem()).collect::<String>());
    let credentials = Credentials::RawKeys { key: key.as_bytes(), peers: peers.as_bytes() };
    TlsConfig::new(&TlsSettings {
        credentials,
        require_client: true,
        versions: Versions::Both,
        revocation: Revocation::default(),
        wall_clock_us: WALL_CLOCK_US,
    })
}

pub(crate) struct Pair {
    pub(crate) client: Channel,
    pub(crate) server: Channel,
    pub(crate) now: Time,
    /// Sizes of the pieces of octets that are delivered at once, in turn.
    pub(crate) chunks: Vec<usize>,
    turn: usize,
}

impl Pair {
    pub(crate) fn of(client: Channel, server: Channel) -> Self {
        Self { client, server, now: Time::from_secs(1), chunks: vec![usize::MAX], turn: 0 }
    }

    pub(crate) fn plain() -> Self {
        Self::of(Channel::plain(Limits::default()), Channel::plain(Limits::default()))
    }

    pub(crate) fn tls(client: &TlsConfig, server: &TlsConfig) -> Self {
        let (limits, now) = (Limits::default(), Time::ZERO);
        Self::of(
            Channel::client(client, PEER, limits, now).unwrap(),
            Channel::server(server, limits, now).unwrap(),
        )
    }

    /// A pair after the handshake.
    pub(crate) fn ready() -> Self {
        let ca = Ca::new();
        let mut pair =
            Self::tls(&config(&ca.issue(&["c.example"]), &ca), &config(&ca.issue(&["s.example"]), &ca));
        pair.run();
        assert!(matches!(pair.client.poll_event(), Some(Event::Connected { peer: Some(_) })));
        assert!(matches!(pair.server.poll_event(), Some(Event::Connected { peer: Some(_) })));
        pair
    }

    /// Carries octets of one end to the other. The events of both ends are kept.
    fn carry(&mut self, from_client: bool) -> bool {
        let mut octets = Vec::new();
        let (from, to) = if from_client {
            (&mut self.client, &mut self.server)
        } else {
            (&mut self.server, &mut self.client)
        };
        let any = from.poll_transmit(&mut octets);
        assert_eq!(any, !octets.is_empty());
        let mut rest = &octets[..];
        while !rest.is_empty() {
            let size = self.chunks[self.turn % self.chunks.len()].min(rest.len());
            self.turn += 1;
            let _ = to.receive(self.now, &rest[..size]);
            rest = &rest[size..];
        }
        any
    }

    /// Runs until both ends have no output.
    pub(crate) fn run(&mut self) {
        for _ in 0..100 {
            if !(self.carry(true) | self.carry(false)) {
                return;
            }
        }
        panic!("the ends send for ever");
    }

    /// The octets that the client has to send now.
    pub(crate) fn client_says(&mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        self.client.poll_transmit(&mut octets);
        octets
    }
}

pub(crate) fn failure(channel: &mut Channel) -> Option<ChannelError> {
    while let Some(event) = channel.poll_event() {
        if let Event::Failed { error, .. } = event {
            return Some(error);
        }
    }
    None
}

pub(crate) fn take(channel: &mut Channel) -> Vec<u8> {
    let octets = channel.received().to_vec();
    channel.consume(octets.len());
    octets
}
