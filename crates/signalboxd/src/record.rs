//! Recording of all inputs of the node, for `signalbox replay`.

use std::fs::File;
use std::io::{BufWriter, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result, bail};
use signalbox_attached::Recording;
use signalbox_config::Record;
use signalbox_core::Time;
use signalbox_core::node::Input;
use signalbox_node::{Command, Config as NodeConfig};
use signalbox_record::Writer;

/// An open recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    writer: Writer<BufWriter<File>>,
}

impl Recorder {
    /// Starts the recording that `config` asks for, of a node made from `node` and `seed`.
    ///
    /// Only the owner may read the file: the seed in it is a secret.
    pub(crate) fn open(config: &Record, node: &NodeConfig, seed: &[u8; 32]) -> Result<Option<Self>> {
        let Some(path) = &config.file else { return Ok(None) };
        let cannot = || format!("cannot record to {}; set record.file", path.display());
        let file = own_file(path).with_context(cannot)?;
        let writer = Writer::new(BufWriter::new(file), node, seed, config.limit).with_context(cannot)?;
        tracing::warn!(path = %path.display(), "recording; the file holds this node's secrets");
        Ok(Some(Self { writer }))
    }
}

impl Recording for Recorder {
    /// Records an input. A failure ends the recording, not the daemon.
    fn record(&mut self, now: Time, input: &Input<'_, Command>) {
        if !self.writer.is_open() {
            return;
        }
        match self.writer.record(now, input) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("the recording has reached its limit and ends"),
            Err(error) => tracing::warn!(%error, "the recording ends"),
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.writer.flush() {
            tracing::warn!(%error, "the recording is not written");
        }
    }
}

/// The first octets of each recording.
const HEADER: &[u8] = b"{\"signalbox-recording\":";

