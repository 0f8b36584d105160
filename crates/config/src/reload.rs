//! Another configuration for a daemon that runs: which of its keys it takes, and which need a restart.

use signalbox_node::boomerang::DomainKey;
use signalbox_node::resources::token::KeyConfig;
use signalbox_node::rsvp::IntegrityKey;

use crate::Config;
use crate::enforcement::Mode;
use crate::secrets::Use;

/// What a running daemon takes of another configuration.
#[derive(Debug)]
pub struct Reload {
    /// The configuration that is in force then.
    pub config: Config,
    /// The keys whose values change, with their tables, joined by dots.
    pub applied: Vec<String>,
    /// The keys whose values differ after that. They need a restart.
    pub needs_restart: Vec<String>,
}

impl Config {
    /// What a daemon that runs with this configuration takes of `new`: the rules, the limits and rates of admission control and
    /// of the protocols, capacities and shares of links, all keys, certificates and revocation lists, the roles of users, standing
    /// requests, and the level of the log. Where the kernel enforces reservations, the sizes of its tables stay. Keys of RSVP are taken if the same
    /// messages are signed and verified as before.
    #[must_use]
    pub fn reload(&self, new: &Self) -> Reload {
        let mut config = self.clone();
        config.include.clone_from(&new.include);
        config.control.access.clone_from(&new.control.access);
        config.log.level = new.log.level.clone();
        config.standing.clone_from(&new.standing);
        let rsvp = self.protocols.rsvp.takes_keys_of(&new.protocols.rsvp);
        config.secrets = self.secrets.with_keys_of(&new.secrets, |usage| usage != Use::Rsvp || rsvp);
        config.resources = new.resources.clone();
        if self.enforcement.mode != Mode::Off {
            config.resources.0.max_reservations = self.resources.0.max_reservations;
        }
        config.interfaces.reload(&new.interfaces, self.enforcement.mode);
        config.protocols.reload(&new.protocols);
        let mut applied = config.differences(self);
        // Files of the same names can have another content.
        for (table, differs) in [
            ("gist.tls", config.protocols.gist.tls() != self.protocols.gist.tls()),
            ("casp.tls", config.protocols.casp.tls() != self.protocols.casp.tls()),
            ("keys", config.secrets_in_files() != self.secrets_in_files()),
        ] {
            if differs && !applied.iter().any(|key| key.starts_with(table)) {
                applied.push(table.to_owned());
            }
        }
        let needs_restart = new.differences(&config);
        Reload { config, applied, needs_restart }
    }