/// An empty file at `path` that only its owner may read: a new one, or a former recording of this user. It overwrites nothing
/// but recordings.
fn own_file(path: &Path) -> Result<File> {
    let mut file = crate::own_file::open(path)?;
    let mut start = [0; HEADER.len()];
    if file.metadata()?.len() > 0 && (file.read_exact(&mut start).is_err() || start != HEADER) {
        bail!("it holds something else than a recording; remove it yourself if you do not need it");
    }
    file.set_len(0)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::BufReader;
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::time::Duration;

    use signalbox_core::NslpId;
    use signalbox_core::node::Prefix;
    use signalbox_node::gist::apd::{Apd, Entry, Name, Scope, Verdict};
    use signalbox_node::rsvp::neighbor::{
        Algorithm, HelloConfig, IntegrityConfig, Interface, KeyUse, Reduction, Trust,
    };
    use signalbox_node::transport::{SctpConfig, Versions};
    use signalbox_node::{
        ChannelConfig, Credentials, GistConfig, MappingConfig, Node, Tls, boomerang, casp, gist, gist_nat,
        mapping, natfw, ping, resources, rsvp,
    };
    use signalbox_record::Reader;

    use super::*;

    /// Only recordings of this user are overwritten, and no link is followed.
    #[test]
    fn nothing_but_a_recording_is_overwritten() {
        let directory = std::env::temp_dir().join(format!("sbxd-record-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, link, second) = (directory.join("file"), directory.join("link"), directory.join("second"));
        let refused = |path: &Path, because: &str| {
            let error = format!("{:#}", own_file(path).unwrap_err());
            assert!(error.contains(because), "{error}");
        };
        std::fs::write(&file, "precious").unwrap();
        refused(&file, "something else than a recording");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        refused(&link, "symbolic links");
        refused(&directory, "directory");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");

        std::fs::write(&file, [HEADER, b"2}"].concat()).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        std::fs::hard_link(&file, &second).unwrap();
        refused(&file, "one name");
        std::fs::remove_file(&second).unwrap();
        let about = own_file(&file).unwrap().metadata().unwrap();
        assert_eq!((about.len(), about.mode() & 0o777), (0, 0o600));
        assert_eq!(own_file(&second).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(directory).unwrap();
    }

    fn authorised(prefix: Prefix) -> Apd {
        let mut authorised = Apd::new(3, Verdict::Allow);
        let scope = Scope { peers: vec![prefix], source: Some(prefix), destination: Some(prefix) };
        let name = Name::Dns("*.example".parse().unwrap());
        authorised.push(Entry { name, scope, verdict: Verdict::Deny }).unwrap();
        authorised
    }

    fn keys() -> Credentials {
        let pair = rcgen::KeyPair::generate().unwrap();
        Credentials::RawKeys { key: pair.serialize_pem(), peers: pair.public_key_pem() }
    }

    /// Nothing here is a default: a field that the header loses shows.
    fn unusual() -> NodeConfig {
        let prefix = Prefix { addr: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 0)), len: 16 };
        let us = Duration::from_micros;
        NodeConfig {
            #[cfg(feature = "test-protocol")]
            beacon: None,
            qos: Some(Default::default()),
            rsvp: Some(unusual_rsvp()),
            boomerang: Some(unusual_boomerang()),
            natfw: Some(unusual_natfw(prefix.addr)),
            gist_nat: Some(unusual_gist_nat()),
            casp: Some(unusual_casp(prefix)),
            mapping: Some(unusual_mapping(prefix)),
            resources: unusual_resources(),
            wall_clock_us: 1_790_000_000_000_001,
            gist: Some(GistConfig {
                engine: gist::Config {
                    identity: vec![0, 255, b'"'],
                    validity: us(7_000_001),
                    t1: us(20_003),
                    t2: us(40_007),
                    attempts: 3,
                    inactivity: us(9_000_011),
                    installation: gist::Installation::Confirmed,
                    cookie_period: us(5_000_013),
                    cookie_errors: true,
                    piggyback: true,
                    stateless_data: false,
                    signaling_source_every: 1,
                    dscp: 46,
                    upstream_queries: true,
                    ip_ttl: 63,
                    hops: 62,
                    without_router_alert: vec![prefix],
                    intercept_without_alert: true,
                    min_dst_prefix_v4: 24,
                    min_dst_prefix_v6: 64,
                    ingress_filters: vec![gist::IngressFilter { interface: "eth4".to_owned(), prefix }],
                    own_addresses: vec![gist::OwnAddress { interface: "*".to_owned(), address: prefix.addr }],
                    max_datagram: 1000,
                    dmode_rate: 11,
                    dmode_by_link: false,
                    slowest_link: 0,
                    dmode_burst: 12,
                    error_rate: 13,
                    query_rate_per_source: 44,
                    intercept_rate: 14,
                    sii_retention: us(15),
                    check_timeout: us(16),
                    max_sessions: 17,
                    max_sessions_per_source: 45,
                    max_peers: 18,
                    max_queued_session: 19,
                    max_queued: 20,
                    max_checks: 21,
                    max_lookups: 22,
                    hold_down: us(1_000_041),
                    hold_down_max: us(2_000_042),
                    max_holds: 43,
                    upstream_tentative: true,
                    associations: gist::AssociationConfig {
                        tcp_port: Some(27),
                        tls_port: Some(28),
                        sctp_port: Some(29),
                        preference: vec![gist::Transport::Tcp],
                        always: true,
                        hold_time: us(30_000_001),
                        setup_timeout: us(31_000_001),
                        retry_min: us(1_000_046),
                        retry_max: us(2_000_047),
                        max_waits: 48,
                        idle_after: us(100_032),
                        probe: false,
                        max: 33,
                        accept_rate: 34,
                        max_queued: 1035,
                        max_queued_total: 1036,
                        max_unsent: 103_700,
                        max_buffered: 300_038,
                        authorised: authorised(prefix),
                    },
                },
                channels: ChannelConfig {
                    tls: Some(Tls {
                        require_client: false,
                        versions: Versions::Only13,
                        revocation_lists: "none".to_owned(),
                        revocation_strict: true,
                        ..Tls::new(keys())
                    }),
                    handshake: us(39_000_001),
                    max_handshakes: 40,
                    sctp: SctpConfig { max_associations: 41, ..SctpConfig::default() },
                    kernel_sctp: true,
                },
            }),
            ping: Some(ping::Config {
                nslp: NslpId(32_705),
                nsis: Some(NslpId(32_709)),
                max_pings: 23,
                max_watched: 24,
                relay_timeout: us(25),
                linger: us(26),
                wall_clock_us: 0,
            }),
        }
    }

    fn unusual_resources() -> resources::Config {
        let names = |name: &str| vec![name.to_owned()];
        let rule = resources::config::RuleConfig {
            opens: vec![resources::config::Opening::Between],
            from_zone: names("guest"),
            to_zone: names("dmz"),
            ..resources::config::RuleConfig::new("zones", resources::config::Action::Deny)
        };
        let zones = [("eth3".to_owned(), "guest".to_owned()), ("*".to_owned(), "dmz".to_owned())];
        resources::Config {
            zones: resources::config::Zones(zones.into()),
            rules: vec![rule],
            ..Default::default()
        }
    }

    fn unusual_boomerang() -> boomerang::Config {
        boomerang::Config {
            max_flows: 7,
            max_sessions: 8,
            max_waiting: 9,
            refresh: 10,
            max_refresh: 11,
            hold: 2.5,
            rate: 12,
            router_alert: false,
            router_alert_v6: Some(65_504),
            tos: 0x20,
            prove: true,
            provers: 3,
            same_source: true,
            aggregates: boomerang::Aggregation {
                propose: true,
                members: 4,
                ipv4_prefix: 23,
                ipv6_prefix: 63,
                adopt: true,
                max: 13,
                from: [("eth7".to_owned(), true)].into(),
                from_elsewhere: true,
            },
            integrity: boomerang::Integrity {
                sign: true,
                require: true,
                window: Duration::from_millis(7001),
                keys: vec![boomerang::DomainKey {
                    id: 9,
                    secret: rsvp::Secret::new(*b"nobody shall know this either"),
                    signs: true,
                    verifies: true,
                    from: 1_000_000_001,
                    until: Some(2_000_000_001),
                }],
            },
            trusted: [("eth7".to_owned(), false)].into(),
            trusted_elsewhere: false,
            // The node sets it at its start.
            wall_clock_us: 0,
        }
    }

    fn unusual_casp(prefix: Prefix) -> casp::Config {
        let seconds = Duration::from_secs;
        let engine = casp::EngineConfig {
            max_sessions: 71,
            max_connections: 72,
            max_searches: 73,
            max_waiting: 74,
            max_incomplete: 74_000,
            max_unsent_total: 75_000,
            max_held: 75,
            max_message: 76_000,
            max_unsent: 77_000,
            rate: 78,
            stateless_rate: 77,
            answer_rate: 79,
            total_answer_rate: 80,
            refresh: seconds(81),
            max_timeout: 82,
            send_timeout: false,
            rediscover: false,
            verdict: seconds(83),
            connect: seconds(84),
            idle: seconds(85),
            port: 8600,
            tls_port: 8700,
            scout_port: 8800,
            router_alert_v6: 65_505,
            scout_tos: 0x20,
            transports: vec![(prefix, casp::Transport::Sctp)],
            transport: casp::Transport::Udp,
            discovery: vec![(prefix, vec![casp::Mechanism::Static(prefix.addr)])],
            mechanisms: vec![casp::Mechanism::External(9)],
            neighbors: [prefix.addr].into(),
            proxy: vec![prefix],
            peers: vec![prefix],
            protected: vec![prefix],
            // The node adds its own.
            clients: [254].into(),
            stateless_clients: [254].into(),
            stateless: false,
            remove_unsecure: true,
            private_flows: true,
            private_errors: true,
        };
        let qos = casp::QosConfig {
            max_sessions: 91,
            refuse_unsecure: true,
            merge_unauthenticated: true,
            segments: vec![casp::QosSegment {
                scope: 97,
                interfaces: vec!["eth9".to_owned()],
                nodes: vec![prefix],
                dscp: Some(33),
                map: vec![(34, 35)],
                outside: 36,
            }],
            protected: vec![prefix],
            proxy: true,
            reserve_opposite: true,
            lifetime: 92,
            wall_clock_us: 0,
        };
        let natfw = casp::NatfwConfig {
            max_sessions: 93,
            role: casp::NatfwRole::Nat,
            inside: vec!["eth7".to_owned()],
            outside: vec!["eth8".to_owned()],
            external: Some([198, 51, 100, 9].into()),
            first_port: 95,
            last_port: 96,
            substitutes: false,
            require_application_id: true,
            require_authentication: true,
            require_token: true,
            border: true,
            domain: "inside.example".to_owned(),
            lifetime: 94,
            wall_clock_us: 0,
        };
        casp::Config {
            engine,
            channels: ChannelConfig::default(),
            sctp: true,
            qos: Some(qos),
            natfw: Some(natfw),
            dns: casp::DnsConfig {
                resolvers: vec![prefix.addr],
                domains: vec![(prefix, "inside.example".to_owned())],
            },
        }
    }

    fn unusual_mapping(prefix: Prefix) -> MappingConfig {
        let seconds = Duration::from_secs;
        MappingConfig {
            engine: mapping::Config {
                pcp: false,
                nat_pmp: false,
                interfaces: vec!["eth5".to_owned()],
                from: vec![prefix],
                translates: false,
                wildcards: true,
                min_lifetime: seconds(61),
                max_lifetime: seconds(62),
                max_mappings: 63,
                max_of_host: 65,
                max_waiting: 66,
                max_filters: 7,
                rate: 67,
                host_rate: 68,
                exact_rate: 69,
                open_rate: 70,
                host_open_rate: 71,
                patience: seconds(72),
                repair: seconds(73),
            },
            towards: Ipv4Addr::new(192, 0, 2, 6),
            towards_v6: std::net::Ipv6Addr::LOCALHOST,
        }
    }

    fn unusual_natfw(inside: IpAddr) -> natfw::Config {
        let seconds = Duration::from_secs;
        natfw::Config {
            nslp: NslpId(32_706),
            middlebox: natfw::Middlebox::Nat,
            edge: true,
            inside: vec!["eth5".to_owned()],
            outside: vec!["eth6".to_owned()],
            external: Some(Ipv4Addr::new(192, 0, 2, 5)),
            first_port: 2001,
            last_port: 2002,
            first_wish: 2003,
            last_wish: 2004,
            mappings: vec![natfw::Mapping { inside, outside: inside }],
            refresh: seconds(51),
            retry: seconds(52),
            min_lifetime: seconds(53),
            max_lifetime: seconds(54),
            refuse_long: true,
            hold: seconds(55),
            open_bits: natfw::OpenBits { source: 6, destination: 7 },
            any_port: true,
            any_protocol: true,
            icmp_types: vec![8],
            secure: true,
            reliable: false,
            max_sessions: 56,
            max_watched: 57,
        }
    }

    fn unusual_gist_nat() -> gist_nat::Config {
        let address = Ipv4Addr::new(192, 0, 2, 8);
        gist_nat::Config {
            inside: vec!["eth7".to_owned()],
            outside: vec!["eth8".to_owned()],
            external: Some(address),
            first_port: 2003,
            last_port: 2004,
            forwards: vec![gist_nat::Forward {
                protocol: 17,
                first_port: 2005,
                last_port: 2006,
                address,
                port: 2007,
            }],
            hosted: vec![NslpId(32_707)],
            own_ports: vec![2008],
            silent: true,
            reserve: Duration::from_secs(58),
            max_lifetime: Duration::from_secs(159),
            max_bindings: 60,
            queries_of_source: 61,
            errors: 62,
        }
    }

    fn unusual_rsvp() -> rsvp::Config {
        let ms = Duration::from_millis;
        let reduction = Reduction {
            reliable: true,
            summary: false,
            all_nodes_capable: true,
            first: ms(401),
            limit: 4,
            delta: 1.25,
            ack_delay: ms(12),
            multicast_ack_delay: ms(203),
            bundle_delay: ms(104),
            summary_delay: ms(1005),
            summaries: 6,
            largest: 1307,
        };
        let hello = Some(HelloConfig { interval: ms(1008), misses: 4.5, wrong: 2 });
        let integrity = IntegrityConfig {
            sending: true,
            receiving: true,
            window: 33,
            handshake: false,
            without_handshake: true,
            challenge: ms(909),
            answers: 11,
        };
        let interface = Interface {
            reduction,
            hello,
            integrity,
            trust: Trust { distant_hops: true, any_source: true, any_destination: true },
        };
        let interface_config = rsvp::InterfaceConfig {
            neighbors: Some(interface),
            max_lifetime: ms(61_001),
            ..rsvp::InterfaceConfig::default()
        };
        let key = rsvp::IntegrityKey {
            id: 7,
            algorithm: Algorithm::HmacMd5,
            secret: rsvp::Secret::new(*b"nobody shall know"),
            usage: KeyUse::Send,
            interface: Some("eth1".to_owned()),
            neighbor: Some(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2))),
            from: 1_000_000_000,
            until: Some(2_000_000_000),
        };
        rsvp::Config {
            interfaces: [("eth1".to_owned(), interface_config)].into(),
            neighbors: rsvp::neighbor::Config {
                interface,
                max_neighbors: 41,
                max_names: 42,
                max_unacknowledged: 43,
                max_associations: 44,
                ..Default::default()
            },
            keys: vec![key],
            ..rsvp::Config::default()
        }
    }

    fn header_of(config: &NodeConfig, name: &str) -> (serde_json::Value, [u8; 32], u32) {
        let file = std::env::temp_dir().join(format!("signalboxd-{name}-{}.jsonl", std::process::id()));
        let record = Record { file: Some(file.clone()), limit: 1 << 20 };
        let mut recorder = Recorder::open(&record, config, &[3; 32]).unwrap().unwrap();
        recorder.flush();
        let recording = File::open(&file).unwrap();
        let mode = recording.metadata().unwrap().permissions().mode();
        let reader = Reader::<_, Command>::new(BufReader::new(recording)).unwrap();
        std::fs::remove_file(&file).unwrap();
        (reader.config().clone(), reader.seed(), mode)
    }

    #[test]
    fn the_header_holds_the_node_whole() {
        for (name, config) in [
            ("unusual", unusual()),
            ("default", NodeConfig::default()),
            ("bare", NodeConfig { ping: None, ..NodeConfig::default() }),
        ] {
            let (header, seed, mode) = header_of(&config, name);
            assert_eq!((seed, mode & 0o777), ([3; 32], 0o600));
            assert!(!header.to_string().contains("nobody"), "a secret in clear");
            let mut read: NodeConfig = serde_json::from_value(header).unwrap();
            let keys = |config: &NodeConfig| config.rsvp.clone().map_or_else(Vec::new, |rsvp| rsvp.keys);
            if let Some(key) = read.rsvp.as_mut().and_then(|rsvp| rsvp.keys.first_mut()) {
                assert!(key.secret.reveal(&keys(&config)[0].secret));
            }
            let keys = |config: &NodeConfig| config.boomerang.clone().map(|one| one.integrity.keys);
            if let Some(key) = read.boomerang.as_mut().and_then(|one| one.integrity.keys.first_mut()) {
                assert!(key.secret.reveal(&keys(&config).unwrap()[0].secret));
            }
            assert_eq!(read, config);
            assert_eq!(Node::new(read, seed).err(), None);
        }
    }

    /// A setting that this version does not know would be one that the replay does not heed.
    #[test]
    fn unknown_and_missing_settings_are_refused() {
        let (header, ..) = header_of(&unusual(), "strict");
        for place in [
            "",
            "/gist",
            "/gist/engine",
            "/ping",
            "/gist/engine/ingress_filters/0",
            "/gist/engine/own_addresses/0",
            "/gist/engine/without_router_alert/0",
            "/gist/engine/associations",
            "/gist/channels",
            "/gist/channels/tls",
            "/gist/channels/sctp",
            "/rsvp/neighbors/interface/integrity",
            "/rsvp/keys/0",
            "/boomerang",
            "/gist_nat",
            "/gist_nat/forwards/0",
            "/casp",
            "/casp/engine",
            "/mapping",
            "/mapping/engine",
        ] {
            let mut more = header.clone();
            more.pointer_mut(place).unwrap()["novelty"] = 1.into();
            let error = serde_json::from_value::<NodeConfig>(more).unwrap_err().to_string();
            assert!(error.contains("unknown field `novelty`"), "{place}: {error}");
        }
        let mut less = header;
        less["gist"]["engine"].as_object_mut().unwrap().remove("t1");
        let error = serde_json::from_value::<NodeConfig>(less).unwrap_err().to_string();
        assert!(error.contains("missing field `t1`"), "{error}");
    }
}