    fn secrets_in_files(&self) -> (&[IntegrityKey], &[DomainKey], &[KeyConfig]) {
        (self.protocols.rsvp.secrets(), self.protocols.boomerang.secrets(), &self.resources.0.keys)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Reload;
    use crate::Config;
    use crate::secrets::Use;

    const HEAD: &str =
        "version = 1\n[node]\nprotocols = [\"gist\", \"qos\", \"rsvp\"]\n[rsvp.integrity]\nenabled = true\n";

    fn config(rest: &str) -> Config {
        let loaded = crate::parse(Path::new("node.toml"), &format!("{HEAD}{rest}{}", key("rsvp", 1)));
        loaded.usable().unwrap_or_else(|findings| panic!("{findings:?}")).0
    }

    fn key(usage: &str, id: u8) -> String {
        let entity = if usage == "tokens" { "entity = \"auth.example.org\"\n" } else { "" };
        format!("[[keys]]\nuse = \"{usage}\"\nid = {id}\nsecret_file = \"{id}.key\"\n{entity}")
    }

    #[test]
    fn rules_limits_and_the_log_level_are_taken() {
        let old = config("[policy]\ndefault = \"allow\"\n");
        let new = config(
            "[policy]\ndefault = \"deny\"\n[[policy.rules]]\naction = \"allow\"\nfrom = [\"10.0.0.0/8\"]\n\
             [admission]\npreemption = true\n[log]\nlevel = \"debug\"\n",
        );
        let reload = old.reload(&new);
        for name in ["policy.default", "policy.rules[1].from", "admission.preemption", "log.level"] {
            assert!(reload.applied.iter().any(|key| key == name), "{name}: {:?}", reload.applied);
        }
        assert_eq!(reload.needs_restart, [""; 0]);
        assert_eq!(reload.config, new);
        // The same once more changes nothing.
        assert_eq!(reload.config.reload(&new).applied, [""; 0]);
    }

    #[test]
    fn what_a_running_daemon_cannot_change_needs_a_restart() {
        let old = config("");
        let new = config(
            "[admission]\nmax_reservations = 5\n[log]\nformat = \"json\"\n[policy]\ndefault = \"allow\"\n\
             [interfaces.eth0]\ncapacity = \"10mbit\"\n",
        );
        let reload = old.reload(&new);
        assert_eq!(reload.applied, ["policy.default"]);
        for name in ["admission.max_reservations", "log.format", "interfaces.eth0.capacity"] {
            assert!(reload.needs_restart.iter().any(|key| key == name), "{name}: {:?}", reload.needs_restart);
        }
    }

    /// Limits and rates of each protocol are taken. Times, and what a protocol does, need a restart.
    #[test]
    fn limits_and_rates_are_taken() {
        let sections = |limits: &[(&str, &str)]| {
            let mut text = "version = 1\nenforcement.mode = \"off\"\n\
                            node.protocols = [\"gist\", \"qos\", \"natfw\", \"rsvp\", \"boomerang\", \"casp\"]\n"
                .to_owned();
            for (key, value) in limits {
                text.push_str(&format!("{key} = {value}\n"));
            }
            let loaded = crate::parse(Path::new("node.toml"), &text);
            loaded.usable().unwrap_or_else(|findings| panic!("{findings:?}")).0
        };
        let limits = [
            ("gist.max_sessions", "11"),
            ("gist.max_peers", "12"),
            ("gist.message_rate", "\"13/s\""),
            ("gist.error_rate", "\"14/s\""),
            ("gist.associations.max_associations", "15"),
            ("gist.associations.accept_rate", "\"16/s\""),
            ("qos.max_sessions", "17"),
            ("qos.max_lifetime", "\"11m\""),
            ("natfw.max_sessions", "18"),
            ("natfw.max_lifetime", "\"12m\""),
            ("rsvp.max_sessions", "20"),
            ("rsvp.max_neighbors", "21"),
            ("rsvp.max_lifetime", "\"13m\""),
            ("rsvp.diagnostic_rate", "\"22/s\""),
            ("boomerang.max_flows", "23"),
            ("boomerang.source_rate", "\"24/s\""),
            ("boomerang.max_refresh", "\"45s\""),
            ("casp.max_sessions", "25"),
            ("casp.max_total_unsent_size", "\"2MiB\""),
            ("casp.answer_rate", "\"26/s\""),
            ("casp.qos.max_sessions", "27"),
            ("admission.max_reservations", "28"),
            ("admission.max_pinholes", "29"),
        ];
        let old = sections(&[]);
        let new = sections(&limits);
        let reload = old.reload(&new);
        for (key, _) in limits {
            assert!(reload.applied.iter().any(|applied| applied == key), "{key}: {:?}", reload.applied);
        }
        assert_eq!((reload.needs_restart, &reload.config), (vec![], &new));
        assert_eq!(reload.config.settings(0, false), new.settings(0, false));
        let slower = sections(&[("gist.state_validity", "\"2m\""), ("qos.refresh", "\"5m\"")]);
        assert_eq!(old.reload(&slower).needs_restart, ["gist.state_validity", "qos.refresh"]);
    }

    /// The shares and capacities of links are taken. The number of queues is that of the kernel's, if there are any.
    #[test]
    fn shares_of_links_are_taken() {
        let with = |mode: &str, more: &str| {
            config(&format!("[enforcement]\nmode = \"{mode}\"\n[interfaces.eth0]\n{more}"))
        };
        let more = "capacity = \"20mbit\"\nreservable = \"50%\"\nper_flow_queues = 7\nmin_rate = \"8kbit\"\n\
                    services.guaranteed.max_share = \"10%\"\n";
        let [share, rate, service] = ["reservable", "min_rate", "services.guaranteed.max_share"]
            .map(|key| format!("interfaces.eth0.{key}"));
        let [capacity, queues] = ["capacity", "per_flow_queues"].map(|key| format!("interfaces.eth0.{key}"));
        let has = |keys: &[String], key: &String| keys.contains(key);
        for mode in ["required", "off"] {
            let reload = with(mode, "capacity = \"10mbit\"\n").reload(&with(mode, more));
            let Reload { applied, needs_restart, .. } = &reload;
            assert!([&share, &rate, &service].iter().all(|key| has(applied, key)), "{applied:?}");
            assert!(has(applied, &capacity), "{applied:?}");
            let taken = [has(applied, &queues), has(needs_restart, &queues)];
            assert_eq!(taken, [mode == "off", mode != "off"], "{mode}: {applied:?}, {needs_restart:?}");
        }
    }

    /// The files of TLS are read again, although their names stay. Other numbers of `[gist.tls]` need a restart.
    #[test]
    fn keys_certificates_and_revocation_lists_are_read_again() {
        let directory = std::env::temp_dir().join(format!("sbx-reload-tls-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let issuer = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let anchor = params.self_signed(&issuer).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, issuer);
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(directory.join(name), text).unwrap();
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(directory.join(name), mode).unwrap();
        };
        let renew = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let leaf = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            write("leaf.pem", &leaf.signed_by(&key, &issuer).unwrap().pem());
            write("key.pem", &key.serialize_pem());
        };
        let read = |more: &str| {
            let text = "version = 1\n[gist.associations]\ntls_port = 271\n[gist.tls]\nkey_file = \"key.pem\"\n\
                        certificate_file = \"leaf.pem\"\nanchors_file = \"anchors.pem\"\n";
            write("node.toml", &format!("{text}{more}"));
            let loaded = crate::load(&directory.join("node.toml")).unwrap();
            loaded.usable().unwrap_or_else(|findings| panic!("{findings:?}")).0
        };
        write("anchors.pem", &anchor);
        renew();
        let old = read("");
        assert_eq!(old.reload(&read("")).applied, [""; 0]);
        renew();
        let reload = old.reload(&read(""));
        assert_eq!((reload.applied, reload.needs_restart), (vec!["gist.tls".to_owned()], vec![]));
        assert_ne!(reload.config.protocols.gist.tls(), old.protocols.gist.tls());

        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2027, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        write("revoked.pem", &list.signed_by(&issuer).unwrap().pem().unwrap());
        let new =
            read("revocations_file = \"revoked.pem\"\nrevocations_required = true\nmax_handshakes = 7\n");
        let reload = old.reload(&new);
        assert_eq!(reload.applied, ["gist.tls.revocations_file", "gist.tls.revocations_required"]);
        assert_eq!(reload.needs_restart, ["gist.tls.max_handshakes"]);
        let tls = reload.config.protocols.gist.tls().unwrap();
        assert!(tls.revocation_strict && tls.revocation_lists.contains("X509 CRL"));

        write("revoked.pem", "nothing");
        let loaded = crate::load(&directory.join("node.toml")).unwrap();
        let findings = loaded.usable().unwrap_err();
        assert!(findings[0].to_string().contains("[tls-pem] revocation lists"), "{findings:?}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// Keys of all uses are taken. Those of RSVP need a restart if other messages are signed or verified than before: without a key
    /// no message would be sent or accepted.
    #[test]
    fn keys_are_taken() {
        let old = config(&key("tokens", 2));
        for new in [key("tokens", 3), key("tokens", 2) + &key("rsvp", 4)] {
            let new = config(&new);
            let reload = old.reload(&new);
            assert_eq!((reload.needs_restart, reload.config.effective()), (vec![], new.effective()));
            assert!(reload.applied.iter().all(|key| key.starts_with("keys[")), "{:?}", reload.applied);
        }
        let elsewhere = "[interfaces.eth0.rsvp.integrity]\nenabled = false\n";
        let new = config(&(elsewhere.to_owned() + &key("tokens", 3) + &key("rsvp", 4)));
        let reload = old.reload(&new);
        assert_eq!(reload.config.secrets.of(Use::Tokens).count(), 1);
        let ids =
            |usage| reload.config.secrets.of(usage).map(|(_, entry)| entry.id.unwrap()).collect::<Vec<_>>();
        assert_eq!((ids(Use::Tokens), ids(Use::Rsvp)), (vec![3], vec![1]));
        assert!(!reload.needs_restart.is_empty());
    }

    /// The file of a key can have another content under its name. What Boomerang signs and demands is taken, too.
    #[test]
    fn files_of_keys_are_read_again() {
        let directory = std::env::temp_dir().join(format!("sbx-reload-keys-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(directory.join(name), text).unwrap();
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(directory.join(name), mode).unwrap();
        };
        let read = |integrity: &str| {
            let text = format!(
                "version = 1\n[node]\nprotocols = [\"boomerang\", \"rsvp\"]\n[rsvp.integrity]\nenabled = true\n\
                 [boomerang.integrity]\nenabled = true\n{integrity}{}{}",
                key("rsvp", 1),
                key("boomerang", 2)
            );
            write("node.toml", &text);
            let loaded = crate::load(&directory.join("node.toml")).unwrap();
            loaded.usable().unwrap_or_else(|findings| panic!("{findings:?}")).0
        };
        write("1.key", "secret of neighbors");
        write("2.key", "secret of the domain");
        let old = read("");
        assert_eq!(old.reload(&read("")).applied, [""; 0]);
        for name in ["1.key", "2.key"] {
            write(name, "another secret, and longer");
            let reload = old.reload(&read(""));
            assert_eq!((reload.applied, reload.needs_restart), (vec!["keys".to_owned()], vec![]), "{name}");
            assert_ne!(reload.config.settings(0, false), old.settings(0, false));
        }
        let reload = old.reload(&read("require = false\n"));
        assert_eq!(reload.needs_restart, [""; 0]);
        let taken = reload.config.settings(0, false).boomerang.unwrap().integrity;
        assert!(taken.sign && !taken.require);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
